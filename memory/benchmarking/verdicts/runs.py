"""Read the runs of a folder, and find the newest complete ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError, NothingMeasured, UnknownName
from memory.benchmarking.model.files import RUN_FILE, read_run, run_folders
from memory.benchmarking.model.records import Run


def readable_runs(folders: Iterable[Path]) -> Iterator[tuple[Path, Run]]:
    """Yield the runs of these folders. Damaged ones are left out: `results list` names them."""
    for folder in folders:
        try:
            yield folder, read_run(folder)
        except BenchmarkError:
            continue


def newest_complete(folder: Path) -> tuple[Path, list[str]]:
    """Return the folder itself if it is a run, else its newest complete run; and notes on skipped runs."""
    if (folder / RUN_FILE).is_file():
        return folder, []
    if not folder.is_dir():
        raise UnknownName(f"there is no folder {folder}")
    skipped = []
    for run_folder in reversed(run_folders(folder)):
        try:
            run = read_run(run_folder)
        except BenchmarkError as problem:
            skipped.append(f"skipped: {problem}")
            continue
        if run.status == "complete" and run.results:
            return run_folder, skipped
        skipped.append(f"skipped: {run_folder.name} is {run.status}")
    if skipped:
        raise NothingMeasured(
            f"{folder} has no complete run ({skipped[0]}): finish one with `membench run --resume`, "
            "or name the run itself"
        )
    raise NothingMeasured(f"there are no runs in {folder}: make one with `membench run`")


def two_newest(output_dir: Path) -> tuple[Path, Path, list[str]]:
    """Return the last two complete runs that share a case, the older one first, and notes."""
    current, skipped = newest_complete(output_dir)
    cases = _cases(read_run(current))
    for folder in reversed(run_folders(output_dir)):
        if folder.name >= current.name:
            continue
        try:
            run = read_run(folder)
        except BenchmarkError as problem:
            skipped.append(f"skipped: {problem}")
            continue
        if run.status == "complete" and _cases(run) & cases:
            return folder, current, skipped
    raise NothingMeasured(f"{output_dir} has one complete run of these benchmarks: a second is needed")


def _cases(run: Run) -> set[tuple[str, str, str]]:
    return {(ref.category, ref.benchmark, ref.target) for ref in run.results}
