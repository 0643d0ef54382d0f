"""The embedded store: all three tiers in one durable SQLite file in WAL mode."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from memory.errors import StoreCorrupt, StoreFull, StoreReadOnly, StoreTooNew
from memory.storage._agent_numbers import AgentNumbers
from memory.storage._reader import SQLiteReader
from memory.storage._recent_rows import RecentRows
from memory.storage._shrinker import Shrinker
from memory.storage._store_errors import StoreErrors
from memory.storage._writer import SQLiteWriter
from memory.storage.base import IndexColumns
from memory.storage.connections import Connections
from memory.storage.schema import (
    FORMAT_VERSION,
    check_file,
    create_file,
    create_tables,
    format_of,
    migrate,
    too_new,
)
from memory.storage.shared_versions import SharedVersions


class SQLiteStore:
    """A `MemoryStore` in one file, or in RAM.

    It opens, checks and closes the file. A reader, a writer and a shrinker do the rest: their methods are
    attributes of the store, because one more call would slow down every read.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        disk: bool = False,
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        """Open the file, or create it if it does not exist.

        path: None keeps everything in RAM
        disk: wait at every commit until the disk has the data
        busy_timeout: seconds to wait for a lock of another process
        read_only: refuse writes; the file must exist
        """
        # Resolved once: a link and its file must share their versions, and the working folder may change.
        path = None if path is None else path.resolve()
        self._path = path
        if path is not None:
            _prepare_file(path, read_only)
        self._connections = Connections(
            path,
            errors=StoreErrors(path, busy_timeout),
            disk=disk,
            busy_timeout=busy_timeout,
            mode="ro" if read_only else "rw",
        )
        try:
            self._check_tables(path)
            file_format, was_migrated = self._bring_to_format(read_only)
            self._versions = _open_versions(path, read_only)
        except BaseException:
            self._connections.close()
            raise
        self._agent_numbers = AgentNumbers()
        self._recent_rows = RecentRows()

        reader = SQLiteReader(
            path,
            self._connections,
            self._agent_numbers,
            file_format=file_format,
            was_migrated=was_migrated,
        )
        self.get_one = reader.get_one
        self.get = reader.get
        self.get_by_seq = reader.get_by_seq
        self.rows = reader.rows
        self.in_range = reader.in_range
        self.all_rows = reader.all_rows
        self.agents = reader.agents
        self.counts = reader.counts
        self.evicted = reader.evicted
        self.bytes_on_disk = reader.bytes_on_disk
        self.state = reader.state
        self.catch_up = reader.catch_up
        self.columns_of = reader.columns_of
        self.features = reader.features
        self.stored_before = reader.stored_before
        self.importance_inputs = reader.importance_inputs
        self.codecs = reader.codecs

        # Only a read-only store can lack shared versions, and it never writes any.
        versions = self._versions or SharedVersions(None)
        writer = SQLiteWriter(self._connections, self._agent_numbers, versions, self._recent_rows)
        self.add = writer.add
        self.refuse_conflicts = writer.refuse_conflicts
        self.replace = writer.replace
        self.delete = writer.delete
        self.delete_agent = writer.delete_agent
        self.move = writer.move
        self.evict = writer.evict
        self.add_read_counts = writer.add_read_counts
        self.save_codec = writer.save_codec
        self.retire_codec = writer.retire_codec
        self.setting = writer.setting

        self.shrink = Shrinker(self._connections).shrink
        self.close = self._connections.close

    def watch(self, agent: str, *, new_rows: bool = False) -> Callable[[], int] | None:
        agent_no = self._agent_numbers.get(agent)
        if self._versions is None or agent_no is None:
            return None
        versions = self._versions
        slot = versions.writes_slot(agent_no) if new_rows else versions.changes_slot(agent_no)
        # The function keeps the slots mapped, also after `close`.
        return partial(self._versions.slots.__getitem__, slot)

    def recent_rows(self, agent: str, after_seq: int, last_seq: int) -> IndexColumns | None:
        agent_no = self._agent_numbers.get(agent)
        return None if agent_no is None else self._recent_rows.take(agent_no, after_seq, last_seq)

    def _bring_to_format(self, read_only: bool) -> tuple[int, bool]:
        """Migrate an older file unless it is opened to read only.

        Returns the file's format, and whether it was migrated once."""
        with self._connections.reading() as connection:
            version = format_of(connection)
        if version < FORMAT_VERSION and not read_only:
            with self._connections.writing() as connection:
                migrate(connection)
                version = format_of(connection)
        if version > FORMAT_VERSION:
            raise StoreTooNew(too_new(self._path, version))
        found = self._connections.fetch("SELECT 1 FROM settings WHERE name = 'migrated'")
        return version, bool(found)

    def _check_tables(self, path: Path | None) -> None:
        with self._connections.reading() as connection:
            if path is None:
                create_tables(connection)
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not {"agents", "memories", "changes", "codecs", "settings"} <= names:
            raise StoreCorrupt(f"{path} lacks tables of an AgentMemory database: restore it from a copy")


def _prepare_file(path: Path, read_only: bool) -> None:
    try:
        if not path.exists():
            if read_only:
                raise StoreReadOnly(f"{path} does not exist and read_only=True")
            create_file(path)
        check_file(path)
    except sqlite3.Error as problem:
        raise StoreReadOnly(f"{path} can't be created: {problem}") from None
    except OSError as problem:
        raise StoreReadOnly(f"{path} can't be opened: {problem.strerror}") from None


def _open_versions(path: Path | None, read_only: bool) -> SharedVersions | None:
    if path is None:
        return SharedVersions(None)
    try:
        return SharedVersions(Path(f"{path}-pulse"))
    except OSError as problem:
        if read_only:
            return None  # nothing can be cached then: slower, but correct
        if problem.errno == errno.ENOSPC:
            raise StoreFull(f"no space left beside {path}") from None
        raise StoreReadOnly(f"the folder of {path} can't be written: check its permissions") from None
