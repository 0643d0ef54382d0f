"""Compression for the lower tiers: lossless for content, a vector codec for vectors."""

from memory.compression.tier_codecs import TierCodecs, configured_codecs

__all__ = ["TierCodecs", "configured_codecs"]
