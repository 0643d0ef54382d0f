"""Compare two stored runs, or two targets, metric by metric, and note what limits the comparison."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from memory.benchmarking.errors import BenchmarkError, NothingMeasured
from memory.benchmarking.metrics import is_timed
from memory.benchmarking.model.answers import read_answers
from memory.benchmarking.model.figure_kinds import COMPARES, SURVIVES, is_search, is_write, target_changes
from memory.benchmarking.model.files import read_result_of, read_run
from memory.benchmarking.model.records import Environment, Run, target_info_of
from memory.benchmarking.text.notes import result_notes
from memory.benchmarking.verdicts.decide import ALPHA, decide
from memory.benchmarking.verdicts.evidence import CaseResult, Results, gather_evidence
from memory.benchmarking.verdicts.missing import allow
from memory.benchmarking.verdicts.noise import NoiseFloor, load_noise, uncalibrated
from memory.benchmarking.verdicts.paired import question_changes
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, QuestionChange
from memory.benchmarking.verdicts.runs import run_problem
from memory.benchmarking.verdicts.thresholds import Thresholds

_BUSIER = 1.1
"""If wall ÷ CPU time of two runs differs by more than this factor, the comparison gets a note."""
_FEW_ROUNDS = 4
"""A run with fewer rounds than this gets a note."""
_ENOUGH_ROUNDS = 8
_SHIFTED = 0.03
"""If the median log-ratio of all timings is larger, the machine itself may have changed."""
_ENOUGH_TO_SEE_A_SHIFT = 10
"""The fewest timings from which such a shift is reported."""


def compare_runs(
    base_folder: Path,
    current_folder: Path,
    *,
    thresholds: Thresholds | None = None,
    noise: NoiseFloor | None = None,
    force: bool = False,
    allow_missing: Sequence[str] = (),
) -> Comparison:
    """Compare two runs.

    Args:
        base_folder: folder of the base run
        current_folder: folder of the current run
        thresholds: smallest changes that count
        noise: noise of the machine; by default what `calibrate` stored beside the current run
        force: whether to compare runs of different environments
        allow_missing: patterns of benchmarks and metrics that the current run may lack
    """
    base, current = StoredSide.load(base_folder), StoredSide.load(current_folder)
    if noise is None and current.run is not None:
        noise = load_noise(current_folder.parent, current.run.environment.fingerprint, "stored")
    found = compare_sides(base, current, noise=noise, thresholds=thresholds, force=force)
    allow(found, allow_missing)
    if not found.problems and not any(
        each.verdict == "incomparable" or (each.base is not None and each.current is not None)
        for each in found.metrics
    ):
        raise NothingMeasured(
            f"{base.name} and {current.name} have no metric in common: "
            "`membench results show` lists what they measured"
        )
    return found


@dataclass(frozen=True)
class StoredSide:
    """One of the two things that are compared: results, and the run that they are from."""

    name: str
    results: Results
    run: Run | None = None
    """None for results that were saved by hand."""
    problems: Sequence[str] = ()

    @classmethod
    def load(cls, folder: Path) -> StoredSide:
        """Read a run. Problems are: it is not complete, a result can't be read, or warns of itself."""
        run = read_run(folder)
        results, problems = {}, []
        problem_text = run_problem(run)
        if problem_text:
            problems.append(f"{run.id} {problem_text}")
        for ref in run.results:
            answers = None
            try:
                result = read_result_of(folder, ref)
            except BenchmarkError as problem:
                problems.append(str(problem))
                continue
            try:
                answers = read_answers(result, (folder / ref.file).parent)
            except BenchmarkError as problem:
                problems.append(str(problem))
            for note in result_notes(result):
                if note.is_warning:
                    problems.append(f"{run.id}, {ref.category}.{ref.benchmark}: {note.short}")
            results[ref.category, ref.benchmark, ref.target] = CaseResult.of(result, run, answers)
        return cls(run_label(run), results, run, problems)


def compare_sides(
    base: StoredSide,
    current: StoredSide,
    *,
    noise: NoiseFloor | None = None,
    thresholds: Thresholds | None = None,
    force: bool = False,
) -> Comparison:
    """Compare two sides that are already loaded; without `noise`, the machine counts as not calibrated."""
    noise, thresholds = noise or uncalibrated("stored"), thresholds or Thresholds()
    evidence, prior = gather_evidence(base.results, current.results, thresholds)
    if not noise.calibrated:
        # Two runs are further apart in time than the rounds of one run, so they differ by at least as much.
        noise = replace(noise, default=max(noise.default, math.expm1(math.sqrt(prior.variance))))
    between = target_differences(base.results, current.results)
    notes = list(between)
    before, now = _contention(base, current), _contention(current, base)
    if before and now:
        busier = max(before, now) / min(before, now)
        noise = replace(noise, wall=busier - 1)
        if busier > _BUSIER:
            notes.append(
                f"the machine was not equally busy: wall ÷ CPU time was {before:.2f} and is {now:.2f}; "
                "only a larger change of a wall time counts"
            )
    # A run that was compared while it ran, to decide on more rounds, is tested more strictly.
    looks = max((side.run.looks for side in (base, current) if side.run is not None), default=1)
    metrics = decide(evidence, threshold=thresholds, noise=noise, alpha=ALPHA / max(looks, 1))
    differences: list[str] = []
    if base.run is not None and current.run is not None:
        differences = environment_differences(base.run.environment, current.run.environment)
        notes.extend(_notes(base.run, current.run, noise))
    comparable = not differences or force
    if comparable:
        notes.extend(_shift(metrics))
    else:
        metrics = [_incomparable(each) for each in metrics]
    return Comparison(
        kind="stored",
        base=base.name,
        current=current.name,
        metrics=metrics,
        problems=[*base.problems, *current.problems],
        questions=_questions(base.results, current.results) if comparable else [],
        notes=notes,
        environment_differences=differences,
        target_differences=between,
        comparable=comparable,
    )


def _questions(base: Results, current: Results) -> list[QuestionChange]:
    """Return all questions that changed sides, the worst first."""
    found: list[QuestionChange] = []
    for case in (case for case in current if case in base):
        found += question_changes(base[case].answers, current[case].answers, case)
    return sorted(found, key=lambda each: each.change)


# -- environments -----------------------------------------------------------------------------


def target_differences(base: Results, current: Results) -> list[str]:
    """Return how the systems under test differ: versions, files, writes and searches.

    Users may want to compare two versions of a system, or two systems. So these differences are only notes.
    """
    found: dict[str, None] = {}
    for case in base.keys() & current.keys():
        before, now = target_info_of(base[case].result), target_info_of(current[case].result)
        if before.name == now.name:
            for change in target_changes(now.name, before, now):
                found[f"two versions of the system are compared: {change}"] = None
        writes = any(is_write(current[case].result, path) for path in current[case].result.metrics)
        if writes and before.durability and now.durability and before.durability != now.durability:
            found[
                f"writes do not promise the same: a write of {before.name} survives "
                f"{SURVIVES[before.durability]} ({before.durability}), one of {now.name} "
                f"{SURVIVES[now.durability]} ({now.durability})"
            ] = None
        elif writes and before.durability and now.durability:
            found[f"durability of the writes on both sides: {now.durability}"] = None
        searches = any(is_search(current[case].result, path) for path in current[case].result.metrics)
        if searches and before.search_by and now.search_by and before.search_by != now.search_by:
            found[
                f"searches do not compare the same: a search of {before.name} compares "
                f"{COMPARES[before.search_by]} ({before.search_by}), one of {now.name} "
                f"{COMPARES[now.search_by]} ({now.search_by})"
            ] = None
    return sorted(found)


def environment_differences(base: Environment, current: Environment) -> list[str]:
    """Return the differences of two environments, one line each; empty if the fingerprints are equal."""
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
        "embedder": where.embedder or "default",
        **where.packages,
    }


def _incomparable(each: MetricVerdict) -> MetricVerdict:
    if each.verdict in (None, "new", "missing"):
        return each
    return msgspec.structs.replace(
        each, verdict="incomparable", reason=each.reason or "measured in different environments"
    )


# -- notes ------------------------------------------------------------------------------------


def run_label(run: Run) -> str:
    """`20261116_115624_1af3 (7d927a8b1c2d+)`: the id and the revision; + for uncommitted changes."""
    revision = run.environment.git_revision[:12] + ("+" if run.environment.git_dirty else "")
    return f"{run.id} ({revision})" if run.environment.git_revision else run.id


def _notes(base: Run, current: Run, noise: NoiseFloor) -> Iterator[str]:
    if base.id == current.id:
        yield f"both are the run {base.id}"
    for side, run in (("base", base), ("current run", current)):
        if not run.times_count:
            yield f"the {side} ran {run.parallel} rounds in parallel: its times are shown, not judged"
    fewest = min(base.rounds, current.rounds)
    if fewest < _FEW_ROUNDS:
        word = "round sees" if fewest == 1 else "rounds see"
        yield f"{fewest} {word} large changes at best: `membench run --rounds {_ENOUGH_ROUNDS}` sees more"
    if base.seed != current.seed:
        yield f"the data differ: seed {base.seed} and seed {current.seed}"
    if base.seconds != current.seconds:
        yield f"a timing took {base.seconds:g} s in the base and {current.seconds:g} s now"
    if not noise.calibrated:
        yield (
            f"not calibrated: identical code is taken to differ by up to {noise.default:.0%} "
            "from run to run; `membench calibrate` measures it"
        )


def _contention(side: StoredSide, other: StoredSide) -> float | None:
    """Return the median of wall ÷ CPU time over the rounds of common cases: how busy the machine was.

    Return None for two different targets, because one of them may wait more than the other.
    """
    known: list[float] = []
    for case in side.results.keys() & other.results:
        metadata = side.results[case].result.metadata
        rounds = metadata.get("wall_to_cpu")
        if rounds and metadata.get("target") == other.results[case].result.metadata.get("target"):
            known += filter(None, rounds)
    return statistics.median(known) if known else None


def _shift(metrics: Sequence[MetricVerdict]) -> Iterator[str]:
    """Yield a note if all timings moved together: then the machine may have changed, not the code."""
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
            "the machine may have changed, not the code; `membench ab` can decide that"
        )
