"""The neighbours of some memories in their conversations, and what these add to their scores.

The compiled core does it in a tenth of the time; the twins in NumPy give the same bits.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory._base.native import core
from memory.storage import NO_SESSION

Floats = NDArray[np.float32]
Positions = NDArray[np.int64]
Links = NDArray[np.int32]
Shares: TypeAlias = tuple[float, float, float, float]
"""Factors: of neighbours one turn away, of those two turns away, of the best within four turns, and of the
best in the session."""


def around(positions: Positions, before: Links, after: Links, memories: int, turns: int) -> Positions:
    """Return the positions and those up to so many turns before and after them, ascending.

    before, after: by position: the neighbours, or the position itself if there is none
    memories: how many there are; links may lead to later ones, which count as the last
    """
    if core is None:
        return around_pure(positions, before, after, memories, turns)
    return np.frombuffer(core.around(positions, before, after, memories, turns), np.int64)


def around_pure(positions: Positions, before: Links, after: Links, memories: int, turns: int) -> Positions:
    chosen = np.zeros(memories, np.bool_)
    chosen[positions] = True
    for links in (before, after):
        at = positions
        for _ in range(turns):
            at = np.minimum(links[at].astype(np.int64), memories - 1)
            chosen[at] = True
    return chosen.nonzero()[0]


def context_of(
    positions: Positions,
    before: Links,
    after: Links,
    own: Floats,
    sessions: Positions,
    scores: Floats,
    shares: Shares,
) -> Floats:
    """Return what the neighbours add to the scores of some memories, as if all others had the lowest score.

    positions: of the memories, ascending
    before, after: by position: the neighbours, or the position itself if there is none
    own: by position: the factor of the own score that stands in for missing neighbours
    sessions: the session of each of the memories, or NO_SESSION
    scores: the score of each
    """
    if core is None:
        return context_of_pure(positions, before, after, own, sessions, scores, shares)
    out = np.empty(len(positions), np.float32)
    core.context_of(positions, before, after, own, sessions, scores, out, shares, NO_SESSION)
    return out


def context_of_pure(
    positions: Positions,
    before: Links,
    after: Links,
    own: Floats,
    sessions: Positions,
    scores: Floats,
    shares: Shares,
) -> Floats:
    if not len(positions):
        return np.empty(0, np.float32)
    near, far, peak, session = map(np.float32, shares)
    earlier, later = _among(positions, before), _among(positions, after)
    before_it, after_it = _steps(earlier, earlier), _steps(later, later)
    context: Floats = own[positions] * scores
    for links, share in ((earlier, near), (later, near), (before_it, far), (after_it, far)):
        context += share * np.where(links >= 0, scores[links], np.float32(0))
    peaks = scores
    for one, other in ((earlier, later), (earlier, later), (before_it, after_it)):
        of_one = np.where(one >= 0, peaks[one], peaks)
        peaks = np.maximum(np.maximum(peaks, of_one), np.where(other >= 0, peaks[other], peaks))
    context += peak * peaks
    found, numbers = np.unique(sessions, return_inverse=True)
    of_sessions = np.full(len(found), -np.inf, np.float32)
    np.maximum.at(of_sessions, numbers, scores)
    context += session * np.where(sessions == NO_SESSION, peaks, of_sessions[numbers])
    return context


def _among(positions: Positions, links: Links) -> Positions:
    """Return for each position the place of the linked one among `positions`; -1 if it is not there."""
    linked = links[positions]
    places = positions.searchsorted(linked).clip(max=len(positions) - 1)
    return np.where((positions[places] == linked) & (linked != positions), places, -1)


def _steps(first: Positions, second: Positions) -> Positions:
    """Return where two links in a row lead; -1 if one of them is missing."""
    return np.where(first >= 0, second[first], -1)
