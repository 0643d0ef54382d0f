"""Find where the level of a series changed: `ruptures` proposes steps, and a test confirms them.

    x(t) − level(t) = φ · (x(t−1) − level(t−1)) + noise        an AR(1) around a level that may step

A machine has slow hours, so the figures of neighbouring runs are correlated. A test that takes them as
independent finds a step in every slow period. So a proposed step must explain the series much better than
correlation alone. The test statistic is the likelihood ratio with and without the step, the largest over
all places (Andrews 1993). It must be larger than in simulated series without a step and with the same
correlation.
`scripts/change_points.py` measures how well this works.
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
"""The fewest points on either side of a step: one or two unusual runs are not a change."""
_REACH = 60
"""The most points that are used on either side of a step."""
_POINTS_A_STEP = 8
"""The series gets one proposed step for this many points, and at least one."""
_LARGEST_PHI = 0.9
"""The largest correlation that is assumed for the series."""
_LARGEST_FITTED_PHI = 0.95
"""The largest correlation that the test fits."""
_SAME = 1e-7
"""Figures whose difference is smaller count as equal: it comes from rounding."""


def find_changes(values: Sequence[float], magnitude: float) -> list[int]:
    """Return the index of the first value of each new level.

    `magnitude` is the smallest step that counts, in the unit of the values (for logarithms: 0.05 for 5 %).
    """
    import numpy as np

    if len(values) < 2 * SHORTEST:
        return []
    points = _without_spikes(np.asarray(values, dtype=float))
    return _confirmed(points, [0, *_proposed(points), len(points)], magnitude)


def _without_spikes(points: Floats) -> Floats:
    """Return the points, with each outlier replaced by the median of its neighbours (Hampel's filter).

    A step is kept, because the neighbours on one side of it are alike.
    """
    import numpy as np

    spread = 1.4826 * float(np.median(np.abs(np.diff(points)))) / math.sqrt(2)
    middles = np.array([np.median(points[max(0, place - 2) : place + 3]) for place in range(len(points))])
    return np.where(np.abs(points - middles) > 4 * spread, middles, points)


def _proposed(points: Floats) -> list[int]:
    """Return candidate steps: the best way to cut the series. There are more than will be confirmed."""
    try:
        import ruptures
    except ImportError:
        raise needs("ruptures", "bench", "finding changes in a history") from None
    count = min(len(points) // SHORTEST - 1, max(1, len(points) // _POINTS_A_STEP))
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST, jump=1)
    ends: list[int] = search.fit(points.reshape(-1, 1)).predict(n_bkps=count)
    return [int(end) for end in ends[:-1]]


def _confirmed(points: Floats, bounds: list[int], magnitude: float) -> list[int]:
    """Drop the weakest step until each remaining step explains more than correlation alone."""
    while len(bounds) > 2:
        strengths = [_strength(points, bounds, number, magnitude) for number in range(1, len(bounds) - 1)]
        weakest = min(range(len(strengths)), key=lambda number: strengths[number])
        if strengths[weakest] >= 1:
            break
        del bounds[weakest + 1]
    return bounds[1:-1]


def _strength(points: Floats, bounds: list[int], number: int, magnitude: float) -> float:
    """Return the test statistic of a step ÷ its critical value; 0 if the step is below `magnitude`."""
    before, place, after = bounds[number - 1 : number + 2]
    if abs(points[place:after].mean() - points[before:place].mean()) < magnitude:
        return 0.0
    window = points[max(before, place - _REACH) : min(after, place + _REACH)]
    phi = _phi_within(points, [*bounds[:number], *bounds[number + 1 :]])
    return best_step(window) / needed(phi)


def _phi_within(points: Floats, bounds: list[int]) -> float:
    """Return the correlation of neighbours around the levels.

    Estimates from few points are too low, by about (1 + 3φ) ÷ points for each level. This is corrected
    (Marriott and Pope 1954).
    """
    import numpy as np

    rest = np.concatenate([points[start:end] - points[start:end].mean() for start, end in pairwise(bounds)])
    squares = float((rest * rest).sum())
    phi = float((rest[1:] * rest[:-1]).sum()) / squares if squares else 0.0
    phi += (1 + 3 * max(phi, 0.0)) * (len(bounds) - 1) / len(points)
    return min(max(phi, 0.0), _LARGEST_PHI)


def needed(phi: float) -> float:
    """Return the critical value of `best_step` for series with the correlation `phi`.

    In 2 of 100 simulated series without a step, `best_step` exceeds this value. From 10 points on, the
    length of the series hardly matters.
    """
    return 10.4 + 6.4 * phi


def best_step(points: Floats) -> float:
    """Return the largest log-likelihood ratio of an AR(1) with one step to an AR(1) without.

    Given φ, both are least squares on x(t) − φ·x(t−1). φ is estimated from the points around their levels.
    All places of the step are tried at once, one row each.
    """
    import numpy as np

    length = len(points)
    tiny = length * _SAME**2
    now, before = points[1:] - points[1:].mean(), points[:-1] - points[:-1].mean()
    phi = np.clip((now * before).sum() / ((before * before).sum() + tiny), 0, _LARGEST_FITTED_PHI)
    without = ((now - phi * before) ** 2).sum() + tiny

    places = np.arange(SHORTEST, length - SHORTEST + 1)[:, None]
    is_after = np.arange(length) >= places
    sums = np.cumsum(points)
    levels = np.where(
        is_after, (sums[-1] - sums[places - 1]) / (length - places), sums[places - 1] / places
    )
    rest = points - levels
    products, squares = (rest[:, 1:] * rest[:, :-1]).sum(axis=1), (rest * rest).sum(axis=1)
    phis = np.clip(products / (squares + tiny), 0, _LARGEST_FITTED_PHI)[:, None]
    whitened = points[1:] - phis * points[:-1]
    level = np.broadcast_to(1 - phis, whitened.shape)
    step = is_after[:, 1:] - phis * is_after[:, :-1]
    with_step = _unexplained(whitened, level, step) + tiny
    return float((length - 1) * np.log(without / with_step.min()))


def _unexplained(target: Floats, first: Floats, second: Floats) -> Floats:
    """Return the sum of squared residuals of each row of `target` after a least-squares fit."""
    aa, bb, ab = (first * first).sum(axis=1), (second * second).sum(axis=1), (first * second).sum(axis=1)
    at, bt = (first * target).sum(axis=1), (second * target).sum(axis=1)
    determinant = aa * bb - ab * ab
    of_first, of_second = (bb * at - ab * bt) / determinant, (aa * bt - ab * at) / determinant
    rest = target - of_first[:, None] * first - of_second[:, None] * second
    squares: Floats = (rest * rest).sum(axis=1)
    return squares
