"""Smaller forms for the lower tiers: content without loss, vectors with a codec."""

from memory.compression.forms import Forms, wanted_codecs

__all__ = ["Forms", "wanted_codecs"]
