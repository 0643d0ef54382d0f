"""Whether estimated chances come true: bins of a reliability diagram, and the calibration error."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

BINS = 10
"""Bins of equal width from 0 to 1."""


@dataclass(frozen=True)
class Bin:
    """The estimates between `number` / BINS and (`number` + 1) / BINS."""

    number: int
    count: int
    mean_chance: float
    true_share: float
    """The share of them that came true."""


def calibration_bins(chances: Sequence[float], came_true: Sequence[bool]) -> list[Bin]:
    """Return the bins that have estimates, the lowest first."""
    members: dict[int, list[tuple[float, bool]]] = {}
    for chance, truth in zip(chances, came_true, strict=True):
        members.setdefault(min(int(chance * BINS), BINS - 1), []).append((chance, truth))
    return [
        Bin(
            number,
            len(inside),
            math.fsum(chance for chance, _ in inside) / len(inside),
            sum(truth for _, truth in inside) / len(inside),
        )
        for number, inside in sorted(members.items())
    ]


def calibration_error(bins: Sequence[Bin]) -> float:
    """Return the expected calibration error: how far estimate and true share are apart, on average."""
    total = sum(each.count for each in bins)
    return math.fsum(each.count * abs(each.mean_chance - each.true_share) for each in bins) / total
