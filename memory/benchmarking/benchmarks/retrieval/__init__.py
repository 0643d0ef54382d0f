"""How fast a search is, and how well it finds what it should."""
