"""Where the level of a series of figures changed: proposed by `ruptures`, confirmed by a test that knows
that neighbouring runs are alike.

    x(t) − level(t) = φ · (x(t−1) − level(t−1)) + noise        an AR(1) around a level that may step

A machine has slow hours, so the figures of neighbouring runs are correlated, and whoever takes them for
independent sees steps in every slow wave. So a proposed step must explain the series much better than
correlation alone does: the ratio of the likelihoods with and without it, the best over all places where
the step may be (Andrews 1993), against what that ratio reaches in simulated series without any step but
with the same correlation and length. `scripts/change_points.py` shows what that is worth.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import needs

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

SHORTEST = 3
"""Points on either side of a step: one odd run is no change, and neither are two."""
ALPHA = 0.01
"""A history has many series, and each is looked at after every run."""
_REACH = 60
"""Points looked at on either side of a step; what is further away says nothing about it."""
_POINTS_A_STEP = 8
"""At most one step for so many points is proposed."""
_SIMULATED = 2000
_LENGTHS = (6, 8, 10, 12, 16, 20, 25, 30, 40, 50, 60, 80, 100, 120)
_LARGEST_PHI = 0.9
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
        phi = _phi_within(points, bounds)
        strengths = [
            _strength(points, bounds, number, phi, magnitude) for number in range(1, len(bounds) - 1)
        ]
        weakest = min(range(len(strengths)), key=lambda number: strengths[number])
        if strengths[weakest] >= 1:
            break
        del bounds[weakest + 1]
    return bounds[1:-1]


def _strength(points: Floats, bounds: list[int], number: int, phi: float, magnitude: float) -> float:
    """Of one step, beside what it takes to be believed; 0 where it is too small to matter."""
    before, place, after = bounds[number - 1 : number + 2]
    if abs(points[place:after].mean() - points[before:place].mean()) < magnitude:
        return 0.0
    window = points[max(before, place - _REACH) : min(after, place + _REACH)]
    needed = _needed(next(size for size in _LENGTHS if size >= len(window)), math.ceil(phi * 10))
    return float(_best_step(window[None, :])[0]) / needed


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


@cache
def _needed(length: int, tenths_of_phi: int) -> float:
    """What the best step reaches in series without one, in all but ALPHA of them."""
    import numpy as np

    random = np.random.default_rng(1000 * length + tenths_of_phi)
    phi = tenths_of_phi / 10
    noise = random.normal(size=(_SIMULATED, length))
    series = np.empty_like(noise)
    series[:, 0] = noise[:, 0]
    for place in range(1, length):
        series[:, place] = phi * series[:, place - 1] + math.sqrt(1 - phi * phi) * noise[:, place]
    return float(np.quantile(_best_step(series), 1 - ALPHA))


def _best_step(series: Floats) -> Any:
    """For each row the largest log-likelihood ratio of an AR(1) with one step to an AR(1) without.

    Given φ, both are least squares on x(t) − φ·x(t−1); φ itself comes from the points around their levels.
    """
    import numpy as np

    length = series.shape[1]
    tiny = length * _SAME**2
    now, before = series[:, 1:], series[:, :-1]
    now = now - now.mean(axis=1, keepdims=True)
    before = before - before.mean(axis=1, keepdims=True)
    phi = _bounded((now * before).sum(axis=1), (before * before).sum(axis=1) + tiny)
    without = ((now - phi * before) ** 2).sum(axis=1) + tiny
    best = np.zeros(len(series))
    for place in range(SHORTEST, length - SHORTEST + 1):
        levels = [part.mean(axis=1, keepdims=True) for part in (series[:, :place], series[:, place:])]
        rest = np.concatenate([series[:, :place] - levels[0], series[:, place:] - levels[1]], axis=1)
        phi = _bounded((rest[:, 1:] * rest[:, :-1]).sum(axis=1), (rest * rest).sum(axis=1) + tiny)
        whitened = series[:, 1:] - phi * series[:, :-1]
        level = np.broadcast_to(1 - phi, whitened.shape)
        step = np.zeros_like(whitened)
        step[:, place - 1] = 1
        step[:, place:] = 1 - phi
        best = np.maximum(
            best, (length - 1) * np.log(without / (_unexplained(whitened, level, step) + tiny))
        )
    return best


def _bounded(products: Floats, squares: Floats) -> Floats:
    import numpy as np

    column: Floats = np.clip(products / squares, 0, 0.95)[:, None]
    return column


def _unexplained(target: Floats, first: Floats, second: Floats) -> Any:
    """The squares that are left of each row after a least-squares fit by two others."""
    aa, bb, ab = (first * first).sum(axis=1), (second * second).sum(axis=1), (first * second).sum(axis=1)
    at, bt = (first * target).sum(axis=1), (second * target).sum(axis=1)
    determinant = aa * bb - ab * ab
    of_first, of_second = (bb * at - ab * bt) / determinant, (aa * bt - ab * at) / determinant
    rest = target - of_first[:, None] * first - of_second[:, None] * second
    return (rest * rest).sum(axis=1)
