"""How a cost grows with size: the slope of a line fitted to log(cost) over log(size)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import linear_regression

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import CONFIDENCE, t_critical


@dataclass(frozen=True)
class Growth:
    """The fit cost ~ size^exponent. `low` and `high` bound the exponent; they need at least three sizes."""

    exponent: float
    low: float | None
    high: float | None
    smallest: float
    largest: float
    """The range of the measured sizes."""

    def __str__(self) -> str:
        """Return the exponent and its interval, such as `0.31 (0.25 to 0.37)`."""
        bounds = "" if self.low is None or self.high is None else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.exponent:.2f}{bounds}"


def growth(costs: Mapping[float, float]) -> Growth | None:
    """Fit a line to the logarithms of a mapping from size to cost; None for a single size."""
    if any(size <= 0 or cost <= 0 for size, cost in costs.items()):
        raise InvalidResult(f"growth needs sizes and costs above 0: {dict(costs)}")
    if len(costs) < 2:
        return None
    xs, ys = [math.log(size) for size in costs], [math.log(cost) for cost in costs.values()]
    slope, intercept = linear_regression(xs, ys)
    low = high = None
    freedom = len(costs) - 2
    if freedom:
        mean = math.fsum(xs) / len(xs)
        spread = math.fsum((x - mean) ** 2 for x in xs)
        residual = math.fsum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
        half_width = t_critical(freedom, CONFIDENCE) * math.sqrt(residual / freedom / spread)
        low, high = slope - half_width, slope + half_width
    return Growth(slope, low, high, min(costs), max(costs))
