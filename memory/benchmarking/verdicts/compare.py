"""Two stored runs, metric by metric. Rounds are the observations.

| figures | test |
| --- | --- |
| times and rates | Welch's on the logarithms of the rounds, with moderated variances |
| sizes, counts, shares: what the data decide | by pairs: the same round of both runs has the same seed |
| shares with intervals of their own (over questions) | on the difference, by these intervals |
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import BenchmarkError, NothingMeasured
from memory.benchmarking.measure.statistics import (
    CONFIDENCE,
    Effect,
    one_sample,
    over_rounds,
    student,
    welch,
)
from memory.benchmarking.metrics import Metric, is_timed, metric_of
from memory.benchmarking.model.files import read_result, read_run
from memory.benchmarking.model.paths import leaf_of, split_leaf, where_of
from memory.benchmarking.model.records import Environment, Figure, Result, Run
from memory.benchmarking.verdicts.decide import ALPHA, Evidence, decide
from memory.benchmarking.verdicts.gating import why_not
from memory.benchmarking.verdicts.moderation import Prior, moderated_welch, prior_of
from memory.benchmarking.verdicts.noise import NoiseFloor, load_noise
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, Verdict
from memory.benchmarking.verdicts.scales import is_share, scale_of
from memory.benchmarking.verdicts.thresholds import Thresholds
from memory.errors import short

_BUSIER = 1.1
"""From this ratio of wall ÷ CPU on, one of the runs had less of the machine than the other."""
_FEW_ROUNDS = 4
_ENOUGH_ROUNDS = 8
_SHIFTED = 0.03
_ENOUGH_TO_SEE_A_SHIFT = 10


def compare_runs(
    base_folder: Path,
    current_folder: Path,
    *,
    thresholds: Thresholds | None = None,
    noise: NoiseFloor | None = None,
    force: bool = False,
    alpha: float = ALPHA,
) -> Comparison:
    """Compare two runs by their folders.

    `noise` is what `calibrate` stored beside the current run, if it is not given. Runs of different
    environments are not compared unless forced.
    """
    base, current = _Side.load(base_folder), _Side.load(current_folder)
    if noise is None:
        noise = load_noise(current_folder.parent, current.run.environment.fingerprint, "stored")
    thresholds = thresholds or Thresholds()
    differences = environment_differences(base.run.environment, current.run.environment)
    comparable = not differences or force
    prior = prior_of([*_variances(base, current, _evidence(base, current, thresholds, Prior()))])
    evidence = list(_evidence(base, current, thresholds, prior))
    if not noise.calibrated:
        # Two runs are further apart in time than the rounds of one, so they differ by no less than these.
        noise = replace(noise, default=max(noise.default, math.expm1(math.sqrt(prior.variance))))
    if not any(each.base is not None and each.current is not None for each in evidence) and not any(
        each.settled == "incomparable" for each in evidence
    ):
        raise NothingMeasured(
            f"{base.run.id} and {current.run.id} have no metric in common: "
            "`membench results show` tells what they measured"
        )
    metrics = decide(evidence, threshold=thresholds, noise=noise, alpha=alpha)
    if not comparable:
        metrics = [_incomparable(each) for each in metrics]
    notes = [*base.problems, *current.problems, *_notes(base.run, current.run, noise)]
    if comparable:
        notes.extend(_shift(metrics))
    return Comparison(
        kind="stored",
        base=_label(base.run),
        current=_label(current.run),
        metrics=metrics,
        notes=notes,
        environment_differences=differences,
        comparable=comparable,
    )


@dataclass(frozen=True)
class _Side:
    """One run with its results, by category, benchmark and target."""

    run: Run
    results: Mapping[tuple[str, str, str], Result]
    problems: Sequence[str]

    @classmethod
    def load(cls, folder: Path) -> _Side:
        run = read_run(folder)
        results, problems = {}, []
        for ref in run.results:
            try:
                results[ref.category, ref.benchmark, ref.target] = read_result(folder / ref.file)
            except BenchmarkError as problem:
                problems.append(f"left out: {problem}")
        return cls(run, results, problems)

    def needs_one_round(self, case: tuple[str, str, str]) -> bool:
        return any(
            each.most_rounds == 1
            for each in self.run.cases
            if (each.category, each.benchmark, each.target) == case
        )


# -- environments -----------------------------------------------------------------------------


def environment_differences(base: Environment, current: Environment) -> list[str]:
    """What the fingerprints differ in, one line each; empty where they are the same."""
    if base.fingerprint == current.fingerprint:
        return []
    before, now = _lasting(base), _lasting(current)
    found = [
        f"{name}: {before.get(name, 'none')} → {now.get(name, 'none')}"
        for name in dict.fromkeys((*before, *now))
        if before.get(name) != now.get(name)
    ]
    return found or [f"fingerprint: {base.fingerprint} → {current.fingerprint}"]


def _lasting(where: Environment) -> dict[str, str]:
    return {
        "cpu": where.cpu,
        "cores": str(where.cores),
        "memory": f"{where.memory_gb:g} GB",
        "os": where.os,
        "python": where.python,
        "file system": where.file_system or "unknown",
        **where.packages,
    }


def _incomparable(each: MetricVerdict) -> MetricVerdict:
    import msgspec

    if each.verdict in (None, "new", "missing"):
        return each
    return msgspec.structs.replace(
        each, verdict="incomparable", reason=each.reason or "measured in different environments"
    )


# -- evidence ---------------------------------------------------------------------------------


def _variances(base: _Side, current: _Side, evidence: Iterable[Evidence]) -> Iterator[tuple[float, int]]:
    """Of the rounds of each timing that is judged, on both sides, with their degrees of freedom."""
    for each in evidence:
        if each.is_judged and is_timed(each.unit) and each.scale == "ratio":
            for side in (base, current):
                rounds = side.results[each.category, each.benchmark, each.target].metrics[each.path].rounds
                if len(rounds) > 1:
                    yield statistics.variance(map(math.log, rounds)), len(rounds) - 1


def _evidence(base: _Side, current: _Side, thresholds: Thresholds, prior: Prior) -> Iterator[Evidence]:
    times_count = base.run.gates and current.run.gates
    for case in dict.fromkeys((*base.results, *current.results)):
        before, now = base.results.get(case), current.results.get(case)
        if before is None:
            yield _whole_case(case, "new", "not in the base")
        elif now is None:
            yield _whole_case(case, "missing", "not in the current run")
        elif differing := _differing(before.metadata.get("params"), now.metadata.get("params")):
            yield _whole_case(case, "incomparable", f"other parameters: {differing}")
        else:
            once = base.needs_one_round(case) and current.needs_one_round(case)
            rules = _Rules(thresholds, prior, times_count, once)
            yield from _case_evidence(case, before, now, rules)


def _whole_case(case: tuple[str, str, str], verdict: Verdict, reason: str) -> Evidence:
    category, benchmark, target = case
    return Evidence(
        category=category,
        benchmark=benchmark,
        target=target,
        path="",
        unit="",
        better="neither",
        base=None,
        current=None,
        reason=reason,
        settled=verdict,
    )


def _differing(before: Any, now: Any) -> str:
    if before == now or not isinstance(before, dict) or not isinstance(now, dict):
        return ""
    names = [name for name in dict.fromkeys((*before, *now)) if before.get(name) != now.get(name)]
    return ", ".join(f"{name} {short(before.get(name))} → {short(now.get(name))}" for name in names)


@dataclass(frozen=True)
class _Rules:
    thresholds: Thresholds
    prior: Prior
    times_count: bool
    once: bool
    """The benchmark says that its data decide everything that no clock decides."""


def _case_evidence(
    case: tuple[str, str, str], before: Result, now: Result, rules: _Rules
) -> Iterator[Evidence]:
    category, benchmark, target = case
    name = f"{category}.{benchmark}"
    same_data = bool(now.metadata.get("seeds")) and before.metadata.get("seeds") == now.metadata.get(
        "seeds"
    )
    leaves: dict[str, set[str]] = {}
    for path in now.metrics:
        where, leaf = split_leaf(path)
        leaves.setdefault(where, set()).add(leaf)
    for path in dict.fromkeys((*now.metrics, *before.metrics)):
        old, new = before.metrics.get(path), now.metrics.get(path)
        metric = _metric(now if new is not None else before, path)
        settled, reason = _settled(old, new, _metric(before, path), metric)
        found: dict[str, Any] = {"settled": settled, "reason": reason}
        if old is not None and new is not None and settled is None:
            reason = why_not(
                path,
                metric.unit,
                metric.better,
                kind="stored",
                name=name,
                siblings=leaves.get(where_of(path), ()),
                samples=min(old.samples, new.samples),
                times_count=rules.times_count,
                thresholds=rules.thresholds,
            )
            found = _tested(path, metric, old, new, same_data, rules) | {"gates": not reason}
            found["reason"] = reason or found["reason"]
        yield Evidence(
            category=category,
            benchmark=benchmark,
            target=target,
            path=path,
            unit=metric.unit,
            better=metric.better,
            base=None if old is None else old.value,
            current=None if new is None else new.value,
            **found,
        )


def _metric(result: Result, path: str) -> Metric:
    leaf = leaf_of(path)
    unit = result.units.get(leaf)
    return metric_of(leaf) if unit is None else Metric(unit.unit, unit.better)


def _settled(
    old: Figure | None, new: Figure | None, was: Metric, metric: Metric
) -> tuple[Verdict | None, str]:
    if metric.better == "neither":
        return None, ""
    if old is None:
        return "new", "not in the base"
    if new is None:
        return "missing", "not in the current run"
    if was != metric:
        return "incomparable", f"was in {was.unit or 'numbers'}, {was.better} is better"
    return None, ""


def _tested(
    path: str, metric: Metric, old: Figure, new: Figure, same_data: bool, rules: _Rules
) -> dict[str, Any]:
    """What Evidence says of the effect."""
    before, now = old.rounds or [old.value], new.rounds or [new.value]
    scale = scale_of(path, metric, (*before, *now))
    timed = is_timed(metric.unit) or bool(new.samples)
    if not timed and same_data and before == now:
        # The same data gave the same figure, round by round: there is nothing left to chance.
        return {"log_ratio": 0.0, "error": 0.0, "scale": scale, "reason": ""}
    if is_share(path, metric, (*before, *now)) and _has_own_interval(old) and _has_own_interval(new):
        effect = _by_own_intervals(old, new)
    else:
        points_before, points_now = (
            [math.log(value) for value in values] if scale == "ratio" else values
            for values in (before, now)
        )
        if not timed and same_data and len(before) == len(now):
            pairs = zip(points_now, points_before, strict=True)
            effect = one_sample([after - earlier for after, earlier in pairs])
        elif is_timed(metric.unit) and scale == "ratio" and min(len(before), len(now)) > 1:
            effect = moderated_welch(points_now, points_before, rules.prior)
        else:
            effect = welch(points_now, points_before)
        if effect.error is None and same_data and rules.once and not timed:
            effect = Effect(effect.value, 0.0, math.inf)
    reason = "" if effect.error is not None else "a single round: no interval"
    return {
        "log_ratio": effect.value,
        "error": effect.error,
        "freedom": effect.freedom,
        "scale": scale,
        "reason": reason,
    }


def _has_own_interval(figure: Figure) -> bool:
    """Whether its interval is over questions or the like, and not the one over its rounds.

    The lower end tells: the upper one may have been cut off at what the figure can be at most."""
    if figure.low is None or figure.high is None:
        return False
    if len(figure.rounds) < 2:
        return True
    for signed in (False, True):
        low = over_rounds(figure.rounds, signed=signed).low
        if low is not None and math.isclose(low, figure.low, rel_tol=1e-6, abs_tol=1e-9):
            return False
    return True


def _by_own_intervals(old: Figure, new: Figure) -> Effect:
    """Taken as independent. Where both met the same questions that asks for too much, never too little."""
    reach = student(math.inf, CONFIDENCE)
    errors = []
    for figure in (old, new):
        assert figure.low is not None
        assert figure.high is not None
        # The longer arm: the other may be cut off at 0 or 1.
        errors.append(max(figure.value - figure.low, figure.high - figure.value, 0.0) / reach)
    return Effect(new.value - old.value, math.hypot(*errors), math.inf)


# -- what else there is to say ----------------------------------------------------------------


def _label(run: Run) -> str:
    revision = run.environment.git_revision[:12] + ("+" if run.environment.git_dirty else "")
    return f"{run.id} ({revision})" if run.environment.git_revision else run.id


def _notes(base: Run, current: Run, noise: NoiseFloor) -> Iterator[str]:
    if base.id == current.id:
        yield f"both are the run {base.id}"
    for side, run in (("base", base), ("current run", current)):
        if not run.gates:
            yield f"the {side} had {run.parallel} rounds side by side: its times are shown, not judged"
        if run.failures:
            yield f"{len(run.failures)} rounds of the {side} failed"
        elif run.status != "complete":
            yield f"the {side} is not whole: it is {run.status}"
    fewest = min(base.rounds, current.rounds)
    if fewest < _FEW_ROUNDS:
        word = "round sees" if fewest == 1 else "rounds see"
        yield f"{fewest} {word} large changes at best: `membench run --rounds {_ENOUGH_ROUNDS}` sees more"
    if base.seed != current.seed:
        yield f"the data differ: seed {base.seed} and seed {current.seed}"
    if base.seconds != current.seconds:
        yield f"a timing took {base.seconds:g} s in the base and {current.seconds:g} s now"
    busy_then, busy_now = _contention(base), _contention(current)
    if busy_then and busy_now and max(busy_then, busy_now) > _BUSIER * min(busy_then, busy_now):
        yield f"the machine was not equally busy: wall ÷ CPU time was {busy_then:.2f} and is {busy_now:.2f}"
    if not noise.calibrated:
        yield (
            f"not calibrated: identical code is taken to differ by up to {noise.default:.0%} "
            "from run to run; `membench calibrate` measures it"
        )


def _contention(run: Run) -> float | None:
    known = [each.wall_to_cpu for each in run.moments if each.wall_to_cpu]
    return statistics.median(known) if known else None


def _shift(metrics: Sequence[MetricVerdict]) -> Iterator[str]:
    """Whether everything timed moved together, as it does when the machine is another one than before."""
    ratios: dict[str, list[float]] = {}
    for each in metrics:
        if each.verdict is not None and is_timed(each.unit) and each.ratio and each.scale == "ratio":
            log_ratio = math.log(each.ratio)
            ratios.setdefault(each.name, []).append(-log_ratio if each.better == "higher" else log_ratio)
    together = [value for values in ratios.values() for value in values]
    if len(ratios) < 2 or len(together) < _ENOUGH_TO_SEE_A_SHIFT:
        return
    middle = statistics.median(together)
    same_way = sum((value > 0) == (middle > 0) for value in together) / len(together)
    if abs(middle) > _SHIFTED and same_way > 0.9:
        word = "slower" if middle > 0 else "faster"
        yield (
            f"nearly everything is {word}, by {math.expm1(abs(middle)):.0%} in the middle: "
            "the machine may have changed, not the code; `membench ab` can tell"
        )
