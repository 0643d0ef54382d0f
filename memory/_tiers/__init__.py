"""Move memories down the tiers: the rules, the maintenance thread, importance."""
