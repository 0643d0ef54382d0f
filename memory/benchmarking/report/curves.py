"""Percentile curves of latencies, from the raw samples.

Each round has its own percentiles. A point of the curve is the centre of one percentile over the rounds,
with its interval. The figures p50, p95 and p99 are computed in the same way, so the curve goes through
them. Samples of different rounds are never mixed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.errors import DamagedResult
from memory.benchmarking.measure.statistics import over_rounds
from memory.benchmarking.model.files import read_times, samples_path
from memory.benchmarking.model.paths import Place, read_path
from memory.benchmarking.report.charts import Point
from memory.benchmarking.report.gather import GatheredResults

SHARES = (
    0.0, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.925, 0.95, 0.97, 0.98, 0.99,
    0.995, 0.998, 0.999, 0.9995, 0.9999,
)  # fmt: skip
"""The percentiles of a curve, as shares of the calls."""
_LEAST_BEYOND = 2
"""A percentile above the median is drawn only if each round has this many slower samples."""


@dataclass(frozen=True)
class Curve:
    """The curve of one timing: the share x of the calls took at most y milliseconds."""

    source: int
    path: str
    place: Place
    points: tuple[Point, ...]
    calls_per_sample: int


def curves(gathered: GatheredResults, keep: Callable[[Place], bool]) -> list[Curve]:
    """Return the curves of the timings that `keep` accepts. Results without raw samples have no curves."""
    found = []
    for source, each in gathered.results:
        chosen = {}
        for where in each.groups:
            place = read_path(f"{where}/x")
            if where and keep(place):
                chosen[where] = place
        if not chosen:
            continue
        try:
            times = read_times(samples_path(each.file.path), set(chosen))
        except (FileNotFoundError, DamagedResult):
            continue
        for where, place in chosen.items():
            rounds = times.get(where, [])
            if rounds:
                calls = max(calls for calls, _ in rounds)
                points = _points(rounds)
                found.append(Curve(source, where, place, points, calls))
    return found


def _points(rounds: Iterable[tuple[int, Any]]) -> tuple[Point, ...]:
    import numpy as np

    times = [wall_ns / (1e6 * calls) for calls, wall_ns in rounds]
    fewest = min(each.size for each in times)
    shares = [share for share in SHARES if share <= 0.5 or (1 - share) * fewest >= _LEAST_BEYOND]
    by_round = np.array([np.quantile(each, shares) for each in times])
    points = []
    for share, values in zip(shares, by_round.T.tolist(), strict=True):
        estimate = over_rounds(values)
        points.append(Point(share, estimate.value, estimate.low, estimate.high))
    return tuple(points)
