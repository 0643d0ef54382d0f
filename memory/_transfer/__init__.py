"""Export memories to a file and import them."""
