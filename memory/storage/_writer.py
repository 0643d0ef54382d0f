"""All writes of the SQLite store: every call is one transaction, committed or rolled back."""

from __future__ import annotations

import sqlite3
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import compress
from typing import Any

import msgspec

from memory._base.yielding import yield_gil
from memory.entry import Tier
from memory.errors import IdConflict
from memory.storage._agent_numbers import AgentNumbers
from memory.storage._recent_rows import RecentRows
from memory.storage._rows import ROW_COLUMNS, in_parts, placeholders, to_values
from memory.storage.base import ChangeKind, Move, Row, StoredCodec
from memory.storage.connections import Connections
from memory.storage.schema import AGENT_SHIFT, SEQ_MASK, key_of
from memory.storage.shared_versions import SharedVersions, changes_slot, writes_slot

LOG_LENGTH = 1024
"""Changes that an agent's log keeps; an index that is further behind reads all rows of the agent again."""

_MOVES_AT_ONCE = 16
"""Rows that a move updates between two points where it may yield to other threads."""
_INSERT = f"INSERT INTO memories ({ROW_COLUMNS}, agent, tier) VALUES ({placeholders(19)})"


class SQLiteWriter:
    """The writing methods of `MemoryStore`, which documents them."""

    def __init__(
        self,
        connections: Connections,
        agent_numbers: AgentNumbers,
        versions: SharedVersions,
        recent_rows: RecentRows,
    ) -> None:
        self._connections = connections
        self._agent_numbers = agent_numbers
        self._versions = versions
        self._recent_rows = recent_rows

    def add(self, rows: Sequence[Row]) -> list[int | None]:
        if not rows:
            return []
        is_new: list[bool] | None = None
        new = rows
        with self._connections.lock:
            with _VersionChange(self._versions) as change, self._connections.writing() as connection:
                try:
                    numbers, seqs = self._insert(connection, rows)
                except sqlite3.IntegrityError:  # an id exists already: check all rows, add the new ones
                    connection.execute("ROLLBACK")
                    connection.execute("BEGIN IMMEDIATE")
                    is_new = self._which_are_new(connection, rows)
                    new = list(compress(rows, is_new))
                    numbers, seqs = self._insert(connection, new)
                for agent_no in numbers.values():
                    change.begin(writes_slot(agent_no))
            self._agent_numbers.update(numbers)
            self._keep_recent(numbers, new, seqs)
        if is_new is None:
            return list(seqs)
        remaining = iter(seqs)
        return [next(remaining) if new_one else None for new_one in is_new]

    def _keep_recent(self, numbers: dict[str, int], rows: Sequence[Row], seqs: Sequence[int]) -> None:
        """Keep the rows that were just committed for the search index of this process."""
        for agent, agent_no in numbers.items():
            if len(numbers) == 1:
                self._recent_rows.add(agent_no, rows, seqs)
            else:
                own = [row.agent == agent for row in rows]
                self._recent_rows.add(agent_no, list(compress(rows, own)), list(compress(seqs, own)))

    def _insert(
        self, connection: sqlite3.Connection, rows: Sequence[Row]
    ) -> tuple[dict[str, int], list[int]]:
        """Add rows under new seqs; return the numbers of their agents and each row's seq."""
        agents = Counter([row.agent for row in rows])
        if len(agents) == 1:
            agent = rows[0].agent
            agent_no, first = self._reserve(connection, agent, len(rows))
            values = [to_values(row, agent_no, seq) for seq, row in enumerate(rows, first)]
            if len(values) == 1:
                connection.execute(_INSERT, values[0])
            else:
                connection.executemany(_INSERT, values)
            return {agent: agent_no}, list(range(first, first + len(rows)))
        numbers: dict[str, int] = {}
        ranges: dict[str, Iterator[int]] = {}
        for agent, count in agents.items():
            numbers[agent], first = self._reserve(connection, agent, count)
            ranges[agent] = iter(range(first, first + count))
        seqs = [next(ranges[row.agent]) for row in rows]
        connection.executemany(
            _INSERT,
            [to_values(row, numbers[row.agent], seq) for row, seq in zip(rows, seqs, strict=True)],
        )
        return numbers, seqs

    def refuse_conflicts(self, rows: Sequence[Row]) -> None:
        with self._connections.reading() as connection:
            self._which_are_new(connection, rows)

    def replace(self, old: Row, new: Row) -> bool:
        with self._changing(old.agent) as (connection, agent_no):
            if agent_no is None:
                return False
            key = key_of(agent_no, old.tier, old.seq)
            removed = connection.execute(
                "DELETE FROM memories WHERE key = ? AND revision = ?", (key, old.revision)
            ).rowcount
            if not removed:
                return False
            row = msgspec.structs.replace(new, revision=old.revision + 1)
            connection.execute(_INSERT, to_values(row, agent_no, old.seq))
            self._log(connection, agent_no, ChangeKind.REPLACED, None, [old.seq])
            return True

    def delete(self, agent: str, ids: Sequence[str]) -> int:
        with self._changing(agent) as (connection, agent_no):
            if agent_no is None:
                return 0
            keys = [
                key
                for part in in_parts(list(dict.fromkeys(ids)))
                for (key,) in connection.execute(
                    f"SELECT key FROM memories WHERE agent = ? AND id IN ({placeholders(len(part))})",
                    (agent_no, *part),
                )
            ]
            return self._delete(connection, agent_no, keys)

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
            by_seq = {move.seq: move for move in moves}
            current = [
                by_seq[seq]
                for seq, revision in self._revisions(connection, agent_no, source, by_seq)
                if by_seq[seq].revision == revision
            ]
            for part in in_parts(current, _MOVES_AT_ONCE):
                yield_gil()
                connection.executemany(
                    "UPDATE memories SET key = ?, tier = ?, body_codec = ?, body = ?, vector_codec = ?,"
                    " vector = ?, fine = ? WHERE key = ?",
                    [
                        (
                            key_of(agent_no, target, move.seq),
                            target,
                            move.body_codec,
                            move.body,
                            move.vector_codec,
                            move.vector,
                            move.fine,
                            key_of(agent_no, source, move.seq),
                        )
                        for move in part
                    ],
                )
            if current and source != target:
                seqs = [move.seq for move in current]
                self._log(connection, agent_no, ChangeKind.MOVED, target, seqs)
            return len(current)

    def evict(self, agent: str, seqs: Sequence[int], tier: Tier) -> int:
        with self._changing(agent) as (connection, agent_no):
            if agent_no is None:
                return 0
            present = [seq for seq, _ in self._revisions(connection, agent_no, tier, seqs)]
            removed = self._delete(connection, agent_no, [key_of(agent_no, tier, seq) for seq in present])
            connection.execute(
                "UPDATE agents SET forgotten = forgotten + ? WHERE no = ?", (removed, agent_no)
            )
            return removed

    def add_read_counts(self, read_counts: dict[str, dict[int, int]]) -> None:
        with self._connections.writing() as connection:
            for agent, counts in read_counts.items():
                agent_no = self._agent_numbers.look_up(connection, agent)
                if agent_no is not None:
                    # A row that was deleted since it was read gets no count.
                    connection.executemany(
                        "INSERT INTO uses (agent, seq, uses) SELECT ?, ?, ?"
                        " WHERE EXISTS (SELECT 1 FROM memories WHERE key IN (?, ?, ?))"
                        " ON CONFLICT DO UPDATE SET uses = uses + excluded.uses",
                        [
                            (agent_no, seq, count, *(key_of(agent_no, tier, seq) for tier in Tier))
                            for seq, count in counts.items()
                        ],
                    )

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
        found = self._connections.fetch("SELECT value FROM settings WHERE name = ?", (name,))
        if found or default is None:
            return found[0][0] if found else None
        with self._connections.writing() as connection:
            connection.execute(
                "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (name, default),
            )
        return self.setting(name)

    @contextmanager
    def _changing(self, agent: str) -> Iterator[tuple[sqlite3.Connection, int | None]]:
        """Yield the connection and the agent's number (None if unknown) in one transaction.

        The agent's versions change with the commit."""
        with (
            self._connections.lock,
            _VersionChange(self._versions) as change,
            self._connections.writing() as connection,
        ):
            agent_no = self._agent_numbers.look_up(connection, agent)
            if agent_no is not None:
                change.begin(changes_slot(agent_no))
                change.begin(writes_slot(agent_no))
            yield connection, agent_no

    def _reserve(self, connection: sqlite3.Connection, agent: str, count: int) -> tuple[int, int]:
        """Return the agent's number and the first of `count` new seqs."""
        known = self._agent_numbers.get(agent)
        if known is not None:
            (last_seq,) = connection.execute(
                "UPDATE agents SET last_seq = last_seq + ? WHERE no = ? RETURNING last_seq", (count, known)
            ).fetchone()
            return known, last_seq - count + 1
        agent_no, last_seq = connection.execute(
            "INSERT INTO agents (name, last_seq) VALUES (?, ?)"
            " ON CONFLICT DO UPDATE SET last_seq = last_seq + excluded.last_seq"
            " RETURNING no, last_seq",
            (agent, count),
        ).fetchone()
        return agent_no, last_seq - count + 1

    def _which_are_new(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> list[bool]:
        """Return for each row whether its id is new; raise IdConflict if an id has other content."""
        new = []
        seen: dict[tuple[str, str], int] = {}
        for row in rows:
            digest = seen.get((row.agent, row.id))
            if digest is None:
                agent_no = self._agent_numbers.look_up(connection, row.agent)
                found = (
                    agent_no
                    and connection.execute(
                        "SELECT digest FROM memories WHERE agent = ? AND id = ?", (agent_no, row.id)
                    ).fetchone()
                )
                digest = found[0] if found else None
            if digest is not None and digest != row.digest:
                raise IdConflict(
                    f"id {row.id!r} of agent {row.agent!r} already has other content: "
                    "use another id, or update() to change it"
                )
            new.append(digest is None)
            seen[row.agent, row.id] = row.digest
        return new

    @staticmethod
    def _revisions(
        connection: sqlite3.Connection, agent_no: int, tier: Tier, seqs: Iterable[int]
    ) -> list[tuple[int, int]]:
        """Return (seq, revision) of those rows that are in the tier."""
        return [
            (key & SEQ_MASK, revision)
            for part in in_parts([key_of(agent_no, tier, seq) for seq in seqs])
            for key, revision in connection.execute(
                f"SELECT key, revision FROM memories WHERE key IN ({placeholders(len(part))})", part
            )
        ]

    def _delete(self, connection: sqlite3.Connection, agent_no: int, keys: Sequence[int]) -> int:
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
        """Add an entry to the agent's change log and delete the entry that no longer fits."""
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


class _VersionChange:
    """Marks version slots before a commit and stores new versions after it.

    The caller holds the process's write lock: only other processes can write the slots in between."""

    def __init__(self, versions: SharedVersions) -> None:
        self._versions = versions
        self._marks: list[tuple[int, int]] = []

    def __enter__(self) -> _VersionChange:
        return self

    def begin(self, slot: int) -> None:
        self._marks.append((slot, self._versions.begin(slot)))

    def __exit__(self, kind: Any, problem: Any, trace: Any) -> None:
        for slot, mark in self._marks:
            self._versions.end(slot, mark)
