"""Whether a series goes up: the slope of a line, with an interval that readings in a row can't fool.

Readings of one process hang together (RSS is today what it was a second ago, in steps of an allocator),
so the usual interval of a fitted line is far too narrow. Here the series is cut into blocks, a line is
fitted in each, and the slopes of the blocks are the independent readings (Ibragimov and Müller,
"t-Statistic Based Correlation and Heterogeneity Robust Inference", 2010). One step of a cache that fills
up widens the interval; a leak, which goes on in every block, does not.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import CONFIDENCE, Estimate, student

BLOCKS = 8
WARM_UP_SHARE = 0.25
"""Of the range of x, so much at the beginning is left out: caches are being filled."""
LEAST_READINGS = 4 * BLOCKS
"""After the warm-up: with fewer, a block's line would be drawn through three points or less."""


def trend(
    xs: Sequence[float], ys: Sequence[float], *, warm_up_share: float = WARM_UP_SHARE
) -> Estimate | None:
    """By how much y rises for each x; None where too few readings are left to say it.

    `xs` never goes down. Of readings at the same x, the last counts.
    """
    if len(xs) != len(ys):
        raise InvalidResult(f"a trend of {len(ys)} readings at {len(xs)} places: give one at each")
    if any(later < earlier for earlier, later in pairwise(xs)):
        raise InvalidResult("a trend over places that go back: give them in order")
    readings = dict(zip(xs, ys, strict=True))
    if not readings:
        return None
    first, last = min(readings), max(readings)
    start = first + warm_up_share * (last - first)
    kept = [(x, y) for x, y in readings.items() if x >= start]
    if len(kept) < LEAST_READINGS:
        return None
    edges = [number * len(kept) // BLOCKS for number in range(BLOCKS + 1)]
    slopes = [_slope(kept[low:high]) for low, high in pairwise(edges)]
    mean = statistics.fmean(slopes)
    reach = student(BLOCKS - 1, CONFIDENCE) * statistics.stdev(slopes) / math.sqrt(BLOCKS)
    return Estimate(mean, mean - reach, mean + reach, tuple(slopes))


def _slope(points: Sequence[tuple[float, float]]) -> float:
    count = len(points)
    mean_x = math.fsum(x for x, _ in points) / count
    mean_y = math.fsum(y for _, y in points) / count
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    return math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
