"""From the results of two sides to evidence: which test each metric gets. Rounds are the observations.

| figures | test |
| --- | --- |
| times and rates | on logarithms: rounds with the same data (`blocks.py`), moderated variances |
| … with too few such rounds | Welch's test, with moderated variances |
| sizes, counts, shares: figures that follow from the data | paired: rounds that had the same data |
| shares over questions whose answers are kept | paired: question by question (`paired.py`) |
| other shares whose interval is over units | on the difference, by these intervals |
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.measure.statistics import (
    CONFIDENCE,
    Effect,
    one_sample,
    t_critical,
    variance,
    welch,
)
from memory.benchmarking.metrics import Metric, is_resident_memory, is_timed, metric_of
from memory.benchmarking.model.answers import Answers
from memory.benchmarking.model.paths import leaf_of, split_leaf, where_of
from memory.benchmarking.model.records import Figure, Result, Run
from memory.benchmarking.verdicts.blocks import (
    LEAST_BLOCKS,
    Block,
    blocks_of,
    moderated_blocks,
    one_for_each_seed,
    spread_of,
)
from memory.benchmarking.verdicts.decide import Evidence
from memory.benchmarking.verdicts.gating import reason_not_judged
from memory.benchmarking.verdicts.moderation import Prior, moderated_welch, prior_of
from memory.benchmarking.verdicts.paired import ALL_QUESTIONS, JUDGED, PairedFigure, paired_figures
from memory.benchmarking.verdicts.records import Verdict
from memory.benchmarking.verdicts.scales import is_share, limits_of, scale_of
from memory.benchmarking.verdicts.thresholds import Thresholds
from memory.errors import short

_CPU, _WALL = "cpu_ms", "p50_ms"
_COMPUTES = 1.2
"""An operation neither waits nor uses threads if its wall ÷ CPU time is within this factor of 1."""
_ALIKE = 1.1
"""If wall ÷ CPU time of both sides differs by more than this factor, the waiting has changed."""

CaseKey = tuple[str, str, str]
"""Category, benchmark and target."""


@dataclass(frozen=True)
class CaseResult:
    """A result, with the facts about its run that decide how it is tested."""

    result: Result
    times_count: bool = True
    """Whether the times of the result may be judged: no rounds ran in parallel."""
    needs_one_round: bool = False
    """Whether all figures except times depend on the data alone."""
    answers: Answers | None = None
    """The answers to each question in each round; None if they were not stored."""

    @classmethod
    def of(cls, result: Result, run: Run | None, answers: Answers | None = None) -> CaseResult:
        """Wrap a result. `run` is the result's run; None for a result that was saved by hand."""
        if run is None:
            return cls(result, answers=answers)
        target = str(result.metadata.get("target") or "")
        case = (result.category, result.benchmark, target)
        one_round = any(
            each.most_rounds == 1
            for each in run.cases
            if (each.category, each.benchmark, each.target) == case
        )
        return cls(result, run.times_count, one_round, answers)


Results = Mapping[CaseKey, CaseResult]


def gather_evidence(
    base: Results, current: Results, thresholds: Thresholds
) -> tuple[list[Evidence], Prior]:
    """Return the evidence for each metric of either side, and the variance that all timings share.

    The tests need this variance, so the metrics are read twice.
    """
    unmoderated = _evidence(base, current, thresholds, Prior())
    prior = prior_of([*_variances(base, current, unmoderated)])
    return list(_evidence(base, current, thresholds, prior)), prior


def _variances(
    base: Results, current: Results, evidence: Iterable[Evidence]
) -> Iterator[tuple[float, int]]:
    """Yield variance and degrees of freedom of each judged timing: of its blocks, else of its rounds."""
    for each in evidence:
        if each.is_judged and is_timed(each.unit) and each.scale == "ratio":
            case = (each.category, each.benchmark, each.target)
            results = [one[case].result for one in (base, current)]
            sides = [
                _logarithms(side) for side in observations(*(one.metrics[each.path] for one in results))
            ]
            blocks = blocks_of(sides[0], results[0].metadata, sides[1], results[1].metadata)
            if len(blocks) >= LEAST_BLOCKS:
                spread = spread_of(blocks)
                yield spread.variance, spread.freedom
                continue
            for side, result in zip(sides, results, strict=True):
                rounds = one_for_each_seed(side, result.metadata)
                if len(rounds) > 1:
                    yield variance(rounds), len(rounds) - 1


def _logarithms(values: Iterable[float]) -> list[float]:
    return [math.log(value) for value in values]


def _evidence(base: Results, current: Results, thresholds: Thresholds, prior: Prior) -> Iterator[Evidence]:
    for case in dict.fromkeys((*base, *current)):
        before, now = base.get(case), current.get(case)
        if before is None:
            yield _whole_case(case, "new", "not in the base")
        elif now is None:
            yield _whole_case(case, "missing", "not in the current run")
        elif differing := _differing(
            before.result.metadata.get("params"), now.result.metadata.get("params")
        ):
            yield _whole_case(case, "incomparable", f"other parameters: {differing}")
        else:
            yield from _case_evidence(case, before, now, thresholds, prior)


def _whole_case(case: CaseKey, verdict: Verdict, reason: str) -> Evidence:
    category, benchmark, target = case
    return Evidence(category=category, benchmark=benchmark, target=target, reason=reason, settled=verdict)


def _differing(before: Any, now: Any) -> str:
    if before == now or not isinstance(before, dict) or not isinstance(now, dict):
        return ""
    names = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {short(before.get(name))} → {short(now.get(name))}" for name in names)


def _case_evidence(
    case: CaseKey, base: CaseResult, current: CaseResult, thresholds: Thresholds, prior: Prior
) -> Iterator[Evidence]:
    category, benchmark, target = case
    before, now = base.result, current.result
    data_decide = base.needs_one_round and current.needs_one_round
    paired = paired_figures(base.answers, current.answers)
    leaves: dict[str, set[str]] = {}
    for path in now.metrics:
        where, leaf = split_leaf(path)
        leaves.setdefault(where, set()).add(leaf)
    for path in dict.fromkeys((*now.metrics, *before.metrics)):
        old, new = before.metrics.get(path), now.metrics.get(path)
        metric = metric_in(now if new is not None else before, path)
        settled, reason = _settled(old, new, metric_in(before, path), metric)
        if settled is None and _is_lost_in_rounds(before, old, now, new):
            settled, reason = "missing", "not in every round of the current run"
        found: dict[str, Any] = {"settled": settled, "reason": reason}
        if old is not None and new is not None and settled is None:
            reason = reason_not_judged(
                path,
                metric.unit,
                metric.better,
                kind="stored",
                name=f"{category}.{benchmark}",
                siblings=leaves.get(where_of(path), ()),
                samples=min(old.samples, new.samples),
                times_count=base.times_count and current.times_count,
                thresholds=thresholds,
            )
            asked_for = thresholds.named(f"{category}.{benchmark}", path) is not None
            if leaf_of(path) == _WALL and not reason and not asked_for:
                reason = _reason_not_to_judge_wall_time(path, before, now)
            if path in paired:
                reason = reason or ("" if asked_for else _judged_instead(path))
                found = _by_questions(path, metric, old, new, paired[path], is_judged=not reason)
            else:
                found = _tested(path, metric, before, now, prior, data_decide=data_decide)
            found |= {"gates": not reason, "reason": reason or found["reason"]}
        shown = _shown(old, new)
        yield Evidence(
            category=category,
            benchmark=benchmark,
            target=target,
            path=path,
            unit=metric.unit,
            better=metric.better,
            base=None if old is None else shown[0],
            current=None if new is None else shown[1],
            **found,
        )


def _reason_not_to_judge_wall_time(path: str, before: Result, now: Result) -> str:
    """Return why the wall time of a timing tells no more than its CPU time; empty where it does.

    Wall time is longer where an operation waits, and shorter where it uses several threads. In the least
    disturbed blocks of each round, other programs cause hardly any of that.
    """
    cpu = f"{where_of(path)}/{_CPU}" if where_of(path) else _CPU
    ratios = []
    for result in (before, now):
        wall_time, cpu_time = result.metrics.get(path), result.metrics.get(cpu)
        if wall_time is None or cpu_time is None or not (wall_time.steady and cpu_time.steady):
            return ""
        ratios.append(
            statistics.geometric_mean(wall_time.steady) / statistics.geometric_mean(cpu_time.steady)
        )
    computes = all(1 / _COMPUTES <= ratio <= _COMPUTES for ratio in ratios)
    alike = max(ratios) / min(ratios) <= _ALIKE
    return f"it does not wait: judged by {_CPU}" if computes and alike else ""


def _shown(old: Figure | None, new: Figure | None) -> tuple[float, float]:
    """Return the figures of both sides to show: the ones from which the change is computed."""
    if old is not None and new is not None and old.steady and new.steady:
        return statistics.geometric_mean(old.steady), statistics.geometric_mean(new.steady)
    return (0.0 if old is None else old.value), (0.0 if new is None else new.value)


def metric_in(result: Result, path: str) -> Metric:
    """Return unit and direction of a figure: as its file states them, else by its name."""
    leaf = leaf_of(path)
    unit = result.units.get(leaf)
    return metric_of(leaf) if unit is None else Metric(unit.unit, unit.better)


def _settled(
    old: Figure | None, new: Figure | None, was: Metric, metric: Metric
) -> tuple[Verdict | None, str]:
    """Return the verdict that needs no test, and its reason."""
    if metric.better == "neither":
        return None, ""
    if old is None:
        return "new", "not in the base"
    if new is None:
        return "missing", "not in the current run"
    if was != metric:
        return "incomparable", f"was in {was.unit or 'numbers'}, {was.better} is better"
    return None, ""


def _is_lost_in_rounds(before: Result, old: Figure | None, now: Result, new: Figure | None) -> bool:
    """Whether the base has a figure in every round, but the current run only in some rounds."""
    if old is None or new is None or not new.rounds:
        return False
    return len(old.rounds) >= _rounds(before) and len(new.rounds) < _rounds(now)


def _rounds(result: Result) -> int:
    rounds = result.metadata.get("rounds")
    return rounds if isinstance(rounds, int) else 0


def _tested(
    path: str, metric: Metric, base: Result, current: Result, prior: Prior, *, data_decide: bool
) -> dict[str, Any]:
    """Return the fields of Evidence that describe the effect."""
    old, new = base.metrics[path], current.metrics[path]
    before, now = observations(old, new)
    values = (*before, *now)
    scale = scale_of(path, metric, values)
    timed = is_timed(metric.unit) or bool(new.samples)
    if scale == "ratio":
        before, now = _logarithms(before), _logarithms(now)
    blocks = blocks_of(before, base.metadata, now, current.metadata)
    if not timed and blocks and all(len({*block.base, *block.current}) == 1 for block in blocks):
        # The same data gave the same figure in every round, so no test is needed.
        return {"log_ratio": 0.0, "error": 0.0, "scale": scale, "reason": ""}
    if is_share(path, metric, values) and _is_over_units(old) and _is_over_units(new):
        effect = _by_unit_intervals(old, new)
    else:
        before, now = one_for_each_seed(before, base.metadata), one_for_each_seed(now, current.metadata)
        moderated = is_timed(metric.unit) and scale == "ratio" and min(len(before), len(now)) > 1
        effect = _effect(before, now, blocks, prior, timed=timed, moderated=moderated)
        exact = blocks and data_decide and not timed and not is_resident_memory(leaf_of(path))
        if effect.error is None and exact:
            effect = Effect(effect.value, 0.0, math.inf)
    return {
        "log_ratio": effect.value,
        "error": effect.error,
        "freedom": effect.freedom,
        "scale": scale,
        "limits": limits_of(path, metric, values),
        "reason": "" if effect.error is not None else "a single round: no interval",
    }


def _effect(
    before: list[float],
    now: list[float],
    blocks: list[Block],
    prior: Prior,
    *,
    timed: bool,
    moderated: bool,
) -> Effect:
    """Return the effect by the test that fits; see the table above."""
    if not timed and blocks:
        return one_sample([block.difference for block in blocks])
    if not moderated:
        return welch(now, before)
    if len(blocks) >= LEAST_BLOCKS:
        return moderated_blocks(blocks, prior)
    return moderated_welch(now, before, prior)


def _judged_instead(path: str) -> str:
    """Return which figures, compared question by question, are judged in place of this one."""
    where, leaf = split_leaf(path)
    if leaf_of(where) == ALL_QUESTIONS and leaf in JUDGED:
        return ""
    return f"judged by {' and '.join(JUDGED)} of all questions"


def _by_questions(
    path: str, metric: Metric, old: Figure, new: Figure, paired: PairedFigure, *, is_judged: bool
) -> dict[str, Any]:
    """Return the fields of Evidence for a figure that was compared question by question."""
    values = (old.value, new.value)
    error = paired.error
    return {
        "log_ratio": paired.value,
        "error": error,
        "freedom": paired.freedom,
        # Only a judged figure needs a p-value, and computing it takes time.
        "chance": paired.chance if is_judged and error else None,
        "scale": "difference",
        "limits": limits_of(path, metric, values),
        "reason": "" if error is not None else "a single question: no interval",
    }


def observations(old: Figure, new: Figure) -> tuple[list[float], list[float]]:
    """Return the rounds' values to compare: of the least disturbed blocks, if both sides have them."""
    if old.steady and new.steady:
        return old.steady, new.steady
    return old.rounds or [old.value], new.rounds or [new.value]


def _is_over_units(figure: Figure) -> bool:
    """Whether the interval is over units inside a round. A single round has no other interval."""
    if figure.low is None or figure.high is None:
        return False
    return figure.interval_from == "units" or len(figure.rounds) < 2


def _by_unit_intervals(old: Figure, new: Figure) -> Effect:
    """Return the difference, with both intervals taken as independent.

    This is conservative if both sides had the same questions: the error is then overestimated.
    """
    standard_errors = t_critical(math.inf, CONFIDENCE)
    errors = []
    for figure in (old, new):
        assert figure.low is not None
        assert figure.high is not None
        # Use the longer side of the interval, because the other one may be cut off at 0 or 1.
        errors.append(max(figure.value - figure.low, figure.high - figure.value, 0.0) / standard_errors)
    return Effect(new.value - old.value, math.hypot(*errors), math.inf)
