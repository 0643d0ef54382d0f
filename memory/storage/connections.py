"""The SQLite connections of one process to one file; the memory and the session store share this layer.

This layer opens and locks files, makes writes durable, prepares for forks, and translates SQLite's errors
into those of the package.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol, TypeVar

from memory._base.file_state import file_state
from memory._base.weak_list import WeakList
from memory.errors import StoreReadOnly
from memory.storage._writer_queue import WriterQueue, sleep

_MAX_FORK_WAIT_SECONDS = 10.0
"""How long a fork waits for reads of other threads; a read of all rows can take seconds."""
_FORK_POLL_SECONDS = 0.0005
"""Seconds between two checks, while a fork waits for other threads or other threads wait for a fork."""
_LOG_PAGES = 4000
"""Pages in the log from which a commit also copies them into the file: 16 MB. A page that many commits have
changed is copied once, and the disk is asked once to store it all. With SQLite's 1,000 pages, `make writes`
gave 0.69 × the baseline's rate instead of 0.76 × (one run each, machine not idle)."""
_LONG_LOG_PAGES = 4 * _LOG_PAGES
"""The same where `copy_log` is called in the background: commits copy only if that thread is late."""
_COPIES_WITHOUT_LOCK = 4
"""How often `copy_log` copies the log before it takes the lock. The first copy takes most of the time."""
_FEW_PAGES = 100
"""If fewer were written while the log was copied, another copy without the lock gains nothing."""
_COPY_POLL_SECONDS = 0.002
"""Seconds between two attempts while another connection copies the log, which takes 20 to 70 ms."""
_READER_CACHE_KIB = 16384
"""Page cache of one reader: large enough to hold the index pages that random reads by id need."""

_T = TypeVar("_T")


class ConnectionErrors(Protocol):
    """The errors that the users of one kind of file see."""

    translated: tuple[type[Exception], ...]
    """Exceptions of the `sqlite3` module that `translate` replaces; others pass unchanged."""

    def translate(self, problem: Exception) -> Exception:
        """Return the package's error for one of `translated`."""

    def closed(self) -> Exception:
        """Return the error for a call after `close`."""

    def replaced(self) -> Exception:
        """Return the error for a file that was deleted, or replaced by another one, while it was open."""

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
        copies_log: bool = False,
        after_checkpoint: Callable[[sqlite3.Connection], None] | None = None,
    ) -> None:
        """Connect to a file when a connection is first needed.

        path: an absolute path; None for a database in RAM
        errors: turns SQLite's errors into those of the caller
        disk: wait at every commit until the disk has the data
        busy_timeout: seconds to wait for a lock of another process
        mode: "ro" to read only, "rwc" to create a missing file
        single: read and write through one connection, in turns; a database in RAM always does
        usable_in_child: False if the owner has state in RAM that must not be used after a fork
        copies_log: the owner calls `copy_log` often
        after_checkpoint: called in the first transaction after each checkpoint
        """
        self._path = path
        self._file_name = str(path)
        self._encoded_name = os.fsencode(self._file_name)
        self._errors = errors
        self._disk = disk
        self._busy_timeout = busy_timeout
        self._mode = mode
        self._single = single or path is None
        self._usable_in_child = usable_in_child
        self.read_only = mode == "ro"
        self._special = self._single or self.read_only
        self._queues = not self._special
        """Whether the writer waits for other processes here, and not in SQLite."""
        self._log_pages = _LONG_LOG_PAGES if copies_log else _LOG_PAGES
        self._after_checkpoint = after_checkpoint
        self._unusable: Callable[[], Exception] | None = None
        # Reentrant locks: a signal handler may run in a thread that already holds them.
        self.lock = threading.RLock()
        """Held while this process writes. Use it in a `with` statement only: an interrupt between two byte
        codes must not leave it locked."""
        self._opening = threading.RLock()
        self._idle: deque[_Connection] = deque()
        """Readers that are not in use."""
        self._lent: deque[_Connection] = deque()
        """Readers that were given to a transaction. When it has ended, they are free again."""
        self._readers: list[weakref.ref[_Connection]] = []
        """All readers. If an interrupt leaves a reader without an owner, Python deletes and closes it."""
        self._writer: sqlite3.Connection | None = None
        self.queue = WriterQueue(None)
        """Where this process waits for other processes that write."""
        self._writers_opened = 0
        self._identity: tuple[int, int] | None = None
        """Device and inode of the file."""
        self._known_change: int | None = None
        """What `_changed_at` returned in the last write transaction."""
        self._seen_state: _FileState | None = None
        self._forking = False
        self._fork_locks: list[Any] = []
        _all_connections.add(self)

    def fetch(self, statement: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows of one statement; faster than `read`."""
        if self._special:
            return self._read_special(lambda connection: connection.execute(statement, values).fetchall())
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._another_reader()
        try:
            return connection.execute(statement, values).fetchall()
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            self._idle.append(connection)
            if self._unusable is not None:
                self._close_idle()

    def fetch_one(self, statement: str, values: Sequence[Any] = ()) -> Any:
        """Return the first row of one statement, or None."""
        if self._special:
            return self._read_special(lambda connection: connection.execute(statement, values).fetchone())
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._another_reader()
        try:
            return connection.execute(statement, values).fetchone()
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            self._idle.append(connection)
            if self._unusable is not None:
                self._close_idle()

    def read(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Call `work` with a connection in one read transaction: all its statements see the same state."""
        if self._special:
            return self._read_special(work)
        connection = self._begin_reading()
        try:
            with connection:
                result = work(connection)
            connection.is_clean = True
            return result
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            connection.is_free = True
            if self._unusable is not None:
                self._close_idle()

    def iterate(self, work: Callable[[sqlite3.Connection], Iterator[_T]]) -> Iterator[_T]:
        """Return what `work` yields in one read transaction, which ends with the iteration.

        Without a pool of readers, everything is read before the first value is returned."""
        if self._special:
            return iter(self._read_special(lambda connection: list(work(connection))))
        return self._iterate(work)

    def _iterate(self, work: Callable[[sqlite3.Connection], Iterator[_T]]) -> Iterator[_T]:
        connection = self._begin_reading()
        try:
            with connection:
                yield from work(connection)
            connection.is_clean = True
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            connection.is_free = True

    def _read_special(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        """Read through the only connection, or from a file that is opened read-only."""
        if self._single:
            with self.lock:
                connection = self._writing_connection()
                try:
                    return work(connection)
                except self._errors.translated as problem:
                    self.raise_translated(problem)
        while True:
            state = self._follow_read_only()
            connection = self._begin_reading()
            try:
                with connection:
                    result = work(connection)
                connection.is_clean = True
            except self._errors.translated as problem:
                if not state.live and self._read_only_state() != state:
                    continue
                self.raise_translated(problem)
            finally:
                connection.is_free = True
            # An immutable connection takes no locks. Its result is valid only if nobody wrote meanwhile.
            if state.live or self._read_only_state() == state:
                return result

    def _begin_reading(self) -> _Connection:
        """Return a reader in a transaction, to be used at once in a `with` statement in a `try` block.

        SQLite's own `__exit__` ends the transaction. It is C code, so no interrupt can stop it halfway.
        Then the caller sets `is_free`. An assignment is not a call, so no interrupt can come before it.
        `_another_reader` then reuses the reader. (The end of the transaction is not a sufficient sign: the
        thread may still be inside SQLite, and a fork would copy the locks that SQLite holds.)"""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._another_reader()
        try:
            connection.thread = threading.get_ident()
            connection.is_free = connection.is_clean = False
            connection.execute("BEGIN")
            self._lent.append(connection)
            return connection
        except BaseException:
            connection.is_free = True
            with self._opening:
                connection.close()
            raise

    def _another_reader(self) -> _Connection:
        """Return a reader that is not in use, or open one."""
        while True:
            with self._opening:
                # During a fork, only a thread that has begun to read or write may go on: the fork waits
                # for it.
                if not self._forking or self._is_busy_here():
                    self._reclaim()
                    if self._idle:
                        return self._idle.pop()
                    connection = self._open(writing=False)
                    self._readers = [known for known in self._readers if known() is not None]
                    self._readers.append(weakref.ref(connection))
                    return connection
            time.sleep(_FORK_POLL_SECONDS)

    def _is_busy_here(self) -> bool:
        """Return whether this thread is in a transaction."""
        this = threading.get_ident()
        return self.is_writing() or any(
            connection.thread == this and not connection.is_free for connection in list(self._lent)
        )

    def is_writing(self) -> bool:
        """Return whether this thread holds the write lock."""
        owned: bool = self.lock._is_owned()  # type: ignore[attr-defined]
        return owned

    def _reclaim(self) -> None:
        """Move the readers that are free again to `_idle`. The caller holds `_opening`."""
        for _ in range(len(self._lent)):
            connection = self._lent.popleft()
            if not connection.is_free:
                self._lent.append(connection)
            elif not connection.is_clean:
                connection.close()
            elif not _is_closed(connection):
                self._idle.append(connection)

    def _close_idle(self) -> None:
        with self._opening:
            self._reclaim()
            while self._idle:
                self._idle.pop().close()

    def _open_readers(self) -> int:
        """Return how many readers are open, in use or not."""
        readers = [known() for known in self._readers]
        return sum(reader is not None and not _is_closed(reader) for reader in readers)

    def write(self, work: Callable[[sqlite3.Connection], _T], *, frees_space: bool = False) -> _T:
        """Call `work` with the writer in one transaction: committed at the end, or rolled back.

        frees_space: if the disk is full, let the log start again and try once more
        """
        if self.read_only:
            raise StoreReadOnly(f"{self._path} was opened with read_only=True")
        with self.lock:
            try:
                return self._write(work)
            except self._errors.translated as problem:
                is_full = getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL
                if not (frees_space and is_full and self._unusable is None):
                    self.raise_translated(problem)
            self._make_room()
            try:
                return self._write(work)
            except self._errors.translated as problem:
                self.raise_translated(problem)

    def _write(self, work: Callable[[sqlite3.Connection], _T]) -> _T:
        connection = self._writing_connection()
        try:
            # SQLite's own `__exit__` commits or rolls back: see `_begin_reading`.
            with connection:
                self._execute_in_turn(connection, "BEGIN IMMEDIATE")
                if self._path is None:
                    return work(connection)
                changed_at = self._changed_at()
                if changed_at != self._known_change and self._after_checkpoint is not None:
                    self._after_checkpoint(connection)
                result = work(connection)
        finally:
            self.queue.leave()
        self._known_change = changed_at
        return result

    def _execute_in_turn(
        self, connection: sqlite3.Connection, statement: str, values: Sequence[Any] = ()
    ) -> sqlite3.Cursor:
        """Execute a statement that needs SQLite's write lock. Wait for other processes, in their order.

        The caller calls `queue.leave` after the commit."""
        if not self._queues:
            return connection.execute(statement, values)
        if not self.queue.is_contended():
            try:
                return connection.execute(statement, values)
            except sqlite3.OperationalError as problem:
                if not _is_busy(problem):
                    raise
        deadline = time.monotonic() + self._busy_timeout
        self.queue.enter()
        attempts = 0
        while True:
            try:
                return connection.execute(statement, values)
            except sqlite3.OperationalError as problem:
                if not _is_busy(problem) or time.monotonic() > deadline:
                    raise
            attempts += 1
            sleep(attempts)

    def write_alone(self, statement: str, values: Sequence[Any]) -> int | None:
        """Execute one statement as a transaction of its own; return how many rows it has changed.

        The caller holds the lock. Returns None and does nothing inside a transaction: then use `write`. An
        IntegrityError passes unchanged."""
        if self.read_only:
            raise StoreReadOnly(f"{self._path} was opened with read_only=True")
        queue = self.queue
        try:
            connection = self._writer
            if connection is None or self._unusable is not None:
                connection = self._writing_connection()
            # A signal handler may call this inside a transaction, which would then contain the statement.
            if connection.in_transaction:
                return None
            # A checkpoint in the short time between this check and the commit is noticed at the next write.
            if self._path is not None and self._changed_at() != self._known_change:
                self._write(_no_work)  # calls `after_checkpoint`
            if self._queues and not queue.contended_until:
                try:
                    return connection.execute(statement, values).rowcount
                except sqlite3.OperationalError as problem:
                    if not _is_busy(problem):
                        raise
            return self._execute_in_turn(connection, statement, values).rowcount
        except sqlite3.IntegrityError:
            raise
        except self._errors.translated as problem:
            self.raise_translated(problem)
        finally:
            if queue.has_turn:
                queue.leave()

    def _changed_at(self) -> int:
        """Return when a checkpoint last changed the file; commits change only the log.

        Raises an error if the path leads to another file than before."""
        try:
            device, inode, changed_at = file_state(self._encoded_name)
        except OSError:
            raise self._errors.replaced() from None
        if (device, inode) != self._identity:
            raise self._errors.replaced()
        return changed_at

    def _make_room(self) -> None:
        """Let the log start again at its beginning: then a short write needs no new space on a full disk.

        If that is not possible, the second attempt to write raises the error."""
        with contextlib.suppress(*self._errors.translated):
            connection = self._writing_connection()
            (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
            connection.execute(f"PRAGMA busy_timeout = {round(self._busy_timeout * 1000)}")
            try:
                connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
            finally:
                connection.execute(f"PRAGMA busy_timeout = {timeout}")

    def close(self) -> None:
        """Close all connections; every later call raises the error for a closed file."""
        with self.lock:
            if self._unusable is None:
                self._unusable = self._errors.closed
            self._close_idle()
            if self._writer is not None:
                self._writer.close()
                self._writer = None
            self.queue.close()

    def rewrite(self) -> None:
        """Write all pages of the file anew, without remains of deleted rows. Other writers wait.

        Raises StoreCorrupt, and rewrites nothing, if the structure of the file is damaged."""
        with self.lock:
            try:
                connection = self._writing_connection()
                if self._path is not None:
                    self._changed_at()
                # A damaged file may have rows that only a recovery tool finds.
                ((found,),) = connection.execute("PRAGMA quick_check(1)").fetchall()
                if found != "ok":
                    damage = sqlite3.DatabaseError(found)
                    damage.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
                    raise damage
                self._execute_in_turn(connection, "VACUUM")
            except self._errors.translated as problem:
                self.raise_translated(problem)
            finally:
                self.queue.leave()

    def checkpoint(self) -> Checkpoint:
        """Copy the log into the file and truncate both, as far as that is possible without waiting.

        It only waits for another thread or process that copies the log just now."""
        if self._path is None:
            return Checkpoint(0, True)
        deadline = time.monotonic() + self._busy_timeout
        with self._borrowed_reader() as connection:
            # A passive checkpoint copies most pages and does not block writers. The rest is short.
            connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            while True:
                with self.lock, _no_waiting(connection):
                    [(busy, logged, done)] = connection.execute(
                        "PRAGMA wal_checkpoint(TRUNCATE)"
                    ).fetchall()
                # SQLite returns -1 if another connection copies the log.
                if not (busy and logged < 0) or time.monotonic() > deadline:
                    return Checkpoint(int(logged - done), busy == 0)
                time.sleep(_COPY_POLL_SECONDS)

    def copy_log(self) -> None:
        """Copy the log into the file, so that no commit has to.

        Nobody waits while most pages are copied and the disk stores them. The next write starts the log
        again, if nobody has written meanwhile. If somebody has, and the log is long, the last pages are
        copied under the lock: that is short."""
        if self._special:
            return
        before = -_FEW_PAGES
        with self._borrowed_reader() as connection:
            for _ in range(_COPIES_WITHOUT_LOCK):
                [(busy, logged, _)] = connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
                if busy:  # another process copies
                    return
                if logged - before < _FEW_PAGES:
                    break
                before = logged
            if logged >= _LOG_PAGES:
                with self.lock, _no_waiting(connection):
                    connection.execute("PRAGMA wal_checkpoint(FULL)").fetchall()

    @contextlib.contextmanager
    def _borrowed_reader(self) -> Iterator[_Connection]:
        """Lend a reader for statements that are no reads."""
        try:
            connection = self._idle.pop()
        except IndexError:
            connection = self._another_reader()
        try:
            yield connection
        except sqlite3.Error as problem:
            self.raise_translated(problem)
        finally:
            self._idle.append(connection)
            if self._unusable is not None:
                self._close_idle()

    def data_version(self) -> int:
        """Return a number that changes when another connection has written; for a single connection.

        SQLite counts from 1 again in a new connection, so the number of openings is part of it."""
        with self.lock:
            ((version,),) = self.fetch("PRAGMA data_version")
            return self._writers_opened << 32 | int(version)

    def use_wal(self) -> None:
        """Switch a new file to WAL mode. SQLite itself does not wait if two processes do so at once."""
        deadline = time.monotonic() + self._busy_timeout
        with self.lock:
            connection = self._writing_connection()
            while True:
                try:
                    connection.execute("PRAGMA journal_mode = WAL")
                    return
                except sqlite3.OperationalError as problem:
                    busy = problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                    if not busy or time.monotonic() > deadline:
                        self.raise_translated(problem)
                    time.sleep(0.005)

    def raise_translated(self, problem: Exception) -> NoReturn:
        """Raise the package's error for an error of SQLite."""
        if self._unusable is not None:  # closed by another thread or by a signal handler
            raise self._unusable() from problem
        raise self._errors.translate(problem) from problem

    def _writing_connection(self) -> sqlite3.Connection:
        if self._writer is None or self._unusable is not None:
            self._writer = self._open(writing=True)
            self._writers_opened += 1
            self._known_change = None
        return self._writer

    def _open(self, *, writing: bool) -> _Connection:
        if self._unusable is not None:
            raise self._unusable()
        if self._path is None:
            name, uri = ":memory:", False
        else:
            name, uri = f"{self._path.as_uri()}?{self._uri_options()}", True
        before = self._file_identity()
        try:
            connection: _Connection = sqlite3.connect(
                name,
                uri=uri,
                timeout=self._busy_timeout,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
                factory=_Connection,
            )
        except sqlite3.Error as problem:
            self.raise_translated(problem)
        try:
            self._check_identity(before)
            if writing and not self.read_only:
                level = "FULL" if self._disk else "NORMAL"
                connection.execute(f"PRAGMA synchronous = {level}")
                # Overwrite deleted content with zeros, in builds of SQLite that do not by default.
                connection.execute("PRAGMA secure_delete = 1")
                connection.execute(f"PRAGMA wal_autocheckpoint = {self._log_pages}")
                # SQLite keeps pages for the case that a statement fails halfway: in RAM, not in a file.
                connection.execute("PRAGMA temp_store = MEMORY")
                if self._queues:
                    connection.execute("PRAGMA busy_timeout = 0")
            else:
                connection.execute("PRAGMA query_only = 1")
                connection.execute(f"PRAGMA cache_size = -{_READER_CACHE_KIB}")
        except sqlite3.Error as problem:
            connection.close()
            self.raise_translated(problem)
        except BaseException:
            connection.close()
            raise
        return connection

    def _file_identity(self) -> tuple[int, int] | None:
        """Return device and inode of the file at the path; None if there is none."""
        if self._path is None:
            return None
        try:
            found = os.stat(self._file_name)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def _check_identity(self, before: tuple[int, int] | None) -> None:
        """Raise an error if a new connection leads to another file than the first one did.

        What is cached, such as the numbers of agents, must not be used with another file.
        `before` is the identity of the file before the connection was opened."""
        after = self._file_identity()
        if self._identity is None:
            self._identity = after
        if after != self._identity or (before is not None and before != after):
            raise self._errors.replaced()

    # -- read-only files ----------------------------------------------------------------------

    def _uri_options(self) -> str:
        """Return how SQLite opens the file.

        SQLite creates the files -wal and -shm for readers too. A read-only memory must not create them:
        they would belong to the reader's user, and the owner of the database could not write them. So the
        memory reads through a log that a writer has opened. Without one, it declares the file immutable."""
        if not self.read_only:
            return f"mode={self._mode}"
        return "mode=ro&readonly_shm=1" if self._read_only_state().live else "mode=ro&immutable=1"

    def _read_only_state(self) -> _FileState:
        log, shared = (_size_of(f"{self._file_name}{suffix}") for suffix in ("-wal", "-shm"))
        try:
            found = os.stat(self._file_name)
        except OSError:
            raise self._errors.replaced() from None
        if log and shared is None:
            raise StoreReadOnly(
                f"{self._path} has a log that no process has opened: open the memory once without read_only"
            )
        live = log is not None and shared is not None
        # With a live log, SQLite itself detects changes.
        return _FileState(live, () if live else (found.st_ino, found.st_size, found.st_mtime_ns))

    def _follow_read_only(self) -> _FileState:
        """Return the state of the file; close readers that were opened in another one."""
        state = self._read_only_state()
        if state != self._seen_state:
            self._close_idle()
            self._seen_state = state
        return state

    # -- forks --------------------------------------------------------------------------------

    def before_fork(self, deadline: float) -> None:
        """Close all connections; none is opened again until `after_fork`.

        Waits until `deadline` for other threads, which may finish what they have begun."""
        self._forking = True
        while True:
            self._fork_locks = self._lock_for_fork(deadline)
            if self._path is None or self._close_for_fork() or time.monotonic() > deadline:
                return
            self._unlock_after_fork()
            time.sleep(_FORK_POLL_SECONDS)

    def _lock_for_fork(self, deadline: float) -> list[Any]:
        """Take the locks that a fork needs and return them; return none if the deadline passes."""
        if not self.lock.acquire(timeout=max(deadline - time.monotonic(), 0)):
            return []
        self._opening.acquire()  # never held for long
        return [self.lock, self._opening]

    def _unlock_after_fork(self) -> None:
        while self._fork_locks:
            self._fork_locks.pop().release()

    def _close_for_fork(self) -> bool:
        """Close the connections that are not in use; return False if the fork should wait for others."""
        if len(self._fork_locks) < 2:
            return False
        if self._writer is not None and not self._writer.in_transaction:
            self._writer.close()
            self._writer = None
        self._close_idle()
        this = threading.get_ident()
        in_this_thread = any(connection.thread == this for connection in self._lent)
        # There is nothing to wait for if this thread itself forks in the middle of a transaction.
        return in_this_thread or self._writer is not None or not self._open_readers()

    def after_fork(self, *, in_child: bool) -> None:
        """Allow connections again; in a child, only if it inherited no connection of its parent."""
        self._forking = False
        if in_child:
            inherited = self._path is not None and (self._open_readers() or self._writer is not None)
            if inherited or len(self._fork_locks) < 2 or not self._usable_in_child:
                # An inherited connection could corrupt the file. An error is better than lost memories.
                self._unusable = self._errors.forked
            if len(self._fork_locks) < 2:  # another thread of the parent holds them for ever
                self.lock, self._opening = threading.RLock(), threading.RLock()
        self._unlock_after_fork()


class _Connection(sqlite3.Connection):
    """A connection that can have weak references."""

    thread = 0
    """The thread that began the last read transaction."""
    is_free = True
    """Whether that thread has finished using this connection."""
    is_clean = True
    """Whether the last read transaction ended without an exception. Otherwise a cursor may be open in a
    frame of its traceback. As long as that exists, the connection sees an old state of the file."""


class Checkpoint(NamedTuple):
    """What a checkpoint has done."""

    pages_left: int
    """How many pages were not copied into the file, because a reader still needs an older state."""
    is_truncated: bool
    """Whether the log is empty now. It is not if a reader or a writer was using it."""


class _FileState(NamedTuple):
    """How a read-only memory reads its file."""

    live: bool
    """Whether a writer has the log open. Otherwise the file is read as immutable."""
    identity: tuple[int, ...]
    """Changes when an immutable file changes."""


@contextlib.contextmanager
def _no_waiting(connection: sqlite3.Connection) -> Iterator[None]:
    """Let statements fail at once if a lock is taken."""
    (timeout,) = connection.execute("PRAGMA busy_timeout").fetchone()
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        yield
    finally:
        connection.execute(f"PRAGMA busy_timeout = {timeout}")


def _no_work(connection: sqlite3.Connection) -> None:
    """Do nothing in a transaction."""


def _is_busy(problem: sqlite3.OperationalError) -> bool:
    return problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY


def _is_closed(connection: sqlite3.Connection) -> bool:
    try:
        connection.total_changes  # noqa: B018  (raises an error if it is closed)
    except sqlite3.ProgrammingError:
        return True
    return False


def _size_of(file: str) -> int | None:
    try:
        return os.stat(file).st_size
    except OSError:
        return None


def is_open(path: Path) -> bool:
    """Return whether this process has the file open."""
    return any(known._path == path and known._unusable is None for known in list(_all_connections))


_all_connections: WeakList[Connections] = WeakList()
_one_fork_at_a_time = threading.Lock()
_forking: list[Connections] = []


def _before_fork() -> None:
    _one_fork_at_a_time.acquire()
    _forking[:] = [connections for connections in list(_all_connections) if connections._unusable is None]
    deadline = time.monotonic() + _MAX_FORK_WAIT_SECONDS
    for connections in _forking:
        connections.before_fork(deadline)


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
