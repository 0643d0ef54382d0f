"""The records that flow through everything: tiers, memories, and what a search answers."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

import msgspec

from memory.errors import UnknownTier, short


class Tier(IntEnum):
    """Where a memory lives; a lower number is younger and in a fuller form."""

    STM = 0
    IM = 1
    LTM = 2

    __hash__ = int.__hash__  # Enum's own is written in Python, and tiers are looked up all the time

    @property
    def label(self) -> str:
        """The tier's name as users write it: "stm", "im" or "ltm"."""
        return TIER_LABELS[self]

    @classmethod
    def parse(cls, value: str | Tier) -> Tier:
        """The tier that `value` names."""
        if isinstance(value, cls):
            return value
        tier = _BY_LABEL.get(value) if isinstance(value, str) else None
        if tier is None:
            raise UnknownTier(f"unknown tier {short(value)}: use one of stm, im, ltm")
        return tier

    @classmethod
    def parse_scope(cls, value: str | Tier | None) -> frozenset[Tier]:
        """The tiers that a search over `value` looks at; "all" or None means every one."""
        if value is None or value == "all":
            return ALL_TIERS
        try:
            return frozenset((cls.parse(value),))
        except UnknownTier:
            raise UnknownTier(f"unknown tier {short(value)}: use one of stm, im, ltm, all") from None


TIER_LABELS = ("stm", "im", "ltm")
_BY_LABEL = {label: Tier(number) for number, label in enumerate(TIER_LABELS)}
ALL_TIERS = frozenset(Tier)


# The records below hold JSON values and never each other in a circle: Python's collector of such
# circles need not look at them (gc=False), which makes reading many of them a good deal faster.


class MemoryEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One thing an agent stored, whole and exact from every tier."""

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
    """Why a memory was found: the query's words it holds, its nearness, its surroundings.

    `similarity` is the cosine to the query (None where only words were searched), and `context`
    is the part of the score that came from neighbouring memories and the session.
    """

    words: tuple[str, ...] = ()
    similarity: float | None = None
    context: float = 0.0

    def __str__(self) -> str:
        parts = []
        if self.words:
            parts.append("words: " + ", ".join(self.words))
        if self.similarity is not None:
            parts.append(f"meaning: {self.similarity:.2f}")
        if self.context:
            parts.append(f"context: {self.context:+.2f}")
        return "; ".join(parts) or "matches the filter"


class Hit(msgspec.Struct, frozen=True, gc=False):
    """One answer of a search, best first."""

    id: str
    entry: MemoryEntry
    score: float
    tier: str
    why: Why
