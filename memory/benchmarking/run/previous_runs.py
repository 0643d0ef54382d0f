"""Earlier runs of the same cases: how long they took, and what they measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.measure.statistics import Change, change
from memory.benchmarking.model.aggregate import params_digest
from memory.benchmarking.model.files import read_result, read_run, run_folders
from memory.benchmarking.model.profiles import EXPECTED_SECONDS
from memory.benchmarking.model.records import Case, Result, ResultRef, Run

_RUNS_LOOKED_AT = 100
"""The newest ones; what is older says little, and reading thousands of files takes time."""
_HARNESS_SECONDS = 0.7
"""Of one round, besides the benchmark: starting, loading, saving."""


def _runs(output_dir: Path, without: str = "") -> Iterator[tuple[Path, Run]]:
    """Readable runs, the newest first."""
    for folder in islice(reversed(run_folders(output_dir)), _RUNS_LOOKED_AT):
        if folder.name != without:
            try:
                yield folder, read_run(folder)
            except BenchmarkError:
                continue  # `results list` names it; it must not keep a new run from being shown


class Estimator:
    """Seconds that a round of a case takes: as in the newest run that had it, else as on our machine."""

    def __init__(self, output_dir: Path, profile: str) -> None:
        self._profile = profile
        self._known: dict[tuple[str, str, str], float] = {}
        for _, run in _runs(output_dir):
            for ref in run.results:
                key = (f"{ref.category}.{ref.benchmark}", ref.target, ref.params_digest)
                self._known.setdefault(key, ref.seconds + _HARNESS_SECONDS)

    def seconds(self, case: Case) -> float | None:
        """None where nothing is known."""
        known = self._known.get((case.name, case.target, params_digest(case)))
        if known is not None:
            return known
        expected = EXPECTED_SECONDS.get(case.name, {}).get(self._profile)
        return None if expected is None else expected + _HARNESS_SECONDS


@dataclass(frozen=True)
class Comparison:
    """A headline figure against the one of an earlier run."""

    run_id: str
    change: Change


def compared_with_earlier(folder: Path, run: Run, ref: ResultRef, result: Result) -> Comparison | None:
    """The headline's change since the newest earlier run of the same case on the same fingerprint."""
    if not run.gates or ref.headline not in result.metrics:
        return None
    for before_folder, before in _runs(folder.parent, without=folder.name):
        if before.environment.fingerprint != run.environment.fingerprint or not before.gates:
            continue
        if before.started_at > run.started_at:
            continue
        for other in before.results:
            if _same_case(ref, other):
                found = _change(before_folder, other, result.metrics[ref.headline].rounds)
                return None if found is None else Comparison(before.id, found)
    return None


def _same_case(one: ResultRef, other: ResultRef) -> bool:
    return (one.category, one.benchmark, one.target, one.params_digest, one.headline) == (
        other.category,
        other.benchmark,
        other.target,
        other.params_digest,
        other.headline,
    )


def _change(folder: Path, ref: ResultRef, now: list[float]) -> Change | None:
    try:
        figure = read_result(folder / ref.file).metrics.get(ref.headline)
    except BenchmarkError:
        return None
    return None if figure is None else change(now, figure.rounds)
