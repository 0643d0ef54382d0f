"""Turn the arguments of a storing call into the rows of the store."""
