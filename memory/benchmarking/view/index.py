"""An index of the runs and their status, in memory. Only files that changed on disk are read again.

A `run.json` has changed if its time, size or inode has: it is always replaced, never rewritten. A line
takes a few hundred bytes, so thousands of runs fit in memory. Pages read everything else when needed.
"""

from __future__ import annotations

import fcntl
import math
import os
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from memory.benchmarking.errors import BenchmarkError, UnknownName
from memory.benchmarking.model.files import LOCK_FILE, RUN_FILE, SCRATCH, read_run
from memory.benchmarking.model.regular_files import open_regular
from memory.benchmarking.view.run_header import RunHeader, read_run_header

DAMAGED = "damaged"
MOST_SHARED = 10_000
"""Shared values that are kept; beyond that all are dropped."""
_Stamp = tuple[int, int, int]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RunLine:
    """What the list of runs shows of one run."""

    id: str
    """The name of its folder, which is unique."""
    folder: Path
    status: str
    """The status in `run.json`, `damaged`, or `interrupted` if the process of a running run is gone."""
    problem: str = ""
    """Why it can't be read; empty if it can."""
    started_at: str = ""
    finished_at: str = ""
    profile: str = ""
    targets: tuple[str, ...] = ()
    cases: tuple[tuple[str, str, str], ...] = ()
    """Category, benchmark and target of each case."""
    revision: str = ""
    command: str = ""
    results: int = 0
    failures: int = 0
    done: int = 0
    """Finished rounds, including failed ones."""
    total: int = 0

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def day(self) -> str:
        """The day of the start, as in `2026-11-16`: from `run.json`, else from the id."""
        name = self.id
        by_name = f"{name[:4]}-{name[4:6]}-{name[6:8]}" if name[:8].isdigit() else ""
        return self.started_at[:10] or by_name


class RunIndex:
    """All runs of one folder, newest first. Thread-safe."""

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self._lock = threading.Lock()
        self._known: dict[str, tuple[_Stamp, RunLine]] = {}
        self._abandoned: set[str] = set()
        self._refreshed = -math.inf
        """When the last refresh began, by `monotonic`."""
        self._by_id: dict[str, RunLine] = {}
        self._lines: list[RunLine] = []
        self.version = 0
        """Increases whenever any run changes."""
        self._shared: dict[Any, Any] = {}
        """Values that many runs have in common (cases, command, targets), so that they share one object."""

    def lines(self) -> list[RunLine]:
        """Return all runs as they are on disk now."""
        called = time.monotonic()
        with self._lock:
            self._refresh_since(called)
            return self._lines

    def line(self, run_id: str) -> RunLine:
        """Return a run by its whole id. The id is only looked up here; it never becomes part of a path."""
        called = time.monotonic()
        with self._lock:
            self._refresh_since(called)
            line = self._by_id.get(run_id)
        if line is None:
            raise UnknownName(f"there is no run {run_id!r} in {self.output_dir}")
        return line

    def _refresh_since(self, called: float) -> None:
        """Refresh, unless another thread began to do so after `called`, while this one waited."""
        if self._refreshed <= called:
            self._refreshed = time.monotonic()
            self._refresh()

    def _refresh(self) -> None:
        found: dict[str, tuple[_Stamp, RunLine]] = {}
        changed = False
        for name, folder, stamp in self._on_disk():
            known = self._known.get(name)
            if known is None or known[0] != stamp:
                known = (stamp, self._read(name, Path(folder)))
                changed = True
            found[name] = known
        # A killed process leaves the status `running` behind; the lock shows that it is gone.
        abandoned = {
            name for name, (_, line) in found.items() if line.is_running and not _is_locked(line.folder)
        }
        if changed or len(found) != len(self._known) or abandoned != self._abandoned:
            self.version += 1
            self._known, self._abandoned = found, abandoned
            self._by_id = {
                name: replace(line, status="interrupted") if name in abandoned else line
                for name, (_, line) in sorted(found.items(), reverse=True)
            }
            self._lines = list(self._by_id.values())

    def _on_disk(self) -> Iterable[tuple[str, str, _Stamp]]:
        """Yield name, folder and stamp of every run; only the folder itself if it is a run.

        Paths are plain strings here, because thousands are checked every two seconds.
        """
        parent = str(self.output_dir)
        here = _stamp(f"{parent}/{RUN_FILE}")
        if here is not None:
            yield self.output_dir.absolute().name, parent, here
            return
        try:
            with os.scandir(parent) as entries:
                names = [entry.name for entry in entries if not entry.name.startswith(".")]
        except OSError:
            return  # the folder does not exist yet, or can't be read
        for name in names:
            stamp = _stamp(f"{parent}/{name}/{RUN_FILE}")
            if stamp is not None:
                yield name, f"{parent}/{name}", stamp

    def _read(self, name: str, folder: Path) -> RunLine:
        header = read_run_header(f"{folder}/{RUN_FILE}")
        with suppress(msgspec.MsgspecError):  # `header.done` decodes a part that was skipped before
            if header is not None:
                return self._line(name, folder, header)
        problem = f"{folder / RUN_FILE} changed while it was read"
        try:
            read_run(folder)
        except (BenchmarkError, RecursionError, ValueError) as known:
            problem = str(known)
        return RunLine(id=name, folder=folder, status=DAMAGED, problem=problem)

    def _line(self, name: str, folder: Path, header: RunHeader) -> RunLine:
        where = header.environment
        revision = where.git_revision[:12] + ("+" if where.git_revision and where.git_dirty else "")
        return RunLine(
            id=name,
            folder=folder,
            status=header.status,
            started_at=header.started_at,
            finished_at=header.finished_at,
            profile=self._share(header.profile),
            targets=self._share(tuple(header.targets)),
            cases=self._share(tuple((case.category, case.benchmark, case.target) for case in header.cases)),
            revision=self._share(revision),
            command=self._share(header.command),
            results=len(header.results),
            failures=len(header.failures),
            done=header.done,
            total=header.total,
        )

    def _share(self, value: _Value) -> _Value:
        """Return an equal object that was seen before, else the value itself."""
        if len(self._shared) > MOST_SHARED:
            self._shared.clear()
        shared: _Value = self._shared.setdefault(value, value)
        return shared


def running_rounds(line: RunLine) -> list[str]:
    """Return the names of the scratch folders, one for each running round: `storage.write@x.0`."""
    try:
        with os.scandir(line.folder.parent / SCRATCH / line.folder.name) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def benchmarks_of(lines: Sequence[RunLine]) -> list[tuple[str, str, str]]:
    """Return category, benchmark and target of every case in any of the runs."""
    return sorted({case for cases in {line.cases for line in lines} for case in cases})


def _stamp(path: str) -> _Stamp | None:
    """Return time, size and inode of a file; None if there is none."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_locked(folder: Path) -> bool:
    """Return whether a process holds the run's lock. The lock file is neither created nor written."""
    try:
        descriptor = open_regular(folder / LOCK_FILE)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
