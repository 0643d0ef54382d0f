"""The tables of a session store on a PostgreSQL server, behind the calls that the SQLite file offers.

The statements of the session store are written once, with "?" for a value, and run on both. This module
translates them, and finds out after a lost connection whether a transaction was committed.
"""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import count
from typing import Any, TypeVar

from memory.errors import StoreError
from memory.storage.postgres.address import parse
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.schema import Layout, prepare
from memory.storage.postgres.wire import Statement, Wire, changed_rows, rows_of

_T = TypeVar("_T")
_SUFFIX = "_sessions"
"""Added to the schema of the memory: sessions have a schema of their own."""
_SESSIONS = Layout(
    "agentmemory sessions",
    (
        """
CREATE TABLE @settings (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE @sessions (
    id text COLLATE "C" PRIMARY KEY, agent_id text COLLATE "C" NOT NULL, title text NOT NULL,
    created_at double precision NOT NULL, updated_at double precision NOT NULL, archived bigint NOT NULL,
    parent_id text COLLATE "C", message_count bigint NOT NULL, metadata bytea NOT NULL);
CREATE INDEX sessions_by_agent ON @sessions (agent_id, archived, updated_at);
CREATE TABLE @messages (
    session_id text COLLATE "C" NOT NULL, number bigint NOT NULL, body bytea NOT NULL,
    PRIMARY KEY (session_id, number));
""",
    ),
)
_KINDS = {str: "t", int: "q", float: "d", bytes: "b", type(None): "t"}
_RESULTS = {25: "t", 20: "q", 701: "d", 17: "b", 23: "i", 16: "?"}
_BEGIN = Statement("BEGIN")
_TRANSACTION = Statement("SELECT pg_current_xact_id()::text")
_OUTCOME = Statement("SELECT pg_xact_status($1::text::xid8)", "t")
_POLL_SECONDS = 0.01


class Result:
    """What the session store uses of a cursor."""

    def __init__(self, rows: list[tuple[Any, ...]], changed: int) -> None:
        self._rows = rows
        self.rowcount = changed

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._rows[0] if self._rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        return self._rows


class Transaction:
    """What the session store uses of a connection."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def execute(self, sql: str, values: Sequence[Any] = ()) -> Result:
        found = self._wire.run(_statement(sql, tuple(map(type, values))), *values)
        kinds = "".join(_RESULTS[found.ftype(number)] for number in range(found.nfields))
        return Result(rows_of(found, kinds), changed_rows(found))

    def executemany(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self._wire.pipeline([(_statement(sql, tuple(map(type, values))), *values) for values in rows])


class SessionTables:
    """What the session store uses of `memory.storage.connections.Connections`."""

    def __init__(self, url: str, *, busy_timeout: float, most_connections: int = 8) -> None:
        address = parse(url)
        address = replace(address, schema=parse(f"postgresql:///x?schema={address.schema}{_SUFFIX}").schema)
        self._pool = Pool(address, most=most_connections, patience_seconds=busy_timeout)
        try:
            with self._pool.hold() as wire:
                prepare(wire, address, read_only=False, layout=_SESSIONS)
        except BaseException:
            self._pool.close()
            raise
        self.lock = threading.RLock()
        self._versions = count()
        self._process = os.getpid()

    def _refuse_child(self) -> None:
        # A forked child would inherit the sessions in use, and no thread of it would release them.
        if os.getpid() != self._process:
            raise StoreError("it was opened before a fork: open a new SessionStore in the child process")

    def fetch(self, sql: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        self._refuse_child()
        return self._pool.read(lambda wire: Transaction(wire).execute(sql, values).fetchall())

    def write(self, work: Callable[[Any], _T]) -> _T:
        """Call `work` in a transaction, again after a fault that has rolled it back."""
        self._refuse_child()
        attempts: list[tuple[str, _T]] = []

        def attempt(wire: Wire, again: bool) -> _T:
            if again and attempts:
                number, result = attempts.pop()
                if _is_committed(wire, number):
                    return result
            _, found = wire.pipeline([(_BEGIN,), (_TRANSACTION,)])
            number = rows_of(found, "t")[0][0]
            result = work(Transaction(wire))
            attempts.append((number, result))
            wire.command("COMMIT")
            return result

        return self._pool.write(attempt)

    def data_version(self) -> int:
        """Return a new number: whether other hosts have written is known only to the server."""
        return next(self._versions)

    def close(self) -> None:
        self._pool.close()


def _is_committed(wire: Wire, transaction: str) -> bool:
    while True:
        ((outcome,),) = rows_of(wire.run(_OUTCOME, transaction), "t")
        if outcome != "in progress":
            return bool(outcome == "committed")
        time.sleep(_POLL_SECONDS)


@lru_cache(maxsize=512)
def _statement(sql: str, types: tuple[type, ...]) -> Statement:
    """Return a statement of the session store in PostgreSQL's form."""
    numbers = count(1)
    sql = re.sub(r"\?", lambda _: f"${next(numbers)}", sql)
    sql = re.sub(r"\b(FROM|INTO|UPDATE|JOIN) (sessions|messages)\b", r"\1 @\2", sql)
    for kind in types:
        if kind not in _KINDS:
            raise StoreError(f"a value of type {kind.__name__} can't be stored")
    return Statement(sql, "".join(_KINDS[kind] for kind in types))
