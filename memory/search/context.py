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

from memory.storage import NO_SESSION

Floats = NDArray[np.float32]

NEIGHBOUR_SHARES = (0.5, 0.25)
"""What the neighbours at distance one and two give."""
MISSING = 0.5
"""Where there is no neighbour, the memory's own score stands in with this factor."""
PEAK_SHARE = 1.0
"""What the best score within four turns gives."""
COHERENCE = 0.05
"""Conversations reach 0.10 to 0.21, shuffled ones and collections of documents at most 0.02."""
COHERENCE_PAIRS = 64
"""Fewer pairs than this say nothing."""

_OWN_SHARE = np.float32(2 * sum(NEIGHBOUR_SHARES) * MISSING + PEAK_SHARE)
"""What the own score gives where all neighbours are missing."""
_BEFORE, _AFTER, _BEFORE_2, _AFTER_2 = range(4)
_FEW = 4


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


class Chains:
    """Links between the memories of one agent, kept up with each one that is added.

    Four links a memory: one and two steps back and ahead. A link that leads nowhere leads to the
    memory itself, with a smaller weight, so that a search needs no special case.
    """

    def __init__(self, dimensions: int) -> None:
        self.count = 0
        self._links = np.empty((4, 0), np.int32)
        self._weights = np.empty((4, 0), np.float32)
        self._free = np.empty(0, np.bool_)
        self._ends: dict[int, int] = {}
        self._free_count = 0
        self._free_likeness = _Likeness(dimensions)
        self._session_likeness = _Likeness(dimensions)
        self._last: Floats | None = None

    @property
    def nbytes(self) -> int:
        return self._links.nbytes + self._weights.nbytes + self._free.nbytes

    def extend(self, sessions: NDArray[np.int64]) -> None:
        """Link memories that were stored after all others, by the session each one names."""
        first, self.count = self.count, self.count + len(sessions)
        self._grow()
        new = slice(first, self.count)
        self._links[:, new] = np.arange(first, self.count)
        near, far = NEIGHBOUR_SHARES
        self._weights[:2, new] = near * MISSING
        self._weights[2:, new] = far * MISSING
        is_free = sessions == NO_SESSION
        self._free[new] = is_free
        self._free_count += int(np.count_nonzero(is_free))
        if len(sessions) <= _FEW:
            self._link_one_by_one(first, sessions.tolist())
        else:
            self._link_by_session(first, sessions)

    def _link_one_by_one(self, first: int, sessions: list[int]) -> None:
        """The same as `_link_by_session`: quicker for a few, which is what most searches find new."""
        links, weights = self._links, self._weights
        near, far = NEIGHBOUR_SHARES
        for position, session in enumerate(sessions, first):
            last = self._ends.get(session)
            self._ends[session] = position
            if last is None:
                continue
            before = int(links[_BEFORE, last])
            links[_BEFORE, position], weights[_BEFORE, position] = last, near
            links[_AFTER, last], weights[_AFTER, last] = position, near
            if before != last:
                links[_BEFORE_2, position], weights[_BEFORE_2, position] = before, far
                links[_AFTER_2, before], weights[_AFTER_2, before] = position, far

    def _link_by_session(self, first: int, sessions: NDArray[np.int64]) -> None:
        order = np.argsort(sessions, kind="stable")
        ordered = sessions[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])).tolist()
        for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
            session = int(ordered[start])
            chain = order[start:end] + first
            last = self._ends.get(session)
            if last is not None:
                # The chain goes on from where it ended, two steps back for the links of distance two.
                before = int(self._links[_BEFORE, last])
                chain = np.concatenate(([last] if before == last else [before, last], chain))
            self._ends[session] = int(chain[-1])
            near, far = NEIGHBOUR_SHARES
            self._link(_BEFORE, chain[1:], chain[:-1], near)
            self._link(_AFTER, chain[:-1], chain[1:], near)
            self._link(_BEFORE_2, chain[2:], chain[:-2], far)
            self._link(_AFTER_2, chain[:-2], chain[2:], far)

    def observe(self, positions: NDArray[np.int64], vectors: Floats) -> None:
        """Learn how alike consecutive memories are, from their unit vectors in the order of storing."""
        is_free = self._free[positions]
        chosen = vectors[is_free]
        if len(chosen):
            before = chosen[:-1] if self._last is None else np.vstack((self._last, chosen[:-1]))
            self._free_likeness.observe(before, chosen[1:] if self._last is None else chosen, chosen)
            self._last = chosen[-1:].copy()
        if len(chosen) < len(positions):
            named = positions[~is_free]
            before_named = self._links[_BEFORE, named]
            # A predecessor that was observed in an earlier call is left out: one pair of many.
            rows = np.minimum(np.searchsorted(positions, before_named), len(positions) - 1)
            is_here = (positions[rows] == before_named) & (before_named != named)
            own = vectors[~is_free]
            self._session_likeness.observe(vectors[rows[is_here]], own[is_here], own)

    def context(self, scores: Floats) -> Floats | None:
        """What each memory's surroundings add to its score; None where nothing is linked."""
        links, weights = self._links[:, : self.count], self._weights[:, : self.count]
        alone = self._standing_alone()
        if alone is not None and alone.all():
            return None
        context: Floats = weights[0] * scores[links[0]]
        for step in (_AFTER, _BEFORE_2, _AFTER_2):
            context += weights[step] * scores[links[step]]
        peak = scores
        for back, ahead in ((_BEFORE, _AFTER), (_BEFORE, _AFTER), (_BEFORE_2, _AFTER_2)):
            # Reaches one, two and then four turns away.
            peak = np.maximum(peak, np.maximum(peak[links[back]], peak[links[ahead]]))
        context += PEAK_SHARE * peak
        # Those with and those without a session are never linked to each other: what the ones that stand
        # alone would have got from each other is taken back.
        return context if alone is None else np.where(alone, _OWN_SHARE * scores, context)

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

    def _link(self, step: int, source: NDArray[np.int64], target: NDArray[np.int64], weight: float) -> None:
        self._links[step, source] = target
        self._weights[step, source] = weight

    def _grow(self) -> None:
        old = len(self._free)
        if self.count <= old:
            return
        rows = max(self.count, old + old // 2, 16)
        links, weights = np.zeros((4, rows), np.int32), np.zeros((4, rows), np.float32)
        links[:, :old], weights[:, :old] = self._links, self._weights
        free = np.zeros(rows, np.bool_)
        free[:old] = self._free
        self._links, self._weights, self._free = links, weights, free
