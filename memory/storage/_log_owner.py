"""Checks that the log beside a database belongs to it.

SQLite reads the log `-wal` of whatever file lies at the path. After a crash the log holds the last commits.
If somebody then restores the file from a copy, SQLite would mix the copy with commits that do not follow
from it. So both carry stamps. The setting "log" holds a random stamp and the stamp before it. The first
transaction after each checkpoint writes a new stamp. Therefore

- each state that a checkpoint leaves in the file has a stamp of its own, and
- the first transaction of each log names the stamp of the file that the log belongs to.

A log belongs to a file if the file's stamp is among the stamps in the log, as a new stamp or as the
stamp before it. A log without any stamp counts as the file's own.
"""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from memory.storage._new_files import move_aside

_log = logging.getLogger(__name__)

_STAMP = "log"
_LOG_HEADER = struct.Struct(">IIIIIIII")
_LOG_MAGIC = (0x377F0682, 0x377F0683)
_FRAME_HEADER = struct.Struct(">IIIIII")
_LEAF_OF_INDEX = 0x0A
"""The first byte of a page that holds rows of a WITHOUT ROWID table."""
_SUFFIXES = ("-wal", "-shm", "-pulse")


def stamp(connection: sqlite3.Connection, *, alone: bool = False) -> None:
    """Write a new stamp in the caller's transaction; with `alone`, a stamp that belongs to no log."""
    known = connection.execute("SELECT value FROM settings WHERE name = ?", (_STAMP,)).fetchone()
    before = "" if known is None or alone else known[0].partition(" ")[0]
    connection.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_STAMP, f"{os.urandom(16).hex()} {before}"),
    )


def move_leftovers_aside(path: Path) -> None:
    """Move aside what an earlier database left at this path, before a new one is created there."""
    for suffix in _SUFFIXES:
        file = Path(f"{path}{suffix}")
        if os.path.lexists(file):
            _log.warning(
                "%s was left by an earlier database, which is gone: moved to %s", file, move_aside(file)
            )


def move_log_aside(path: Path, reason: str) -> None:
    """Move the log and its index aside."""
    for suffix in ("-wal", "-shm"):
        file = Path(f"{path}{suffix}")
        if file.exists():
            _log.warning("%s %s: moved to %s", file, reason, move_aside(file))


def has_foreign_log(path: Path) -> bool:
    """Return whether the log beside a database belongs to another state or another file.

    The caller makes sure that this process does not have the file open."""
    seen = _look(path)
    if seen is None or is_locked_elsewhere(path):
        return False
    # Another process may have written between two of these reads. That process has checked the log.
    return seen[-1] and _look(path) == seen and not is_locked_elsewhere(path)


def _look(path: Path) -> tuple[bytes, int, str, bool] | None:
    """Return the log's header and size, the file's stamp, and whether the log is foreign.

    None if this is unknown: there is no log, it changes while it is read, or a file is damaged."""
    try:
        with open(f"{path}-wal", "rb") as log:
            header = log.read(_LOG_HEADER.size)
            size = os.fstat(log.fileno()).st_size
            if len(header) < _LOG_HEADER.size or _LOG_HEADER.unpack(header)[0] not in _LOG_MAGIC:
                return None
            own, root = _stamp_of_file(path)
            stamps = set(_stamps_in_log(log.fileno(), header, size, root))
    except (OSError, sqlite3.Error, struct.error, IndexError):
        # Another process truncates the log or starts it again just now, or a page in it is damaged.
        return None
    return header, size, own, bool(stamps) and own not in stamps


def _stamp_of_file(path: Path) -> tuple[str, int]:
    """Return the stamp in the file itself, without the log, and the page of the settings."""
    # SQLite opens it: closing the file directly would release the locks that this process has on it.
    connection = sqlite3.connect(f"{path.as_uri()}?mode=ro&immutable=1", uri=True)
    try:
        # Fails if there is no such table.
        found = connection.execute("SELECT value FROM settings WHERE name = ?", (_STAMP,)).fetchone()
        tables = "SELECT rootpage FROM sqlite_master WHERE name = 'settings'"
        (root,) = connection.execute(tables).fetchone()
    finally:
        connection.close()
    return ("" if found is None else str(found[0]).partition(" ")[0]), root


def _stamps_in_log(log: int, header: bytes, size: int, page_no: int) -> Iterator[str]:
    """Yield all stamps in the frames of a log, and the ones before them."""
    _, _, page_size, _, *salts, _, _ = _LOG_HEADER.unpack(header)
    length = _FRAME_HEADER.size + page_size
    for place in range(_LOG_HEADER.size, size - length + 1, length):
        frame = os.pread(log, _FRAME_HEADER.size, place)
        number, _, *found, _, _ = _FRAME_HEADER.unpack(frame)
        if found != salts:  # frames of an earlier log follow
            return
        if number == page_no:
            page = os.pread(log, page_size, place + _FRAME_HEADER.size)
            value = _setting_in(page, _STAMP)
            if value is not None:
                yield from value.split(" ")


def _setting_in(page: bytes, name: str) -> str | None:
    """Return a value of the table `settings` from its page; https://sqlite.org/fileformat2.html."""
    if page[0] != _LEAF_OF_INDEX:
        return None
    (cells,) = struct.unpack_from(">H", page, 3)
    for (start,) in struct.iter_unpack(">H", page[8 : 8 + 2 * cells]):
        _, place = _variable_int(page, start)  # the size of the row
        header_size, types = _variable_int(page, place)
        name_type, types = _variable_int(page, types)
        value_type, _ = _variable_int(page, types)
        text = place + header_size
        # The type of a text is its length in bytes × 2 + 13.
        name_end = text + (name_type - 13) // 2
        if page[text:name_end] == name.encode():
            return page[name_end : name_end + (value_type - 13) // 2].decode("ascii", "replace")
    return None


def _variable_int(page: bytes, place: int) -> tuple[int, int]:
    """Decode an integer of variable length; return the integer and the place after it."""
    value = 0
    for _ in range(8):
        byte = page[place]
        place += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return value, place


def is_locked_elsewhere(path: Path) -> bool:
    """Return whether a process holds locks on the database; always False except on Linux."""
    if not sys.platform.startswith("linux"):
        return False
    inodes = set()
    for suffix in ("", "-shm"):
        try:
            inodes.add(os.stat(f"{path}{suffix}").st_ino)
        except OSError:
            continue
    try:
        locks = Path("/proc/locks").read_text()
    except OSError:
        return False
    return any(int(inode) in inodes for inode in re.findall(r" [0-9a-f]+:[0-9a-f]+:(\d+) ", locks))
