"""Copies of a database: made while it is in use, and put back in its place."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

from memory.errors import AgentMemoryError, StoreBusy, StoreCorrupt, TransferFailed
from memory.storage._log_owner import is_locked_elsewhere, move_log_aside, stamp
from memory.storage._new_files import aside_name, like_file, locked_folder, make_folder, new_file
from memory.storage.connections import Connections, is_open
from memory.storage.schema import check_file

_PAGES_A_STEP = 256
"""Pages that are copied without a pause for other threads: 1 MB, with pages of 4,096 bytes."""


def back_up(connections: Connections, target: Path) -> None:
    """Copy the database as it is now to a new file, which then takes the place of `target`.

    Others may read and write meanwhile. Raises TransferFailed or StoreCorrupt; `target` is unchanged then.
    """
    try:
        target = target.resolve()
        _refuse_special(target)
        if is_open(target) or _size(Path(f"{target}-wal")):
            raise TransferFailed(f"{target} is a database in use: choose another path for the backup")
        make_folder(target.parent)
        with new_file(target, replace=True) as draft:
            connections.read(lambda source: _copy(source, draft))
    except AgentMemoryError:
        raise
    except (OSError, ValueError, sqlite3.Error) as problem:
        raise TransferFailed(f"{_name(target)} can't be written: {problem}") from None


def restore(backup: Path, path: Path) -> None:
    """Put a copy of a backup in the place of a database, which is moved aside with its log.

    Raises StoreBusy if the database is open, StoreCorrupt if the backup is damaged.
    """
    try:
        backup, path = backup.resolve(), path.resolve()
        check_file(backup)
        if backup == path:
            raise TransferFailed(f"{path} can't be restored from itself: name a backup")
        _refuse_special(path)
        make_folder(path.parent)
        with locked_folder(path.parent):
            if is_open(path) or is_locked_elsewhere(path):
                raise StoreBusy(f"{path} is open: close it in all processes, then restore it")
            with new_file(path, replace=True) as draft:
                source = sqlite3.connect(f"{backup.as_uri()}?mode=ro&immutable=1", uri=True)
                try:
                    _copy(source, draft)
                finally:
                    source.close()
                if path.exists():
                    like_file(draft, path)
                    os.link(path, aside_name(path))
            # The new file is in its place. If this step fails, the next opening detects the foreign log.
            move_log_aside(path, "belongs to the database that was replaced")
    except AgentMemoryError:
        raise
    except (OSError, ValueError, sqlite3.Error) as problem:
        raise TransferFailed(f"{_name(path)} can't be restored: {problem}") from None


def _copy(source: sqlite3.Connection, draft: Path) -> None:
    """Copy a database to an empty file, check the copy, and give it a stamp that no log has."""
    target = sqlite3.connect(draft, isolation_level=None)
    try:
        source.backup(target, pages=_PAGES_A_STEP)
        [*found] = target.execute("PRAGMA quick_check(1)").fetchone()
        if found != ["ok"]:
            raise StoreCorrupt(f"the database to copy is damaged ({found[0]}): export what can be read")
        stamp(target, alone=True)
        target.execute("PRAGMA journal_mode = WAL")
    finally:
        target.close()


def _refuse_special(file: Path) -> None:
    """Raise TransferFailed for what a new file must not replace: devices, pipes, folders."""
    if file.exists() and not file.is_file():
        raise TransferFailed(f"{file} is not a regular file, and would be replaced: name another one")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _name(path: Path) -> str:
    return str(path).replace("\0", "\\0")
