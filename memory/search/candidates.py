"""Which memories of an agent with many can be among the best, and their exact scores.

A memory is among the best by its own score, by a bonus, or because it is near such a memory in a
conversation. So the memories with the best estimates get exact scores, and the best of these, with all
turns around them, are the candidates. Everything else is done for the candidates only. The tests compare
the result with that of scoring all memories.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.search.best import top
from memory.search.index import AgentIndex
from memory.search.own_scores import EstimatedScores, Floats, Positions

EXACT_ROWS = 50_000
"""Up to this many memories all get exact scores: as fast as choosing candidates."""
_CHECKED_SHARE = 64
"""Of all memories 1/64 get an exact score, those with the best estimates …"""
_CHECKED_MIN = 2048  # … but at least this many
_CENTRES = 384
"""The best ones that become candidates with the turns around them, but at least 3 for each hit. With twice
as many, the share of the 128 best memories that are found grew from 0.9969 to 0.9970 only."""
_CENTRES_A_HIT = 3


class Candidates(NamedTuple):
    """Some memories and their exact scores, in ascending order of their positions."""

    positions: Positions
    own: Floats
    cosines: Floats


def candidates(index: AgentIndex, scores: EstimatedScores, bonus: Floats | None, k: int) -> Candidates:
    """Return the memories that can be among the k best.

    bonus: what each memory gets besides, on the scale of `scores`
    """
    checked = scores.best(max(_CHECKED_MIN, index.count // _CHECKED_SHARE), bonus)
    own, _ = scores.exact_at(checked)
    if bonus is not None:
        own += bonus[checked]
    centres = checked[top(own, max(_CENTRES, _CENTRES_A_HIT * k))]
    if index.conversations.count_neighbours:
        positions = index.conversations.around(centres)
    else:
        positions = np.sort(centres)
    return Candidates(positions, *scores.exact_at(positions))


def may_choose(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> bool:
    """Return whether candidates are enough: not if the best memories may all be excluded."""
    return index.count > EXACT_ROWS and index.is_held and allowed is None and k * 100 < index.count
