"""Which runs there are and how they stand, kept in memory; only what changed on disk is read again.

A file counts as changed when its time, its size or its inode did: a run's file is replaced, never
rewritten. A line is a few hundred bytes, so that thousands of runs stay small: everything else is read
when somebody looks at it.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from memory.benchmarking.errors import BenchmarkError, UnknownName
from memory.benchmarking.model.files import LOCK_FILE, RUN_FILE, SCRATCH, read_run
from memory.benchmarking.view.run_header import RunHeader, read_run_header

DAMAGED = "damaged"
_Stamp = tuple[int, int, int]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class RunLine:
    """What the list shows of one run."""

    id: str
    """The name of its folder, which no other has."""
    folder: Path
    status: str
    """As the run says, `damaged`, or `interrupted` if the process that carried it out is gone."""
    problem: str = ""
    """Why it can't be read."""
    started_at: str = ""
    finished_at: str = ""
    profile: str = ""
    targets: tuple[str, ...] = ()
    cases: tuple[tuple[str, str, str], ...] = ()
    """Category, benchmark and target of each."""
    revision: str = ""
    command: str = ""
    results: int = 0
    failures: int = 0
    done: int = 0
    """Rounds that are over, also those that failed."""
    total: int = 0

    @property
    def is_running(self) -> bool:
        return self.status == "running"

    @property
    def day(self) -> str:
        """`2026-11-16`, by its record or else by its name."""
        name = self.id
        by_name = f"{name[:4]}-{name[4:6]}-{name[6:8]}" if name[:8].isdigit() else ""
        return self.started_at[:10] or by_name


class RunIndex:
    """All runs of one folder, the newest first; for any number of threads."""

    def __init__(self, output_dir: Path) -> None:
        self.output_dir = output_dir
        self._lock = threading.Lock()
        self._known: dict[str, tuple[_Stamp, RunLine]] = {}
        self._left: set[str] = set()
        self._by_id: dict[str, RunLine] = {}
        self._lines: list[RunLine] = []
        self.version = 0
        """Another number whenever anything has changed."""
        self._shared: dict[Any, Any] = {}
        """One object for what many runs have in common: their plan, their command, their targets."""

    def lines(self) -> list[RunLine]:
        """As it is on disk now."""
        with self._lock:
            self._refresh()
            return self._lines

    def line(self, run_id: str) -> RunLine:
        """A run by its whole id. An id is only ever looked up here, and never becomes part of a path."""
        with self._lock:
            self._refresh()
            line = self._by_id.get(run_id)
        if line is None:
            raise UnknownName(f"there is no run {run_id!r} in {self.output_dir}")
        return line

    def _refresh(self) -> None:
        found: dict[str, tuple[_Stamp, RunLine]] = {}
        changed = False
        for name, folder, stamp in self._on_disk():
            known = self._known.get(name)
            if known is None or known[0] != stamp:
                known = (stamp, self._read(name, Path(folder)))
                changed = True
            found[name] = known
        # Where the process was killed, nobody writes another status until the run is resumed.
        left = {
            name
            for name, (_, line) in found.items()
            if line.is_running and not _is_carried_out(line.folder)
        }
        if changed or len(found) != len(self._known) or left != self._left:
            self.version += 1
            self._known, self._left = found, left
            self._by_id = {
                name: replace(line, status="interrupted") if name in left else line
                for name, (_, line) in sorted(found.items(), reverse=True)
            }
            self._lines = list(self._by_id.values())

    def _on_disk(self) -> Iterable[tuple[str, str, _Stamp]]:
        """Name, folder and stamp of every run; the folder itself if it is a run.

        Paths are texts here: thousands are looked at every two seconds.
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
            return  # there is nothing yet, or nothing that we may see
        for name in names:
            stamp = _stamp(f"{parent}/{name}/{RUN_FILE}")
            if stamp is not None:
                yield name, f"{parent}/{name}", stamp

    def _read(self, name: str, folder: Path) -> RunLine:
        header = read_run_header(f"{folder}/{RUN_FILE}")
        with suppress(msgspec.MsgspecError):  # of parts that are looked into only now
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
        if len(self._shared) > 10_000:
            self._shared.clear()
        shared: _Value = self._shared.setdefault(value, value)
        return shared


def running_rounds(line: RunLine) -> list[str]:
    """`storage.read_latency@agentmemory.0` for each: a round has a scratch folder while it runs."""
    try:
        with os.scandir(line.folder.parent / SCRATCH / line.folder.name) as entries:
            return sorted(entry.name for entry in entries)
    except OSError:
        return []


def benchmarks_of(lines: Sequence[RunLine]) -> list[tuple[str, str, str]]:
    """Category, benchmark and target of everything that any of the runs measured."""
    return sorted({case for cases in {line.cases for line in lines} for case in cases})


def _stamp(path: str) -> _Stamp | None:
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _is_carried_out(folder: Path) -> bool:
    """Whether a process holds the run's lock. Asking changes nothing: the file is not made or written."""
    try:
        descriptor = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
