"""Moving memories down the tiers: rules, importance, the maintenance thread."""
