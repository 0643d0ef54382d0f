"""Runs with a name, to compare later ones with: copies, which stay when the run itself is removed.

    <results>/baselines/main.json                       the name: which run, since when
    <results>/baselines/main@20261116_115624_1af3/      the copy

A name is moved to another run in one step (its file is replaced whole), so that a reader always finds
either the old run or the new one, also when the copying was killed. What a kill leaves behind is removed
by the next `set` or `rm` of that name.
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

BASELINES = "baselines"
_NO_NAME = re.compile(r"[^\w-]", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """A name and the run that it stands for."""

    name: str
    run_id: str
    copy: str
    """The folder, inside of that of the baselines."""
    set_at: str


def baseline_folder(output_dir: Path, name: str) -> Path:
    """The run that a name stands for."""
    baseline = _read(output_dir, name)
    folder = _home(output_dir) / baseline.copy
    if not (folder / RUN_FILE).is_file():
        raise DamagedResult(f"the baseline {name!r} has lost its run {folder}: set it again")
    return folder


def list_baselines(output_dir: Path) -> list[Baseline]:
    return [_read(output_dir, name) for name in _names(output_dir)]


def set_baseline(output_dir: Path, name: str, run_folder: Path) -> Baseline:
    """Let a name stand for a run; the copy is whole before the name is moved to it."""
    _check(name)
    run = read_run(run_folder)
    if not run.results:
        raise NothingMeasured(f"{run_folder} has no results: it can't be a baseline")
    home = _home(output_dir)
    baseline = Baseline(
        name=name,
        run_id=run.id,
        copy=f"{name}@{_NO_NAME.sub('-', run.id)[:64]}.{time.time_ns():x}",
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
        return msgspec.json.decode(path.read_bytes(), type=Baseline)
    except FileNotFoundError:
        known = _names(output_dir)
        hint = nearest(name, known) if known else "set one with `membench baseline set NAME`"
        raise UnknownName(f"there is no baseline {name!r} in {output_dir}: {hint}") from None
    except OSError as problem:
        raise DamagedResult(f"{path} can't be read: {problem.strerror or problem}") from problem
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"{path} is damaged: {problem}; set the baseline again") from problem


def _copy(run_folder: Path, copy: Path) -> None:
    """The run's description last: without it a folder is no run."""
    copy.mkdir(parents=True)
    for path in sorted(run_folder.rglob("*")):
        inside = path.relative_to(run_folder)
        if inside.parts[0] in (LOGS, ROUNDS) or path.name.startswith(".") or not path.is_file():
            continue
        if inside != Path(RUN_FILE):
            _copy_file(path, copy / inside)
    _copy_file(run_folder / RUN_FILE, copy / RUN_FILE)


def _copy_file(source: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    with open(source, "rb") as reader, open(copy, "xb") as writer:
        shutil.copyfileobj(reader, writer)
        writer.flush()
        os.fsync(writer.fileno())


def _sweep(home: Path, name: str, keep: str = "") -> None:
    """Remove copies that the name no longer stands for."""
    for folder in home.glob(f"{name}@*"):
        if folder.name != keep:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(home: Path) -> Iterator[None]:
    """One writer at a time, so that no one sweeps away what another has just copied."""
    try:
        home.mkdir(parents=True, exist_ok=True)
        lock = open(home / ".lock", "w")  # noqa: SIM115 - closed below, where it is released
    except OSError as problem:
        raise ResultNotSaved(f"{home} can't be written to: {problem.strerror or problem}") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
