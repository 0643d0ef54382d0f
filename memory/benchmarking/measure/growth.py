"""How a cost grows with size: the slope of a straight line through logarithms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import CONFIDENCE, student


@dataclass(frozen=True)
class Growth:
    """cost ~ size^exponent, with the interval of the fit where more than two sizes bound it."""

    exponent: float
    low: float | None
    high: float | None
    smallest: float
    largest: float

    def __str__(self) -> str:
        """`0.31 (0.25 to 0.37)`"""
        bounds = "" if self.low is None or self.high is None else f" ({self.low:.2f} to {self.high:.2f})"
        return f"{self.exponent:.2f}{bounds}"


def growth(costs: Mapping[float, float]) -> Growth | None:
    """From size to cost; None for a single size. Least squares on logarithms, Student's interval."""
    if any(size <= 0 or cost <= 0 for size, cost in costs.items()):
        raise InvalidResult(f"growth needs sizes and costs above 0: {dict(costs)}")
    if len(costs) < 2:
        return None
    points = [(math.log(size), math.log(cost)) for size, cost in costs.items()]
    count = len(points)
    mean_x = math.fsum(x for x, _ in points) / count
    mean_y = math.fsum(y for _, y in points) / count
    spread = math.fsum((x - mean_x) ** 2 for x, _ in points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / spread
    low = high = None
    if count > 2:
        left = math.fsum((y - mean_y - slope * (x - mean_x)) ** 2 for x, y in points)
        reach = student(count - 2, CONFIDENCE) * math.sqrt(left / (count - 2) / spread)
        low, high = slope - reach, slope + reach
    return Growth(slope, low, high, min(costs), max(costs))
