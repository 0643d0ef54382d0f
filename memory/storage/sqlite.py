"""The embedded store: all three tiers in one durable SQLite file in WAL mode."""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from memory.entry import ALL_TIERS, Tier
from memory.errors import IdConflict, StoreCorrupt, StoreReadOnly
from memory.storage._connections import Connections
from memory.storage.base import (
    NO_SESSION,
    NO_STEP,
    AgentState,
    Change,
    ChangeKind,
    IndexColumns,
    MemoryStore,
    Move,
    RangeColumn,
    Record,
    Row,
    StoredCodec,
)
from memory.storage.pulse import SLOTS, Pulse
from memory.storage.schema import (
    AGENT_SHIFT,
    SEQ_MASK,
    TIER_MASK,
    TIER_SHIFT,
    check_file,
    create_file,
    create_tables,
    key_of,
)

LOG_LENGTH = 1024
"""Changes an agent's log keeps; a reader that is further behind reads the agent anew."""
_SLICE = 4096  # rows fetched at a time where there may be many
_VARIABLES = 500  # placeholders in one statement

_RECORD = "key, id, kind, step, created_at, importance, body_codec, body"
_ROW = f"{_RECORD}, stored_at, digest, session, terms, vector_codec, vector, fine"
_GET = f"SELECT {_RECORD} FROM memories WHERE agent = ? AND id = ?"
_INSERT = f"INSERT INTO memories ({_ROW}, agent) VALUES ({', '.join('?' * 16)})"
_TIER_OF_KEY = f"(key >> {TIER_SHIFT} & {TIER_MASK})"
_NOBODY = AgentState(0, 0)


class SQLiteStore(MemoryStore):
    """See `MemoryStore` for what each method promises."""

    def __init__(
        self,
        path: Path | None,
        *,
        disk: bool = False,
        busy_timeout: float = 30.0,
        read_only: bool = False,
    ) -> None:
        """`path` None keeps everything in RAM; `disk` waits for the disk at every commit."""
        self.path = path
        self._agent_numbers: dict[str, int] = {}
        if path is not None:
            self._prepare_file(path, read_only)
        self._connections = Connections(
            path, disk=disk, busy_timeout=busy_timeout, read_only=read_only
        )
        if path is None:
            connection = self._connections.reader()
            create_tables(connection)
            self._connections.release(connection)
        self._check_tables()
        self._pulse = self._open_pulse(read_only)

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
        except OSError:
            if read_only:
                return None  # nothing is cached then: slower, and as correct
            raise StoreReadOnly(f"the folder of {self.path} can't be written") from None

    # -- writing ------------------------------------------------------------------------------

    def add(self, rows: Sequence[Row]) -> list[int | None]:
        if not rows:
            return []
        fresh: list[bool] | None = None
        with self._connections.writing() as connection:
            connection.execute("SAVEPOINT adding")
            try:
                numbers, seqs = self._insert(connection, rows)
            except sqlite3.IntegrityError:  # an id is there already: look closer, add the others
                connection.execute("ROLLBACK TO adding")
                fresh = self._only_new(connection, rows)
                new = [row for row, is_new in zip(rows, fresh, strict=True) if is_new]
                numbers, seqs = self._insert(connection, new)
        self._agent_numbers.update(numbers)
        if fresh is None:
            return list(seqs)
        remaining = iter(seqs)
        return [next(remaining) if is_new else None for is_new in fresh]

    def _insert(
        self, connection: sqlite3.Connection, rows: Sequence[Row]
    ) -> tuple[dict[str, int], list[int]]:
        """Add rows under fresh seqs; the numbers of their agents, and each row's seq."""
        if len(rows) == 1:
            agent_no, seq = self._reserve(connection, rows[0].agent, 1)
            connection.execute(_INSERT, _values(rows[0], agent_no, seq))
            return {rows[0].agent: agent_no}, [seq]
        numbers: dict[str, int] = {}
        ranges: dict[str, Iterator[int]] = {}
        for agent, count in Counter(row.agent for row in rows).items():
            numbers[agent], first = self._reserve(connection, agent, count)
            ranges[agent] = iter(range(first, first + count))
        seqs = [next(ranges[row.agent]) for row in rows]
        connection.executemany(
            _INSERT,
            [_values(row, numbers[row.agent], seq) for row, seq in zip(rows, seqs, strict=True)],
        )
        return numbers, seqs

    def replace(self, row: Row) -> bool:
        with self._changing(row.agent) as (connection, agent_no):
            if agent_no is None:
                return False
            old = connection.execute(
                "SELECT key FROM memories WHERE agent = ? AND id = ?", (agent_no, row.id)
            ).fetchone()
            if old is None:
                return False
            self._remove(connection, agent_no, [old[0]])
            _, seq = self._reserve(connection, row.agent, 1)
            connection.execute(_INSERT, _values(row, agent_no, seq))
            return True

    def delete(self, agent: str, ids: Sequence[str]) -> int:
        with self._changing(agent) as (connection, agent_no):
            if agent_no is None:
                return 0
            keys = [
                key
                for part in _parts(list(dict.fromkeys(ids)))
                for (key,) in connection.execute(
                    f"SELECT key FROM memories WHERE agent = ? AND id IN ({_marks(part)})",
                    (agent_no, *part),
                )
            ]
            return self._remove(connection, agent_no, keys)

    def delete_agent(self, agent: str) -> int:
        with self._changing(agent) as (connection, agent_no):
            if agent_no is None:
                return 0
            low, high = agent_no << AGENT_SHIFT, (agent_no + 1) << AGENT_SHIFT
            removed = connection.execute(
                "DELETE FROM memories WHERE key >= ? AND key < ?", (low, high)
            ).rowcount
            connection.execute("DELETE FROM uses WHERE agent = ?", (agent_no,))
            (last_seq,) = connection.execute(
                "SELECT last_seq FROM agents WHERE no = ?", (agent_no,)
            ).fetchone()
            self._log(connection, agent_no, ChangeKind.CLEARED, None, [last_seq])
            return removed

    def move(self, agent: str, moves: Sequence[Move], source: Tier, target: Tier) -> int:
        with self._changing(agent) as (connection, agent_no):
            if agent_no is None:
                return 0
            present = self._still_in(connection, agent_no, source, [move.seq for move in moves])
            going = [move for move in moves if move.seq in present]
            connection.executemany(
                "UPDATE memories SET key = ?, body_codec = ?, body = ?, vector_codec = ?,"
                " vector = ?, fine = ? WHERE key = ?",
                [
                    (
                        key_of(agent_no, target, move.seq),
                        move.body_codec,
                        move.body,
                        move.vector_codec,
                        move.vector,
                        move.fine,
                        key_of(agent_no, source, move.seq),
                    )
                    for move in going
                ],
            )
            if going and source != target:
                seqs = [move.seq for move in going]
                self._log(connection, agent_no, ChangeKind.MOVED, target, seqs)
            return len(going)

    def forget(self, agent: str, seqs: Sequence[int], tier: Tier) -> int:
        with self._changing(agent) as (connection, agent_no):
            if agent_no is None:
                return 0
            present = self._still_in(connection, agent_no, tier, seqs)
            removed = self._remove(
                connection, agent_no, [key_of(agent_no, tier, seq) for seq in present]
            )
            connection.execute(
                "UPDATE agents SET forgotten = forgotten + ? WHERE no = ?", (removed, agent_no)
            )
            return removed

    def add_uses(self, uses: dict[str, dict[int, int]]) -> None:
        with self._connections.writing() as connection:
            for agent, counts in uses.items():
                agent_no = self._number(connection, agent)
                if agent_no is not None:
                    connection.executemany(
                        "INSERT INTO uses (agent, seq, uses) VALUES (?, ?, ?)"
                        " ON CONFLICT DO UPDATE SET uses = uses + excluded.uses",
                        [(agent_no, seq, count) for seq, count in counts.items()],
                    )

    # -- reading ------------------------------------------------------------------------------

    def get_one(self, agent: str, id: str) -> Record | None:
        connection = self._connections.reader()  # no context manager: it would cost a third more
        try:
            agent_no = self._agent_numbers.get(agent) or self._number(connection, agent)
            found = connection.execute(_GET, (agent_no, id)).fetchone()
        except sqlite3.Error as problem:
            self._connections.complain(problem)
        finally:
            self._connections.release(connection)
        return _record(agent, found) if found else None

    def get(self, agent: str, ids: Sequence[str]) -> list[Record]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            return [
                _record(agent, found)
                for part in _parts(ids)
                for found in connection.execute(
                    f"SELECT {_RECORD} FROM memories WHERE agent = ? AND id IN ({_marks(part)})",
                    (agent_no, *part),
                )
            ]

    def get_by_seq(self, agent: str, seqs: Sequence[int]) -> list[Record]:
        return [_record(agent, found) for found in self._by_seq(agent, seqs, _RECORD)]

    def rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        return [_row(agent, found) for found in self._by_seq(agent, seqs, _ROW)]

    def in_range(
        self,
        agent: str,
        column: RangeColumn,
        low: float | None,
        high: float | None,
        *,
        tiers: frozenset[Tier],
        limit: int | None,
        newest_first: bool = False,
    ) -> list[Record]:
        conditions = [f"{column} IS NOT NULL"] if column == "step" else []
        bounds: list[float] = []
        for sign, bound in ((">=", low), ("<=", high)):
            if bound is not None:
                conditions.append(f"{column} {sign} ?")
                bounds.append(bound)
        if tiers != ALL_TIERS:
            conditions.append(f"{_TIER_OF_KEY} IN ({', '.join(str(int(t)) for t in tiers)})")
        index = "by_time" if column == "created_at" else "by_step"
        direction = "DESC" if newest_first else "ASC"
        # Without INDEXED BY the planner may prefer to walk all rows of an agent.
        statement = (
            f"SELECT {_RECORD} FROM memories INDEXED BY {index}"
            f" WHERE {' AND '.join(['agent = ?', *conditions])}"
            f" ORDER BY {column} {direction}, key {direction} LIMIT ?"
        )
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            found = connection.execute(
                statement, (agent_no, *bounds, -1 if limit is None else limit)
            ).fetchall()
        return [_record(agent, values) for values in found]

    def all_rows(self, agent: str | None = None) -> Iterator[Row]:
        for name in [agent] if agent is not None else self.agents():
            after = 0
            while True:
                with self._connections.reading() as connection:
                    agent_no = self._number(connection, name)
                    seqs = sorted(
                        key & SEQ_MASK
                        for tier in Tier
                        for (key,) in connection.execute(
                            "SELECT key FROM memories WHERE key > ? AND key <= ?"
                            " ORDER BY key LIMIT ?",
                            (*_key_range(agent_no or 0, tier, after, SEQ_MASK), _VARIABLES),
                        )
                    )[:_VARIABLES]
                    # One transaction for both statements: a row that moves is still seen once.
                    found = self._fetch_by_seq(connection, agent_no or 0, seqs, _ROW)
                if not seqs:
                    break
                after = seqs[-1]
                yield from sorted((_row(name, values) for values in found), key=_seq)

    def agents(self) -> list[str]:
        with self._connections.reading() as connection:
            return [name for (name,) in connection.execute("SELECT name FROM agents ORDER BY no")]

    def counts(self, agent: str | None = None) -> dict[Tier, int]:
        with self._connections.reading() as connection:
            if agent is None:
                # The id index is far smaller than the rows, and holds the key.
                found = connection.execute(
                    f"SELECT {_TIER_OF_KEY}, COUNT(*) FROM memories INDEXED BY by_time"
                    " WHERE agent > 0 GROUP BY 1"
                ).fetchall()
            else:
                agent_no = self._number(connection, agent) or 0
                found = [
                    (
                        tier,
                        connection.execute(
                            "SELECT COUNT(*) FROM memories WHERE key > ? AND key <= ?",
                            _key_range(agent_no, tier, 0, SEQ_MASK),
                        ).fetchone()[0],
                    )
                    for tier in Tier
                ]
        return {tier: 0 for tier in Tier} | {Tier(tier): count for tier, count in found}

    def forgotten(self, agent: str | None = None) -> int:
        where, values = ("", ()) if agent is None else (" WHERE name = ?", (agent,))
        with self._connections.reading() as connection:
            (total,) = connection.execute(
                f"SELECT TOTAL(forgotten) FROM agents{where}", values
            ).fetchone()
        return int(total)

    def bytes_on_disk(self) -> int:
        if self.path is None:
            with self._connections.reading() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                size = connection.execute("PRAGMA page_size").fetchone()[0]
            return int(pages * size)
        files = (Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm", "-pulse"))
        return sum(os.path.getsize(file) for file in files if file.exists())

    # -- for the search index -----------------------------------------------------------------

    def state(self, agent: str) -> AgentState:
        connection = self._connections.reader()
        try:
            return self._state(connection, self._number(connection, agent))
        except sqlite3.Error as problem:
            self._connections.complain(problem)
        finally:
            self._connections.release(connection)

    def catch_up(
        self, agent: str, after_seq: int, after_change: int
    ) -> tuple[AgentState, IndexColumns, list[Change] | None]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return _NOBODY, _index_columns([]), []
            state = self._state(connection, agent_no)
            columns = _index_columns(
                part
                for tier in Tier
                for part in _slices(
                    connection.execute(
                        "SELECT key, created_at, IFNULL(step, ?), IFNULL(session, ?)"
                        " FROM memories WHERE key > ? AND key <= ?",
                        (NO_STEP, NO_SESSION, *_key_range(agent_no, tier, after_seq, SEQ_MASK)),
                    )
                )
            )
            logged = connection.execute(
                "SELECT number, kind, tier, seqs FROM changes WHERE agent = ? AND number > ?"
                " ORDER BY number",
                (agent_no, after_change),
            ).fetchall()
        changes = [
            Change(
                number=number,
                kind=ChangeKind(kind),
                tier=None if tier is None else Tier(tier),
                seqs=array("q", seqs),
            )
            for number, kind, tier, seqs in logged
        ]
        complete = len(changes) == state.last_change - after_change
        return state, columns, changes if complete else None

    def features(
        self, agent: str, first_seq: int, last_seq: int
    ) -> Iterator[list[tuple[int, int, bytes, bytes | None, bytes]]]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return
            for tier in Tier:
                cursor = connection.execute(
                    f"SELECT key & {SEQ_MASK}, vector_codec, vector, fine, terms FROM memories"
                    " WHERE key > ? AND key <= ?",
                    _key_range(agent_no, tier, first_seq - 1, last_seq),
                )
                yield from _slices(cursor)

    def watch(self, agent: str) -> Callable[[], int] | None:
        agent_no = self._agent_numbers.get(agent)
        if self._pulse is None or agent_no is None:
            return None
        return partial(self._pulse.slots.__getitem__, agent_no % SLOTS)

    # -- for transitions ----------------------------------------------------------------------

    def stored_before(self, tier: Tier, moment: float, limit: int) -> dict[str, list[int]]:
        with self._connections.reading() as connection:
            # Rows of a tier lie in the order they were stored: the first tells if any is due.
            due = connection.execute(
                f"SELECT no, name FROM agents WHERE (SELECT stored_at FROM memories"
                f" WHERE key > (no << {AGENT_SHIFT}) + ? AND key <= (no << {AGENT_SHIFT}) + ?"
                f" ORDER BY key LIMIT 1) < ?",
                (*_key_range(0, tier, 0, SEQ_MASK), moment),
            ).fetchall()
            found: dict[str, list[int]] = {}
            for agent_no, name in due:
                seqs = [
                    key & SEQ_MASK
                    for (key,) in connection.execute(
                        "SELECT key FROM memories WHERE key > ? AND key <= ? AND stored_at < ?"
                        " ORDER BY key LIMIT ?",
                        (*_key_range(agent_no, tier, 0, SEQ_MASK), moment, limit),
                    )
                ]
                if seqs:
                    found[name] = seqs
                limit -= len(seqs)
                if limit <= 0:
                    break
        return found

    def standing(self, agent: str, tier: Tier) -> list[tuple[int, float, float, int]]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return []
            return connection.execute(
                f"SELECT key & {SEQ_MASK}, importance, created_at, COALESCE("
                f"(SELECT uses FROM uses WHERE uses.agent = ? AND seq = key & {SEQ_MASK}), 0)"
                " FROM memories WHERE key > ? AND key <= ? ORDER BY key",
                (agent_no, *_key_range(agent_no, tier, 0, SEQ_MASK)),
            ).fetchall()

    # -- codecs and settings ------------------------------------------------------------------

    def codecs(self) -> list[StoredCodec]:
        with self._connections.reading() as connection:
            return [
                StoredCodec(number=number, purpose=purpose, data=data)
                for number, purpose, data in connection.execute(
                    "SELECT number, purpose, data FROM codecs WHERE number > 15"
                )
            ]

    def save_codec(self, purpose: str, data: bytes) -> StoredCodec:
        with self._connections.writing() as connection:
            connection.execute(
                "INSERT INTO codecs (purpose, data) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (purpose, data),
            )
            number, data = connection.execute(
                "SELECT number, data FROM codecs WHERE purpose = ?", (purpose,)
            ).fetchone()
        return StoredCodec(number=number, purpose=purpose, data=data)

    def setting(self, name: str, default: str | None = None) -> str | None:
        with self._connections.reading() as connection:
            found = connection.execute(
                "SELECT value FROM settings WHERE name = ?", (name,)
            ).fetchone()
        if found is not None or default is None:
            return found[0] if found else None
        with self._connections.writing() as connection:
            connection.execute(
                "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (name, default),
            )
        return self.setting(name)

    def close(self) -> None:
        self._connections.close()
        if self._pulse is not None:
            self._pulse.close()
            self._pulse = None

    # -- inside a transaction -----------------------------------------------------------------

    def _changing(self, agent: str) -> _Changing:
        return _Changing(self, agent)

    def _number(self, connection: sqlite3.Connection, agent: str) -> int | None:
        """An agent's number, which never changes: asked once a process.

        Not to be asked between adding an agent and the commit, which may yet be taken back."""
        known = self._agent_numbers.get(agent)
        if known is None:
            found = connection.execute("SELECT no FROM agents WHERE name = ?", (agent,)).fetchone()
            if found is None:
                return None
            known = self._agent_numbers[agent] = int(found[0])
        return known

    def _reserve(self, connection: sqlite3.Connection, agent: str, count: int) -> tuple[int, int]:
        """The agent's number and the first of `count` fresh seqs."""
        agent_no, last_seq = connection.execute(
            "INSERT INTO agents (name, last_seq) VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET last_seq = last_seq + excluded.last_seq"
            " RETURNING no, last_seq",
            (agent, count),
        ).fetchone()
        return agent_no, last_seq - count + 1

    def _only_new(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> list[bool]:
        """Which rows are not there yet; IdConflict if an id has other content."""
        fresh = []
        seen: dict[tuple[str, str], int] = {}
        for row in rows:
            digest = seen.get((row.agent, row.id))
            if digest is None:
                agent_no = self._number(connection, row.agent)
                found = (
                    agent_no
                    and connection.execute(
                        "SELECT digest FROM memories WHERE agent = ? AND id = ?", (agent_no, row.id)
                    ).fetchone()
                )
                digest = found[0] if found else None
            if digest is not None and digest != row.digest:
                raise IdConflict(
                    f"id {row.id!r} of agent {row.agent!r} already holds other content: "
                    "use another id, or update() to change it"
                )
            fresh.append(digest is None)
            seen[row.agent, row.id] = row.digest
        return fresh

    @staticmethod
    def _state(connection: sqlite3.Connection, agent_no: int | None) -> AgentState:
        found = connection.execute(
            "SELECT last_seq, last_change FROM agents WHERE no = ?", (agent_no,)
        ).fetchone()
        return AgentState(*found) if found else _NOBODY

    @staticmethod
    def _still_in(
        connection: sqlite3.Connection, agent_no: int, tier: Tier, seqs: Iterable[int]
    ) -> set[int]:
        return {
            key & SEQ_MASK
            for part in _parts([key_of(agent_no, tier, seq) for seq in seqs])
            for (key,) in connection.execute(
                f"SELECT key FROM memories WHERE key IN ({_marks(part)})", part
            )
        }

    def _by_seq(self, agent: str, seqs: Sequence[int], columns: str) -> list[tuple[Any, ...]]:
        connection = self._connections.reader()
        try:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return []
            return self._fetch_by_seq(connection, agent_no, seqs, columns)
        except sqlite3.Error as problem:
            self._connections.complain(problem)
        finally:
            self._connections.release(connection)

    @staticmethod
    def _fetch_by_seq(
        connection: sqlite3.Connection, agent_no: int, seqs: Sequence[int], columns: str
    ) -> list[tuple[Any, ...]]:
        """A row is in one of three places, so each seq is looked for in all of them at once: a move
        between two statements could hide it."""
        return [
            found
            for part in _parts(seqs, _VARIABLES // 3)
            for found in connection.execute(
                f"SELECT {columns} FROM memories WHERE key IN ({_marks(part * 3)})",
                [key_of(agent_no, tier, seq) for tier in Tier for seq in part],
            )
        ]

    def _remove(self, connection: sqlite3.Connection, agent_no: int, keys: Sequence[int]) -> int:
        seqs = [key & SEQ_MASK for key in keys]
        connection.executemany("DELETE FROM memories WHERE key = ?", [(key,) for key in keys])
        connection.executemany(
            "DELETE FROM uses WHERE agent = ? AND seq = ?", [(agent_no, seq) for seq in seqs]
        )
        if seqs:
            self._log(connection, agent_no, ChangeKind.DELETED, None, seqs)
        return len(seqs)

    @staticmethod
    def _log(
        connection: sqlite3.Connection,
        agent_no: int,
        kind: ChangeKind,
        tier: Tier | None,
        seqs: Sequence[int],
    ) -> None:
        (number,) = connection.execute(
            "UPDATE agents SET last_change = last_change + 1 WHERE no = ? RETURNING last_change",
            (agent_no,),
        ).fetchone()
        connection.execute(
            "INSERT INTO changes (agent, number, kind, tier, seqs) VALUES (?, ?, ?, ?, ?)",
            (agent_no, number, kind, tier, array("q", seqs).tobytes()),
        )
        connection.execute(
            "DELETE FROM changes WHERE agent = ? AND number <= ?", (agent_no, number - LOG_LENGTH)
        )


class _Changing:
    """A write transaction that changes rows of one agent, with the pulse around its commit."""

    def __init__(self, store: SQLiteStore, agent: str) -> None:
        self._store = store
        self._agent = agent
        self._transaction = store._connections.writing()
        self._slot: int | None = None

    def __enter__(self) -> tuple[sqlite3.Connection, int | None]:
        connection = self._transaction.__enter__()
        try:
            agent_no = self._store._number(connection, self._agent)
        except BaseException as problem:
            self._transaction.__exit__(type(problem), problem, problem.__traceback__)
            raise
        if agent_no is not None and self._store._pulse is not None:
            self._slot = agent_no % SLOTS
            self._store._pulse.begin(self._slot)
        return connection, agent_no

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> bool:
        try:
            return bool(self._transaction.__exit__(kind, problem, trace))
        finally:
            if self._slot is not None and self._store._pulse is not None:
                self._store._pulse.end(self._slot)


def _record(agent: str, found: tuple[Any, ...]) -> Record:
    key, id_, kind, step, created_at, importance, body_codec, body = found
    return Record(
        agent,
        id_,
        key & SEQ_MASK,
        _TIERS[key >> TIER_SHIFT & TIER_MASK],
        kind,
        step,
        created_at,
        importance,
        body_codec,
        body,
    )


def _row(agent: str, found: tuple[Any, ...]) -> Row:
    key, id_, kind, step, created_at, importance, body_codec, body = found[:8]
    stored_at, digest, session, terms, vector_codec, vector, fine = found[8:]
    return Row(
        agent,
        id_,
        key & SEQ_MASK,
        _TIERS[key >> TIER_SHIFT & TIER_MASK],
        kind,
        step,
        created_at,
        importance,
        body_codec,
        body,
        stored_at=stored_at,
        digest=digest,
        session=session,
        terms=terms,
        vector_codec=vector_codec,
        vector=vector,
        fine=fine,
    )


def _values(row: Row, agent_no: int, seq: int) -> tuple[Any, ...]:
    return (
        key_of(agent_no, row.tier, seq),
        row.id,
        row.kind,
        row.step,
        row.created_at,
        row.importance,
        row.body_codec,
        row.body,
        row.stored_at,
        row.digest,
        row.session,
        row.terms,
        row.vector_codec,
        row.vector,
        row.fine,
        agent_no,
    )


_TIERS = (Tier.STM, Tier.IM, Tier.LTM)


def _seq(row: Row) -> int:
    return row.seq


def _key_range(agent_no: int, tier: Tier, after_seq: int, last_seq: int) -> tuple[int, int]:
    """Bounds for `key > ? AND key <= ?`."""
    return key_of(agent_no, tier, after_seq), key_of(agent_no, tier, last_seq)


def _parts(values: Sequence[Any], size: int = _VARIABLES) -> Iterator[list[Any]]:
    for start in range(0, len(values), size):
        yield list(values[start : start + size])


def _slices(cursor: sqlite3.Cursor) -> Iterator[list[Any]]:
    """A cursor's rows, never more at a time than fit easily into memory."""
    while rows := cursor.fetchmany(_SLICE):
        yield rows


def _index_columns(parts: Iterable[list[tuple[int, float, int, int]]]) -> IndexColumns:
    keys, created_at, step, session = [array("q")], [array("d")], [array("q")], [array("q")]
    for part in parts:
        columns = zip(*part, strict=True)
        for held, code, values in zip(
            (keys, created_at, step, session), "qdqq", columns, strict=True
        ):
            held.append(array(code, values))
    key = np.concatenate(keys)
    order = np.argsort(key & SEQ_MASK)
    key = key[order]
    return IndexColumns(
        seq=key & SEQ_MASK,
        tier=(key >> TIER_SHIFT & TIER_MASK).astype(np.uint8),
        created_at=np.concatenate(created_at)[order],
        step=np.concatenate(step)[order],
        session=np.concatenate(session)[order],
    )


def _marks(values: Sequence[Any]) -> str:
    return ", ".join("?" * len(values))
