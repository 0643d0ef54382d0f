"""Compression for the lower tiers: content without loss, vectors with a codec."""

from memory.compression.tier_codecs import TierCodecs, configured_codecs

__all__ = ["TierCodecs", "configured_codecs"]
