"""Smaller forms for the lower tiers: content without loss, vectors with a codec."""

from memory.compression.bodies import RAW, BodyCodecs
from memory.compression.forms import Forms

__all__ = ["RAW", "BodyCodecs", "Forms"]
