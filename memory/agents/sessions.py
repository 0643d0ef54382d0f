"""Sessions and their messages in one SQLite file, as durable as the memory.

A call that has returned survives the end of the process by any cause (WAL, one transaction a call). One
object may be used by several threads, one file by several processes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

import msgspec

from memory.agents._recent_messages import RecentMessages
from memory.agents.errors import AgentError, InvalidAgentInput, SessionStoreError, UnknownSession
from memory.agents.messages import Message, Session, ToolCall, ToolResult, checked, new_id
from memory.errors import short

FORMAT_VERSION = 1
_APPLICATION_ID = 0x41536573  # "ASes": tells our files from others
_SCHEMA = """
CREATE TABLE sessions (
    id TEXT PRIMARY KEY, agent_id TEXT NOT NULL, title TEXT NOT NULL, created_at REAL NOT NULL,
    updated_at REAL NOT NULL, archived INTEGER NOT NULL, parent_id TEXT, message_count INTEGER NOT NULL,
    metadata BLOB NOT NULL) WITHOUT ROWID;
CREATE INDEX sessions_by_agent ON sessions (agent_id, archived, updated_at);
CREATE TABLE messages (
    session_id TEXT NOT NULL, number INTEGER NOT NULL, body BLOB NOT NULL,
    PRIMARY KEY (session_id, number)) WITHOUT ROWID;
"""
_COLUMNS = "id, agent_id, title, created_at, updated_at, archived, parent_id, message_count, metadata"
# Inside the class, `list` is one of its verbs.
Messages: TypeAlias = list[Message]
Sessions: TypeAlias = list[Session]
Rows: TypeAlias = list[Any]
_NO_METADATA = msgspec.json.encode({})


class SessionStore:
    """Creates, finds, forks, archives and deletes sessions; keeps their messages in order."""

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        durability: Literal["process", "disk"] = "process",
        busy_timeout_seconds: float = 30.0,
    ) -> None:
        if durability not in ("process", "disk"):
            raise InvalidAgentInput(f"durability is {short(durability)}: use 'process' or 'disk'")
        if not 0 <= busy_timeout_seconds <= 86_400:
            raise InvalidAgentInput(
                f"busy_timeout_seconds is {short(busy_timeout_seconds)}: use seconds from 0 to a day"
            )
        self._path = os.path.expanduser(os.fspath(path))
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._closed = True
        self._taken: set[str] = set()
        self._tails = RecentMessages()
        try:
            if self._path != ":memory:":
                Path(self._path).resolve().parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(
                self._path,
                isolation_level=None,
                check_same_thread=False,
                timeout=busy_timeout_seconds,
                cached_statements=64,
            )
        except (OSError, ValueError, sqlite3.Error) as problem:
            raise SessionStoreError(f"{self._path} can't be opened: {problem}") from problem
        self._closed = False
        try:
            self._prepare(durability, time.monotonic() + busy_timeout_seconds)
        except BaseException as problem:
            self.close()
            if isinstance(problem, sqlite3.Error):
                raise SessionStoreError(f"{self._path} can't be opened: {problem}") from problem
            raise

    def _prepare(self, durability: str, deadline: float) -> None:
        # In one reading transaction: another process may be making the tables at this moment.
        with self._transaction("BEGIN"):
            application_id = self._db.execute("PRAGMA application_id").fetchone()[0]
            version = self._db.execute("PRAGMA user_version").fetchone()[0]
            empty = self._is_empty()
        if application_id != _APPLICATION_ID and not empty:
            raise SessionStoreError(f"{self._path} is a file of something else; it was not touched")
        if version > FORMAT_VERSION:
            raise SessionStoreError(
                f"{self._path} was written by a newer version; it was not touched. Update agentmemory-tiers"
            )
        self._use_wal(deadline)
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'disk' else 'NORMAL'}")
        if application_id != _APPLICATION_ID:
            with self._transaction():
                if self._is_empty():
                    for statement in _SCHEMA.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    def _is_empty(self) -> bool:
        return not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]

    def _use_wal(self, deadline: float) -> None:
        """SQLite does not wait by itself where two processes turn a new file to WAL at once."""
        while True:
            try:
                self._db.execute("PRAGMA journal_mode = WAL")
                return
            except sqlite3.OperationalError as problem:
                busy = problem.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(0.005)

    # -- sessions -----------------------------------------------------------------------------

    def create(
        self,
        agent_id: str,
        title: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        messages: Sequence[Message] = (),
    ) -> Session:
        """A new session, empty or with its first messages."""
        now = time.time()
        values: dict[str, Any] = {
            "id": new_id() if id is None else id,
            "agent_id": agent_id,
            "title": title,
            "created_at": now,
            "updated_at": now,
            "archived": False,
            "parent_id": None,
            "message_count": len(messages),
            "metadata": {} if metadata is None else metadata,
        }
        # Every new conversation passes here: what is plainly right needs no closer look.
        plain = type(values["id"]) is type(agent_id) is type(title) is str and values["id"] and agent_id
        session = (
            Session.trusted(**values) if plain and metadata is None else checked(lambda: Session(**values))
        )
        bodies = [_encode(message) for message in messages]
        with self._lock:
            with self._transaction():
                self._insert(session)
                if bodies:
                    self._insert_messages(session.id, 0, bodies)
            self._tails.start(session.id, session.created_at, messages)
        return session

    def get(self, session_id: str) -> Session:
        rows = self._rows(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (session_id,))
        if not rows:
            raise _unknown(session_id)
        return _session(rows[0])

    def list(
        self,
        agent_id: str | None = None,
        *,
        archived: bool | None = False,
        limit: int | None = None,
        offset: int = 0,
    ) -> Sessions:
        """Sessions, the one that was used last first; `archived=None` for both kinds."""
        _check_number("offset", offset)
        if limit is not None:
            _check_number("limit", limit)
        wheres: Rows = ["1"]
        values: Rows = []
        if agent_id is not None:
            wheres.append("agent_id = ?")
            values.append(agent_id)
        if archived is not None:
            wheres.append("archived = ?")
            values.append(int(archived))
        return [
            _session(row)
            for row in self._rows(
                f"SELECT {_COLUMNS} FROM sessions WHERE {' AND '.join(wheres)}"
                " ORDER BY updated_at DESC, id DESC LIMIT ? OFFSET ?",
                (*values, -1 if limit is None else limit, offset),
            )
        ]

    def fork(self, session_id: str, at: int | None = None, title: str | None = None) -> Session:
        """A new session that begins with the first `at` messages of another (default: all of them)."""
        if at is not None:
            _check_number("at", at)
        with self._transaction():
            parent = self.get(session_id)
            kept = parent.message_count if at is None else at
            if kept > parent.message_count:
                raise InvalidAgentInput(f"at is {at}: the session has {parent.message_count} messages")
            now = time.time()
            session = checked(
                lambda: Session(
                    id=new_id(),
                    agent_id=parent.agent_id,
                    title=parent.title if title is None else title,
                    created_at=now,
                    updated_at=now,
                    parent_id=parent.id,
                    message_count=kept,
                    metadata=parent.metadata,
                )
            )
            self._insert(session)
            self._db.execute(
                "INSERT INTO messages SELECT ?, number, body FROM messages"
                " WHERE session_id = ? AND number < ?",
                (session.id, parent.id, kept),
            )
        return session

    def archive(self, session_id: str, archived: bool = True) -> Session:
        """Take a session out of the list, or put it back; its messages stay."""
        return self._change(session_id, "archived", int(bool(archived)))

    def rename(self, session_id: str, title: str) -> Session:
        if not isinstance(title, str):
            raise InvalidAgentInput(f"title is {short(title)}: use a text")
        return self._change(session_id, "title", title)

    def delete(self, session_id: str) -> bool:
        """Remove a session and its messages for good; False if there is none."""
        with self._lock, self._transaction():
            self._tails.drop(session_id)
            self._db.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            return self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount == 1

    # -- messages -----------------------------------------------------------------------------

    def append(self, session_id: str, *messages: Message) -> int:
        """Add messages at the end, all or none; how many the session has then."""
        bodies = [_encode(message) for message in messages]
        with self._lock:
            count = self._append(session_id, bodies)
            self._tails.extend(session_id, count, messages)
        return count

    def _append(self, session_id: str, bodies: Sequence[bytes]) -> int:
        with self._transaction():
            row = self._db.execute(
                "UPDATE sessions SET message_count = message_count + ?, updated_at = max(updated_at, ?)"
                " WHERE id = ? RETURNING message_count",
                (len(bodies), time.time(), session_id),
            ).fetchone()
            if row is None:
                raise _unknown(session_id)
            self._insert_messages(session_id, row[0] - len(bodies), bodies)
        return int(row[0])

    def messages(
        self, session_id: str, *, start: int = 0, stop: int | None = None, last: int | None = None
    ) -> Messages:
        """The messages in order: those from number `start` up to `stop`, or the `last` ones."""
        _check_number("start", start)
        if last is not None:
            _check_number("last", last)
            rows = self._rows(
                "SELECT body FROM messages WHERE session_id = ? ORDER BY number DESC LIMIT ?",
                (session_id, last),
            )[::-1]
        else:
            if stop is not None:
                _check_number("stop", stop)
            rows = self._rows(
                "SELECT body FROM messages WHERE session_id = ? AND number >= ? AND number < ?"
                " ORDER BY number",
                (session_id, start, 2**62 if stop is None else stop),
            )
        if not rows:
            self.get(session_id)  # no message, or no session: the second is an error
        return [_decode(row[0]) for row in rows]

    def news(self, session_id: str, known: int) -> tuple[float, Messages]:
        """When the session was created, and its messages from number `known` on: one look at the file.

        The first tells a session from another one that was made later with the same id.
        """
        written = self.just_written(session_id, known)
        if written is not None:
            return written
        rows = self._rows(
            "SELECT s.created_at, m.body FROM sessions s LEFT JOIN messages m"
            " ON m.session_id = s.id AND m.number >= ? WHERE s.id = ? ORDER BY m.number",
            (known, session_id),
        )
        if not rows:
            raise _unknown(session_id)
        return rows[0][0], [_decode(body) for _, body in rows if body is not None]

    def just_written(self, session_id: str, known: int) -> tuple[float, Messages] | None:
        """The same, if all of it was written through this object and nobody else has written since."""
        with self._lock:
            ((version,),) = self._rows("PRAGMA data_version", ())
            tail = self._tails.get(session_id, version)
            if tail is None or not tail.first <= known <= tail.first + len(tail.messages):
                return None
            return tail.created_at, tail.messages[known - tail.first :]

    def recent(self, agent_id: str, limit: int) -> Rows:
        """(id, title, message_count, created_at) of the sessions that `list` would give: a cheap look."""
        return self._rows(
            "SELECT id, title, message_count, created_at FROM sessions WHERE agent_id = ? AND archived = 0"
            " ORDER BY updated_at DESC, id DESC LIMIT ?",
            (agent_id, limit),
        )

    def last_messages(self, session_ids: Sequence[str]) -> dict[str, Message]:
        """The newest message of each session that has one."""
        rows = self._rows(
            "SELECT m.session_id, m.body FROM sessions s JOIN messages m"
            " ON m.session_id = s.id AND m.number = s.message_count - 1"
            " WHERE s.id IN (SELECT value FROM json_each(?))",
            (msgspec.json.encode(list(session_ids)).decode(),),
        )
        return {row[0]: _decode(row[1]) for row in rows}

    @contextmanager
    def alone(self, session_id: str) -> Iterator[None]:
        """Nobody else who uses this object invokes the session meanwhile; a second one is refused."""
        with self._lock:
            if session_id in self._taken:
                raise InvalidAgentInput(
                    f"session {short(session_id)} is in the middle of another invocation"
                )
            self._taken.add(session_id)
        try:
            yield
        finally:
            with self._lock:
                self._taken.discard(session_id)

    @staticmethod
    def check(message: Message) -> None:
        """InvalidAgentInput for a message that `append` would refuse, whatever the session."""
        _encode(message)

    # -- inside -------------------------------------------------------------------------------

    def close(self) -> None:
        """Release the file; may be called twice."""
        with self._lock:
            if not self._closed:
                self._closed = True
                self._db.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _insert(self, session: Session) -> None:
        try:
            self._db.execute(
                "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    session.id,
                    session.agent_id,
                    session.title,
                    session.created_at,
                    session.updated_at,
                    int(session.archived),
                    session.parent_id,
                    session.message_count,
                    msgspec.json.encode(session.metadata) if session.metadata else _NO_METADATA,
                ),
            )
        except sqlite3.IntegrityError:
            raise InvalidAgentInput(f"there is a session {short(session.id)} already") from None

    def _insert_messages(self, session_id: str, first: int, bodies: Sequence[bytes]) -> None:
        self._db.executemany(
            "INSERT INTO messages VALUES (?, ?, ?)",
            [(session_id, first + number, body) for number, body in enumerate(bodies)],
        )

    def _change(self, session_id: str, column: str, value: Any) -> Session:
        with self._transaction():
            row = self._db.execute(
                f"UPDATE sessions SET {column} = ?, updated_at = max(updated_at, ?) WHERE id = ?"
                f" RETURNING {_COLUMNS}",
                (value, time.time(), session_id),
            ).fetchone()
            if row is None:
                raise _unknown(session_id)
        return _session(row)

    def _rows(self, statement: str, values: tuple[Any, ...]) -> Rows:
        self._check_process()
        with self._lock:
            self._check_open()
            try:
                return self._db.execute(statement, values).fetchall()
            except (sqlite3.Error, UnicodeEncodeError) as problem:
                raise self._problem(problem) from problem

    @contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        """All or nothing."""
        self._check_process()
        with self._lock:
            self._check_open()
            try:
                self._db.execute(begin)
                yield
                self._db.execute("COMMIT")
            except BaseException as problem:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                if isinstance(problem, sqlite3.Error | UnicodeEncodeError):
                    raise self._problem(problem) from problem
                raise

    def _problem(self, problem: Exception) -> AgentError:
        if isinstance(problem, UnicodeEncodeError):
            return InvalidAgentInput(
                f"{short(problem.object)} is not a text that can be kept: {problem.reason}"
            )
        return SessionStoreError(f"{self._path}: {problem}")

    def _check_open(self) -> None:
        if self._closed:
            raise SessionStoreError(f"{self._path} was closed before this call")

    def _check_process(self) -> None:
        if os.getpid() != self._process:
            raise SessionStoreError(f"{self._path} was opened before a fork: open it anew in the child")


def _unknown(session_id: str) -> UnknownSession:
    return UnknownSession(f"there is no session {short(session_id)}")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise InvalidAgentInput(f"{name} is {short(value)}: use a whole number ≥ 0")


def _session(row: Sequence[Any]) -> Session:
    return Session.trusted(
        id=row[0],
        agent_id=row[1],
        title=row[2],
        created_at=row[3],
        updated_at=row[4],
        archived=bool(row[5]),
        parent_id=row[6],
        message_count=row[7],
        metadata={} if row[8] == _NO_METADATA else msgspec.json.decode(row[8]),
    )


def _encode(message: Message) -> bytes:
    """A list, not an object: smaller and quicker, and only this module reads it."""
    if not isinstance(message, Message):
        raise InvalidAgentInput(f"{short(message)} is not a Message")
    result = message.tool_result
    try:
        return msgspec.json.encode(
            (
                message.id,
                message.role,
                message.content,
                message.created_at,
                [(call.id, call.name, call.arguments) for call in message.tool_calls],
                result and (result.call_id, result.name, result.content, result.is_error, result.seconds),
                message.metadata,
            )
        )
    except (TypeError, ValueError, OverflowError, RecursionError) as problem:
        raise InvalidAgentInput(f"message {message.id} can't be kept as JSON: {problem}") from None


def _decode(body: bytes) -> Message:
    id_, role, content, created_at, calls, result, metadata = msgspec.json.decode(body)
    return Message.trusted(
        role=role,
        content=content,
        tool_calls=tuple(ToolCall.trusted(id=call[0], name=call[1], arguments=call[2]) for call in calls),
        tool_result=result
        and ToolResult.trusted(
            call_id=result[0], name=result[1], content=result[2], is_error=result[3], seconds=result[4]
        ),
        id=id_,
        created_at=created_at,
        metadata=metadata,
    )
