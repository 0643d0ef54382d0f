"""Tiers, memories and search hits: the values that callers see."""

from __future__ import annotations

from datetime import datetime
from enum import IntEnum
from typing import Any, TypeAlias

import msgspec

from memory.errors import UnknownTier, short


class Tier(IntEnum):
    """Where a memory is kept. New memories start in STM. Each lower tier stores them in fewer bytes."""

    STM = 0
    IM = 1
    LTM = 2

    __hash__ = int.__hash__  # Enum's own hash is slow, and tiers are dict keys in hot paths

    @property
    def label(self) -> str:
        """The tier's name as users write it: "stm", "im" or "ltm"."""
        return TIER_LABELS[self]

    @classmethod
    def parse(cls, value: str | Tier) -> Tier:
        """Return the tier that `value` names."""
        if isinstance(value, cls):
            return value
        tier = _BY_LABEL.get(value) if isinstance(value, str) else None
        if tier is None:
            raise UnknownTier(f"unknown tier {short(value)}: use one of stm, im, ltm")
        return tier

    @classmethod
    def parse_scope(cls, value: str | Tier | None) -> frozenset[Tier]:
        """Return the tiers that a search in `value` covers; "all" and None mean every tier."""
        if value is None or value == "all":
            return ALL_TIERS
        try:
            return frozenset((cls.parse(value),))
        except UnknownTier:
            raise UnknownTier(f"unknown tier {short(value)}: use one of stm, im, ltm, all") from None


TIER_LABELS = ("stm", "im", "ltm")
_BY_LABEL = {label: Tier(number) for number, label in enumerate(TIER_LABELS)}
ALL_TIERS = frozenset(Tier)

TierName: TypeAlias = str | Tier
"""A tier as callers write it: "stm" or Tier.STM; where several tiers can be read, also "all"."""
Timestamp: TypeAlias = float | datetime
"""A point in time: seconds since 1970, or a datetime."""


# The classes below hold JSON values, so they can't be part of a reference cycle. gc=False excludes them
# from garbage collection, which makes reading many of them much faster.


class MemoryEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One memory, exactly as it was stored, from any tier."""

    id: str
    agent_id: str
    content: Any
    kind: str
    step: int | None
    created_at: float
    importance: float
    metadata: dict[str, Any]
    tier: str


class Why(msgspec.Struct, frozen=True, gc=False):
    """Why a memory matched a query.

    `words` are the query's words that the memory contains. `similarity` is the cosine similarity to the
    query; None if only words were searched. `context` is the part of the score that comes from neighbouring
    memories and from the session. `bonus` is the part for the person that the query is about, and for the
    time that it mentions. `reranked` is the score of the reranker; None if it did not score this hit.
    """

    words: tuple[str, ...] = ()
    similarity: float | None = None
    context: float = 0.0
    bonus: float = 0.0
    reranked: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.words:
            parts.append("words: " + ", ".join(self.words))
        if self.similarity is not None:
            parts.append(f"meaning: {self.similarity:.2f}")
        if self.context:
            parts.append(f"context: {self.context:+.2f}")
        if self.bonus:
            parts.append(f"person or time: {self.bonus:+.2f}")
        if self.reranked is not None:
            parts.append(f"reranked: {self.reranked:.2f}")
        return "; ".join(parts) or "matches the filter"


class Hit(msgspec.Struct, frozen=True, gc=False):
    """One result of a search."""

    id: str
    entry: MemoryEntry
    score: float
    tier: str
    why: Why
    confidence: float | None = None
    """The estimated chance, from 0 to 1, that the memory is relevant; None for a search by vector."""
