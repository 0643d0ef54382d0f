"""Sessions and their messages in one SQLite file or on a PostgreSQL server, as durable as the memory.

Every call is one transaction. After a call returns, its changes survive even if the process is killed.
Threads may share one object, and processes may share one file or server. All statements below run on both.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeAlias, TypeVar

import msgspec

from memory.agents._recent_messages import RecentMessages
from memory.agents.errors import AgentError, InvalidAgentInput, SessionStoreError, UnknownSession
from memory.agents.messages import Message, Session, ToolCall, ToolResult, checked, new_id
from memory.config import is_place, is_server_url, shown
from memory.errors import InvalidConfig, StoreError, short
from memory.storage.connections import Connections

if TYPE_CHECKING:
    from memory.storage.postgres.session_tables import SessionTables

FORMAT_VERSION = 1
_APPLICATION_ID = 0x41536573  # "ASes": marks session files among SQLite databases
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
# Aliases, because `list` is a method inside the class.
Messages: TypeAlias = list[Message]
Sessions: TypeAlias = list[Session]
Rows: TypeAlias = list[Any]
_T = TypeVar("_T")
_NO_METADATA = msgspec.json.encode({})
_TOUCH = "updated_at = CASE WHEN updated_at > ? THEN updated_at ELSE ? END"
"""Sets when a session was last used, twice the current time. It never goes back."""


class SessionErrors:
    """The `ConnectionErrors` of a session file."""

    # sqlite3 raises UnicodeEncodeError for texts that are not valid Unicode.
    translated: tuple[type[Exception], ...] = (sqlite3.Error, UnicodeEncodeError)

    def __init__(self, path: str) -> None:
        self._path = path

    def translate(self, problem: Exception) -> AgentError:
        if isinstance(problem, UnicodeEncodeError):
            return InvalidAgentInput(f"{short(problem.object)} can't be stored as text: {problem.reason}")
        if getattr(problem, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CANTOPEN:
            return self.not_opened(problem)
        return SessionStoreError(f"{self._path}: {problem}")

    def not_opened(self, problem: Exception) -> SessionStoreError:
        return SessionStoreError(f"{self._path} can't be opened: {problem}")

    def closed(self) -> SessionStoreError:
        return SessionStoreError(f"{self._path} was closed before this call: open a new SessionStore")

    def replaced(self) -> SessionStoreError:
        return SessionStoreError(
            f"{self._path} was deleted, moved or replaced while it was open: open a new SessionStore"
        )

    def forked(self) -> SessionStoreError:
        return SessionStoreError(
            f"{self._path} was opened before a fork: open a new SessionStore in the child process"
        )


class ServerSessions:
    """The tables of a server, with the errors of a session store."""

    def __init__(self, tables: SessionTables, place: str) -> None:
        self._tables = tables
        self._place = place
        self.lock = tables.lock
        self.data_version = tables.data_version
        self.close = tables.close

    def fetch(self, statement: str, values: Sequence[Any] = ()) -> Rows:
        return self._named(lambda: self._tables.fetch(statement, values))

    def write(self, work: Callable[[Any], _T]) -> _T:
        return self._named(lambda: self._tables.write(work))

    def _named(self, call: Callable[[], _T]) -> _T:
        try:
            return call()
        except StoreError as problem:
            raise SessionStoreError(f"{self._place}: {problem}") from None
        except UnicodeEncodeError as problem:
            raise InvalidAgentInput(
                f"{short(problem.object)} can't be stored as text: {problem.reason}"
            ) from None


class SessionStore:
    """Creates, finds, forks, archives and deletes sessions; keeps their messages in order."""

    def __init__(
        self,
        path: str | os.PathLike[str] = ":memory:",
        *,
        durability: Literal["process", "disk"] = "process",
        busy_timeout_seconds: float = 30.0,
    ) -> None:
        """Open the file; create it and its folder if they do not exist.

        path: ":memory:" keeps everything in RAM; a URL postgresql://… keeps it on a server, in the schema
            of the memory with the same URL and "_sessions" at its end
        durability: "process" survives a killed process; "disk" also a power failure, with slower writes
        busy_timeout_seconds: how long to wait for a lock of another process
        """
        if durability not in ("process", "disk"):
            raise InvalidAgentInput(f"durability is {short(durability)}: use 'process' or 'disk'")
        if not 0 <= busy_timeout_seconds <= 86_400:
            raise InvalidAgentInput(
                f"busy_timeout_seconds is {short(busy_timeout_seconds)}: use a number from 0 to 86,400"
            )
        if not is_place(path):
            raise InvalidAgentInput(
                f"path is {short(shown(path))}: use a file's path, a URL postgresql://…, or ':memory:'"
            )
        self._busy_sessions: set[str] = set()
        self._recent_messages = RecentMessages()
        self._connections: Connections | ServerSessions
        if is_server_url(path):
            self._path = shown(path)
            self._open_server(str(path), busy_timeout_seconds)
            return
        self._path = os.path.expanduser(os.fspath(path))
        errors = SessionErrors(self._path)
        try:
            file = None if self._path == ":memory:" else Path(self._path).resolve()
            if file is not None:
                file.parent.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as problem:
            raise errors.not_opened(problem) from problem
        self._connections = connections = Connections(
            file,
            errors=errors,
            disk=durability == "disk",
            busy_timeout=busy_timeout_seconds,
            mode="rwc",
            # `data_version` detects the writes of other connections only if this object uses a single one.
            single=True,
            # A forked child would inherit `_busy_sessions`, and no thread of the child would release them.
            usable_in_child=False,
        )
        self._lock = self._connections.lock
        self._fetch = self._connections.fetch
        try:
            self._prepare(connections)
        except BaseException:
            self.close()
            raise

    def _open_server(self, url: str, busy_timeout: float) -> None:
        try:
            from memory.storage.postgres.session_tables import SessionTables
        except ImportError as problem:
            raise SessionStoreError(
                f"sessions on a server need psycopg ({problem}): pip install 'agentmemory-tiers[postgres]'"
            ) from None
        try:
            self._connections = ServerSessions(SessionTables(url, busy_timeout=busy_timeout), self._path)
        except (StoreError, InvalidConfig) as problem:
            raise SessionStoreError(str(problem)) from None
        self._lock = self._connections.lock
        self._fetch = self._connections.fetch

    def _prepare(self, connections: Connections) -> None:
        # Read all three in one transaction: another process may be creating the tables now.
        def look(db: sqlite3.Connection) -> tuple[int, int, bool]:
            with db:
                db.execute("BEGIN")
                (application_id,) = db.execute("PRAGMA application_id").fetchone()
                (version,) = db.execute("PRAGMA user_version").fetchone()
                return application_id, version, _is_empty(db)

        def create(db: sqlite3.Connection) -> None:
            if _is_empty(db):
                for statement in _SCHEMA.split(";"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {FORMAT_VERSION}")

        application_id, version, empty = connections.read(look)
        if application_id != _APPLICATION_ID and not empty:
            raise SessionStoreError(f"{self._path} is not a session file: use another path")
        if version > FORMAT_VERSION:
            raise SessionStoreError(
                f"{self._path} was written by a newer version: upgrade the package agentmemory-tiers"
            )
        connections.use_wal()
        if application_id != _APPLICATION_ID:
            connections.write(create)

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
        """Store a new session, empty or with its first messages, and return it.

        id: the session's id; a new unique id by default. InvalidAgentInput if a session has this id already
        """
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
        # A fast path for new conversations: values of the right types need no further validation.
        valid = type(values["id"]) is type(agent_id) is type(title) is str and values["id"] and agent_id
        session = (
            Session.trusted(**values) if valid and metadata is None else checked(lambda: Session(**values))
        )
        bodies = [_encode(message) for message in messages]

        def insert(db: sqlite3.Connection) -> None:
            _insert(db, session)
            if bodies:
                _insert_messages(db, session.id, 0, bodies)

        with self._lock:
            self._connections.write(insert)
            self._recent_messages.start(session.id, session.created_at, messages)
        return session

    def get(self, session_id: str) -> Session:
        """Return a session, or raise UnknownSession."""
        rows = self._fetch(f"SELECT {_COLUMNS} FROM sessions WHERE id = ?", (session_id,))
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
        """Return sessions, the last used first. `archived=None` returns archived and active sessions."""
        _check_number("offset", offset)
        if limit is not None:
            _check_number("limit", limit)
        conditions: Rows = ["1 = 1"]
        values: Rows = []
        if agent_id is not None:
            conditions.append("agent_id = ?")
            values.append(agent_id)
        if archived is not None:
            conditions.append("archived = ?")
            values.append(int(archived))
        return [
            _session(row)
            for row in self._fetch(
                f"SELECT {_COLUMNS} FROM sessions WHERE {' AND '.join(conditions)}"
                " ORDER BY updated_at DESC, id DESC LIMIT ? OFFSET ?",
                (*values, 2**62 if limit is None else limit, offset),
            )
        ]

    def fork(self, session_id: str, at: int | None = None, title: str | None = None) -> Session:
        """Create a session with copies of the first `at` messages of another session (default: all)."""
        if at is not None:
            _check_number("at", at)

        def copy(db: sqlite3.Connection) -> Session:
            parent = self.get(session_id)
            count = parent.message_count if at is None else at
            if count > parent.message_count:
                raise InvalidAgentInput(f"at is {at}: the session has only {parent.message_count} messages")
            now = time.time()
            session = checked(
                lambda: Session(
                    id=new_id(),
                    agent_id=parent.agent_id,
                    title=parent.title if title is None else title,
                    created_at=now,
                    updated_at=now,
                    parent_id=parent.id,
                    message_count=count,
                    metadata=parent.metadata,
                )
            )
            _insert(db, session)
            db.execute(
                "INSERT INTO messages SELECT ?, number, body FROM messages"
                " WHERE session_id = ? AND number < ?",
                (session.id, parent.id, count),
            )
            return session

        return self._connections.write(copy)

    def archive(self, session_id: str, archived: bool = True) -> Session:
        """Hide a session from `list`, or show it again. Its messages are kept."""
        return self._change(session_id, "archived", int(bool(archived)))

    def rename(self, session_id: str, title: str) -> Session:
        """Give a session another title."""
        if not isinstance(title, str):
            raise InvalidAgentInput(f"title is {short(title)}: use a string")
        return self._change(session_id, "title", title)

    def delete(self, session_id: str) -> bool:
        """Delete a session and its messages. Return False if there is no such session."""

        def remove(db: sqlite3.Connection) -> bool:
            self._recent_messages.drop(session_id)
            db.execute("DELETE FROM messages WHERE session_id = ?", (session_id,))
            return db.execute("DELETE FROM sessions WHERE id = ?", (session_id,)).rowcount == 1

        return self._connections.write(remove)

    # -- messages -----------------------------------------------------------------------------

    def append(self, session_id: str, *messages: Message) -> int:
        """Append messages, all or none. Return how many messages the session has now."""
        bodies = [_encode(message) for message in messages]
        with self._lock:
            count = self._append(session_id, bodies)
            self._recent_messages.extend(session_id, count, messages)
        return count

    def _append(self, session_id: str, bodies: Sequence[bytes]) -> int:
        def add(db: sqlite3.Connection) -> int:
            row = db.execute(
                f"UPDATE sessions SET message_count = message_count + ?, {_TOUCH}"
                " WHERE id = ? RETURNING message_count",
                (len(bodies), now := time.time(), now, session_id),
            ).fetchone()
            if row is None:
                raise _unknown(session_id)
            _insert_messages(db, session_id, row[0] - len(bodies), bodies)
            return int(row[0])

        return self._connections.write(add)

    def messages(
        self, session_id: str, *, start: int = 0, stop: int | None = None, last: int | None = None
    ) -> Messages:
        """Return the messages from `start` up to, but not including, `stop`; or the `last` n messages."""
        _check_number("start", start)
        if last is not None:
            _check_number("last", last)
            rows = self._fetch(
                "SELECT body FROM messages WHERE session_id = ? ORDER BY number DESC LIMIT ?",
                (session_id, last),
            )[::-1]
        else:
            if stop is not None:
                _check_number("stop", stop)
            rows = self._fetch(
                "SELECT body FROM messages WHERE session_id = ? AND number >= ? AND number < ?"
                " ORDER BY number",
                (session_id, start, 2**62 if stop is None else stop),
            )
        if not rows:
            self.get(session_id)  # raises UnknownSession if there is no such session
        return [_decode(row[0]) for row in rows]

    def news(self, session_id: str, known: int) -> tuple[float, Messages]:
        """Return when the session was created, and its messages from position `known` on.

        If a session was deleted and created again with the same id, its creation time differs.
        """
        written = self.just_written(session_id, known)
        if written is not None:
            return written
        rows = self._fetch(
            "SELECT s.created_at, m.body FROM sessions s LEFT JOIN messages m"
            " ON m.session_id = s.id AND m.number >= ? WHERE s.id = ? ORDER BY m.number",
            (known, session_id),
        )
        if not rows:
            raise _unknown(session_id)
        return rows[0][0], [_decode(body) for _, body in rows if body is not None]

    def just_written(self, session_id: str, known: int) -> tuple[float, Messages] | None:
        """Return the same as `news` without reading the file, or None if that is not possible.

        This is possible if this object wrote the messages recently and no other connection wrote later.
        """
        with self._lock:
            tail = self._recent_messages.get(session_id, self._connections.data_version())
            if tail is None or not tail.first <= known <= tail.first + len(tail.messages):
                return None
            return tail.created_at, tail.messages[known - tail.first :]

    def recent(self, agent_id: str, limit: int) -> Rows:
        """Return (id, title, message_count, created_at) of the sessions that `list` returns, but faster."""
        return self._fetch(
            "SELECT id, title, message_count, created_at FROM sessions WHERE agent_id = ? AND archived = 0"
            " ORDER BY updated_at DESC, id DESC LIMIT ?",
            (agent_id, limit),
        )

    def last_messages(self, session_ids: Sequence[str]) -> dict[str, Message]:
        """Return the newest message of each session that has one, by session id."""
        if not session_ids:
            return {}
        rows = self._fetch(
            "SELECT m.session_id, m.body FROM sessions s JOIN messages m"
            " ON m.session_id = s.id AND m.number = s.message_count - 1"
            f" WHERE s.id IN ({', '.join('?' * len(session_ids))})",
            tuple(session_ids),
        )
        return {row[0]: _decode(row[1]) for row in rows}

    @contextmanager
    def alone(self, session_id: str) -> Iterator[None]:
        """Lock a session for one invocation. Raise InvalidAgentInput if another invocation holds the lock.

        The lock is only known to this object, not to other processes.
        """
        with self._lock:
            if session_id in self._busy_sessions:
                raise InvalidAgentInput(
                    f"session {short(session_id)} is in use by another invocation: wait until it ends"
                )
            self._busy_sessions.add(session_id)
        try:
            yield
        finally:
            with self._lock:
                self._busy_sessions.discard(session_id)

    @staticmethod
    def check(message: Message) -> None:
        """Raise InvalidAgentInput for a message that `append` can't store in any session."""
        _encode(message)

    def close(self) -> None:
        """Release the file; may be called twice."""
        self._connections.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _change(self, session_id: str, column: str, value: Any) -> Session:
        def change(db: sqlite3.Connection) -> Session:
            row = db.execute(
                f"UPDATE sessions SET {column} = ?, {_TOUCH} WHERE id = ? RETURNING {_COLUMNS}",
                (value, now := time.time(), now, session_id),
            ).fetchone()
            if row is None:
                raise _unknown(session_id)
            return _session(row)

        return self._connections.write(change)


def _is_empty(db: sqlite3.Connection) -> bool:
    return not db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]


def _insert(db: sqlite3.Connection, session: Session) -> None:
    added = db.execute(
        "INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO NOTHING",
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
    ).rowcount
    if not added:
        raise InvalidAgentInput(f"session {short(session.id)} exists already: use another id")


def _insert_messages(db: sqlite3.Connection, session_id: str, first: int, bodies: Sequence[bytes]) -> None:
    db.executemany(
        "INSERT INTO messages VALUES (?, ?, ?)",
        [(session_id, first + number, body) for number, body in enumerate(bodies)],
    )


def _unknown(session_id: str) -> UnknownSession:
    return UnknownSession(f"there is no session {short(session_id)}")


def _check_number(name: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**62:
        raise InvalidAgentInput(f"{name} is {short(value)}: use a whole number, 0 or more")


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
    """Encode a message as a JSON list, which is smaller and faster than a JSON object."""
    if not isinstance(message, Message):
        raise InvalidAgentInput(f"{short(message)} is not a Message: use memory.agents.Message")
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
        raise InvalidAgentInput(f"message {message.id} can't be stored as JSON: {problem}") from None


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
