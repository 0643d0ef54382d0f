"""Sessions and their messages in one SQLite file, as durable as the memory.

A call that has returned survives the end of the process by any cause (WAL, one transaction a call). One
object may be used by several threads, one file by several processes.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias, TypeVar

import msgspec

from memory.agents.errors import InvalidAgentInput, SessionStoreError, UnknownSession
from memory.agents.messages import Message, Session, ToolCall, ToolResult, new_id
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
_Result = TypeVar("_Result")
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
        self._path = os.fspath(path)
        self._lock = threading.RLock()
        self._closed = False
        if self._path != ":memory:":
            Path(self._path).expanduser().resolve().parent.mkdir(parents=True, exist_ok=True)
        try:
            self._db = sqlite3.connect(
                os.path.expanduser(self._path),
                isolation_level=None,
                check_same_thread=False,
                timeout=busy_timeout_seconds,
                cached_statements=64,
            )
            self._prepare(durability)
        except sqlite3.Error as problem:
            raise SessionStoreError(f"{self._path} can't be opened: {problem}") from problem

    def _prepare(self, durability: str) -> None:
        application_id = self._db.execute("PRAGMA application_id").fetchone()[0]
        version = self._db.execute("PRAGMA user_version").fetchone()[0]
        empty = not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if application_id != _APPLICATION_ID and not empty:
            raise SessionStoreError(f"{self._path} is a file of something else; it was not touched")
        if version > FORMAT_VERSION:
            raise SessionStoreError(f"{self._path} was written by a newer version; it was not touched")
        self._db.execute("PRAGMA journal_mode = WAL")
        self._db.execute(f"PRAGMA synchronous = {'FULL' if durability == 'disk' else 'NORMAL'}")
        if application_id != _APPLICATION_ID:
            with self._transaction():
                if not self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                    for statement in _SCHEMA.split(";"):
                        self._db.execute(statement)
                    self._db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                    self._db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

    # -- sessions -----------------------------------------------------------------------------

    def create(
        self,
        agent_id: str,
        title: str = "",
        *,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
    ) -> Session:
        """A new, empty session."""
        now = time.time()
        session = _checked(
            lambda: Session(
                id=new_id() if id is None else id,
                agent_id=agent_id,
                title=title,
                created_at=now,
                updated_at=now,
                metadata=dict(metadata or {}),
            )
        )
        with self._transaction():
            self._insert(session)
        return session

    def get(self, session_id: str) -> Session:
        rows = self._rows(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (session_id,))
        if not rows:
            raise UnknownSession(f"there is no session {short(session_id)}")
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
        with self._transaction():
            parent = self.get(session_id)
            kept = parent.message_count if at is None else at
            if not 0 <= kept <= parent.message_count:
                raise InvalidAgentInput(
                    f"at is {short(at)}: the session has {parent.message_count} messages"
                )
            now = time.time()
            session = parent.model_copy(
                update={
                    "id": new_id(),
                    "title": parent.title if title is None else title,
                    "created_at": now,
                    "updated_at": now,
                    "archived": False,
                    "parent_id": parent.id,
                    "message_count": kept,
                }
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
        self._change(session_id, "archived = ?", (int(archived),))
        return self.get(session_id)

    def rename(self, session_id: str, title: str) -> Session:
        self._change(session_id, "title = ?", (title,))
        return self.get(session_id)

    def delete(self, session_id: str) -> bool:
        """Remove a session and its messages for good; False if there is none."""
        with self._transaction():
            self._db.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            return self._db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount == 1

    # -- messages -----------------------------------------------------------------------------

    def append(self, session_id: str, *messages: Message) -> int:
        """Add messages at the end, all or none; how many the session has then."""
        bodies = [_encode(message) for message in messages]
        with self._transaction():
            row = self._db.execute(
                "UPDATE sessions SET message_count = message_count + ?, updated_at = max(updated_at, ?)"
                " WHERE id = ? RETURNING message_count",
                (len(bodies), time.time(), session_id),
            ).fetchone()
            if row is None:
                raise UnknownSession(f"there is no session {short(session_id)}")
            first = row[0] - len(bodies)
            self._db.executemany(
                "INSERT INTO messages VALUES (?, ?, ?)",
                [(session_id, first + number, body) for number, body in enumerate(bodies)],
            )
        return int(row[0])

    def messages(self, session_id: str, *, start: int = 0, last: int | None = None) -> Messages:
        """The messages in order: from number `start`, or the `last` ones."""
        if last is not None:
            rows = self._rows(
                "SELECT body FROM messages WHERE session_id = ? ORDER BY number DESC LIMIT ?",
                (session_id, last),
            )[::-1]
        else:
            rows = self._rows(
                "SELECT body FROM messages WHERE session_id = ? AND number >= ? ORDER BY number",
                (session_id, start),
            )
        if not rows:
            self.get(session_id)  # no message, or no session: the second is an error
        return [_decode(row[0]) for row in rows]

    def last_messages(self, session_ids: Sequence[str]) -> dict[str, Message]:
        """The newest message of each session that has one."""
        marks = ", ".join("?" * len(session_ids))
        rows = self._rows(
            "SELECT m.session_id, m.body FROM sessions s JOIN messages m"
            " ON m.session_id = s.id AND m.number = s.message_count - 1"
            f" WHERE s.id IN ({marks})",
            tuple(session_ids),
        )
        return {row[0]: _decode(row[1]) for row in rows}

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

    def _change(self, session_id: str, what: str, values: tuple[Any, ...]) -> None:
        with self._transaction():
            changed = self._db.execute(
                f"UPDATE sessions SET {what}, updated_at = max(updated_at, ?) WHERE id = ?",
                (*values, time.time(), session_id),
            ).rowcount
            if not changed:
                raise UnknownSession(f"there is no session {short(session_id)}")

    def _rows(self, statement: str, values: tuple[Any, ...]) -> Rows:
        with self._lock:
            self._check_open()
            try:
                return self._db.execute(statement, values).fetchall()
            except sqlite3.Error as problem:
                raise SessionStoreError(f"{self._path}: {problem}") from problem

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing; inside another one it is part of that."""
        with self._lock:
            self._check_open()
            if self._db.in_transaction:
                yield
                return
            try:
                self._db.execute("BEGIN IMMEDIATE")
                yield
                self._db.execute("COMMIT")
            except sqlite3.Error as problem:
                self._roll_back()
                raise SessionStoreError(f"{self._path}: {problem}") from problem
            except BaseException:
                self._roll_back()
                raise

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def _check_open(self) -> None:
        if self._closed:
            raise SessionStoreError(f"{self._path} was closed before this call")


def _checked(make: Callable[[], _Result]) -> _Result:
    """What pydantic refuses becomes one line of ours."""
    from pydantic import ValidationError

    try:
        return make()
    except ValidationError as problem:
        first = problem.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "value"
        raise InvalidAgentInput(f"{place} is {short(first['input'])}: {first['msg'].lower()}") from None


def _session(row: Sequence[Any]) -> Session:
    return Session.model_construct(
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
    except (TypeError, ValueError) as problem:
        raise InvalidAgentInput(f"message {message.id} can't be kept as JSON: {problem}") from None


def _decode(body: bytes) -> Message:
    id_, role, content, created_at, calls, result, metadata = msgspec.json.decode(body)
    return Message.model_construct(
        id=id_,
        role=role,
        content=content,
        created_at=created_at,
        tool_calls=tuple(
            ToolCall.model_construct(id=call[0], name=call[1], arguments=call[2]) for call in calls
        ),
        tool_result=result
        and ToolResult.model_construct(
            call_id=result[0], name=result[1], content=result[2], is_error=result[3], seconds=result[4]
        ),
        metadata=metadata,
    )
