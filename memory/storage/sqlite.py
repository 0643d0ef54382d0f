"""The embedded store: all three tiers in one durable SQLite file in WAL mode."""

from __future__ import annotations

import errno
import sqlite3
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from pathlib import Path

from memory._base.locks import fork_safe_lock
from memory.errors import StoreError, StoreFull, StoreReadOnly, StoreTooNew
from memory.storage._agent_numbers import AgentNumbers
from memory.storage._backup import back_up
from memory.storage._checker import Checker
from memory.storage._completeness import Completeness
from memory.storage._eraser import Eraser
from memory.storage._index_files import IndexFiles
from memory.storage._log_damage import keep_damaged_log
from memory.storage._log_owner import has_foreign_log, move_leftovers_aside, move_log_aside, stamp
from memory.storage._new_files import locked_folder, make_folder
from memory.storage._reader import SQLiteReader
from memory.storage._recent_rows import RecentRows
from memory.storage._shrinker import Shrinker
from memory.storage._store_errors import StoreErrors, on_read_only_disk
from memory.storage._writer import SQLiteWriter
from memory.storage._writer_queue import WriterQueue
from memory.storage.base import IndexColumns, OnChange
from memory.storage.connections import Connections, is_open
from memory.storage.schema import (
    FORMAT_VERSION,
    check_file,
    check_schema,
    create_file,
    create_tables,
    format_of,
    migrate,
    too_new,
)
from memory.storage.shared_versions import CHECK_SECONDS, SharedVersions


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
        copies_log: bool = False,
    ) -> None:
        """Open the file, or create it if it does not exist.

        path: None keeps everything in RAM
        disk: wait at every commit until the disk has the data
        busy_timeout: seconds to wait for a lock of another process
        read_only: refuse writes; the file must exist
        copies_log: the caller calls `copy_log` often, so commits need not
        """
        # Resolved once: a link and its file must share their versions, and the working folder may change.
        path = None if path is None else path.resolve()
        self._path = path
        with _one_opening:
            is_new = path is not None and _prepare_file(path, read_only)
            self._connections = Connections(
                path,
                errors=StoreErrors(path, busy_timeout),
                disk=disk,
                busy_timeout=busy_timeout,
                mode="ro" if read_only else "rw",
                copies_log=copies_log,
                after_checkpoint=stamp,
            )
            try:
                self._check_tables(path)
            except BaseException:
                self._connections.close()
                raise
        try:
            file_format, was_migrated = self._bring_to_format(read_only)
            self._versions = _open_versions(path, read_only, is_new)
        except BaseException:
            self._connections.close()
            raise
        if path is not None and not read_only:
            self._connections.queue = WriterQueue(f"{path}-pulse")
        self._check_versions_at = 0.0
        self._generation = 0
        self._agent_numbers = AgentNumbers()
        self._recent_rows = RecentRows()

        completeness = Completeness(path, self._connections, file_format)
        reader = SQLiteReader(
            path,
            self._connections,
            self._agent_numbers,
            completeness,
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
        self.state = reader.state
        self.catch_up = reader.catch_up
        self.columns_of = reader.columns_of
        self.features = reader.features
        self.coded_vectors = reader.coded_vectors
        self.stored_before = reader.stored_before
        self.importance_inputs = reader.importance_inputs
        self.codecs = reader.codecs
        self.stored_total = reader.stored_total
        self.unsettled = reader.unsettled
        self.seqs_after = reader.seqs_after

        # Only a read-only store can lack shared versions, and it never writes any.
        versions = self._versions or SharedVersions(None)
        writer = SQLiteWriter(
            self._connections,
            self._agent_numbers,
            completeness,
            versions,
            self._recent_rows,
            self._refresh_versions,
            self._refresh_versions_sometimes,
        )
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
        self.settle = writer.settle
        self.setting = writer.setting
        self.tidy_new_rows = writer.tidy_new_rows

        def follow_changes(on_change: OnChange) -> None:
            writer.on_change = on_change

        self.follow_changes = follow_changes
        self.shrink = Shrinker(self._connections).shrink
        self.copy_log = self._connections.copy_log
        index_files = IndexFiles(path, self._connections, self._agent_numbers)
        self.saved_index = index_files.saved_index
        self.saved_index_state = index_files.saved_index_state
        self.save_index = index_files.save_index
        self.drop_saved_index = index_files.drop_saved_index
        self.agents_above = index_files.agents_above
        self.bytes_on_disk = lambda: reader.bytes_on_disk() + index_files.nbytes
        eraser = Eraser(self._connections, index_files.erase_indexes)
        self.erase = eraser.erase
        self.erase_in_maintenance = eraser.erase_in_maintenance
        self.check = Checker(path, self._connections, reader, completeness, self._refresh_versions).check
        self.back_up = partial(back_up, self._connections)

    is_remote = False

    @staticmethod
    def is_fresh(agent: str) -> bool:
        return True

    @staticmethod
    def maintaining(wait_seconds: float) -> AbstractContextManager[bool]:
        # The transactions of several processes that maintain one file exclude each other.
        return nullcontext(True)

    def close(self) -> None:
        self._connections.close()
        versions, self._versions = self._versions, None
        self._generation += 1
        if versions is not None:
            versions.close()

    def is_writing(self) -> bool:
        return self._connections.is_writing()

    def check_versions(self) -> int:
        now = time.monotonic()
        if now >= self._check_versions_at:
            try:
                self._refresh_versions()
            except StoreError:
                # Nothing can be cached then. The next write raises the error.
                self._versions = None
                self._generation += 1
            self._check_versions_at = now + CHECK_SECONDS
        return self._generation

    def _refresh_versions(self) -> None:
        """Map the file of the versions again if somebody has deleted or replaced it."""
        versions = self._versions
        if versions is None:
            return
        before = versions.generation
        try:
            versions.check()
        except OSError as problem:
            raise StoreReadOnly(f"{self._path}-pulse can't be used: {problem.strerror}") from None
        if versions.generation != before:
            self._generation += 1

    def _refresh_versions_sometimes(self) -> None:
        """Do what `_refresh_versions` does, unless it was done a moment ago.

        Enough for writes too: a process that makes a new file of the versions waits until all others have
        noticed it (`shared_versions.py`)."""
        now = time.monotonic()
        if now >= self._check_versions_at:
            self._refresh_versions()
            self._check_versions_at = now + CHECK_SECONDS

    def watch(self, agent: str, *, new_rows: bool = False) -> Callable[[], int] | None:
        agent_no = self._agent_numbers.get(agent)
        if self._versions is None or agent_no is None:
            return None
        versions = self._versions
        slot = versions.writes_slot(agent_no) if new_rows else versions.changes_slot(agent_no)
        return partial(versions.slots.__getitem__, slot)

    def recent_rows(self, agent: str, after_seq: int, last_seq: int) -> IndexColumns | None:
        agent_no = self._agent_numbers.get(agent)
        return None if agent_no is None else self._recent_rows.take(agent_no, after_seq, last_seq)

    def own_rows(self, agent: str, after_seq: int, version: int) -> IndexColumns | None:
        agent_no = self._agent_numbers.get(agent)
        return None if agent_no is None else self._recent_rows.take_under(agent_no, after_seq, version)

    def _bring_to_format(self, read_only: bool) -> tuple[int, bool]:
        """Migrate an older file unless it is opened to read only.

        Returns the file's format, and whether it was ever migrated."""
        version = self._connections.read(format_of)
        if version < FORMAT_VERSION and not read_only:
            self._connections.write(migrate)
            version = self._connections.read(format_of)
        if version > FORMAT_VERSION:
            raise StoreTooNew(too_new(self._path, version))
        found = self._connections.fetch("SELECT 1 FROM settings WHERE name = 'migrated'")
        return version, bool(found)

    def _check_tables(self, path: Path | None) -> None:
        if path is None:
            self._connections.read(create_tables)
        self._connections.read(partial(check_schema, path=path))


_one_opening = fork_safe_lock()
"""Held while the log is checked and the file is opened, so that two threads can't do it at once."""


def _prepare_file(path: Path, read_only: bool) -> bool:
    """Create the file or check it and its log; return whether it was created."""
    is_new = False
    try:
        if not path.exists():
            if read_only:
                raise StoreReadOnly(f"{path} does not exist and read_only=True")
            make_folder(path.parent)
            with locked_folder(path.parent):
                if not path.exists():
                    move_leftovers_aside(path)
                    is_new = True
                create_file(path)
        elif not is_open(path) and has_foreign_log(path):
            if read_only:
                raise StoreReadOnly(f"{path}-wal is the log of another file: open {path} without read_only")
            move_log_aside(path, f"is not the log of {path.name} as it is now")
        elif not is_open(path):
            keep_damaged_log(path, read_only=read_only)
        check_file(path)
        return is_new
    except sqlite3.Error as problem:
        raise StoreReadOnly(f"{path} can't be created: {problem}") from None
    except OSError as problem:
        if problem.errno == errno.EROFS and path.exists():
            raise on_read_only_disk(path) from None
        raise StoreReadOnly(f"{path} can't be opened: {problem.strerror}") from None


def _open_versions(path: Path | None, read_only: bool, is_new: bool) -> SharedVersions | None:
    if path is None:
        return SharedVersions(None)
    try:
        return SharedVersions(path, read_only=read_only, is_new=is_new)
    except OSError as problem:
        if read_only:
            return None  # nothing can be cached then: slower, but correct
        if problem.errno == errno.ENOSPC:
            raise StoreFull(f"no space left beside {path}") from None
        if problem.errno in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
            raise StoreReadOnly(
                f"{path}-pulse is not a regular file: remove it, and open the memory again"
            ) from None
        if problem.errno == errno.EROFS:
            raise on_read_only_disk(path) from None
        raise StoreReadOnly(f"the folder of {path} can't be written: check its permissions") from None
