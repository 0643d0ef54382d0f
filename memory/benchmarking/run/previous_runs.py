"""Previous runs of the same cases: how long they took, and how this run differs from them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.aggregate import params_digest
from memory.benchmarking.model.answers import read_answers
from memory.benchmarking.model.benchmark import declaration_of_case
from memory.benchmarking.model.figure_kinds import target_changes
from memory.benchmarking.model.files import read_result_of, run_folders
from memory.benchmarking.model.records import Case, Result, ResultRef, Run, target_info_of
from memory.benchmarking.verdicts.compare import StoredSide, compare_sides
from memory.benchmarking.verdicts.evidence import CaseKey, CaseResult
from memory.benchmarking.verdicts.noise import load_noise
from memory.benchmarking.verdicts.records import MetricVerdict
from memory.benchmarking.verdicts.runs import readable_runs

_MOST_RUNS = 100
"""How many of the newest runs are read: reading thousands of files would take seconds."""
_HARNESS_SECONDS = 0.7
"""What a round takes besides the benchmark: start, imports and saving. Measured on two virtual cores."""


def _newest_runs(output_dir: Path) -> Iterator[tuple[Path, Run]]:
    return readable_runs(islice(reversed(run_folders(output_dir)), _MOST_RUNS))


class Estimator:
    """Estimates how many seconds a round takes: from the newest run of the case, else as declared.

    What a benchmark declares is the time of the default target. For a target that ran other benchmarks
    under the same profile, it is multiplied by how much slower the target was there.

    Args:
        output_dir: The folder that has the runs.
        profile: The profile whose expected seconds are used for cases that never ran.
    """

    def __init__(self, output_dir: Path, profile: str) -> None:
        self._profile = profile
        self._known: dict[tuple[str, str, str], float] = {}
        self._of_target: dict[str, dict[str, float]] = {}
        """The seconds of rounds under this profile, by target and benchmark."""
        for _, run in _newest_runs(output_dir):
            for ref in run.results:
                name = f"{ref.category}.{ref.benchmark}"
                key = (name, ref.target, ref.params_digest)
                self._known.setdefault(key, ref.seconds + _HARNESS_SECONDS)
                if run.profile == profile:
                    self._of_target.setdefault(ref.target, {}).setdefault(name, ref.seconds)

    def seconds(self, case: Case) -> float | None:
        """Return the seconds of one round; None where nothing is known about the case."""
        known = self._known.get((case.name, case.target, params_digest(case)))
        if known is not None:
            return known
        expected = declaration_of_case(case).expected_seconds.get(self._profile)
        return None if expected is None else expected * self._slowness(case.target) + _HARNESS_SECONDS

    def _slowness(self, target: str) -> float:
        """Return how many times as long as declared the target took in other benchmarks: the median."""
        declared = {name: each.declaration.expected_seconds for name, each in built_in().items()}
        ratios = [
            seconds / expected
            for name, seconds in self._of_target.get(target, {}).items()
            if (expected := declared.get(name, {}).get(self._profile))
        ]
        return statistics.median(ratios) if ratios else 1.0


@dataclass(frozen=True)
class SincePrevious:
    """The verdicts on one case, against its newest previous run."""

    run_id: str
    metrics: dict[str, MetricVerdict]
    """By path."""
    target_changes: tuple[str, ...] = ()
    """How the target's version differs from that of the previous run."""


def verdicts_since_previous(
    folder: Path, run: Run, results: Sequence[Result]
) -> dict[CaseKey, SincePrevious]:
    """Compare a run with the newest previous run of each of its cases on the same fingerprint.

    All cases form one comparison, with the rules of `membench compare`. `results` are in the order of
    `run.results`. Cases without a previous run are left out.
    """
    current = {_key(ref): (ref, result) for ref, result in zip(run.results, results, strict=True)}
    previous = _previous_results(folder, run, [ref for ref, _ in current.values()])
    if not previous:
        return {}
    before = StoredSide("previous", {case: result for case, (_, result) in previous.items()})
    now = StoredSide(
        run.id,
        {
            case: CaseResult.of(result, run, read_answers(result, (folder / ref.file).parent))
            for case, (ref, result) in current.items()
            if case in previous
        },
    )
    noise = load_noise(folder.parent, run.environment.fingerprint, "stored")
    found = {
        case: SincePrevious(run_id, {}, _changes_of(result.result, current[case][1]))
        for case, (run_id, result) in previous.items()
    }
    for each in compare_sides(before, now, noise=noise).metrics:
        found[each.category, each.benchmark, each.target].metrics[each.path] = each
    return found


def _changes_of(before: Result, now: Result) -> tuple[str, ...]:
    info = target_info_of(now)
    return tuple(target_changes(info.name, target_info_of(before), info))


def _previous_results(
    folder: Path, run: Run, refs: Sequence[ResultRef]
) -> dict[CaseKey, tuple[str, CaseResult]]:
    """Return run id and result of the newest previous run of each case, where there is one."""
    found: dict[CaseKey, tuple[str, CaseResult]] = {}
    missing = {(_key(ref), ref.params_digest, ref.headline) for ref in refs} if run.times_count else set()
    for previous_folder, previous in _newest_runs(folder.parent) if missing else ():
        same_machine = previous.environment.fingerprint == run.environment.fingerprint
        is_before = previous_folder.name != folder.name and previous.started_at <= run.started_at
        if not (same_machine and is_before and previous.times_count):
            continue
        for ref in previous.results:
            identity = (_key(ref), ref.params_digest, ref.headline)
            if identity in missing:
                missing.discard(identity)
                try:
                    result = read_result_of(previous_folder, ref)
                    answers = read_answers(result, (previous_folder / ref.file).parent)
                except BenchmarkError:
                    continue
                found[_key(ref)] = (previous.id, CaseResult.of(result, previous, answers))
        if not missing:
            break
    return found


def _key(ref: ResultRef) -> CaseKey:
    return ref.category, ref.benchmark, ref.target
