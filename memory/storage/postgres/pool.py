"""The connections of one store, and the repetition of calls that a fault interrupted.

A call is repeated until it succeeds or `patience_seconds` have passed: after a lost connection, while the
server restarts, is out of connections or does not accept writes, and after a deadlock. Reads are always
safe to repeat. A write is told that it is repeated, and finds out whether its first attempt was committed.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TypeVar

from psycopg.conninfo import make_conninfo
from psycopg.pq.abc import PGresult

from memory._base.weak_list import WeakList
from memory.errors import (
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
)
from memory.storage.postgres.address import Address
from memory.storage.postgres.wire import ConnectionLost, ServerError, Statement, Wire, rows_of

_T = TypeVar("_T")
_FIRST_PAUSE = 0.01
_LONGEST_PAUSE = 0.1
"""Seconds between two attempts at most. A call ends up to this long after the server is back: with 0.25 it
took 197 ms in the median, with 0.1 it takes 75. More attempts would burden a server that recovers."""
_PID = Statement("SELECT pg_backend_pid()")
_NO_USE_WAITING = (
    "authentication failed",
    "no pg_hba.conf entry",
    "does not exist",
    "is not permitted to log in",
    "not currently accepting connections",
    "no password supplied",
    "certificate",
    "SSL",
)
"""Parts of the server's refusals that another attempt will not change."""
_CONFLICTS = ("40001", "40P01")  # serialization failure, deadlock
_WAITED = ("55P03", "57014")  # lock_timeout, statement_timeout
_READ_ONLY = "25006"
_STATEMENT_LOST = ("26000", "42P05", "0A000")
"""A prepared statement is unknown, known already, or no longer fits the tables."""


class Pool:
    """Opens connections when they are needed and keeps them for the next call."""

    def __init__(
        self, address: Address, *, most: int, patience_seconds: float, read_only: bool = False
    ) -> None:
        """`read_only`: whether the store itself refuses writes, so that no server will accept them."""
        self._address = address
        self._read_only = read_only
        self._most = most
        self._patience = patience_seconds
        self._closed = False
        self._may_prepare = True
        self._start()
        _pools.add(self)

    def _start(self) -> None:
        self._idle: list[Wire] = []
        self._lent = 0
        self._waiting = 0
        self._free = threading.Condition(threading.RLock())
        self._prober: int | None = None
        """The thread that tries to connect while the server can't be reached. The others wait for it: their
        attempts would only take time from a server that recovers."""
        self._probed = threading.Condition(threading.RLock())
        self._writing: set[int] = set()
        self.process = object()
        """Another object in a forked child."""

    def start_in_child(self) -> None:
        """Forget the parent's connections without closing them: closing would end the parent's."""
        _parents_connections.extend(self._idle)
        self._start()

    # -- calls --------------------------------------------------------------------------------

    def read(self, work: Callable[[Wire], _T]) -> _T:
        """Call `work` with a connection; again after a fault."""
        return self._repeat(lambda wire, again: work(wire), writes=False)

    def fetch(self, statement: Statement, *values: Any) -> PGresult:
        """Read with one statement. This is `read` with less around it, for the most frequent calls."""
        try:
            wire = self._idle.pop()
        except IndexError:
            wire = None
        if wire is not None:
            try:
                wire.send(statement, *values)
                result = wire.receive()
            except ConnectionLost:
                self._discard(wire)
                self._drop_idle()
            except BaseException as problem:
                self._give_back(wire)
                if not isinstance(problem, ServerError):
                    raise
            else:
                if not (self._closed or self._waiting):
                    self._idle.append(wire)
                    return result
                self._give_back(wire)
                if not self._closed:
                    return result
        return self.read(lambda wire: wire.run(statement, *values))

    def ask(self, statement: Statement, *values: Any) -> Asked:
        """Send a statement that reads. The caller works while the server does, then takes the result."""
        try:
            wire = self._idle.pop()
        except IndexError:
            return Asked(self, None, statement, values)
        asked = Asked(self, wire, statement, values)
        try:
            wire.send(statement, *values)
        except (ConnectionLost, ServerError):
            asked.give_up()  # `result` repeats it
        return asked

    def write(self, work: Callable[[Wire, bool], _T]) -> _T:
        """Call `work` with a connection, and whether an earlier attempt may have been committed."""
        me = threading.get_ident()
        self._writing.add(me)
        try:
            return self._repeat(work, writes=True)
        finally:
            self._writing.discard(me)

    def is_writing(self) -> bool:
        return threading.get_ident() in self._writing

    @contextmanager
    def hold(self, first: str = "SELECT 1") -> Iterator[Wire]:
        """Lend a connection for several statements.

        first: a command that is repeated after a fault, such as BEGIN; later faults are named only
        """
        wire = self._repeat(lambda wire, again: _after(wire, first), writes=False, keep=True)
        try:
            yield wire
        except (ConnectionLost, ServerError) as problem:
            self._give_up(problem, stored=False)
        finally:
            self._give_back(wire)

    def _repeat(self, work: Callable[[Wire, bool], _T], *, writes: bool, keep: bool = False) -> _T:
        """Call `work` until it succeeds. `keep` leaves the connection with the caller."""
        try:
            return self._attempt(work, writes=writes, keep=keep)
        finally:
            if self._prober == threading.get_ident():
                self._end_probe()

    def _attempt(self, work: Callable[[Wire, bool], _T], *, writes: bool, keep: bool) -> _T:
        deadline = time.monotonic() + self._patience
        pause = 0.0
        unknown = False  # whether an attempt may have been committed
        refusal: ServerError | None = None
        while True:
            problem: ConnectionLost | ServerError
            wire = None
            try:
                wire = self._take(deadline)
                if self._prober is not None:
                    self._end_probe()
                result = work(wire, unknown)
                if not keep:
                    self._give_back(wire)
                return result
            except ConnectionLost as lost:
                problem = lost
                if wire is None:
                    if refusal is not None and time.monotonic() >= deadline:
                        self._give_up(refusal, stored=None if unknown else False)
                    if not self._is_worth_waiting(lost):
                        self._give_up(lost, stored=None if unknown else False)
                else:
                    unknown = unknown or writes
                    self._discard(wire)
                    self._drop_idle()  # they belong to the same server
            except ServerError as refused:
                problem = refused
                assert wire is not None
                if refused.sqlstate in _STATEMENT_LOST and not wire.is_broken:
                    self._may_prepare = self._may_prepare and refused.sqlstate == "0A000"
                    self._discard(wire)
                    self._drop_idle()
                elif refused.sqlstate == _READ_ONLY and not self._read_only:
                    refusal = refused  # the call's time may end while it connects again
                    self._discard(wire)  # after a failover, a new connection may reach the new primary
                    self._drop_idle()
                elif refused.sqlstate in _CONFLICTS or refused.sqlstate in _WAITED:
                    self._give_back(wire)
                else:
                    self._give_back(wire)
                    self._give_up(refused, stored=None if unknown else False)
            except BaseException:
                if wire is not None:
                    self._give_back(wire)
                raise
            if time.monotonic() + pause >= deadline:
                self._give_up(problem, stored=None if unknown else False)
            is_down = isinstance(problem, ConnectionLost) and wire is None
            if is_down and not self._may_probe():
                self._await_probe(deadline)
            elif pause:
                time.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(max(2 * pause, _FIRST_PAUSE), _LONGEST_PAUSE)

    # -- a server that can't be reached --------------------------------------------------------

    def _may_probe(self) -> bool:
        """Return whether this thread is the one that tries to connect."""
        with self._probed:
            if self._prober is None:
                self._prober = threading.get_ident()
            return self._prober == threading.get_ident()

    def _await_probe(self, deadline: float) -> None:
        """Wait until the prober has connected or given up."""
        with self._probed:
            left = deadline - time.monotonic()
            self._probed.wait_for(lambda: self._prober is None, max(left, 0.0))

    def _end_probe(self) -> None:
        with self._probed:
            self._prober = None
            self._probed.notify_all()

    # -- connections --------------------------------------------------------------------------

    def _take(self, deadline: float) -> Wire:
        try:
            wire = self._idle.pop()
        except IndexError:
            return self._open_or_wait(deadline)
        if self._closed:
            self._discard(wire)
            raise self._closed_error()
        return wire

    def _open_or_wait(self, deadline: float) -> Wire:
        with self._free:
            self._waiting += 1
            try:
                while True:
                    if self._closed:
                        raise self._closed_error()
                    if self._idle:
                        return self._idle.pop()
                    if self._lent < self._most:
                        self._lent += 1
                        break
                    left = deadline - time.monotonic()
                    if left <= 0 or not self._free.wait(left):
                        raise StoreBusy(
                            f"all {self._most} connections to {self._address} are in use: raise "
                            "server_connections, or use fewer threads"
                        )
            finally:
                self._waiting -= 1
        try:
            return self._connect(deadline - time.monotonic())
        except BaseException:
            self._forget_one()
            raise

    def _connect(self, seconds: float) -> Wire:
        """Open a connection within `seconds`, or within `connect_timeout` if that is less."""
        wire = Wire(make_conninfo(**self._address.parameters), self._address.quoted_schema, seconds)
        wire.may_prepare = False
        try:
            ((pid,),) = rows_of(wire.run(_PID), "i")
        except BaseException:
            wire.close()
            raise
        # A pooler tells another number than the process that runs the statement. It may run the next one in
        # another process, which does not know what was prepared in this one.
        wire.may_prepare = self._may_prepare and pid == wire.backend_pid
        return wire

    def _give_back(self, wire: Wire) -> None:
        """Keep a connection for the next call. After an interrupt or a fault it is closed instead."""
        if self._closed or not wire.become_idle():
            self._discard(wire)
            return
        self._idle.append(wire)
        if self._waiting:
            with self._free:
                self._free.notify()

    def _discard(self, wire: Wire) -> None:
        wire.close()
        self._forget_one()

    def _forget_one(self) -> None:
        with self._free:
            self._lent -= 1
            self._free.notify()

    def _drop_idle(self) -> None:
        while self._idle:
            try:
                wire = self._idle.pop()
            except IndexError:
                return
            self._discard(wire)

    def close(self) -> None:
        self._closed = True
        self._drop_idle()
        with self._free:
            self._free.notify_all()

    # -- errors -------------------------------------------------------------------------------

    def _closed_error(self) -> StoreClosed:
        return StoreClosed(f"the memory in {self._address} was closed before this call: open it again")

    @staticmethod
    def _is_worth_waiting(problem: ConnectionLost) -> bool:
        text = str(problem)
        return not any(part in text for part in _NO_USE_WAITING)

    def _give_up(self, problem: ConnectionLost | ServerError, *, stored: bool | None) -> NoReturn:
        """Raise the named error for a problem. `stored` is None if an attempt may have been committed."""
        reason = self._address.hide(str(problem))
        state = problem.sqlstate
        outcome = "nothing was stored" if stored is False else "it is not known whether it was stored"
        if isinstance(problem, ServerError):
            if state in _WAITED or state in _CONFLICTS:
                raise StoreBusy(f"{self._address}: {reason}; {outcome}: try again") from None
            if state == _READ_ONLY:
                raise StoreReadOnly(f"{self._address} accepts no writes: {reason}") from None
            if state[:3] == "531":
                raise StoreFull(f"no space left on the server of {self._address}: {reason}") from None
            if state == "42501":
                raise StoreReadOnly(
                    f"the role lacks a right on {self._address}: {reason}; docs/postgres.md lists them"
                ) from None
            if state in ("42P01", "3F000", "42703"):
                raise StoreCorrupt(
                    f"{self._address} lacks a table of the memory: {reason}; restore a backup"
                ) from None
            if state[:3] == "XX0":
                raise StoreCorrupt(f"{self._address} is damaged: {reason}; restore a backup") from None
            raise StoreError(f"{self._address} refused a call: {reason} (SQLSTATE {state})") from None
        raise StoreUnavailable(
            f"{self._address} can't be reached: {reason}; {outcome}", stored=stored
        ) from None


class Asked:
    """A statement that was sent, and the connection that will have its result.

    If it is dropped before `result`, such as after an interrupt, the connection is closed."""

    __slots__ = ("_pool", "_process", "_statement", "_values", "_wire")

    def __init__(
        self, pool: Pool, wire: Wire | None, statement: Statement, values: tuple[Any, ...]
    ) -> None:
        """`wire`: None if no connection was idle; then `result` sends the statement."""
        self._pool = pool
        self._process = pool.process
        self._wire = wire
        self._statement = statement
        self._values = values

    def result(self) -> PGresult:
        """Wait for the result. After a fault the statement is repeated."""
        wire = self._wire
        if wire is not None and self._process is self._pool.process:
            try:
                result = wire.receive()
            except ConnectionLost:
                self.give_up()
                self._pool._drop_idle()  # they belong to the same server
            except ServerError:
                self.give_up()
            else:
                self._wire = None
                self._pool._give_back(wire)
                return result
        return self._pool.fetch(self._statement, *self._values)

    def give_up(self) -> None:
        """Close the connection. In a forked child it is only kept: closing would end the parent's."""
        wire, self._wire = self._wire, None
        if wire is not None:
            if self._process is self._pool.process:
                self._pool._discard(wire)
            else:
                _parents_connections.append(wire)

    def __del__(self) -> None:
        self.give_up()


def _after(wire: Wire, command: str) -> Wire:
    wire.command(command)
    return wire


_pools: WeakList[Pool] = WeakList()
_parents_connections: list[Wire] = []


def _after_fork_in_child() -> None:
    for pool in list(_pools):
        pool.start_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
