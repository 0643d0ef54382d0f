"""Smaller forms for the lower tiers: content without loss, vectors with a codec."""

from memory.compression.forms import Forms

__all__ = ["Forms"]
