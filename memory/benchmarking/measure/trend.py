"""Whether a series rises: the slope of a line, with an interval that is valid for correlated readings.

Successive readings of one process are correlated: RSS changes in steps of the allocator. So the usual
interval of a fitted line is far too narrow. Here the series is cut into blocks, each block gets its own
line, and the slopes count as independent observations (Ibragimov and Müller, "t-Statistic Based
Correlation and Heterogeneity Robust Inference", 2010). A single step, such as a cache that fills, widens
the interval; a leak, which continues in every block, does not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import CONFIDENCE, Estimate, t_critical

BLOCKS = 8
"""Number of blocks that a series is cut into."""
WARM_UP_SHARE = 0.25
"""This share of the range of x is left out at the beginning, while caches fill."""
LEAST_READINGS = 4 * BLOCKS
"""The fewest readings after the warm-up: four for the line of each block."""


def trend(
    xs: Sequence[float], ys: Sequence[float], *, warm_up_share: float = WARM_UP_SHARE
) -> Estimate | None:
    """Return how much y rises per unit of x; None with too few readings.

    Args:
        xs: in ascending order; if several readings have the same x, the last one counts.
        ys: one reading for each x.
        warm_up_share: share of the range of x to leave out at the beginning.
    """
    if len(xs) != len(ys):
        raise InvalidResult(f"there are {len(ys)} readings for {len(xs)} values of x: pass one for each")
    if any(later < earlier for earlier, later in pairwise(xs)):
        raise InvalidResult("the values of x decrease: pass them in ascending order")
    readings = dict(zip(xs, ys, strict=True))
    if not readings:
        return None
    first, last = min(readings), max(readings)
    start = first + warm_up_share * (last - first)
    kept = [(x, y) for x, y in readings.items() if x >= start]
    if len(kept) < LEAST_READINGS:
        return None
    edges = [number * len(kept) // BLOCKS for number in range(BLOCKS + 1)]
    slopes = [
        statistics.linear_regression(*zip(*kept[low:high], strict=True)).slope
        for low, high in pairwise(edges)
    ]
    mean = statistics.fmean(slopes)
    half_width = t_critical(BLOCKS - 1, CONFIDENCE) * statistics.stdev(slopes) / math.sqrt(BLOCKS)
    return Estimate(mean, mean - half_width, mean + half_width, tuple(slopes))
