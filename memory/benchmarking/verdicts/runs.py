"""Read the runs of a folder, and find the newest ones."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError, DamagedResult, NothingMeasured, UnknownName
from memory.benchmarking.model.files import RUN_FILE, read_run, run_folders
from memory.benchmarking.model.records import Run

_RUN_ID = re.compile(r"\d{8}_\d{6}_[0-9a-f]{4}")
"""The name of a run's folder, as `new_run_folder` makes it."""


def readable_runs(folders: Iterable[Path]) -> Iterator[tuple[Path, Run]]:
    """Yield the runs of these folders. Damaged ones are left out: `results list` names them."""
    for folder in folders:
        try:
            yield folder, read_run(folder)
        except BenchmarkError:
            continue


def newest_run(folder: Path) -> Path:
    """Return the folder itself if it is a run, else its newest run.

    Raises NothingMeasured if the newest run is not complete, and DamagedResult if it can't be read. An
    older run is never returned in its place: an older run does not describe the code that failed.
    """
    if (folder / RUN_FILE).is_file():
        return folder
    if not folder.is_dir():
        raise UnknownName(f"there is no folder {folder}")
    folders = run_folders(folder)
    unread = _newest_without_record(folder)
    if unread is not None and (not folders or unread > folders[-1].name):
        raise DamagedResult(
            f"the newest run, {unread}, has no {RUN_FILE}: it was just started, or its record is gone; "
            f"delete {folder / unread}, or name the run to use"
        )
    if not folders:
        raise NothingMeasured(f"there are no runs in {folder}: make one with `membench run`")
    run = read_run(folders[-1])
    problem = run_problem(run)
    if problem:
        raise NothingMeasured(
            f"the newest run, {run.id}, {problem}: finish it with `membench run --resume {run.id}`, "
            "or name the run to use"
        )
    return folders[-1]


def _newest_without_record(folder: Path) -> str | None:
    """Return the name of the newest folder that is named like a run and has no `run.json`."""
    names = [path.name for path in folder.iterdir() if _RUN_ID.fullmatch(path.name) and path.is_dir()]
    return max((name for name in names if not (folder / name / RUN_FILE).is_file()), default=None)


def run_problem(run: Run) -> str:
    """Return why the results of a run can't be trusted, as the end of a sentence; empty if they can."""
    if run.status == "complete":
        return "" if run.results else "has no results"
    if run.failures:
        first = run.failures[0]
        what = "1 round" if len(run.failures) == 1 else f"{len(run.failures)} rounds"
        return f"failed in {what} (the first: {first.case}, {first.message})"
    return {"running": "is still running", "interrupted": "was interrupted"}.get(run.status, "failed")


def two_newest(output_dir: Path) -> tuple[Path, Path, list[str]]:
    """Return the newest run and the last complete one before it that shares a case, the older one first.

    The third value has a note for each run between them that was skipped.
    """
    current = newest_run(output_dir)
    cases = _cases(read_run(current))
    skipped: list[str] = []
    for folder in reversed(run_folders(output_dir)):
        if folder.name >= current.name:
            continue
        try:
            run = read_run(folder)
        except BenchmarkError as problem:
            skipped.append(f"not used as the base: {problem}")
            continue
        if not _cases(run) & cases:
            continue
        problem_text = run_problem(run)
        if not problem_text:
            return folder, current, skipped
        skipped.append(f"not used as the base: {run.id} {problem_text}")
    raise NothingMeasured(f"{output_dir} has one complete run of these benchmarks: a second is needed")


def _cases(run: Run) -> set[tuple[str, str, str]]:
    return {(ref.category, ref.benchmark, ref.target) for ref in run.results}
