"""What stands around a memory: the turns before and after it in its conversation.

The answer to a question is often next to the turn that shares its words. A memory therefore takes a
share of its neighbours' scores, and of the best score within four turns.

That holds where they cohere: where consecutive ones are more alike than any two are, as in a
conversation that was stored turn by turn, and not in a heap of documents or in notes that only share a
session. Memories that name no session are one chain in the order of storing, and must show that they
cohere; those that name one are taken to, until enough of them show that they don't.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memory.search.turn_links import OWN_SHARE, TurnLinks
from memory.storage import NO_SESSION

Floats = NDArray[np.float32]

COHERENCE = 0.05
"""Conversations reach 0.10 to 0.21, shuffled ones and collections of documents at most 0.02."""
COHERENCE_PAIRS = 64
"""Fewer pairs than this say nothing."""


class _Likeness:
    """How alike consecutive memories are, against any two on average."""

    def __init__(self, dimensions: int) -> None:
        self._pairs = 0
        self._alike = 0.0
        self._summed = np.zeros(dimensions, np.float64)
        self._count = 0

    def observe(self, before: Floats, after: Floats, all_of_them: Floats) -> None:
        self._alike += float(np.einsum("ij,ij->", before, after))
        self._pairs += len(after)
        self._summed += all_of_them.sum(axis=0)
        self._count += len(all_of_them)

    def coheres(self, *, if_unknown: bool) -> bool:
        if self._pairs < COHERENCE_PAIRS or self._count < 2:
            return if_unknown
        any_two = (float(self._summed @ self._summed) - self._count) / (self._count * (self._count - 1))
        consecutive = self._alike / self._pairs
        return (consecutive - any_two) / max(1 - any_two, 1e-9) >= COHERENCE


class Conversations:
    """The conversations of one agent, and whether what stands around a memory says something about it."""

    def __init__(self, dimensions: int) -> None:
        self._links = TurnLinks()
        self._free = np.empty(0, np.bool_)
        self._free_count = 0
        self._free_likeness = _Likeness(dimensions)
        self._session_likeness = _Likeness(dimensions)

    @property
    def count(self) -> int:
        return self._links.count

    @property
    def nbytes(self) -> int:
        return self._links.nbytes + self._free.nbytes

    def extend(self, sessions: NDArray[np.int64]) -> None:
        """Take in memories that were stored after all others, by the session each one names."""
        first = self.count
        self._links.extend(sessions)
        if self.count > len(self._free):
            grown = np.zeros(max(self.count, first + first // 2, 16), np.bool_)
            grown[:first] = self._free[:first]
            self._free = grown
        is_free = sessions == NO_SESSION
        self._free[first : self.count] = is_free
        self._free_count += int(np.count_nonzero(is_free))

    def before(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The memory before each in its conversation; itself where there is none."""
        return self._links.before(positions)

    def observe(
        self,
        positions: NDArray[np.int64],
        vectors: Floats,
        before: NDArray[np.int64],
        vectors_before: Floats,
    ) -> None:
        """Learn how alike memories are to those before them, from their unit vectors."""
        is_free = self._free[positions]
        for chosen, likeness in ((is_free, self._free_likeness), (~is_free, self._session_likeness)):
            if chosen.any():
                linked = chosen & (before != positions)
                likeness.observe(vectors_before[linked], vectors[linked], vectors[chosen])

    def context(self, scores: Floats) -> Floats | None:
        """What each memory's surroundings add to its score; None where nothing is linked."""
        alone = self._standing_alone()
        if alone is None:
            return self._links.context(scores)
        if alone.all():
            return None
        # Those with and those without a session are never linked to each other: what the ones that stand
        # alone would have got from each other is taken back.
        return np.where(alone, OWN_SHARE * scores, self._links.context(scores))

    def _standing_alone(self) -> NDArray[np.bool_] | None:
        """Memories whose neighbours say nothing about them; None where there are none such."""
        free = self._free[: self.count]
        free_alone = self._free_count > 0 and not self._free_likeness.coheres(if_unknown=False)
        named_alone = self._free_count < self.count and not self._session_likeness.coheres(if_unknown=True)
        if free_alone and named_alone:
            return np.ones(self.count, np.bool_)
        if free_alone:
            return free
        return ~free if named_alone else None
