"""From pairs of processes to evidence: the pair is the observation, whatever is inside it.

| figure | in one pair |
| --- | --- |
| a timing's CPU time | the median over turns of the log-ratio of the least disturbed blocks |
| its wall time | the same; judged where the operation waits or uses threads, shown otherwise |
| everything else: sizes, recall, rates, other clocks | the log-ratio or the difference of both processes |

Over the pairs of both a t-interval.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memory.benchmarking.lockstep.pair import Pair
from memory.benchmarking.lockstep.ratios import ClockRatio, timing_ratio
from memory.benchmarking.measure.statistics import one_sample
from memory.benchmarking.metrics import Declaration, Metric, is_timed
from memory.benchmarking.model.paths import join, leaf_of, split_leaf, where_of
from memory.benchmarking.model.records import Case
from memory.benchmarking.verdicts.decide import Evidence
from memory.benchmarking.verdicts.gating import why_not
from memory.benchmarking.verdicts.records import Scale
from memory.benchmarking.verdicts.scales import scale_of
from memory.benchmarking.verdicts.thresholds import Thresholds

CPU = "cpu_ms"
WALL = "wall_ms"
_TIME = Metric("ms", "lower")
_WAITS = 1.2
"""From this wall ÷ CPU on, an operation waits for something."""
_THREADS = 0.8
"""Up to this one, several threads work for it."""


@dataclass(frozen=True)
class _Subject:
    """Whose evidence it is."""

    case: Case
    declaration: Declaration
    thresholds: Thresholds


def evidence_of(
    case: Case, declaration: Declaration, pairs: Sequence[Pair], thresholds: Thresholds
) -> list[Evidence]:
    """All evidence of the pairs of one case."""
    subject = _Subject(case, declaration, thresholds)
    timings = dict.fromkeys(
        path for pair in pairs for side in (pair.base, pair.current) for path in side.samples
    )
    found = [each for path in timings for each in _of_timing(subject, path, pairs)]
    figures = dict.fromkeys(
        path for pair in pairs for side in (pair.base, pair.current) for path in side.figures
    )
    for path in figures:
        if where_of(path) not in timings:
            found.extend(_of_figure(subject, path, pairs))
    return found


def has_other_clocks(pair: Pair, declaration: Declaration) -> bool:
    """Whether some figure of time was not measured in turns, and so by a clock of the benchmark's own."""
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
        yield _on_one_side(subject, cpu_path, _TIME, in_base=in_base)
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


def _of_clock(subject: _Subject, path: str, clocks: Sequence[ClockRatio], not_judged: str) -> Evidence:
    base = statistics.geometric_mean(clock.base for clock in clocks)
    current = statistics.geometric_mean(clock.current for clock in clocks)
    effects = [clock.log_ratio for clock in clocks]
    return _evidence(subject, path, _TIME, base, current, effects, "ratio", not_judged)


# -- everything else --------------------------------------------------------------------------


def _of_figure(subject: _Subject, path: str, pairs: Sequence[Pair]) -> Iterator[Evidence]:
    leaf = leaf_of(path)
    metric = subject.declaration.metric(leaf)
    base = [pair.base.figures[path] for pair in pairs if path in pair.base.figures]
    current = [pair.current.figures[path] for pair in pairs if path in pair.current.figures]
    if not base or not current:
        yield _on_one_side(subject, path, metric, in_base=bool(base))
        return
    both = [
        (pair.base.figures[path], pair.current.figures[path])
        for pair in pairs
        if path in pair.base.figures and path in pair.current.figures
    ]
    not_judged = why_not(
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
        # Of equal figures exactly 0, which the difference of two logarithms need not be.
        effects = [math.log(now / before) for before, now in both]
        centre = statistics.geometric_mean
    else:
        effects = [now - before for before, now in both]
        centre = statistics.fmean
    before, now = (centre(values) for values in zip(*both, strict=True))
    yield _evidence(subject, path, metric, before, now, effects, scale, not_judged)


def _siblings(path: str, pairs: Sequence[Pair]) -> set[str]:
    where = where_of(path)
    return {leaf_of(other) for other in pairs[0].current.figures if where_of(other) == where}


# -- both -------------------------------------------------------------------------------------


def _evidence(
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
    return Evidence(
        category=subject.case.category,
        benchmark=subject.case.benchmark,
        target=subject.case.target,
        path=path,
        unit=metric.unit,
        better=metric.better,
        base=base,
        current=current,
        log_ratio=effect.value,
        error=effect.error,
        freedom=effect.freedom,
        gates=not not_judged,
        reason=not_judged,
        scale=scale,
    )


def _on_one_side(subject: _Subject, path: str, metric: Metric, *, in_base: bool) -> Evidence:
    return Evidence(
        category=subject.case.category,
        benchmark=subject.case.benchmark,
        target=subject.case.target,
        path=path,
        unit=metric.unit,
        better=metric.better,
        base=None,
        current=None,
        settled="missing" if in_base else "new",
        reason="only on the base side" if in_base else "only on the current side",
    )
