"""Text for people: numbers, tables, terminal output, notes of results."""
