"""Links between consecutive turns of a conversation, and the scores that pass along them.

Most conversations are stored turn by turn, so a memory's neighbours have the adjacent positions. Their
scores then come from shifting the whole array by one or two places: five times faster than gathering
them. Where two conversations were stored in alternation, the links are kept as pairs of positions.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory._base.copies import shallow_copy
from memory.search._context import around, context_of
from memory.search._scans import add_shares, best_of_turns
from memory.search.growing import capacity, grown
from memory.search.saved import Parts, below, held, under
from memory.storage import NO_SESSION

Floats = NDArray[np.float32]

NEIGHBOUR_SHARES = (0.25, 0.125)
"""The factors of the scores of neighbours one and two turns away. These, `PEAK_SHARE` and `SESSION_SHARE`
are round numbers near the weights that a logistic model has on three sets together (docs/design.md)."""
MISSING = 0.5
"""A missing neighbour counts as the memory's own score times this factor."""
PEAK_SHARE = 0.5
"""The factor of the best score within four turns."""
SESSION_SHARE = 0.5
"""The factor of the best score in the session. Memories without a session have that within four turns."""
OWN_SHARE = np.float32(2 * sum(NEIGHBOUR_SHARES) * MISSING + PEAK_SHARE + SESSION_SHARE)
"""The factor of the memory's own score if it has no neighbours."""

_CONTEXT_SHARES = (*NEIGHBOUR_SHARES, PEAK_SHARE, SESSION_SHARE)
_FEW = 4  # Memories: up to this many at once are linked one by one, which is faster than sorting them
_UNLINKED = -np.inf
_NO_LONGER_A_SESSION = NO_SESSION - 1
"""This and lower numbers stand for sessions of which all memories are deleted."""


class _LinksAtDistance:
    """All links between memories that are `turns` turns apart in their conversation: one or two."""

    def __init__(self, turns: int) -> None:
        self._turns = turns
        self._share = np.float32(NEIGHBOUR_SHARES[turns - 1])
        self._shares = np.empty(0, np.float32)
        """By position: the factor between it and the position `turns` before it; 0 if not linked."""
        self._barriers = np.empty(0, np.float32)
        """The same links for `peaks`: 0 if linked, minus infinity if not."""
        self._later, self._earlier = array("i"), array("i")
        """Linked pairs whose positions are not exactly `turns` apart."""

    @property
    def nbytes(self) -> int:
        return held(self._shares, self._barriers) + 8 * len(self._later)

    def parts(self, count: int) -> Parts:
        """Return the links of the first `count` memories in the form of `saved.py`."""
        return {
            "shares": self._shares[:count],
            "barriers": self._barriers[:count],
            "later": np.array(self._later, np.int32),
            "earlier": np.array(self._earlier, np.int32),
        }

    def restore(self, parts: Parts) -> None:
        self._shares, self._barriers = parts["shares"], parts["barriers"]
        self._later, self._earlier = array("i", parts["later"]), array("i", parts["earlier"])

    def view(self) -> _LinksAtDistance:
        view = shallow_copy(self)
        view._later, view._earlier = self._later[:], self._earlier[:]
        return view

    def grow(self, length: int) -> None:
        self._shares = grown(self._shares, length)
        self._barriers = grown(self._barriers, length, _UNLINKED)

    def link_one(self, later: int, earlier: int) -> None:
        if later - earlier == self._turns:
            self._shares[later] = self._share
            self._barriers[later] = 0
        else:
            self._later.append(later)
            self._earlier.append(earlier)

    def link(self, later: NDArray[np.int64], earlier: NDArray[np.int64]) -> None:
        adjacent = later - earlier == self._turns
        self._shares[later[adjacent]] = self._share
        self._barriers[later[adjacent]] = 0
        self._later.extend(later[~adjacent].tolist())
        self._earlier.extend(earlier[~adjacent].tolist())

    def for_core(self) -> tuple[Any, ...]:
        """Return the links in the form that the compiled core takes."""
        return self._shares, self._barriers, self._later, self._earlier, self._share

    def add_shares(self, scores: Floats, context: Floats) -> None:
        """Add to `context` each memory's share of the scores of its two neighbours."""
        add_shares(scores, self._shares, context, self._turns)
        if self._later:
            later, earlier = np.array(self._later), np.array(self._earlier)
            context[later] += self._share * scores[earlier]
            context[earlier] += self._share * scores[later]

    def peaks(self, scores: Floats) -> Floats:
        """Return for each memory the best of its own score and those of its two neighbours."""
        peaks = best_of_turns(scores, self._barriers, self._turns)
        if self._later:
            later, earlier = np.array(self._later), np.array(self._earlier)
            peaks[later] = np.maximum(peaks[later], scores[earlier])
            peaks[earlier] = np.maximum(peaks[earlier], scores[later])
        return peaks


class _Sessions:
    """Which memories are in the same session, as runs of consecutive positions."""

    def __init__(self) -> None:
        self._number_of: dict[int, int] = {}
        self._starts = array("q")
        """The first position of each run."""
        self._numbers = array("q")
        """The session of each run, numbered from 0; -1 for memories without a session."""
        self._count = 0
        self._arrays: _Runs | None = None

    @property
    def nbytes(self) -> int:
        return 16 * len(self._starts) + 100 * len(self._number_of)  # an estimate for CPython

    def view(self) -> _Sessions:
        self._runs()
        return shallow_copy(self)

    def parts(self, kept: NDArray[np.int64] | None) -> Parts:
        """Return all runs in the form of `saved.py`; `kept` is as in `TurnLinks.parts`."""
        sessions = np.fromiter(self._number_of, np.int64, len(self._number_of))
        if kept is not None:
            # Another number for each: the place of a session is its number in the runs.
            others = _NO_LONGER_A_SESSION - np.arange(len(sessions))
            sessions = np.where(np.isin(sessions, kept), sessions, others)
        return {
            "count": self._count,
            "starts": np.array(self._starts, np.int64),
            "numbers": np.array(self._numbers, np.int64),
            "sessions": sessions,
        }

    def restore(self, parts: Parts) -> None:
        self._count = parts["count"]
        self._starts, self._numbers = array("q", parts["starts"]), array("q", parts["numbers"])
        self._number_of = {session: number for number, session in enumerate(parts["sessions"].tolist())}

    def extend(self, sessions: NDArray[np.int64]) -> None:
        """Append memories, given the session number of each."""
        if len(sessions) <= _FEW:
            starts: Iterable[int] = range(len(sessions))  # a session that goes on starts no run
        else:
            starts = [0, *((sessions[1:] != sessions[:-1]).nonzero()[0] + 1).tolist()]
        for at in starts:
            session = int(sessions[at])
            number = -1
            if session != NO_SESSION:
                number = self._number_of.setdefault(session, len(self._number_of))
            if not self._numbers or number != self._numbers[-1]:
                self._starts.append(self._count + at)
                self._numbers.append(number)
        self._count += len(sessions)
        self._arrays = None

    def for_core(self) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
        """Return where the runs start, the session of each, and the number of sessions."""
        runs = self._runs()
        return runs.starts, runs.numbers, runs.sessions

    def _runs(self) -> _Runs:
        if self._arrays is None:
            starts, numbers = np.array(self._starts, np.int64), np.array(self._numbers, np.int64)
            self._arrays = _Runs(starts, numbers, self._count, len(self._number_of))
        return self._arrays

    def peaks(self, scores: Floats, otherwise: Floats) -> Floats:
        """Return the best score in each memory's session; `otherwise` for memories without a session."""
        runs = self._runs()
        if not runs.sessions:
            return otherwise
        of_runs = np.maximum.reduceat(scores, runs.starts)
        if runs.sessions < len(of_runs):
            of_sessions = np.full(runs.sessions + 1, -np.inf, np.float32)
            np.maximum.at(of_sessions, runs.numbers, of_runs)
            of_runs = of_sessions[runs.numbers]
        lengths = np.diff(runs.starts, append=runs.memories)
        peaks: Floats = of_runs.repeat(lengths)
        none = runs.numbers == -1
        return np.where(none.repeat(lengths), otherwise, peaks) if none.any() else peaks


class _Runs(NamedTuple):
    """The runs of `_Sessions` as arrays, until the next memory is added."""

    starts: NDArray[np.int64]
    numbers: NDArray[np.int64]
    memories: int
    """The number of memories."""
    sessions: int
    """The number of sessions."""


class TurnLinks:
    """For each memory the ones before and after it in its conversation, one and two turns away."""

    def __init__(self) -> None:
        self.count = 0
        self._before = np.empty(0, np.int32)
        self._after = np.empty(0, np.int32)
        self._own = np.empty(0, np.float32)
        """By position: the factor of the own score that stands in for missing neighbours."""
        self._near, self._far = _LinksAtDistance(1), _LinksAtDistance(2)
        self._sessions = _Sessions()
        self._last_of: dict[int, int] = {}
        """By session: the position of its last memory."""

    @property
    def nbytes(self) -> int:
        links = self._near.nbytes + self._far.nbytes + self._sessions.nbytes
        return held(self._before, self._after, self._own) + links

    def parts(self, kept: NDArray[np.int64] | None = None) -> Parts:
        """Return all links in the form of `saved.py`.

        kept: the sessions to keep; the others are left out, as the number of a session is made of its name.
            None for all"""
        sessions = np.fromiter(self._last_of, np.int64, len(self._last_of))
        last = np.fromiter(self._last_of.values(), np.int32, len(self._last_of))
        if kept is not None:
            is_kept = np.isin(sessions, kept)
            sessions, last = sessions[is_kept], last[is_kept]
        return {
            "count": self.count,
            "before": self._before[: self.count],
            "after": self._after[: self.count].copy(),  # later links change this and the next
            "own": self._own[: self.count].copy(),
            "sessions": sessions,
            "last": last,
            **under("near", self._near.parts(self.count)),
            **under("far", self._far.parts(self.count)),
            **under("runs", self._sessions.parts(kept)),
        }

    def restore(self, parts: Parts) -> None:
        """Take over links that `parts` returned."""
        self.count, self._before = parts["count"], parts["before"]
        self._after, self._own = parts["after"], parts["own"]
        self._last_of = dict(zip(parts["sessions"].tolist(), parts["last"].tolist(), strict=True))
        self._near.restore(below("near", parts))
        self._far.restore(below("far", parts))
        self._sessions.restore(below("runs", parts))

    def view(self) -> TurnLinks:
        """Return a copy that does not change, except for the links of its last turns to later ones."""
        view = shallow_copy(self)
        view._near, view._far, view._sessions = self._near.view(), self._far.view(), self._sessions.view()
        return view

    def before(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the previous memory of each in its conversation, or itself if it is the first."""
        return self._before[positions].astype(np.int64)

    def extend(self, sessions: NDArray[np.int64]) -> None:
        """Append memories, given the session number of each, and link them to the ones before."""
        first, self.count = self.count, self.count + len(sessions)
        self._grow()
        self._sessions.extend(sessions)
        if len(sessions) == 1:  # the usual case: a search after an add
            self._before[first] = self._after[first] = first
        else:
            new = slice(first, self.count)
            self._before[new] = self._after[new] = np.arange(first, self.count)
        if len(sessions) <= _FEW:
            self._link_one_by_one(first, sessions.tolist())
        else:
            self._link_by_session(first, sessions)

    def context(self, scores: Floats) -> Floats:
        """Return what its neighbours add to each memory's score."""
        context: Floats = self._own[: self.count] * scores
        self._near.add_shares(scores, context)
        self._far.add_shares(scores, context)
        # Each step widens the reach: to one, two and then four turns.
        peaks = self._far.peaks(self._near.peaks(self._near.peaks(scores)))
        context += np.float32(PEAK_SHARE) * peaks
        context += np.float32(SESSION_SHARE) * self._sessions.peaks(scores, peaks)
        return context

    def for_core(self, alone: NDArray[np.bool_] | None) -> tuple[Any, ...]:
        """Return what `context` computes with, in the form that the compiled core takes.

        alone: masks the memories whose neighbours do not count"""
        near, far = self._near.for_core(), self._far.for_core()
        shares = (PEAK_SHARE, SESSION_SHARE, OWN_SHARE)
        return (self._own, near, far, *self._sessions.for_core(), alone, *shares)

    def around(self, positions: NDArray[np.int64], turns: int) -> NDArray[np.int64]:
        """Return the positions and those up to so many turns before and after them, ascending."""
        # Later memories may have been linked since this view was made.
        return around(positions, self._before, self._after, self.count, turns)

    def context_of(
        self, positions: NDArray[np.int64], sessions: NDArray[np.int64], scores: Floats
    ) -> Floats:
        """Do what `context` does for some memories, as if the others had the lowest score.

        positions: ascending
        sessions: the session of each, or NO_SESSION
        scores: the score of each
        """
        return context_of(
            positions, self._before, self._after, self._own, sessions, scores, _CONTEXT_SHARES
        )

    def _link_one_by_one(self, first: int, sessions: list[int]) -> None:
        """Do the same as `_link_by_session`, faster for a few memories: most searches add only a few."""
        for position, session in enumerate(sessions, first):
            last = self._last_of.get(session)
            self._last_of[session] = position
            if last is None:
                continue
            near, far = NEIGHBOUR_SHARES
            before = int(self._before[last])
            self._before[position], self._after[last] = last, position
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
            last = self._last_of.get(session)
            self._last_of[session] = int(chain[-1])
            known = 0
            if last is not None:
                # Continue the session's chain: links two turns long need its last two memories.
                before = int(self._before[last])
                known = 1 if before == last else 2
                chain = np.concatenate(([before, last][-known:], chain))
            # The known memories are linked to each other already.
            later, earlier = chain[max(known, 1) :], chain[max(known, 1) - 1 : -1]
            self._before[later], self._after[earlier] = earlier, later
            self._near.link(later, earlier)
            self._own[later] -= near * MISSING
            self._own[earlier] -= near * MISSING
            later, earlier = chain[2:], chain[:-2]
            self._far.link(later, earlier)
            self._own[later] -= far * MISSING
            self._own[earlier] -= far * MISSING

    def _grow(self) -> None:
        if self.count <= len(self._before):
            return
        length = capacity(self.count, len(self._before))
        self._before = grown(self._before, length)
        self._after = grown(self._after, length)
        self._own = grown(self._own, length, float(OWN_SHARE) - PEAK_SHARE - SESSION_SHARE)
        self._near.grow(length)
        self._far.grow(length)
