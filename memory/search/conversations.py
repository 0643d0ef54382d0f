"""The score that a memory gets from its neighbours in a conversation.

The answer to a question is often next to the turn that shares its words. So a memory also gets a share
of its neighbours' scores, and of the best score within four turns.

This helps only if the memories cohere: if consecutive memories are more alike than any two on average.
The turns of a conversation cohere; a collection of documents, or notes that only share a session, do
not. Memories without a session form one chain in the order in which they were stored. That chain counts
only once it is known to cohere. Memories with a session count until enough of them show no coherence.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from memory._base.copies import shallow_copy
from memory.search.growing import capacity, grown
from memory.search.saved import Parts, below, held, under
from memory.search.turn_links import OWN_SHARE, Floats, TurnLinks
from memory.storage import NO_SESSION

REACH = 6
"""Turns: a memory gets the best score within four turns, and that one its share of two more."""
COHERENCE = 0.05
"""The lowest excess similarity of consecutive memories that counts as coherence, from 0 to 1. Measured:
conversations reach 0.10 to 0.21; shuffled ones and collections of documents at most 0.02."""
COHERENCE_PAIRS = 64
"""The number of consecutive pairs below which coherence is unknown. A round number, not tuned."""


class _Similarity:
    """The mean cosine of consecutive memories, compared with that of any two."""

    def __init__(self, dimensions: int) -> None:
        self._pairs = 0
        self._pair_cosines = 0.0
        self._vector_sum = np.zeros(dimensions, np.float64)
        self._vectors = 0
        self._excess: float | None = None
        """How much more alike consecutive memories are than any two; None if it is not computed yet."""

    @property
    def dimensions(self) -> int:
        return len(self._vector_sum)

    def observe(self, before: Floats, after: Floats, vectors: Floats) -> None:
        """Add pairs of consecutive unit vectors (`before`, `after`), and all `vectors` of the batch."""
        self._pair_cosines += float(np.einsum("ij,ij->", before, after))
        self._pairs += len(after)
        self._vector_sum = self._vector_sum + vectors.sum(axis=0)  # a view keeps the old one
        self._vectors += len(vectors)
        self._excess = None

    def parts(self) -> Parts:
        return {
            "pairs": self._pairs,
            "pair_cosines": self._pair_cosines,
            "vector_sum": self._vector_sum,
            "vectors": self._vectors,
        }

    def restore(self, parts: Parts) -> None:
        self._pairs, self._pair_cosines = parts["pairs"], parts["pair_cosines"]
        self._vector_sum, self._vectors = parts["vector_sum"], parts["vectors"]
        self._excess = None

    def coheres(self, *, if_unknown: bool) -> bool:
        """Return whether the memories cohere; `if_unknown` if there are too few pairs."""
        if self._pairs < COHERENCE_PAIRS or self._vectors < 2:
            return if_unknown
        if self._excess is None:
            # The squared length of the sum of n unit vectors is n plus the cosines of all ordered pairs.
            squared = float(self._vector_sum @ self._vector_sum)
            any_two = (squared - self._vectors) / (self._vectors * (self._vectors - 1))
            consecutive = self._pair_cosines / self._pairs
            self._excess = (consecutive - any_two) / max(1 - any_two, 1e-9)
        return self._excess >= COHERENCE


class Conversations:
    """The conversations of one agent. Memories are numbered by their position in the index."""

    def __init__(self, dimensions: int) -> None:
        self._links = TurnLinks()
        self._sessionless = np.empty(0, np.bool_)
        self._sessionless_count = 0
        self._sessionless_similarity = _Similarity(dimensions)
        self._session_similarity = _Similarity(dimensions)

    @property
    def count(self) -> int:
        return self._links.count

    @property
    def nbytes(self) -> int:
        return self._links.nbytes + held(self._sessionless)

    def parts(self, sessions: NDArray[np.int64] | None = None) -> Parts:
        """Return everything in the form of `saved.py`.

        sessions: those of memories that are not deleted, and the other sessions are left out; None for all
        """
        return {
            "sessionless": self._sessionless[: self.count],
            "sessionless_count": self._sessionless_count,
            **under("links", self._links.parts(sessions)),
            **under("in_chain", self._sessionless_similarity.parts()),
            **under("in_sessions", self._session_similarity.parts()),
        }

    def restore(self, parts: Parts) -> None:
        """Take over what `parts` returned."""
        self._sessionless, self._sessionless_count = parts["sessionless"], parts["sessionless_count"]
        self._links.restore(below("links", parts))
        self._sessionless_similarity.restore(below("in_chain", parts))
        self._session_similarity.restore(below("in_sessions", parts))

    def forget_observed(self) -> None:
        """Drop what `observe` was told; the caller tells it again."""
        dimensions = self._sessionless_similarity.dimensions
        self._sessionless_similarity = _Similarity(dimensions)
        self._session_similarity = _Similarity(dimensions)

    def view(self) -> Conversations:
        """Return a copy that later memories do not change."""
        view = shallow_copy(self)
        view._links = self._links.view()
        # Else the neighbours of a view could begin to count in the middle of a search.
        view._sessionless_similarity = shallow_copy(self._sessionless_similarity)
        view._session_similarity = shallow_copy(self._session_similarity)
        return view

    def extend(self, sessions: NDArray[np.int64]) -> None:
        """Append memories, given the session number of each (or NO_SESSION)."""
        first = self.count
        self._links.extend(sessions)
        if self.count > len(self._sessionless):
            self._sessionless = grown(self._sessionless, capacity(self.count, first))
        if len(sessions) == 1:  # the usual case: a search after an add
            is_sessionless = int(sessions[0]) == NO_SESSION
            self._sessionless[first] = is_sessionless
            self._sessionless_count += is_sessionless
            return
        sessionless = sessions == NO_SESSION
        self._sessionless[first : self.count] = sessionless
        self._sessionless_count += int(np.count_nonzero(sessionless))

    def before(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the previous memory of each in its conversation, or itself if it is the first."""
        return self._links.before(positions)

    def observe(
        self,
        positions: NDArray[np.int64],
        vectors: Floats,
        before: NDArray[np.int64],
        vectors_before: Floats,
    ) -> None:
        """Update the similarity of consecutive memories.

        `before` is what `before(positions)` returned; both arrays of vectors have unit rows.
        """
        sessionless = self._sessionless[positions]
        for chosen, similarity in (
            (sessionless, self._sessionless_similarity),
            (~sessionless, self._session_similarity),
        ):
            if chosen.any():
                linked = chosen & (before != positions)
                similarity.observe(vectors_before[linked], vectors[linked], vectors[chosen])

    @property
    def count_neighbours(self) -> bool:
        """Whether the neighbours of some memory count."""
        return self._alone() is not True

    def context(self, scores: Floats) -> Floats | None:
        """Return what the neighbours add to each memory's score; None if no neighbours count."""
        alone = self._alone()
        if alone is True:
            return None
        context = self._links.context(scores)
        # Memories with and without a session are never linked to each other, so replacing the context of
        # one kind does not change that of the other.
        return context if alone is None else np.where(alone, OWN_SHARE * scores, context)

    def for_core(self) -> tuple[Any, ...] | None:
        """Return what `context` computes with, in the form that the compiled core takes."""
        alone = self._alone()
        return None if alone is True else self._links.for_core(alone)

    def around(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the positions and all whose scores count for the best of them, ascending."""
        return self._links.around(positions, REACH)

    def context_of(
        self, positions: NDArray[np.int64], sessions: NDArray[np.int64], scores: Floats
    ) -> Floats | None:
        """Do what `context` does for some memories; see `TurnLinks.context_of`."""
        alone = self._alone()
        if alone is True:
            return None
        context = self._links.context_of(positions, sessions, scores)
        return context if alone is None else np.where(alone[positions], OWN_SHARE * scores, context)

    def _alone(self) -> NDArray[np.bool_] | Literal[True] | None:
        """Return which memories' neighbours do not count: a mask, None for none, True for all."""
        has_sessionless = self._sessionless_count > 0
        has_sessions = self._sessionless_count < self.count
        chain_off = has_sessionless and not self._sessionless_similarity.coheres(if_unknown=False)
        sessions_off = has_sessions and not self._session_similarity.coheres(if_unknown=True)
        if chain_off:
            return True if sessions_off or not has_sessions else self._sessionless[: self.count]
        if sessions_off:
            return ~self._sessionless[: self.count] if has_sessionless else True
        return None
