"""Where the level of a series of figures changed: proposed by `ruptures`, confirmed by a test that knows
that neighbouring runs are alike.

    x(t) − level(t) = φ · (x(t−1) − level(t−1)) + noise        an AR(1) around a level that may step

A machine has slow hours, so the figures of neighbouring runs are correlated, and whoever takes them for
independent sees steps in every slow wave. So a proposed step must explain the series much better than
correlation alone does: the ratio of the likelihoods with and without it, the best over all places where
the step may be (Andrews 1993), against what that ratio reaches in simulated series that have no step and
the same correlation. `scripts/change_points.py` shows what that is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from memory.benchmarking.errors import needs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SHORTEST = 3
"""Points on either side of a step: one odd run is no change, and neither are two."""
_REACH = 60
"""Points looked at on either side of a step; what is further away says nothing about it."""
_POINTS_A_STEP = 8
"""At most one step for so many points is proposed."""
_LARGEST_PHI = 0.9
_STEEPEST = 0.95
_SAME = 1e-7
"""Figures that differ by less are the same one, rounded."""


def find_changes(values: Sequence[float], magnitude: float) -> list[int]:
    """The places of the first values of each new level.

    A step counts if it is at least of this magnitude, in the units of the values (on logarithms: 0.05 for
    5 %).
    """
    import numpy as np

    if len(values) < 2 * SHORTEST:
        return []
    points = _without_spikes(np.asarray(values, dtype=float))
    return _confirmed(points, [0, *_proposed(points), len(points)], magnitude)


def _without_spikes(points: Floats) -> Floats:
    """With every point that stands out from its neighbours put among them (Hampel's filter).

    At a step the neighbours on one side are alike, so that steps stay.
    """
    import numpy as np

    spread = 1.4826 * float(np.median(np.abs(np.diff(points)))) / math.sqrt(2)
    middles = np.array([np.median(points[max(0, place - 2) : place + 3]) for place in range(len(points))])
    return np.where(np.abs(points - middles) > 4 * spread, middles, points)


def _proposed(points: Floats) -> list[int]:
    """More steps than there will be: the best way to cut the series into so many pieces."""
    try:
        import ruptures
    except ImportError:
        raise needs("ruptures", "bench", "finding changes in a history") from None
    count = min(len(points) // SHORTEST - 1, max(1, len(points) // _POINTS_A_STEP))
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST, jump=1)
    ends: list[int] = search.fit(points.reshape(-1, 1)).predict(n_bkps=count)
    return [int(end) for end in ends[:-1]]


def _confirmed(points: Floats, bounds: list[int], magnitude: float) -> list[int]:
    """Without the steps that correlation explains as well; the weakest goes first, then look again."""
    while len(bounds) > 2:
        strengths = [_strength(points, bounds, number, magnitude) for number in range(1, len(bounds) - 1)]
        weakest = min(range(len(strengths)), key=lambda number: strengths[number])
        if strengths[weakest] >= 1:
            break
        del bounds[weakest + 1]
    return bounds[1:-1]


def _strength(points: Floats, bounds: list[int], number: int, magnitude: float) -> float:
    """Of one step, beside what it takes to be believed; 0 where it is too small to matter."""
    before, place, after = bounds[number - 1 : number + 2]
    if abs(points[place:after].mean() - points[before:place].mean()) < magnitude:
        return 0.0
    window = points[max(before, place - _REACH) : min(after, place + _REACH)]
    phi = _phi_within(points, [*bounds[:number], *bounds[number + 1 :]])
    return best_step(window) / needed(phi)


def _phi_within(points: Floats, bounds: list[int]) -> float:
    """The correlation of neighbours around the levels.

    Estimates from few points are too low, by about (1 + 3φ) ÷ points for each level (Marriott and Pope
    1954); that is put back.
    """
    import numpy as np

    rest = np.concatenate([points[start:end] - points[start:end].mean() for start, end in pairwise(bounds)])
    squares = float((rest * rest).sum())
    phi = float((rest[1:] * rest[:-1]).sum()) / squares if squares else 0.0
    phi += (1 + 3 * max(phi, 0.0)) * (len(bounds) - 1) / len(points)
    return min(max(phi, 0.0), _LARGEST_PHI)


def needed(phi: float) -> float:
    """What the best step reaches in 2 of 100 series that have none: 10.4 for white noise, more where
    neighbours are alike. Simulated; from 10 points on the length hardly matters."""
    return 10.4 + 6.4 * phi


def best_step(points: Floats) -> float:
    """The largest log-likelihood ratio of an AR(1) with one step to an AR(1) without.

    Given φ, both are least squares on x(t) − φ·x(t−1); φ itself comes from the points around their levels.
    All places of the step are tried at once, a row for each.
    """
    import numpy as np

    length = len(points)
    tiny = length * _SAME**2
    now, before = points[1:] - points[1:].mean(), points[:-1] - points[:-1].mean()
    phi = np.clip((now * before).sum() / ((before * before).sum() + tiny), 0, _STEEPEST)
    without = ((now - phi * before) ** 2).sum() + tiny

    places = np.arange(SHORTEST, length - SHORTEST + 1)[:, None]
    is_after = np.arange(length) >= places
    sums = np.cumsum(points)
    levels = np.where(
        is_after, (sums[-1] - sums[places - 1]) / (length - places), sums[places - 1] / places
    )
    rest = points - levels
    products, squares = (rest[:, 1:] * rest[:, :-1]).sum(axis=1), (rest * rest).sum(axis=1)
    phis = np.clip(products / (squares + tiny), 0, _STEEPEST)[:, None]
    whitened = points[1:] - phis * points[:-1]
    level = np.broadcast_to(1 - phis, whitened.shape)
    step = is_after[:, 1:] - phis * is_after[:, :-1]
    with_step = _unexplained(whitened, level, step) + tiny
    return float((length - 1) * np.log(without / with_step.min()))


def _unexplained(target: Floats, first: Floats, second: Floats) -> Floats:
    """The squares that are left of each row after a least-squares fit by two others."""
    aa, bb, ab = (first * first).sum(axis=1), (second * second).sum(axis=1), (first * second).sum(axis=1)
    at, bt = (first * target).sum(axis=1), (second * target).sum(axis=1)
    determinant = aa * bb - ab * ab
    of_first, of_second = (bb * at - ab * bt) / determinant, (aa * bt - ab * at) / determinant
    rest = target - of_first[:, None] * first - of_second[:, None] * second
    squares: Floats = (rest * rest).sum(axis=1)
    return squares
