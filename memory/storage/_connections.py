"""SQLite connections: one writer behind a lock, a pool of readers, and errors in our own words."""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NoReturn

from memory.errors import (
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
)

_FORK_PATIENCE_SECONDS = 10.0
_READER_CACHE_KIB = 16384  # random reads by id then find the index's pages in RAM


class Connections:
    """All connections of one process to one database.

    A database in memory has a single connection, which readers and writers take in turns.

    SQLite must not be carried over a fork: not only a connection, also the library's own table of
    which files this process has locked. So all connections are closed before a fork, and parent and
    child open their own when they next need one.
    """

    def __init__(self, path: Path | None, *, disk: bool, busy_timeout: float, read_only: bool) -> None:
        self._path = path
        self._disk = disk
        self._busy_timeout = busy_timeout
        self.read_only = read_only
        self._closed = False
        self.lock = threading.RLock()
        """Held while this process writes."""
        self._opening = threading.Lock()
        self._open_readers = 0
        self._pooling = True
        self._idle: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection | None = None
        _all_connections.add(self)

    def reader(self) -> sqlite3.Connection:
        """A connection to read with; give it back with `release`."""
        if self._path is None:
            self.lock.acquire()
            if self._closed:
                self.lock.release()
                raise StoreClosed("the memory is closed: open a new AgentMemorySystem")
            return self._writing_connection()
        try:
            return self._idle.pop()
        except IndexError:
            with self._opening:
                connection = self._open(writing=False)
                self._open_readers += 1
                return connection

    def release(self, connection: sqlite3.Connection) -> None:
        if self._path is None:
            self.lock.release()
            return
        self._idle.append(connection)
        if not self._pooling:
            self._close_idle()

    def _close_idle(self) -> None:
        with self._opening:
            while self._idle:
                self._idle.pop().close()
                self._open_readers -= 1

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """A connection inside one read transaction: all its statements see the same moment."""
        connection = self.reader()
        try:
            if self._path is not None:
                connection.execute("BEGIN")
            yield connection
        except sqlite3.Error as problem:
            self.complain(problem)
        finally:
            self._end_reading(connection)

    def _end_reading(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction and self._path is not None:
                connection.execute("COMMIT")
        except sqlite3.Error as problem:
            # Of a damaged file even this fails: the connection is of no more use.
            connection.close()
            with self._opening:
                self._open_readers -= 1
            self.complain(problem)
        self.release(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """The writer inside one transaction: committed at the end, taken back on any exception."""
        if self.read_only:
            raise StoreReadOnly(f"{self._path} was opened with read_only=True")
        with self.lock:
            connection = self._writing_connection()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except sqlite3.Error as problem:
                self._roll_back(connection)
                self.complain(problem)
            except BaseException:
                self._roll_back(connection)
                raise

    def close(self) -> None:
        with self.lock:
            self._closed = True
            self._pooling = False
            self._close_idle()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def checkpoint(self) -> int:
        """Bring the log into the file and cut both to their length, as far as that is possible without
        waiting; how many pages must stay in the log for now, because somebody reads an earlier state."""
        if self._path is None:
            return 0
        connection = self.reader()
        try:
            # First most of it, beside writers. What is left then holds them up for a moment only.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            (patience,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                [(_, logged, done)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {patience}")
            return int(logged - done)
        except sqlite3.Error as problem:
            self.complain(problem)
        finally:
            self.release(connection)

    def complain(self, problem: sqlite3.Error) -> NoReturn:
        """Say in the package's own words what SQLite said."""
        where = self._path or ":memory:"
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_FULL:
            raise StoreFull(f"no space left to write {where}: nothing of this call was stored")
        if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
            raise StoreReadOnly(f"{where} can't be written: check the file's and folder's rights")
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            raise StoreBusy(
                f"{where} was locked by another process for {self._busy_timeout} s: try again, "
                "or raise busy_timeout_seconds"
            )
        if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
            raise StoreCorrupt(f"{where} is damaged ({problem}): restore it from a copy or export")
        raise StoreError(f"{where}: {problem}") from problem

    def _writing_connection(self) -> sqlite3.Connection:
        if self._writer is None:
            self._writer = self._open(writing=True)
        return self._writer

    def _open(self, *, writing: bool) -> sqlite3.Connection:
        if self._closed:
            raise StoreClosed("the memory is closed: open a new AgentMemorySystem")
        if self._path is None:
            name, uri = ":memory:", False
        else:
            name, uri = f"{self._path.as_uri()}?mode={self._mode()}", True
        try:
            connection = sqlite3.connect(
                name,
                uri=uri,
                timeout=self._busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except sqlite3.Error as problem:
            self.complain(problem)
        try:
            if writing and not self.read_only:
                level = "FULL" if self._disk else "NORMAL"
                connection.execute(f"PRAGMA synchronous = {level}")
            else:
                connection.execute("PRAGMA query_only = 1")
                connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
        except sqlite3.Error as problem:
            connection.close()
            self.complain(problem)
        return connection

    def before_fork(self) -> None:
        """Close everything; nothing is opened again until `after_fork`."""
        self.lock.acquire()
        self._opening.acquire()
        if self._path is None:
            return
        if self._writer is not None and not self._writer.in_transaction:
            self._writer.close()
            self._writer = None
        deadline = time.monotonic() + _FORK_PATIENCE_SECONDS
        while self._open_readers and time.monotonic() < deadline:
            try:
                self._idle.pop().close()
                self._open_readers -= 1
            except IndexError:
                time.sleep(0.0005)  # a reader of another thread is about to come back

    def after_fork(self, *, in_child: bool) -> None:
        if in_child and self._open_readers:
            # A thread that is not here read for too long: its connection came along, and SQLite with
            # it. Rather no memory in this child than one that loses what it is told.
            self._closed, self._pooling = True, False
        self._opening.release()
        self.lock.release()

    def _mode(self) -> str:
        if not self.read_only or self._path is None:
            return "rw"
        # Without the right to make a -shm file SQLite can't read at all, unless it is told that nobody
        # writes. That is so as long as there is no log, which is looked for anew at every read.
        log = Path(f"{self._path}-wal")
        if not os.access(self._path.parent, os.W_OK) and not log.exists():
            self._pooling = False
            return "ro&immutable=1"
        return "ro"

    @staticmethod
    def _roll_back(connection: sqlite3.Connection) -> None:
        # After a full disk SQLite may have rolled back by itself already.
        if connection.in_transaction:
            connection.execute("ROLLBACK")


_all_connections: weakref.WeakSet[Connections] = weakref.WeakSet()


_one_fork_at_a_time = threading.Lock()
_forking: list[Connections] = []


def _before_fork() -> None:
    _one_fork_at_a_time.acquire()
    _forking[:] = [connections for connections in list(_all_connections) if not connections._closed]
    for connections in _forking:
        connections.before_fork()


def _after_fork(*, in_child: bool) -> None:
    for connections in _forking:
        connections.after_fork(in_child=in_child)
    _forking.clear()
    _one_fork_at_a_time.release()


os.register_at_fork(
    before=_before_fork,
    after_in_parent=partial(_after_fork, in_child=False),
    after_in_child=partial(_after_fork, in_child=True),
)
