"""SQLite's errors as errors of the memory: what is wrong, and what to do."""

from __future__ import annotations

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
        self._name = ":memory:" if path is None else str(path)
        self._busy_timeout = busy_timeout

    def translate(self, problem: Exception) -> StoreError:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            return StoreFull(f"no space left to write {self._name}: nothing of this call was stored")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            return StoreReadOnly(
                f"{self._name} can't be written: check the permissions of the file and its folder"
            )
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return StoreBusy(
                f"{self._name} was locked by another process for {self._busy_timeout} s: try again, "
                "or raise busy_timeout_seconds"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
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
