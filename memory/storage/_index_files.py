"""Files beside the database that keep search indexes: one file for each agent with many memories.

A file is a copy of what the database holds, so losing it loses nothing. It is written beside its place and
renamed, so it is whole or not there, and it is never changed afterwards. It holds vectors and terms, which
are content: a file that holds deleted content is removed by the next maintenance.

How a process knows that a file belongs to the database as it is now: the transaction that publishes a file
also stores a random token, with the state of the agent that the file holds. A database with this token has
passed through that state, also if it is a copy or was restored from a backup. So what came after it is in
the agent's change log and among its rows.
"""

from __future__ import annotations

import logging
import mmap
import os
import re
import sqlite3
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO
from zlib import crc32

import msgspec

from memory.storage._agent_numbers import AgentNumbers
from memory.storage._change_log import to_change
from memory.storage._new_files import PRIVATE_FILE, make_folder
from memory.storage.base import AgentState, ChangeKind, SavedIndex
from memory.storage.connections import Connections

_log = logging.getLogger(__name__)

_SUFFIX = ".index"
_OWN_NAME = re.compile(r"\d+\.index(\.new-\d+-[0-9a-f]{8})?")
"""Names of saved indexes, and of their drafts: no other file in the folder is touched."""
_SETTING = "index "
"""The name of an agent's entry in the settings: this and the agent's number."""
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class _Entry(msgspec.Struct, frozen=True, array_like=True):
    """What the database knows of an agent's file."""

    token: str
    last_seq: int
    last_change: int
    checksum: int = 0

    def with_checksum(self) -> _Entry:
        return msgspec.structs.replace(
            self, checksum=crc32(f"{self.token} {self.last_seq} {self.last_change}".encode())
        )


class _Outdated(Exception):
    """The index to save holds content that was deleted or replaced meanwhile."""


class IndexFiles:
    """The methods of `MemoryStore` for saved indexes, which documents them."""

    def __init__(self, path: Path | None, connections: Connections, numbers: AgentNumbers) -> None:
        """`path` is the database; None keeps no files."""
        self._folder = None if path is None else Path(f"{path}-index")
        self._connections = connections
        self._numbers = numbers

    def saved_index(self, agent: str) -> SavedIndex | None:
        found = None if self._folder is None else self._entry_of(agent)
        if found is None or self._folder is None:
            return None
        number, entry = found
        try:
            _refuse_link(self._folder)
            data = _map(self._folder / f"{number}{_SUFFIX}")
        except (OSError, ValueError):  # a ValueError for an empty file
            return None
        return SavedIndex(entry.token, AgentState(entry.last_seq, entry.last_change), data)

    def saved_index_state(self, agent: str) -> AgentState | None:
        found = None if self._folder is None else self._entry_of(agent)
        if found is None or self._folder is None:
            return None
        number, entry = found
        if not (self._folder / f"{number}{_SUFFIX}").exists():
            return None
        return AgentState(entry.last_seq, entry.last_change)

    def save_index(self, agent: str, state: AgentState, write: Callable[[BinaryIO, str], None]) -> bool:
        if self._folder is None or self._connections.read_only:
            return False
        number = self._connections.read(lambda connection: self._numbers.look_up(connection, agent))
        if number is None:
            return False
        token = os.urandom(16).hex()
        entry = _Entry(token, *_pair(state)).with_checksum()
        try:
            make_folder(self._folder)
            _refuse_link(self._folder)
            with self._draft(self._folder / f"{number}{_SUFFIX}") as (draft, publish):
                with draft.open("wb") as file:
                    write(file, token)
                self._connections.write(lambda connection: _publish(connection, number, entry, publish))
        except (_Outdated, OSError) as problem:
            _log.info("the search index of an agent was not saved: %s", problem)
            return False
        self._connections.checkpoint()  # maintenance saves indexes last, and leaves no log
        return True

    def drop_saved_index(self, agent: str) -> None:
        if self._folder is None or self._connections.read_only:
            return
        number = self._connections.read(lambda connection: self._numbers.look_up(connection, agent))
        with suppress(OSError):
            _refuse_link(self._folder)
            (self._folder / f"{number}{_SUFFIX}").unlink(missing_ok=True)

    @contextmanager
    def _draft(self, path: Path) -> Iterator[tuple[Path, Callable[[], None]]]:
        """Yield a new file that only its owner can read, and a function that renames it to `path`."""
        draft = path.with_name(f"{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
        try:
            os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))
            yield draft, lambda: os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)

    def erase_indexes(self) -> None:
        """Remove all files that hold deleted or replaced content, or do not belong to the database."""
        if self._folder is None or self._connections.read_only:
            return
        for file in _files_in(self._folder):
            if file.suffix != _SUFFIX:
                # The draft of a killed process. If another process is writing it now, that one gives up.
                file.unlink(missing_ok=True)
                continue
            if not self._connections.read(partial(_is_clean, file)):
                file.unlink(missing_ok=True)
        with suppress(OSError):  # not empty
            self._folder.rmdir()

    def agents_above(self, memories: int) -> list[str]:
        if self._folder is None or self._connections.read_only:
            return []
        return [
            name
            for (name,) in self._connections.fetch(
                "SELECT name FROM agents WHERE last_seq > ? AND typeof(name) = 'text' ORDER BY no",
                (memories,),
            )
        ]

    @property
    def nbytes(self) -> int:
        """The size of all files."""
        total = 0
        for file in [] if self._folder is None else _files_in(self._folder):
            with suppress(FileNotFoundError):
                total += file.stat().st_size
        return total

    def _entry_of(self, agent: str) -> tuple[int, _Entry] | None:
        def read(connection: sqlite3.Connection) -> tuple[int, _Entry] | None:
            number = self._numbers.look_up(connection, agent)
            entry = None if number is None else _entry(connection, number)
            return None if number is None or entry is None else (number, entry)

        return self._connections.read(read)


def _files_in(folder: Path) -> list[Path]:
    """Return the saved indexes and drafts in a folder.

    There are none if it does not exist (another process removes an empty one), or is a symbolic link."""
    try:
        _refuse_link(folder)
        return sorted(file for file in folder.iterdir() if _OWN_NAME.fullmatch(file.name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _refuse_link(folder: Path) -> None:
    """Raise NotADirectoryError for a symbolic link.

    It could lead to any folder of the user, whose files would be replaced and removed."""
    if folder.is_symlink():
        raise NotADirectoryError(f"{folder} is a symbolic link")


def token_of(data: memoryview) -> str:
    """Return the token at the start of a file."""
    return bytes(data[:32]).decode("ascii", "replace")


def _map(path: Path) -> memoryview:
    """Map a file into memory. Changes of the map stay in this process."""
    descriptor = os.open(path, os.O_RDONLY | _NO_FOLLOW)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is not a regular file")
        return memoryview(mmap.mmap(descriptor, found.st_size, access=mmap.ACCESS_COPY))
    finally:
        os.close(descriptor)


def _pair(state: AgentState) -> tuple[int, int]:
    return state.last_seq, state.last_change


def _entry(connection: sqlite3.Connection, number: int) -> _Entry | None:
    found = connection.execute(
        "SELECT value FROM settings WHERE name = ?", (f"{_SETTING}{number}",)
    ).fetchone()
    try:
        entry = None if found is None else msgspec.json.decode(found[0], type=_Entry)
    except msgspec.MsgspecError:
        return None
    # A wrong state would hide memories from searches. Without an entry, the index is made again.
    return entry if entry is not None and entry == entry.with_checksum() else None


def _publish(
    connection: sqlite3.Connection, number: int, entry: _Entry, publish: Callable[[], None]
) -> None:
    """Rename the file and store its token in one transaction. No deletion can come between the two."""
    if _has_changed_content(connection, number, entry.last_change):
        raise _Outdated("a memory was deleted or changed meanwhile")
    connection.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (f"{_SETTING}{number}", msgspec.json.encode(entry).decode()),
    )
    publish()


def _has_changed_content(connection: sqlite3.Connection, number: int, last_change: int) -> bool:
    """Return whether memories were deleted or replaced after this change, or the log can't tell."""
    agent = connection.execute("SELECT last_change FROM agents WHERE no = ?", (number,)).fetchone()
    if agent is None:
        return True
    changes = [
        to_change(number, *values)
        for values in connection.execute(
            "SELECT number, kind, tier, seqs FROM changes WHERE agent = ? AND number > ?",
            (number, last_change),
        )
    ]
    if len(changes) < agent[0] - last_change:
        return True  # the log does not reach back that far
    return any(change is None or change.kind is not ChangeKind.MOVED for change in changes)


def _is_clean(file: Path, connection: sqlite3.Connection) -> bool:
    number = int(file.stem)
    entry = _entry(connection, number)
    if entry is None or _has_changed_content(connection, number, entry.last_change):
        return False
    with suppress(OSError), file.open("rb") as opened:
        return token_of(memoryview(opened.read(32))) == entry.token
    return False
