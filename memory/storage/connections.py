"""The SQLite connections of one process to one file; the memory and the session store share this layer.

It decides how files are opened, locked and made durable, what happens to them at a fork, and where SQLite's
errors become the package's own.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from memory.errors import StoreReadOnly

_MAX_FORK_WAIT_SECONDS = 10.0
"""How long a fork waits for reads of other threads; a read of all rows can take seconds."""
_READER_CACHE_KIB = 16384
"""Page cache of one reader: large enough to hold the index pages that random reads by id need."""


class ConnectionErrors(Protocol):
    """The errors that the users of one kind of file see."""

    translated: tuple[type[Exception], ...]
    """Exceptions of the `sqlite3` module that `translate` replaces; others pass unchanged."""

    def translate(self, problem: Exception) -> Exception:
        """Return the package's error for one of `translated`."""

    def closed(self) -> Exception:
        """Return the error for a call after `close`."""

    def forked(self) -> Exception:
        """Return the error for a call in a child process that can't use this object."""


class Connections:
    """One writer behind a lock and a pool of readers, or one connection for everything.

    Forks: a child process must not use its parent's SQLite connections, nor the library's table of the
    locks that the process holds. So all connections are closed before a fork. Parent and child open new
    ones when they next need them. A database in RAM can't be reopened; the child gets a copy of it.
    """

    def __init__(
        self,
        path: Path | None,
        *,
        errors: ConnectionErrors,
        disk: bool,
        busy_timeout: float,
        mode: Literal["rw", "ro", "rwc"] = "rw",
        single: bool = False,
        usable_in_child: bool = True,
    ) -> None:
        """Connect to a file when a connection is first needed.

        path: an absolute path; None for a database in RAM
        errors: turns SQLite's errors into those of the caller
        disk: wait at every commit until the disk has the data
        busy_timeout: seconds to wait for a lock of another process
        mode: "ro" to read only, "rwc" to create a missing file
        single: read and write through one connection, in turns; a database in RAM always does
        usable_in_child: False if the owner has state in RAM that must not be used after a fork
        """
        self._path = path
        self._errors = errors
        self._disk = disk
        self._busy_timeout = busy_timeout
        self._mode = mode
        self._single = single or path is None
        self._usable_in_child = usable_in_child
        self.read_only = mode == "ro"
        self._unusable: Callable[[], Exception] | None = None
        self.lock = threading.RLock()
        """Held while this process writes."""
        self._opening = threading.Lock()
        self._open_readers = 0
        self._pooling = True
        self._idle: deque[sqlite3.Connection] = deque()
        self._writer: sqlite3.Connection | None = None
        self._writers_opened = 0
        _all_connections.add(self)

    def reader(self) -> sqlite3.Connection:
        """Return a connection to read with; give it back with `release`."""
        if self._single:
            self.lock.acquire()
            try:
                return self._writing_connection()
            except BaseException:
                self.lock.release()
                raise
        try:
            return self._idle.pop()
        except IndexError:
            with self._opening:
                connection = self._open(writing=False)
                self._open_readers += 1
                return connection

    def release(self, connection: sqlite3.Connection) -> None:
        """Give back a connection of `reader`."""
        if self._single:
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

    def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of one statement; faster than `reading`."""
        connection = self.reader()
        try:
            return connection.execute(statement, values).fetchall()
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            self.release(connection)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Yield a connection in one read transaction: all its statements see the same state."""
        connection = self.reader()
        try:
            if not self._single:
                connection.execute("BEGIN")
            yield connection
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            self._end_reading(connection)

    def _end_reading(self, connection: sqlite3.Connection) -> None:
        try:
            if connection.in_transaction and not self._single:
                connection.execute("COMMIT")
        except sqlite3.Error as problem:
            # Even this fails on a damaged file. The connection can't be used again.
            connection.close()
            with self._opening:
                self._open_readers -= 1
            self.raise_translated(problem)
        self.release(connection)

    @contextmanager
    def writing(self) -> Iterator[sqlite3.Connection]:
        """Yield the writer in one transaction: committed at the end, rolled back after any exception."""
        if self.read_only:
            raise StoreReadOnly(f"{self._path} was opened with read_only=True")
        with self.lock:
            connection = self._writing_connection()
            try:
                connection.execute("BEGIN IMMEDIATE")
                yield connection
                connection.execute("COMMIT")
            except BaseException as problem:
                # After an error such as a full disk, SQLite may have rolled back already.
                if connection.in_transaction:
                    connection.execute("ROLLBACK")
                if isinstance(problem, self._errors.translated):
                    self.raise_translated(problem)
                raise

    def close(self) -> None:
        """Close all connections; every later call raises the error for a closed file."""
        with self.lock:
            if self._unusable is None:
                self._unusable = self._errors.closed
            self._pooling = False
            self._close_idle()
            if self._writer is not None:
                self._writer.close()
                self._writer = None

    def checkpoint(self) -> int:
        """Copy the log into the file and truncate both, as far as that is possible without waiting.

        Returns how many pages stay in the log because a reader still needs an older state."""
        if self._path is None:
            return 0
        connection = self.reader()
        try:
            # A passive checkpoint copies most pages and does not block writers. The rest is short.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute("PRAGMA busy_timeout = 0")
            try:
                [(_, logged, done)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {timeout}")
            return int(logged - done)
        except sqlite3.Error as problem:
            self.raise_translated(problem)
        finally:
            self.release(connection)

    def data_version(self) -> int:
        """Return a number that changes when another connection has written; for a single connection.

        SQLite counts from 1 again in a new connection, so the number of openings is part of it."""
        with self.lock:
            ((version,),) = self.fetch("PRAGMA data_version")
            return self._writers_opened << 32 | int(version)

    def use_wal(self) -> None:
        """Switch a new file to WAL mode. SQLite itself does not wait if two processes do so at once."""
        deadline = time.monotonic() + self._busy_timeout
        connection = self.reader()
        try:
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as problem:
                    busy = problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() > deadline:
                        self.raise_translated(problem)
                    time.sleep(0.005)
        finally:
            self.release(connection)

    def raise_translated(self, problem: Exception) -> NoReturn:
        """Raise the package's error for an error of SQLite."""
        raise self._errors.translate(problem) from problem

    def _writing_connection(self) -> sqlite3.Connection:
        if self._writer is None or self._unusable is not None:
            self._writer = self._open(writing=True)
            self._writers_opened += 1
        return self._writer

    def _open(self, *, writing: bool) -> sqlite3.Connection:
        if self._unusable is not None:
            raise self._unusable()
        if self._path is None:
            name, uri = ":memory:", False
        else:
            name, uri = f"{self._path.as_uri()}?mode={self._uri_mode(self._path)}", True
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
            self.raise_translated(problem)
        try:
            if writing and not self.read_only:
                level = "FULL" if self._disk else "NORMAL"
                connection.execute(f"PRAGMA synchronous = {level}")
                # Overwrite deleted content with zeros, in builds of SQLite that do not by default.
                connection.execute("PRAGMA secure_delete = 1")
            else:
                connection.execute("PRAGMA query_only = 1")
                connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
        except sqlite3.Error as problem:
            connection.close()
            self.raise_translated(problem)
        return connection

    def _uri_mode(self, path: Path) -> str:
        # In a folder without write permission SQLite can't create the -shm file and refuses to read, unless
        # the file is declared immutable. It is, as long as it has no log: every read checks that again.
        if self.read_only and not os.access(path.parent, os.W_OK) and not Path(f"{path}-wal").exists():
            self._pooling = False
            return "ro&immutable=1"
        return self._mode

    def before_fork(self) -> None:
        """Close all connections; none is opened again until `after_fork`."""
        self.lock.acquire()
        self._opening.acquire()
        if self._path is None:
            return
        if self._writer is not None and not self._writer.in_transaction:
            self._writer.close()
            self._writer = None
        deadline = time.monotonic() + _MAX_FORK_WAIT_SECONDS
        while self._open_readers and time.monotonic() < deadline:
            try:
                self._idle.pop().close()
                self._open_readers -= 1
            except IndexError:
                time.sleep(0.0005)  # another thread is still reading

    def after_fork(self, *, in_child: bool) -> None:
        """Allow connections again, in a child only if it inherited none of its parent's."""
        inherited = self._path is not None and (self._open_readers or self._writer is not None)
        if in_child and (inherited or not self._usable_in_child):
            # An inherited connection could corrupt the file. An error is better than lost memories.
            self._unusable, self._pooling = self._errors.forked, False
        self._opening.release()
        self.lock.release()


_all_connections: weakref.WeakSet[Connections] = weakref.WeakSet()
_one_fork_at_a_time = threading.Lock()
_forking: list[Connections] = []


def _before_fork() -> None:
    _one_fork_at_a_time.acquire()
    _forking[:] = [connections for connections in list(_all_connections) if connections._unusable is None]
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
