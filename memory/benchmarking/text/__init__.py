"""Text for people: numbers, tables, terminal features, remarks."""
