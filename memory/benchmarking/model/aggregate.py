"""From rounds to a result: every figure with its interval, in the specification's format."""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal

from memory.benchmarking.measure.statistics import Estimate, over_rounds
from memory.benchmarking.metrics import Declaration, is_signed, metric_of
from memory.benchmarking.model.paths import join, leaf_of, segments_of, where_of
from memory.benchmarking.model.records import FORMAT, Case, Figure, Result, Round, Unit

_ITEM_BYTES = 8
"""Bytes of one sample in `Samples.wall_ns`."""


def params_digest(case: Case) -> str:
    """Return a digest that is the same for cases with the same parameters."""
    return hashlib.sha256(json.dumps(case.params, sort_keys=True).encode()).hexdigest()[:12]


def make_result(
    case: Case,
    rounds: Sequence[Round],
    declaration: Declaration,
    timestamp: str,
    metadata: Mapping[str, Any],
) -> Result:
    """Make the result of a case from its rounds.

    `timestamp` is when the run started; `metadata` is added to the result's own.
    """
    rounds = sorted(rounds, key=lambda each: each.number)
    paths = dict.fromkeys(path for each in rounds for path in each.figures)
    metrics = {path: _figure(path, rounds, declaration) for path in paths}
    # If only some rounds have a figure, the result uses these rounds, and the path is not also n/a.
    not_available = {
        path: reason
        for each in rounds
        for path, reason in each.not_available.items()
        if path not in metrics
    }
    tree: dict[str, Any] = {}
    for path, value in rounds[-1].other.items():
        _plant(tree, path, _filled_in(path, value, metrics) if isinstance(value, str) else value)
    for path in not_available:
        if path:
            _plant(tree, path, None)
    for path, figure in metrics.items():
        is_whole = declaration.metric(leaf_of(path)).whole
        _plant(tree, path, int(figure.value) if is_whole else figure.value)
    names = {leaf_of(path) for path in paths}
    units = {}
    for name in sorted(names):
        metric = metric_of(name, declaration.metrics)
        units[name] = Unit(unit=metric.unit, better=metric.better)
    details = {
        "execution_time": _short(sum(each.seconds for each in rounds)),
        "params": case.params,
        "target": case.target,
        **metadata,
        "rounds": len(rounds),
        "seeds": [each.seed for each in rounds],
        "wall_to_cpu": [each.wall_to_cpu and _short(each.wall_to_cpu) for each in rounds],
        "peak_rss_bytes": [each.peak_rss_bytes for each in rounds],
        "headline": headline_of(declaration.headline, metrics, units),
    }
    if not_available:
        details["not_available"] = not_available
    return Result(
        benchmark=case.benchmark,
        category=case.category,
        timestamp=timestamp,
        results=tree,
        metadata=details,
        metrics=metrics,
        units=units,
        format=FORMAT,
    )


def _filled_in(path: str, text: str, metrics: Mapping[str, Figure]) -> str:
    """Return a text with `{name}` replaced by the figure of that name beside it (see `bench.Sentence`)."""

    def fill(name: re.Match[str]) -> str:
        place = where_of(path)
        figure = metrics.get(join(place, name[1]))
        if figure is None:
            return name[0]
        known = figure.low is not None and figure.high is not None
        return f"{figure.value:.2f}" + (f" ({figure.low:.2f} to {figure.high:.2f})" if known else "")

    return re.sub(r"\{(\w+)\}", fill, text)


def _figure(path: str, rounds: Sequence[Round], declaration: Declaration) -> Figure:
    leaf = leaf_of(path)
    metric = declaration.metric(leaf)
    estimate = over_rounds(
        [each.figures[path] for each in rounds if path in each.figures], signed=is_signed(leaf)
    )
    interval_from: Literal["", "rounds", "units"] = "" if estimate.low is None else "rounds"
    over_units = [each.intervals[path] for each in rounds if path in each.intervals]
    if over_units and len(over_units) == len(estimate.rounds):
        low, high = (math.fsum(bounds) / len(over_units) for bounds in zip(*over_units, strict=True))
        estimate = Estimate(math.fsum(estimate.rounds) / len(over_units), low, high, estimate.rounds)
        interval_from = "units"
    end = estimate.high
    if end is not None and metric.most is not None and max(estimate.rounds) <= metric.most:
        end = min(end, metric.most)  # Student's interval can exceed the metric's range.
    timing = where_of(path)
    samples = [
        len(each.samples[timing].wall_ns) // _ITEM_BYTES for each in rounds if timing in each.samples
    ]
    number: Callable[[float], float] = round if metric.whole else _short
    return Figure(
        value=number(estimate.value),
        low=None if estimate.low is None else number(estimate.low),
        high=None if end is None else number(end),
        rounds=[number(value) for value in estimate.rounds],
        steady=_steady(leaf, timing, rounds),
        samples=min(samples, default=0),
        interval_from=interval_from,
    )


def _steady(leaf: str, timing: str, rounds: Sequence[Round]) -> list[float]:
    """Return the milliseconds a call of the fastest block of each round; empty for other figures.

    A disturbance only adds time, so the fastest block varies less from round to round than the mean of all.
    """
    if leaf not in ("cpu_ms", "p50_ms") or any(timing not in each.samples for each in rounds):
        return []
    found = []
    for each in rounds:
        samples = each.samples[timing]
        times = _integers(samples.block_cpu_ns if leaf == "cpu_ms" else samples.block_wall_ns)
        counts = _integers(samples.block_samples)
        calls = samples.calls_per_sample
        found.append(
            min((ns / (count * calls) / 1e6 for ns, count in zip(times, counts, strict=True)), default=0.0)
        )
    return [_short(value) for value in found] if min(found) > 0 else []


def _integers(data: bytes) -> Sequence[int]:
    """Return little-endian 64-bit integers."""
    numbers = array("q", data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


def _short(value: float) -> float:
    """Round to nine digits: more than any clock measures, and the file has half the size."""
    return float(f"{value:.9g}")


def _plant(tree: dict[str, Any], path: str, value: Any) -> None:
    """Put a leaf in the tree. If a branch has the same name, the branch stays."""
    *branches, leaf = segments_of(path)
    for branch in branches:
        if not isinstance(tree.get(branch), dict):
            tree[branch] = {}
        tree = tree[branch]
    if not isinstance(tree.get(leaf), dict):
        tree[leaf] = value


def headline_of(patterns: str, metrics: Mapping[str, Figure], units: Mapping[str, Unit]) -> str:
    """Return the path of the headline figure.

    `patterns` are separated by `|`, the preferred one first. Of the first pattern that fits, the last match
    counts, because sizes are listed from small to large. Without a match, it is the first figure that has
    a direction, or else the first.
    """
    for pattern in patterns.split("|"):
        fitting = [path for path in metrics if fnmatchcase(path, pattern)]
        if fitting:
            return fitting[-1]
    for path in metrics:
        if units[leaf_of(path)].better != "neither":
            return path
    return next(iter(metrics), "")
