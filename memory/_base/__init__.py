"""Helpers that every other package may import: JSON content, argument checks, ids, yielding."""
