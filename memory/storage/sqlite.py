"""The embedded store: all three tiers in one durable SQLite file in WAL mode."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Callable
from functools import partial
from pathlib import Path

from memory.errors import StoreCorrupt, StoreFull, StoreReadOnly
from memory.storage._connections import Connections
from memory.storage._fresh import FreshRows
from memory.storage._shrinking import SQLiteShrinking
from memory.storage.base import IndexColumns
from memory.storage.pulse import Pulse, any_slot, change_slot
from memory.storage.schema import check_file, create_file, create_tables


class SQLiteStore(SQLiteShrinking):
    """Opens, checks and closes the file; reading, writing and shrinking it are modules of their own."""

    def __init__(
        self,
        path: Path | None,
        *,
        disk: bool = False,
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        """`path` None keeps everything in RAM; `disk` waits for the disk at every commit."""
        # Resolved once: a link and its file must share one pulse, and the working folder may change.
        self.path = path = None if path is None else path.resolve()
        self._agent_numbers: dict[str, int] = {}
        self._fresh = FreshRows()
        if path is not None:
            self._prepare_file(path, read_only)
        self._connections = Connections(path, disk=disk, busy_timeout=busy_timeout, read_only=read_only)
        try:
            if path is None:
                connection = self._connections.reader()
                create_tables(connection)
                self._connections.release(connection)
            self._check_tables()
            self._pulse = self._open_pulse(read_only)
        except BaseException:
            self._connections.close()
            raise

    @staticmethod
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

    def _check_tables(self) -> None:
        with self._connections.reading() as connection:
            names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
        if not {"agents", "memories", "changes", "codecs", "settings"} <= names:
            raise StoreCorrupt(f"{self.path} lacks tables of ours: restore it from a copy")

    def _open_pulse(self, read_only: bool) -> Pulse | None:
        if self.path is None:
            return Pulse(None)
        try:
            return Pulse(Path(f"{self.path}-pulse"))
        except OSError as problem:
            if read_only:
                return None  # nothing is cached then: slower, and as correct
            if problem.errno == errno.ENOSPC:
                raise StoreFull(f"no space left beside {self.path}") from None
            raise StoreReadOnly(f"the folder of {self.path} can't be written") from None

    def watch(self, agent: str, *, new_rows: bool = False) -> Callable[[], int] | None:
        agent_no = self._agent_numbers.get(agent)
        if self._pulse is None or agent_no is None:
            return None
        slot = any_slot(agent_no) if new_rows else change_slot(agent_no)
        return partial(self._pulse.slots.__getitem__, slot)

    def fresh_rows(self, agent: str, after_seq: int, last_seq: int) -> IndexColumns | None:
        agent_no = self._agent_numbers.get(agent)
        return None if agent_no is None else self._fresh.between(agent_no, after_seq, last_seq)

    def close(self) -> None:
        # The pulse stays mapped for whoever still holds a `watch`; it goes with the last of them.
        self._connections.close()
