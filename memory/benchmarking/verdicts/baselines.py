"""Baselines: named copies of runs. A copy stays when its run is deleted.

    <results>/baselines/main.json                       the name: which run, when it was set
    <results>/baselines/main@20261116_115624_1af3/      the copy

The file of a name is replaced in one step, after the copy is complete. So a reader finds the old run or
the new one, even if the process is killed. The next `set` or `rm` of the name deletes incomplete copies.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from memory.benchmarking.errors import (
    DamagedResult,
    InvalidBenchmarkConfig,
    NothingMeasured,
    ResultNotSaved,
    UnknownName,
    nearest,
)
from memory.benchmarking.model.files import LOGS, ROUNDS, RUN_FILE, encode_json, read_run, write_whole
from memory.benchmarking.model.regular_files import open_regular, read_regular
from memory.benchmarking.verdicts.compare import StoredSide
from memory.benchmarking.verdicts.runs import run_problem

BASELINES = "baselines"
_NOT_IN_FOLDER_NAMES = re.compile(r"[^\w-]", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A name and the run that it stands for."""

    name: str
    run_id: str
    copy: str
    """The name of the copy's folder, inside the folder of all baselines."""
    set_at: str


def baseline_folder(output_dir: Path, name: str) -> Path:
    """Return the folder of the run that a name stands for."""
    baseline = _read(output_dir, name)
    folder = _home(output_dir) / baseline.copy
    if not (folder / RUN_FILE).is_file():
        raise DamagedResult(
            f"the run of the baseline {name!r} is missing: {folder}; set the baseline again"
        )
    return folder


def list_baselines(output_dir: Path) -> list[Baseline]:
    """Return all baselines of a folder of runs, by name."""
    return [_read(output_dir, name) for name in _names(output_dir)]


def set_baseline(output_dir: Path, name: str, run_folder: Path) -> Baseline:
    """Copy a run and give the copy a name. A name that exists is moved to the new copy.

    Raises NothingMeasured for a run that is not complete, and DamagedResult for one with a result that
    can't be read: no comparison with it could be trusted.
    """
    _check(name)
    run = read_run(run_folder)
    reason = run_problem(run)
    if reason:
        raise NothingMeasured(f"{run.id} {reason}: a baseline has to be complete, so choose another run")
    damaged = StoredSide.load(run_folder).problems
    if damaged:
        raise DamagedResult(f"{damaged[0]}: no comparison with it could be trusted, so choose another run")
    home = _home(output_dir)
    baseline = Baseline(
        name=name,
        run_id=run.id,
        copy=f"{name}@{_NOT_IN_FOLDER_NAMES.sub('-', run.id)[:64]}.{time.time_ns():x}",
        set_at=time.strftime("%Y-%m-%dT%H:%M:%S%z"),
    )
    with _locked(home):
        try:
            _copy(run_folder, home / baseline.copy)
        except OSError as problem:
            raise ResultNotSaved(f"{home} can't be written to: {problem.strerror or problem}") from problem
        write_whole(home / f"{name}.json", encode_json(baseline))
        _sweep(home, name, keep=baseline.copy)
    return baseline


def remove_baseline(output_dir: Path, name: str) -> None:
    """Delete a name and its copy."""
    _read(output_dir, name)
    home = _home(output_dir)
    with _locked(home):
        (home / f"{name}.json").unlink(missing_ok=True)
        _sweep(home, name)


def _home(output_dir: Path) -> Path:
    return output_dir / BASELINES


def _check(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidBenchmarkConfig(
            f"a baseline can't be called {name!r}: use up to 64 letters, digits, '.', '_' and '-'"
        )


def _names(output_dir: Path) -> list[str]:
    return sorted(path.stem for path in _home(output_dir).glob("*.json") if _NAME.fullmatch(path.stem))


def _read(output_dir: Path, name: str) -> Baseline:
    _check(name)
    path = _home(output_dir) / f"{name}.json"
    try:
        baseline = msgspec.json.decode(read_regular(path), type=Baseline)
    except FileNotFoundError:
        known = _names(output_dir)
        hint = nearest(name, known) if known else "set one with `membench baseline set NAME`"
        raise UnknownName(f"there is no baseline {name!r} in {output_dir}: {hint}") from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except (msgspec.MsgspecError, RecursionError) as problem:
        raise DamagedResult(f"{path} is damaged: {problem}; set the baseline again") from problem
    if Path(baseline.copy).name != baseline.copy or baseline.copy in ("", ".."):
        raise DamagedResult(f"{path} names the folder {baseline.copy!r}; set the baseline again")
    return baseline


def _copy(run_folder: Path, copy: Path) -> None:
    """Copy the files of a run, `run.json` last: a folder without it is not taken for a run."""
    copy.mkdir(parents=True)
    for path in sorted(run_folder.rglob("*")):
        inside = path.relative_to(run_folder)
        if inside.parts[0] in (LOGS, ROUNDS) or path.name.startswith(".") or not path.is_file():
            continue
        if path.is_symlink() or any(
            parent.is_symlink() for parent in path.parents[: len(inside.parts) - 1]
        ):
            continue  # a link may lead out of the run's folder, and no command reads it
        if inside != Path(RUN_FILE):
            _copy_file(path, copy / inside)
    _copy_file(run_folder / RUN_FILE, copy / RUN_FILE)


def _copy_file(source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    with open(open_regular(source), "rb") as reader, open(copy, "xb") as writer:
        shutil.copyfileobj(reader, writer)
        writer.flush()
        os.fsync(writer.fileno())


def _sweep(home: Path, name: str, keep: str = "") -> None:
    """Delete the copies of a name, except the one to keep."""
    for folder in home.glob(f"{name}@*"):
        if folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """Hold a lock, so that no process deletes what another one is copying."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        # The `with` below closes the file.
        lock = open(open_regular(home / ".lock", os.O_RDWR | os.O_CREAT), "r+b")  # noqa: SIM115
    except OSError as problem:
        raise ResultNotSaved(f"{home} can't be written to: {problem.strerror or problem}") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
