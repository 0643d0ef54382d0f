"""Turn the arguments of `add` and similar calls into rows of the store."""
