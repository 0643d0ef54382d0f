"""What stands around a memory: the turns before and after it in its conversation.

The answer to a question is often next to the turn that shares its words. A memory therefore takes a
share of its neighbours' scores, and of the best score within four turns.

Memories that name no session are one chain in the order of storing, which counts only if they cohere:
if consecutive ones are more alike than any two are. That holds for a conversation that was stored turn
by turn, and not for a heap of documents.
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

_BEFORE, _AFTER, _BEFORE_2, _AFTER_2 = range(4)


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
        # Of memories without a session: how alike consecutive ones are, and any two on average.
        self._pairs = 0
        self._alike = 0.0
        self._summed = np.zeros(dimensions, np.float64)
        self._summed_count = 0
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
        self._free[new] = sessions == NO_SESSION
        self._free_count += int(np.count_nonzero(self._free[new]))
        self._link_by_session(first, sessions)

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
        chosen = vectors[self._free[positions]]
        if not len(chosen):
            return
        before = chosen[:-1] if self._last is None else np.vstack((self._last, chosen[:-1]))
        after = chosen[1:] if self._last is None else chosen
        self._alike += float(np.einsum("ij,ij->", before, after))
        self._pairs += len(after)
        self._summed += chosen.sum(axis=0)
        self._summed_count += len(chosen)
        self._last = chosen[-1:].copy()

    def context(self, scores: Floats) -> Floats | None:
        """What each memory's surroundings add to its score; None where nothing is linked."""
        links, weights = self._links[:, : self.count], self._weights[:, : self.count]
        if self._free_count and not self._coheres():
            if self._free_count == self.count:
                return None
            links, weights = self._without_free(links, weights)
        context: Floats = weights[0] * scores[links[0]]
        for step in (_AFTER, _BEFORE_2, _AFTER_2):
            context += weights[step] * scores[links[step]]
        peak = scores
        for back, ahead in ((_BEFORE, _AFTER), (_BEFORE, _AFTER), (_BEFORE_2, _AFTER_2)):
            # Reaches one, two and then four turns away.
            peak = np.maximum(peak, np.maximum(peak[links[back]], peak[links[ahead]]))
        context += PEAK_SHARE * peak
        return context

    def _coheres(self) -> bool:
        count = self._summed_count
        if self._pairs < COHERENCE_PAIRS or count < 2:
            return False
        any_two = (float(self._summed @ self._summed) - count) / (count * (count - 1))
        consecutive = self._alike / self._pairs
        return (consecutive - any_two) / max(1 - any_two, 1e-9) >= COHERENCE

    def _without_free(self, links: NDArray[np.int32], weights: Floats) -> tuple[NDArray[np.int32], Floats]:
        """The links with memories that name no session standing alone."""
        free = self._free[: self.count]
        near, far = NEIGHBOUR_SHARES
        alone = np.array([near, near, far, far], np.float32)[:, None] * np.float32(MISSING)
        own = np.arange(self.count, dtype=np.int32)
        return np.where(free, own, links), np.where(free, alone, weights)

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
