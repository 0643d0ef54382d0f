"""TurnLinks between memories that follow each other in a conversation, and what scores gain through them.

Most conversations are stored turn by turn, so that a memory's neighbours have the next positions. Scores
then only need to be shifted by one or two places, which is many times quicker than to gather them; the
links of conversations that were stored in turns with others are kept as pairs.
"""

from __future__ import annotations

from array import array
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

NEIGHBOUR_SHARES = (0.5, 0.25)
"""What the neighbours at distance one and two give."""
MISSING = 0.5
"""Where there is no neighbour, the memory's own score stands in with this factor."""
PEAK_SHARE = 1.0
"""What the best score within four turns gives."""
OWN_SHARE = np.float32(2 * sum(NEIGHBOUR_SHARES) * MISSING + PEAK_SHARE)
"""What the own score gives where all neighbours are missing."""

_FEW = 4
_UNLINKED = -np.inf
_Number = TypeVar("_Number", np.float32, np.int32)


class _Distance:
    """All links over one distance in the conversation, one or two turns."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._share = np.float32(NEIGHBOUR_SHARES[turns - 1])
        self._shares = np.empty(0, np.float32)
        """Of each memory: what it and the one so many places before it give each other."""
        self._barriers = np.empty(0, np.float32)
        """The same links: 0, and minus infinity where there is none."""
        self._later, self._earlier = array("i"), array("i")
        """Linked pairs that stand elsewhere."""

    @property
    def nbytes(self) -> int:
        return self._shares.nbytes + self._barriers.nbytes + 8 * len(self._later)

    def grow(self, rows: int) -> None:
        self._shares = _grown(self._shares, rows, 0)
        self._barriers = _grown(self._barriers, rows, _UNLINKED)

    def link_one(self, later: int, earlier: int) -> None:
        if later - earlier == self._turns:
            self._shares[later] = self._share
            self._barriers[later] = 0
        else:
            self._later.append(later)
            self._earlier.append(earlier)

    def link(self, later: NDArray[np.int64], earlier: NDArray[np.int64]) -> None:
        here = later - earlier == self._turns
        near = later[here]
        self._shares[near] = self._share
        self._barriers[near] = 0
        self._later.extend(later[~here].tolist())
        self._earlier.extend(earlier[~here].tolist())

    def add_shares(self, scores: Floats, context: Floats) -> None:
        """Give each memory its part of both its neighbours' scores."""
        turns = self._turns
        shares = self._shares[turns : len(scores)]
        context[turns:] += shares * scores[:-turns]
        context[:-turns] += shares * scores[turns:]
        if self._later:
            later, earlier = np.array(self._later), np.array(self._earlier)
            context[later] += self._share * scores[earlier]
            context[earlier] += self._share * scores[later]

    def peaks(self, scores: Floats) -> Floats:
        """Of each memory the best score: its own, or one of both its neighbours'."""
        turns = self._turns
        barriers = self._barriers[turns : len(scores)]
        peaks = scores.copy()
        np.maximum(peaks[turns:], scores[:-turns] + barriers, out=peaks[turns:])
        np.maximum(peaks[:-turns], scores[turns:] + barriers, out=peaks[:-turns])
        if self._later:
            later, earlier = np.array(self._later), np.array(self._earlier)
            peaks[later] = np.maximum(peaks[later], scores[earlier])
            peaks[earlier] = np.maximum(peaks[earlier], scores[later])
        return peaks


class TurnLinks:
    """Who stands before whom: two distances a memory, kept up with each one that is added."""

    def __init__(self) -> None:
        self.count = 0
        self._before = np.empty(0, np.int32)
        self._own = np.empty(0, np.float32)
        """What the own score gives, in the place of neighbours that are missing."""
        self._near, self._far = _Distance(1), _Distance(2)
        self._ends: dict[int, int] = {}

    @property
    def nbytes(self) -> int:
        return self._before.nbytes + self._own.nbytes + self._near.nbytes + self._far.nbytes

    def before(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """The memory before each in its conversation; itself where there is none."""
        return self._before[positions].astype(np.int64)

    def extend(self, sessions: NDArray[np.int64]) -> None:
        """Link memories that were stored after all others, by the session each one names."""
        first, self.count = self.count, self.count + len(sessions)
        self._grow()
        self._before[first : self.count] = np.arange(first, self.count)
        if len(sessions) <= _FEW:
            self._link_one_by_one(first, sessions.tolist())
        else:
            self._link_by_session(first, sessions)

    def context(self, scores: Floats) -> Floats:
        """What each memory's surroundings add to its score."""
        context: Floats = self._own[: self.count] * scores
        self._near.add_shares(scores, context)
        self._far.add_shares(scores, context)
        # Reaches one, two and then four turns away.
        context += np.float32(PEAK_SHARE) * self._far.peaks(self._near.peaks(self._near.peaks(scores)))
        return context

    def _link_one_by_one(self, first: int, sessions: list[int]) -> None:
        """The same as `_link_by_session`: quicker for a few, which is what most searches find new."""
        for position, session in enumerate(sessions, first):
            last = self._ends.get(session)
            self._ends[session] = position
            if last is None:
                continue
            near, far = NEIGHBOUR_SHARES
            before = int(self._before[last])
            self._before[position] = last
            self._near.link_one(position, last)
            self._own[position] -= near * MISSING
            self._own[last] -= near * MISSING
            if before != last:
                self._far.link_one(position, before)
                self._own[position] -= far * MISSING
                self._own[before] -= far * MISSING

    def _link_by_session(self, first: int, sessions: NDArray[np.int64]) -> None:
        order = np.argsort(sessions, kind="stable")
        ordered = sessions[order]
        starts = np.flatnonzero(np.append(True, ordered[1:] != ordered[:-1])).tolist()
        near, far = NEIGHBOUR_SHARES
        for start, end in zip(starts, [*starts[1:], len(ordered)], strict=True):
            session = int(ordered[start])
            chain = order[start:end] + first
            last = self._ends.get(session)
            self._ends[session] = int(chain[-1])
            known = 0
            if last is not None:
                # The chain goes on from where it ended, two steps back for the links of distance two.
                before = int(self._before[last])
                known = 1 if before == last else 2
                chain = np.concatenate(([before, last][-known:], chain))
            # TurnLinks between those that were there before are there too.
            later, earlier = chain[max(known, 1) :], chain[max(known, 1) - 1 : -1]
            self._before[later] = earlier
            self._near.link(later, earlier)
            self._own[later] -= near * MISSING
            self._own[earlier] -= near * MISSING
            later, earlier = chain[2:], chain[:-2]
            self._far.link(later, earlier)
            self._own[later] -= far * MISSING
            self._own[earlier] -= far * MISSING

    def _grow(self) -> None:
        old = len(self._before)
        if self.count <= old:
            return
        rows = max(self.count, old + old // 2, 16)
        self._before = _grown(self._before, rows, 0)
        self._own = _grown(self._own, rows, float(OWN_SHARE) - PEAK_SHARE)
        self._near.grow(rows)
        self._far.grow(rows)


def _grown(column: NDArray[_Number], rows: int, fill: float) -> NDArray[_Number]:
    new = np.full(rows, fill, column.dtype)
    new[: len(column)] = column
    return new
