"""Text for people: numbers, tables, terminal features, notes of results."""
