"""Statements and values on the wire: one prepared statement is one round trip, several are one pipeline.

Everything is sent and received in PostgreSQL's binary format. A statement names the types of its
parameters, so that the server never guesses them, and a prepared statement is found by its text alone.
"""

from __future__ import annotations

import select
import struct
import time
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, NamedTuple

import psycopg
from psycopg import pq
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq.abc import PGconn, PGresult

_TYPES = {
    "q": 20,  # bigint
    "i": 23,  # integer
    "h": 21,  # smallint
    "d": 701,  # double precision
    "t": 25,  # text
    "b": 17,  # bytea
    "?": 16,  # boolean
    "Q": 1016,  # bigint[]
    "I": 1007,  # integer[]
    "T": 1009,  # text[]
    "B": 1001,  # bytea[]
}
_BINARY = 1
_POLL_MILLISECONDS = 1000
_EVENTS = {pq.PollingStatus.READING: select.POLLIN, pq.PollingStatus.WRITING: select.POLLOUT}
_COPY_AT_ONCE = 1 << 16
_FINISHED = (pq.ExecStatus.TUPLES_OK, pq.ExecStatus.COMMAND_OK, pq.ExecStatus.EMPTY_QUERY)
_TUPLES = pq.ExecStatus.TUPLES_OK
_Compiled = tuple[bytes, bytes, list[int], list[Any] | None, list[int]]
"""A statement's name and SQL, and the types, encoders (None if encoded) and formats of its parameters."""
_COPYING = (pq.ExecStatus.COPY_IN, pq.ExecStatus.COPY_OUT)


class ServerError(Exception):
    """The server refused a statement. The connection can still be used."""

    def __init__(self, sqlstate: str, message: str, constraint: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate
        self.constraint = constraint


class ConnectionLost(Exception):
    """The connection broke, or could not be opened. Its last transaction may be committed or not."""

    def __init__(self, message: str, sqlstate: str = "") -> None:
        super().__init__(message)
        self.sqlstate = sqlstate


class Statement(NamedTuple):
    """An SQL text and the types of its parameters $1, $2 …; "@" stands for the schema and a period."""

    sql: str
    types: str = ""
    takes_encoded: bool = False
    """Whether its values are bytes already, as `encode` returns them."""


# -- values -----------------------------------------------------------------------------------


def escape_text(value: str) -> str:
    """Return a text without NUL, which PostgreSQL can't store; `unescape_text` returns the original."""
    if "\0" in value or "\x01" in value:
        return value.replace("\x01", "\x01\x01").replace("\0", "\x01\x02")
    return value


def unescape_text(value: str) -> str:
    if "\x01" not in value:
        return value
    return "\x01".join(part.replace("\x01\x02", "\0") for part in value.split("\x01\x01"))


def _text(value: str) -> bytes:
    return escape_text(value).encode()


def _array(kind: str, values: Iterable[bytes | None]) -> bytes:
    items = list(values)
    parts = [struct.pack(">iiI", 1, 1, _TYPES[kind]), struct.pack(">ii", len(items), 1)]
    for item in items:
        parts.append(_NULL if item is None else struct.pack(">i", len(item)) + item)
    return b"".join(parts)


_NULL = struct.pack(">i", -1)
_pack_q = struct.Struct(">q").pack
_pack_i = struct.Struct(">i").pack
_ENCODERS: dict[str, Any] = {
    "q": _pack_q,
    "i": _pack_i,
    "h": struct.Struct(">h").pack,
    "d": struct.Struct(">d").pack,
    "t": _text,
    "b": lambda value: value,
    "?": lambda value: b"\x01" if value else b"\x00",
    "Q": lambda values: _array("q", map(_pack_q, values)),
    "I": lambda values: _array("i", map(_pack_i, values)),
    "T": lambda values: _array("t", map(_text, values)),
    "B": lambda values: _array("b", values),
}
_unpack_q = struct.Struct(">q").unpack
_unpack_i = struct.Struct(">i").unpack
_unpack_h = struct.Struct(">h").unpack
_unpack_d = struct.Struct(">d").unpack
_DECODERS: dict[str, Any] = {
    "q": lambda value: _unpack_q(value)[0],
    "i": lambda value: _unpack_i(value)[0],
    "h": lambda value: _unpack_h(value)[0],
    "d": lambda value: _unpack_d(value)[0],
    "t": lambda value: unescape_text(value.decode()),
    "b": lambda value: value,
    "?": lambda value: value == b"\x01",
    "Q": lambda value: [number for (_, number) in struct.iter_unpack(">iq", value[20:])],
}


def encode(kinds: str, *values: Any) -> list[bytes | None]:
    """Return values in the server's binary format. `kinds` has one letter a value."""
    return _encoded([_ENCODERS[kind] for kind in kinds], values)


def _encoded(encoders: Sequence[Any], values: Sequence[Any]) -> list[bytes | None]:
    return [
        None if value is None else encoder(value) for encoder, value in zip(encoders, values, strict=True)
    ]


def rows_of(result: PGresult, kinds: str) -> list[tuple[Any, ...]]:
    """Return the rows of a result. `kinds` has one letter a column."""
    get = result.get_value
    columns = [(number, _DECODERS[kind]) for number, kind in enumerate(kinds)]
    return [
        tuple([None if (raw := get(row, number)) is None else decode(raw) for number, decode in columns])
        for row in range(result.ntuples)
    ]


def changed_rows(result: PGresult) -> int:
    """Return how many rows a statement has changed."""
    return result.command_tuples or 0


# -- a connection -----------------------------------------------------------------------------


def _connect(conninfo: str, most_seconds: float) -> PGconn:
    """Open a connection within `most_seconds`, or raise ConnectionLost.

    The compiled driver's `PGconn.connect` keeps the GIL until the server has answered: all threads of the
    process would wait for a slow server. So this polls, and ends after `connect_timeout` for each host."""
    parameters = conninfo_to_dict(conninfo)
    seconds = int(parameters.get("connect_timeout") or 0)
    hosts = str(parameters.get("host") or "").count(",") + 1
    allowed = min(seconds * hosts, most_seconds) if seconds > 0 else most_seconds
    deadline = time.monotonic() + allowed
    pgconn: PGconn = pq.PGconn.connect_start(conninfo.encode())
    try:
        while pgconn.status != pq.ConnStatus.BAD:
            state = pgconn.connect_poll()
            if state == pq.PollingStatus.OK:
                return pgconn
            if state == pq.PollingStatus.FAILED:
                break
            if time.monotonic() > deadline:
                raise ConnectionLost(
                    f"no answer within {allowed:.1f} s (connect_timeout or busy_timeout_seconds)"
                )
            poll = select.poll()  # a new one each time: libpq may have opened another socket
            poll.register(pgconn.socket, _EVENTS[pq.PollingStatus(state)])
            poll.poll(min(_POLL_MILLISECONDS, max(deadline - time.monotonic(), 0.0) * 1000 + 1))
        raise ConnectionLost(_one_line(pgconn.error_message.decode(errors="replace")))
    except BaseException:
        pgconn.finish()
        raise


class Wire:
    """One connection: runs statements and reads their results. Only one thread uses it at a time."""

    def __init__(self, conninfo: str, schema: str, most_seconds: float) -> None:
        """Connect within `most_seconds`, or raise ConnectionLost. `schema` is quoted already."""
        self._pgconn: PGconn = _connect(conninfo, most_seconds)
        self._pgconn.nonblocking = 1
        self._schema = schema + "."
        self._poll = select.poll()
        self._socket = self._pgconn.socket
        self._poll.register(self._socket, select.POLLIN)
        self._statements: dict[Statement, _Compiled] = {}
        self._prepared: set[bytes] = set()
        self.may_prepare = True
        """False behind a pooler: the next transaction may run on another connection of the pooler."""
        self.server_version = self._pgconn.server_version

    @property
    def is_broken(self) -> bool:
        return bool(self._pgconn.status != pq.ConnStatus.OK)

    def become_idle(self) -> bool:
        """Roll back an open transaction. Return False if the connection can't be used any more."""
        status = self._pgconn.transaction_status
        if status in (pq.TransactionStatus.INTRANS, pq.TransactionStatus.INERROR):
            try:
                self.command("ROLLBACK")
            except (ConnectionLost, ServerError):
                return False
            status = self._pgconn.transaction_status
        return bool(status == pq.TransactionStatus.IDLE)

    @property
    def server_encoding(self) -> str:
        return (self._pgconn.parameter_status(b"server_encoding") or b"").decode()

    @property
    def backend_pid(self) -> int:
        """The process that serves this connection, as the server or the pooler said when it was opened."""
        return self._pgconn.backend_pid

    def close(self) -> None:
        self._pgconn.finish()

    def run(self, statement: Statement, *values: Any) -> PGresult:
        """Run one statement in its own transaction, or in the transaction that is open."""
        self.send(statement, *values)
        return self.receive()

    def send(self, statement: Statement, *values: Any) -> None:
        """Send one statement. The caller may do other work before it calls `receive`."""
        name, sql, types, encoders, formats = self._statements.get(statement) or self._compile(statement)
        params = list(values) if encoders is None else _encoded(encoders, values)
        pgconn = self._pgconn
        try:
            if not self.may_prepare:
                pgconn.send_query_params(sql, params, types, formats, _BINARY)
                return
            if name not in self._prepared:
                pgconn.send_prepare(name, sql, types)
                self._result()
                self._prepared.add(name)
            pgconn.send_query_prepared(name, params, formats, _BINARY)
        except psycopg.Error as problem:
            raise ConnectionLost(_one_line(str(problem))) from None

    def receive(self) -> PGresult:
        """Wait for the result of the statement that was sent."""
        pgconn = self._pgconn
        try:
            # What `_result` does, written out: this is the way of every small read.
            if pgconn.flush():
                return self._result()
            wait = self._poll.poll
            while True:
                while not wait(_POLL_MILLISECONDS):
                    pass
                pgconn.consume_input()
                if not pgconn.is_busy():
                    break
            result = pgconn.get_result()
            if result is None or result.status != _TUPLES:
                return self._finished(result)
            if pgconn.is_busy() or pgconn.get_result() is not None:
                self._drain()
            return result
        except psycopg.Error as problem:
            raise ConnectionLost(_one_line(str(problem))) from None

    def command(self, sql: str) -> None:
        """Run a command without parameters and results, such as BEGIN."""
        with _named_errors():
            self._pgconn.send_query(sql.replace("@", self._schema).encode())
            self._result()

    def pipeline(self, steps: Sequence[tuple[Any, ...]]) -> list[PGresult]:
        """Run statements in one transaction and one round trip; return their results.

        Each step is a statement and its values. If one fails, nothing is committed."""
        pgconn = self._pgconn
        with _named_errors():
            pgconn.enter_pipeline_mode()
            expected = []
            preparing: set[bytes] = set()
            for statement, *values in steps:
                name, sql, types, encoders, formats = self._statements.get(statement) or self._compile(
                    statement
                )
                params = list(values) if encoders is None else _encoded(encoders, values)
                if not self.may_prepare:
                    pgconn.send_query_params(sql, params, types, formats, _BINARY)
                else:
                    if name not in self._prepared and name not in preparing:
                        pgconn.send_prepare(name, sql, types)
                        preparing.add(name)
                        expected.append(name)
                    pgconn.send_query_prepared(name, params, formats, _BINARY)
                expected.append(b"")
            pgconn.pipeline_sync()
            results: list[PGresult] = []
            problem: Exception | None = None
            for name in expected:
                found = self._next_result()
                assert found is not None
                self._next_result()  # None: the end of this statement
                if found.status in _FINISHED:
                    if name:
                        self._prepared.add(name)
                    else:
                        results.append(found)
                elif problem is None:
                    problem = _error_of(found)
            self._next_result()  # the sync
            pgconn.exit_pipeline_mode()
            if problem is not None:
                raise problem
            return results

    def copy_in(self, command: str, data: Iterable[bytes]) -> int:
        """Run COPY … FROM STDIN with data in binary format; return how many rows were copied.

        `data` can be a generator: the server stores the first rows while later ones are made."""
        pgconn = self._pgconn
        with _named_errors():
            pgconn.send_query(command.replace("@", self._schema).encode())
            result = self._next_result()
            assert result is not None
            if result.status != pq.ExecStatus.COPY_IN:
                self._drain()
                raise _error_of(result)
            buffer = bytearray(COPY_HEADER)
            for row in data:
                buffer += row
                if len(buffer) >= _COPY_AT_ONCE:
                    self._put(bytes(buffer))
                    buffer.clear()
            buffer += COPY_TRAILER
            self._put(bytes(buffer))
            while pgconn.put_copy_end() == 0:
                self._wait(select.POLLOUT)
            return self._result().command_tuples or 0

    def copy_out(self, query: str) -> list[bytes]:
        """Return the rows of COPY (query) TO STDOUT in binary format, each with its length of fields."""
        pgconn = self._pgconn
        with _named_errors():
            pgconn.send_query(
                f"COPY ({query}) TO STDOUT (FORMAT binary)".replace("@", self._schema).encode()
            )
            result = self._next_result()
            assert result is not None
            if result.status != pq.ExecStatus.COPY_OUT:
                self._drain()
                raise _error_of(result)
            rows: list[bytes] = []
            keep, get = rows.append, pgconn.get_copy_data
            while True:
                size, data = get(1)
                if size > 0:
                    keep(bytes(data))
                elif size == 0:
                    self._wait(select.POLLIN)
                    pgconn.consume_input()
                else:
                    break
            self._result()
        if rows:
            rows[0] = rows[0][len(COPY_HEADER) :]
            if rows[-1] == COPY_TRAILER:
                rows.pop()
        return [row for row in rows if row and row != COPY_TRAILER]

    def _compile(self, statement: Statement) -> _Compiled:
        sql = statement.sql.replace("@", self._schema).encode()
        # The same name is always the same statement, even where connections are shared.
        name = b"am_" + blake2b(sql + statement.types.encode(), digest_size=12).hexdigest().encode()
        types = [_TYPES[kind] for kind in statement.types]
        encoders = None if statement.takes_encoded else [_ENCODERS[kind] for kind in statement.types]
        compiled = name, sql, types, encoders, [_BINARY] * len(types)
        self._statements[statement] = compiled
        return compiled

    def _put(self, data: bytes) -> None:
        while self._pgconn.put_copy_data(data) == 0:
            self._wait(select.POLLOUT)

    def _result(self) -> PGresult:
        """Wait for the result of one statement, and raise its error."""
        return self._finished(self._next_result())

    def _finished(self, result: PGresult | None) -> PGresult:
        """Read what follows a result, and raise its error."""
        assert result is not None
        if result.status not in _COPYING:
            self._drain()
        if result.status not in _FINISHED:
            raise _error_of(result)
        return result

    def _drain(self) -> None:
        while self._next_result() is not None:
            pass

    def _next_result(self) -> PGresult | None:
        pgconn = self._pgconn
        while pgconn.flush():
            if self._wait(select.POLLIN | select.POLLOUT) & select.POLLIN:
                pgconn.consume_input()
        while pgconn.is_busy():
            self._wait(select.POLLIN)
            pgconn.consume_input()
        return pgconn.get_result()

    def _wait(self, events: int) -> int:
        """Wait until the socket is ready. Python handles signals meanwhile."""
        self._poll.modify(self._socket, events)
        try:
            while True:
                ready = self._poll.poll(_POLL_MILLISECONDS)
                if ready:
                    return ready[0][1]
        finally:
            self._poll.modify(self._socket, select.POLLIN)


COPY_HEADER = b"PGCOPY\n\xff\r\n\0" + struct.pack(">ii", 0, 0)
COPY_TRAILER = struct.pack(">h", -1)


class _named_errors:  # noqa: N801 - used like a function
    """Turns the driver's errors into ConnectionLost."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> None:
        if isinstance(problem, psycopg.Error):
            raise ConnectionLost(_one_line(str(problem))) from None


def _error_of(result: PGresult) -> Exception:
    field = result.error_field
    state = (field(pq.DiagnosticField.SQLSTATE) or b"").decode()
    message = (field(pq.DiagnosticField.MESSAGE_PRIMARY) or result.error_message or b"").decode(
        errors="replace"
    )
    # Class 08: connection exceptions. 57P01 to 57P05: the server stops, crashed, or ends this session.
    if not state or state[:2] == "08" or state[:3] == "57P" or state in ("25P03", "25P04"):
        return ConnectionLost(_one_line(message) or "the connection was closed", state)
    constraint = (field(pq.DiagnosticField.CONSTRAINT_NAME) or b"").decode()
    return ServerError(state, _one_line(message), constraint)


def _one_line(message: str) -> str:
    return " ".join(message.split())


def in_parts(values: Sequence[Any], size: int) -> Iterator[Sequence[Any]]:
    """Split values into parts of at most `size`."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
