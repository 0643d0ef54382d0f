"""SQLite's errors as errors of the memory: what is wrong, and what to do."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from memory.errors import (
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreReplaced,
)


class StoreErrors:
    """The `ConnectionErrors` of a memory's file."""

    translated: tuple[type[Exception], ...] = (sqlite3.Error,)

    def __init__(self, path: Path | None, busy_timeout: float) -> None:
        self._path = path
        self._name = ":memory:" if path is None else str(path)
        self._busy_timeout = busy_timeout

    def translate(self, problem: Exception) -> StoreError:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"no space left to write {self._name}: nothing of this call was stored")
        is_refused = code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN)
        if is_refused and self._path is not None and is_on_read_only_disk(self._path):
            return on_read_only_disk(self._path)
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return StoreReadOnly(
                f"{self._name} can't be written: check the permissions of the file and its folder"
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(
                f"{self._name} was locked by another process for {self._busy_timeout} s: try again, "
                "or raise busy_timeout_seconds"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or is_wrong_type(problem):
            return StoreCorrupt(f"{self._name} is damaged ({problem}): restore it from a copy or export")
        return StoreError(f"{self._name}: {problem}")

    def closed(self) -> StoreClosed:
        return StoreClosed("the memory is closed: open a new AgentMemorySystem")

    def replaced(self) -> StoreReplaced:
        return StoreReplaced(
            f"{self._name} was deleted, moved or replaced while it was open: open a new AgentMemorySystem"
        )

    def forked(self) -> StoreClosed:
        return StoreClosed(
            f"{self._name} was being read while this process was forked: open a new AgentMemorySystem"
        )


def is_wrong_type(problem: Exception) -> bool:
    """Return whether a damaged row has bytes where its type says text. Python finds that, not SQLite."""
    return not hasattr(problem, "sqlite_errorcode") and "decode to UTF-8" in str(problem)


def is_on_read_only_disk(path: Path) -> bool:
    """Return whether the file system of a file's folder is mounted read-only."""
    try:
        return bool(os.statvfs(path.parent).f_flag & os.ST_RDONLY)
    except OSError:
        return False  # the folder is gone; the first error says more


def on_read_only_disk(path: Path) -> StoreReadOnly:
    return StoreReadOnly(f"{path} is on a read-only file system: open it with read_only=True")
