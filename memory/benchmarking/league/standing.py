"""Which figure of an axis is the best, and which ones the project's own verdicts do not tell from it.

Every other system of the axis is compared with the one that has the best figure, by the tests of `compare`:
over rounds for times and rates, question by question for quality. All comparisons of the table are one
family for Holm's correction, so that a table of a hundred cells does not get five differences by chance.

A figure of one round that has an interval of its own, such as the knee, is compared by these intervals.
They do not include what changes between rounds, so a difference has to exceed that too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memory.benchmarking.league.model import Axis, Cell, Standing, System
from memory.benchmarking.measure.statistics import CONFIDENCE, t_critical
from memory.benchmarking.model.answers import Answers
from memory.benchmarking.model.records import Figure, Result, Run, Unit
from memory.benchmarking.text.display import figure_text
from memory.benchmarking.verdicts.decide import decide
from memory.benchmarking.verdicts.evidence import CaseResult, gather_evidence
from memory.benchmarking.verdicts.noise import NoiseFloor, metric_key
from memory.benchmarking.verdicts.paired import ALL_QUESTIONS
from memory.benchmarking.verdicts.records import MetricVerdict
from memory.benchmarking.verdicts.thresholds import Thresholds

THRESHOLDS = Thresholds(default=0.05, quality=0.01)
"""A smaller difference than 5 %, or than 0.01 of recall, does not matter to somebody who chooses one."""
ROUNDS_APART = 0.25
"""How far two rounds may be apart in figures of one round: three knees of one system were up to 24 % apart
(docs/saturation.md). For other figures no noise is assumed: the systems took turns, in several rounds."""


@dataclass(frozen=True)
class Measured:
    """The cell of one system, with what its test needs."""

    system: System
    cell: Cell
    result: Result | None
    run: Run
    answers: Answers | None = None


def with_standings(table: Mapping[Axis, Sequence[Measured]]) -> dict[tuple[str, str], Cell]:
    """Return all cells by target and axis, with their standing."""
    cells = {(each.system.target, axis.key): each.cell for axis, row in table.items() for each in row}
    bases: dict[tuple[str, str, str], CaseResult] = {}
    others: dict[tuple[str, str, str], CaseResult] = {}
    best_of: dict[tuple[str, str], Measured] = {}
    for axis, group in _groups(table):
        best = _best(axis, group)
        if best is None:
            continue
        key = (best.system.target, axis.key)
        cells[key] = replace(cells[key], standing="best")
        for each in group:
            if each is not best:
                case = (axis.group, axis.key, each.system.target)
                bases[case], others[case] = _as_case(axis, best), _as_case(axis, each)
                best_of[each.system.target, axis.key] = best
    for verdict in _verdicts(bases, others):
        key = (verdict.target, verdict.benchmark)
        if key in best_of:
            best = best_of[key]
            standing: Standing = "worse" if verdict.verdict == "regressed" else "tied"
            if verdict.p is None:  # a single round has no interval: nothing can be said
                standing = ""
            axis = next(axis for axis in table if axis.key == verdict.benchmark)
            cells[key] = replace(cells[key], standing=standing, against_best=_words(axis, verdict, best))
    return cells


def _verdicts(
    bases: Mapping[tuple[str, str, str], CaseResult], others: Mapping[tuple[str, str, str], CaseResult]
) -> list[MetricVerdict]:
    evidence, _ = gather_evidence(bases, others, THRESHOLDS)
    floors: dict[str, float] = {}
    for number, each in enumerate(evidence):
        if each.log_ratio is not None and each.error is None and each.scale == "ratio":
            case = (each.category, each.benchmark, each.target)
            error = _error_of_intervals(*(side[case].result.metrics[each.path] for side in (bases, others)))
            if error is not None:
                evidence[number] = replace(each, error=error, freedom=math.inf, reason="")
                floors[metric_key(*case, each.path)] = ROUNDS_APART
    return decide(evidence, threshold=THRESHOLDS, noise=NoiseFloor("stored", floors))


def _error_of_intervals(*figures: Figure) -> float | None:
    """Return the standard error of the logarithm of a ratio by the figures' own intervals; None without."""
    errors = []
    for figure in figures:
        if figure.low is None or figure.high is None or figure.low <= 0:
            return None
        longer = max(math.log(figure.value / figure.low), math.log(figure.high / figure.value))
        errors.append(longer / t_critical(math.inf, CONFIDENCE))
    return math.hypot(*errors)


def _groups(table: Mapping[Axis, Sequence[Measured]]) -> Iterator[tuple[Axis, list[Measured]]]:
    """Yield the systems that are ranked together: those of an axis, or of one of its durability classes."""
    for axis, row in table.items():
        classes: dict[str, list[Measured]] = {}
        for each in row:
            if each.cell.figure is not None:
                classes.setdefault(each.system.durability if axis.by_durability else "", []).append(each)
        for group in classes.values():
            yield axis, group


def _best(axis: Axis, group: Sequence[Measured]) -> Measured | None:
    if len(group) < 2 or axis.better == "neither":
        return None
    sign = -1 if axis.better == "higher" else 1

    def cost(each: Measured) -> float:
        assert each.cell.figure is not None
        return sign * each.cell.figure.value

    return min(group, key=cost)


def _as_case(axis: Axis, each: Measured) -> CaseResult:
    """Return a result with nothing but the figure of this axis, under the same path for all systems."""
    assert each.cell.figure is not None
    # What was kept and broken was counted once; it does not vary from round to round.
    is_count = axis.group == "Promises"
    metadata = each.result.metadata if each.result is not None else {"seeds": [0]} if is_count else {}
    leaf = _leaf(axis)
    answers = None
    path = f"axis/{leaf}"
    if each.answers is not None:
        place = each.cell.path.partition(f"/{ALL_QUESTIONS}/")[0]
        answers = [{"axis": one[place]} for one in each.answers if place in one]
        path = f"axis/{ALL_QUESTIONS}/{leaf}"
    result = Result(
        category=axis.group,
        benchmark=axis.key,
        timestamp="",
        results={},
        metadata={"seeds": metadata.get("seeds"), "rounds": metadata.get("rounds")},
        metrics={path: each.cell.figure},
        units={leaf: Unit(unit=axis.unit, better=axis.better)},
    )
    one_round = any(case.most_rounds == 1 for case in each.run.cases if case.name == each.cell.benchmark)
    return CaseResult(result, each.run.times_count, one_round or is_count, answers)


def _leaf(axis: Axis) -> str:
    """Return the name of the metric, which tells the tests what kind of figure it is."""
    if axis.group == "Quality":
        return "recall_at_5"
    return {"ms": "p50_ms", "/s": "operations_per_second", "": "hit_rate"}.get(axis.unit, "size")


def _words(axis: Axis, verdict: MetricVerdict, best: Measured) -> str:
    """Return how a cell compares with the best: `2.1 × usearch (1.8 to 2.5)`."""
    if verdict.scale == "ratio" and verdict.ratio is not None:
        bounds = ""
        if verdict.low is not None and verdict.high is not None and verdict.high < 1000:
            bounds = f" ({verdict.low:.2g} to {verdict.high:.2g})"
        return f"{verdict.ratio:.2g} × {best.system.name}{bounds}"
    if verdict.base is not None and verdict.current is not None:
        difference = verdict.current - verdict.base
        return f"{difference:+.3f} against {best.system.name} ({figure_text(verdict.base, axis.unit)})"
    return ""
