"""From stored rows to entries and hits: finding, the entry cache, read counts."""
