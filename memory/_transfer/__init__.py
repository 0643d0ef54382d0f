"""Export to files and import from them."""
