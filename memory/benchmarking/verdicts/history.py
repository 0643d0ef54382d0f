"""One metric over many runs, and where its level changed.

A series has only runs of the same environment and with the same parameters.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from memory.benchmarking.errors import BenchmarkError, NothingMeasured, UnknownName, nearest
from memory.benchmarking.metrics import Better, Metric, is_timed
from memory.benchmarking.model.files import read_result_of, run_folders
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.records import Figure, ResultRef, Run
from memory.benchmarking.verdicts.changes import SHORTEST, find_changes
from memory.benchmarking.verdicts.evidence import metric_in
from memory.benchmarking.verdicts.patterns import fits
from memory.benchmarking.verdicts.runs import readable_runs

RUNS = 60
"""How many runs are read by default, counted from the newest."""
MAGNITUDE = 0.03
"""The smallest step that counts, as a share of the level."""
MAGNITUDE_OF_SHARES = 0.01
"""The smallest step that counts for shares and for figures that can be zero, in points."""


class HistoryPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A metric's figure in one run."""

    run_id: str
    started_at: str
    revision: str
    value: float
    low: float | None = None
    high: float | None = None


class LevelChange(msgspec.Struct, frozen=True, kw_only=True):
    """A new level of the figures, from the point at `index` on."""

    index: int
    run_id: str
    revision: str
    before: float
    after: float
    direction: Literal["better", "worse", "neither"]


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case in one environment, the oldest run first."""

    category: str
    benchmark: str
    target: str
    path: str
    unit: str
    better: Better
    fingerprint: str
    params_digest: str
    points: list[HistoryPoint]
    changes: list[LevelChange] = []

    @property
    def name(self) -> str:
        return f"{self.category}.{self.benchmark}"

    @property
    def values(self) -> list[float]:
        return [point.value for point in self.points]


def series_of(
    output_dir: Path,
    pattern: str,
    *,
    benchmark: str | None = None,
    last: int = RUNS,
    magnitude: float | None = None,
) -> list[Series]:
    """Return every series whose metric fits the pattern, the longest first, with its changes.

    Times of runs whose rounds ran in parallel are left out.

    Args:
        output_dir: The folder that has the runs.
        pattern: See `patterns.fits`.
        benchmark: Only this one: a name, or `category.name`.
        last: How many of the newest runs are read.
        magnitude: The smallest step that counts; by default `MAGNITUDE`, or `MAGNITUDE_OF_SHARES`.
    """
    found: dict[tuple[str, ...], list[tuple[HistoryPoint, Metric]]] = {}
    for folder, run in readable_runs(run_folders(output_dir)[-last:]):
        for ref in run.results:
            if benchmark in (None, ref.benchmark, f"{ref.category}.{ref.benchmark}"):
                for path, metric, figure in _figures(folder, run, ref, pattern):
                    key = (
                        ref.category, ref.benchmark, ref.target, path,
                        run.environment.fingerprint, ref.params_digest,
                    )  # fmt: skip
                    found.setdefault(key, []).append((_point(run, figure), metric))
    if not found:
        raise _nothing(output_dir, pattern, benchmark, last)
    made = [_series(key, points, magnitude) for key, points in found.items()]
    return sorted(made, key=lambda each: -len(each.points))


def _figures(folder: Path, run: Run, ref: ResultRef, pattern: str) -> Iterator[tuple[str, Metric, Figure]]:
    try:
        result = read_result_of(folder, ref)
    except BenchmarkError:
        return
    for path, figure in result.metrics.items():
        if fits(pattern, f"{ref.category}.{ref.benchmark}", path):
            metric = metric_in(result, path)
            if run.times_count or not is_timed(metric.unit):
                yield path, metric, figure


def _point(run: Run, figure: Figure) -> HistoryPoint:
    revision = run.environment.git_revision[:12] + ("+" if run.environment.git_dirty else "")
    return HistoryPoint(
        run_id=run.id,
        started_at=run.started_at,
        revision=revision if run.environment.git_revision else "",
        value=figure.value,
        low=figure.low,
        high=figure.high,
    )


def _series(
    key: tuple[str, ...], points: Sequence[tuple[HistoryPoint, Metric]], magnitude: float | None
) -> Series:
    category, benchmark, target, path, fingerprint, digest = key
    ordered = sorted((point for point, _ in points), key=lambda point: (point.started_at, point.run_id))
    metric = points[-1][1]
    return Series(
        category=category,
        benchmark=benchmark,
        target=target,
        path=path,
        unit=metric.unit,
        better=metric.better,
        fingerprint=fingerprint,
        params_digest=digest,
        points=ordered,
        changes=level_changes(ordered, metric, magnitude),
    )


def level_changes(
    points: Sequence[HistoryPoint], metric: Metric, magnitude: float | None = None
) -> list[LevelChange]:
    """Return where the level changed. Times, rates and sizes are compared as logarithms."""
    values = [point.value for point in points]
    if len(values) < 2 * SHORTEST:
        return []
    in_logs = bool(metric.unit) and all(value > 0 for value in values)
    if in_logs:
        places = find_changes([math.log(value) for value in values], math.log1p(magnitude or MAGNITUDE))
    else:
        places = find_changes(values, magnitude or MAGNITUDE_OF_SHARES)
    bounds = [0, *places, len(values)]
    levels = [statistics.median(values[start:end]) for start, end in pairwise(bounds)]
    return [
        LevelChange(
            index=place,
            run_id=points[place].run_id,
            revision=points[place].revision,
            before=before,
            after=after,
            direction=_direction(before, after, metric.better),
        )
        for place, before, after in zip(places, levels, levels[1:], strict=False)
    ]


def _direction(before: float, after: float, better: Better) -> Literal["better", "worse", "neither"]:
    if better == "neither":
        return "neither"
    return "better" if (after > before) == (better == "higher") else "worse"


def _nothing(output_dir: Path, pattern: str, benchmark: str | None, last: int) -> BenchmarkError:
    """Return the error that explains why there is no series."""
    benchmarks: set[str] = set()
    leaves: set[str] = set()
    for folder, run in readable_runs(run_folders(output_dir)[-last:]):
        for ref in run.results:
            benchmarks.add(ref.benchmark)
            if benchmark in (None, ref.benchmark, f"{ref.category}.{ref.benchmark}"):
                try:
                    metrics = read_result_of(folder, ref).metrics
                except BenchmarkError:
                    continue
                leaves.update(leaf_of(path) for path in metrics)
    if not benchmarks:
        return NothingMeasured(f"there are no runs in {output_dir}: make some with `membench run`")
    if benchmark is not None and not leaves:
        return UnknownName(f"no run has the benchmark {benchmark!r}: {nearest(benchmark, benchmarks)}")
    return UnknownName(f"no metric fits {pattern!r}: {nearest(pattern.rpartition('/')[2], leaves)}")
