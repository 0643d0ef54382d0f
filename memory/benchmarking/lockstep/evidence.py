"""Turns pairs of processes into evidence: each pair gives one observation of each metric.

| figure | its value in one pair |
| --- | --- |
| CPU time of a timing | the median over turns of the log-ratio of the fastest blocks |
| wall time of a timing | the same; judged only if the operation waits or uses threads |
| everything else: sizes, recall, rates, other times | log-ratio or difference of the two processes |

The interval over the pairs is Student's.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.lockstep.pair import Pair
from memory.benchmarking.lockstep.ratios import ClockRatio, timing_ratio
from memory.benchmarking.measure.statistics import one_sample
from memory.benchmarking.metrics import Declaration, Metric, is_timed
from memory.benchmarking.model.paths import join, leaf_of, split_leaf, where_of
from memory.benchmarking.model.records import Case
from memory.benchmarking.verdicts.decide import Evidence
from memory.benchmarking.verdicts.gating import reason_not_judged
from memory.benchmarking.verdicts.records import Scale
from memory.benchmarking.verdicts.scales import limits_of, scale_of
from memory.benchmarking.verdicts.thresholds import Thresholds

CPU = "cpu_ms"
WALL = "wall_ms"
_TIME = Metric("ms", "lower")
_WAITS = 1.2
"""An operation waits for something if its wall ÷ CPU time is at least this."""
_THREADS = 0.8
"""An operation uses several threads if its wall ÷ CPU time is at most this."""


@dataclass(frozen=True)
class _Subject:
    """The case that the evidence is about."""

    case: Case
    declaration: Declaration
    thresholds: Thresholds


def evidence_of(
    case: Case, declaration: Declaration, pairs: Sequence[Pair], thresholds: Thresholds
) -> list[Evidence]:
    """Return the evidence for every metric of one case."""
    subject = _Subject(case, declaration, thresholds)
    rounds = [side for pair in pairs for side in (pair.base, pair.current)]
    timings = dict.fromkeys(path for side in rounds for path in side.samples)
    figures = dict.fromkeys(path for side in rounds for path in side.figures)
    return [
        *(evidence for path in timings for evidence in _of_timing(subject, path, pairs)),
        *(_of_figure(subject, path, pairs) for path in figures if where_of(path) not in timings),
    ]


def has_other_clocks(pair: Pair, declaration: Declaration) -> bool:
    """Return whether the benchmark measured some time itself, not by `bench.time` in turns."""
    for side in (pair.base, pair.current):
        in_turns = {path for path, samples in side.samples.items() if samples.turn_blocks}
        for path in side.figures:
            where, leaf = split_leaf(path)
            if where not in in_turns and is_timed(declaration.metric(leaf).unit):
                return True
    return False


# -- timings ----------------------------------------------------------------------------------


def _of_timing(subject: _Subject, path: str, pairs: Sequence[Pair]) -> Iterator[Evidence]:
    cpu_path, wall_path = (join(path, name) for name in (CPU, WALL))
    in_base = any(path in pair.base.samples for pair in pairs)
    in_current = any(path in pair.current.samples for pair in pairs)
    if not (in_base and in_current):
        yield _of_one_side(subject, cpu_path, _TIME, in_base=in_base)
        return
    ratios = [
        timing_ratio(pair.base.samples[path], pair.current.samples[path])
        for pair in pairs
        if path in pair.base.samples and path in pair.current.samples
    ]
    cpu = [ratio.cpu for ratio in ratios if ratio.cpu is not None]
    has_cpu = len(cpu) == len(ratios)
    if has_cpu:
        yield _of_clock(subject, cpu_path, cpu, "")
    reason = "judged by cpu_ms"
    if not has_cpu or any(
        not _THREADS < statistics.median(ratio.wall_to_cpu[side] for ratio in ratios) < _WAITS
        for side in (0, 1)
    ):
        reason = ""
    yield _of_clock(subject, wall_path, [ratio.wall for ratio in ratios], reason)


def _of_clock(subject: _Subject, path: str, ratios: Sequence[ClockRatio], not_judged: str) -> Evidence:
    base = statistics.geometric_mean(ratio.base for ratio in ratios)
    current = statistics.geometric_mean(ratio.current for ratio in ratios)
    effects = [ratio.log_ratio for ratio in ratios]
    return _of_effects(subject, path, _TIME, base, current, effects, "ratio", not_judged)


# -- everything else --------------------------------------------------------------------------


def _of_figure(subject: _Subject, path: str, pairs: Sequence[Pair]) -> Evidence:
    metric = subject.declaration.metric(leaf_of(path))
    in_base = any(path in pair.base.figures for pair in pairs)
    in_current = any(path in pair.current.figures for pair in pairs)
    if not (in_base and in_current):
        return _of_one_side(subject, path, metric, in_base=in_base)
    both = [
        (pair.base.figures[path], pair.current.figures[path])
        for pair in pairs
        if path in pair.base.figures and path in pair.current.figures
    ]
    not_judged = reason_not_judged(
        path,
        metric.unit,
        metric.better,
        kind="lockstep",
        name=subject.case.name,
        siblings=_siblings(path, pairs),
        thresholds=subject.thresholds,
    )
    scale = scale_of(path, metric, [value for values in both for value in values])
    if scale == "ratio":
        # The logarithm of a quotient is exactly 0 for equal figures; a difference of logarithms is not.
        effects = [math.log(now / before) for before, now in both]
        centre = statistics.geometric_mean
    else:
        effects = [now - before for before, now in both]
        centre = statistics.fmean
    before, now = (centre(values) for values in zip(*both, strict=True))
    return _of_effects(subject, path, metric, before, now, effects, scale, not_judged)


def _siblings(path: str, pairs: Sequence[Pair]) -> set[str]:
    where = where_of(path)
    return {leaf_of(other) for other in pairs[0].current.figures if where_of(other) == where}


# -- both -------------------------------------------------------------------------------------


def _of_effects(
    subject: _Subject,
    path: str,
    metric: Metric,
    base: float,
    current: float,
    effects: Sequence[float],
    scale: Scale,
    not_judged: str,
) -> Evidence:
    effect = one_sample(effects)
    return _evidence(
        subject,
        path,
        metric,
        base=base,
        current=current,
        log_ratio=effect.value,
        error=effect.error,
        freedom=effect.freedom,
        gates=not not_judged,
        reason=not_judged,
        scale=scale,
        limits=limits_of(path, metric, (base, current)) if scale == "difference" else None,
    )


def _of_one_side(subject: _Subject, path: str, metric: Metric, *, in_base: bool) -> Evidence:
    """Return evidence without a test. The metric is missing if only the base has it."""
    reason = f"only on the {'base' if in_base else 'current'} side"
    settled = None if metric.better == "neither" else "missing" if in_base else "new"
    return _evidence(subject, path, metric, base=None, current=None, settled=settled, reason=reason)


def _evidence(subject: _Subject, path: str, metric: Metric, **fields: Any) -> Evidence:
    return Evidence(
        category=subject.case.category,
        benchmark=subject.case.benchmark,
        target=subject.case.target,
        path=path,
        unit=metric.unit,
        better=metric.better,
        **fields,
    )
