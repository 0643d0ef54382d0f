"""Which run is meant: by a folder, by its id, by a baseline's name, or the newest ones."""

from __future__ import annotations

from pathlib import Path

from memory.benchmarking.errors import BenchmarkError, NothingMeasured, UnknownName
from memory.benchmarking.model.files import RUN_FILE, read_run, run_folders
from memory.benchmarking.model.records import Run


def newest_complete(folder: Path) -> tuple[Path, list[str]]:
    """The run that a folder is, or the newest complete one in it; and what was passed over for it."""
    if (folder / RUN_FILE).is_file():
        return folder, []
    if not folder.is_dir():
        raise UnknownName(f"there is no folder {folder}")
    passed = []
    for run_folder in reversed(run_folders(folder)):
        try:
            run = read_run(run_folder)
        except BenchmarkError as problem:
            passed.append(f"passed over: {problem}")
            continue
        if run.status == "complete" and run.results:
            return run_folder, passed
        passed.append(f"passed over: {run_folder.name} is {run.status}")
    if passed:
        raise NothingMeasured(
            f"{folder} has no complete run ({passed[0]}): finish one with `membench run --resume`, "
            "or name the run itself"
        )
    raise NothingMeasured(f"there are no runs in {folder}: make one with `membench run`")


def two_newest(output_dir: Path) -> tuple[Path, Path, list[str]]:
    """Base, current, notes: the newest complete run, and the one before that shares a case with it."""
    current, passed = newest_complete(output_dir)
    cases = _cases(read_run(current))
    for folder in reversed(run_folders(output_dir)):
        if folder.name >= current.name:
            continue
        try:
            run = read_run(folder)
        except BenchmarkError as problem:
            passed.append(f"passed over: {problem}")
            continue
        if run.status == "complete" and _cases(run) & cases:
            return folder, current, passed
    raise NothingMeasured(f"{output_dir} has one complete run of these benchmarks: a second is needed")


def _cases(run: Run) -> set[tuple[str, str, str]]:
    return {(ref.category, ref.benchmark, ref.target) for ref in run.results}
