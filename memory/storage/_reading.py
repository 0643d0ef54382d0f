"""The reading half of the SQLite store: nothing here changes the file."""

from __future__ import annotations

import os
import sqlite3
from array import array
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

from memory.entry import ALL_TIERS, Tier
from memory.storage._connections import Connections
from memory.storage._rows import (
    RECORD_COLUMNS,
    ROW_COLUMNS,
    TIERS,
    VARIABLES,
    key_range,
    marks_for,
    parts_of,
    slices_of,
    to_index_columns,
    to_record,
    to_row,
)
from memory.storage.base import (
    NO_SESSION,
    NO_STEP,
    AgentState,
    Change,
    ChangeKind,
    Features,
    IndexColumns,
    MemoryStore,
    RangeColumn,
    Record,
    Row,
    StoredCodec,
)
from memory.storage.schema import SEQ_MASK, TIER_MASK, TIER_SHIFT, key_of

_GET = (
    "SELECT key, kind, step, created_at, importance, body_codec, body"
    " FROM memories WHERE agent = ? AND id = ?"
)
_TIER_OF_KEY = f"(key >> {TIER_SHIFT} & {TIER_MASK})"
_NOBODY = AgentState(0, 0)

# An agent's new rows lie in three places, one a tier; one statement sees all of them at one moment.
_COLUMNS = f"key, created_at, IFNULL(step, {NO_STEP}), IFNULL(session, {NO_SESSION})"
_NEW_COLUMNS = " UNION ALL ".join([f"SELECT {_COLUMNS} FROM memories WHERE key > ? AND key <= ?"] * 3)
_NEW_ROWS = (
    " UNION ALL ".join(
        [f"SELECT {_COLUMNS}, vector_codec, vector, fine, terms FROM memories WHERE key > ? AND key <= ?"]
        * 3
    )
    + " LIMIT ?"
)
_TIER_NUMBERS = tuple(map(int, Tier))
_FEW = 256
"""Up to so many new rows are read with everything at once."""


class SQLiteReading(MemoryStore):
    """See `MemoryStore` for what each method promises."""

    path: Path | None
    _connections: Connections
    _agent_numbers: dict[str, int]

    def get_one(self, agent: str, id: str) -> Record | None:
        connection = self._connections.reader()  # no context manager: it would cost a third more
        try:
            agent_no = self._agent_numbers.get(agent) or self._number(connection, agent)
            found = connection.execute(_GET, (agent_no, id)).fetchone()
        except sqlite3.Error as problem:
            self._connections.complain(problem)
        finally:
            self._connections.release(connection)
        if found is None:
            return None
        key, kind, step, created_at, importance, body_codec, body = found
        tier = TIERS[key >> TIER_SHIFT & TIER_MASK]
        return Record(agent, id, key & SEQ_MASK, tier, kind, step, created_at, importance, body_codec, body)

    def get(self, agent: str, ids: Sequence[str]) -> list[Record]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            return [
                to_record(agent, found)
                for part in parts_of(ids)
                for found in connection.execute(
                    f"SELECT {RECORD_COLUMNS} FROM memories WHERE agent = ? AND id IN ({marks_for(part)})",
                    (agent_no, *part),
                )
            ]

    def get_by_seq(
        self, agent: str, seqs: Sequence[int], tiers: Sequence[int] | None = None
    ) -> list[Record]:
        found = [to_record(agent, row) for row in self._by_seq(agent, seqs, RECORD_COLUMNS, tiers)]
        if tiers is not None and len(found) < len(seqs):
            there = {record.seq for record in found}
            moved = [seq for seq in seqs if seq not in there]
            found += [to_record(agent, row) for row in self._by_seq(agent, moved, RECORD_COLUMNS)]
        return found

    def rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        return [to_row(agent, found) for found in self._by_seq(agent, seqs, ROW_COLUMNS)]

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
            f"SELECT {RECORD_COLUMNS} FROM memories INDEXED BY {index}"
            f" WHERE {' AND '.join(['agent = ?', *conditions])}"
            f" ORDER BY {column} {direction}, key & {SEQ_MASK} {direction} LIMIT ?"
        )
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            found = connection.execute(
                statement, (agent_no, *bounds, -1 if limit is None else limit)
            ).fetchall()
        return [to_record(agent, values) for values in found]

    def all_rows(self, agent: str | None = None) -> Iterator[Row]:
        rows = self._all_rows(agent)
        # In RAM there is one connection for all: it must not stay taken between two rows.
        return iter(list(rows)) if self.path is None else rows

    def _all_rows(self, agent: str | None) -> Iterator[Row]:
        # One transaction for all of it: rows that move or are replaced meanwhile are seen once.
        with self._connections.reading() as connection:
            names = "" if agent is None else " WHERE name = ?"
            for agent_no, name in connection.execute(
                f"SELECT no, name FROM agents{names} ORDER BY no", () if agent is None else (agent,)
            ).fetchall():
                keys = [
                    key
                    for (key,) in connection.execute(
                        f"SELECT key FROM memories WHERE agent = ? ORDER BY key & {SEQ_MASK}", (agent_no,)
                    )
                ]
                for part in parts_of(keys):
                    found = connection.execute(
                        f"SELECT {ROW_COLUMNS} FROM memories WHERE key IN ({marks_for(part)})", part
                    ).fetchall()
                    yield from sorted((to_row(name, values) for values in found), key=_seq)

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
                            key_range(agent_no, tier, 0, SEQ_MASK),
                        ).fetchone()[0],
                    )
                    for tier in Tier
                ]
        return {tier: 0 for tier in Tier} | {Tier(tier): count for tier, count in found}

    def forgotten(self, agent: str | None = None) -> int:
        where, values = ("", ()) if agent is None else (" WHERE name = ?", (agent,))
        with self._connections.reading() as connection:
            (total,) = connection.execute(f"SELECT TOTAL(forgotten) FROM agents{where}", values).fetchone()
        return int(total)

    def bytes_on_disk(self) -> int:
        if self.path is None:
            with self._connections.reading() as connection:
                pages = connection.execute("PRAGMA page_count").fetchone()[0]
                size = connection.execute("PRAGMA page_size").fetchone()[0]
            return int(pages * size)
        files = (Path(f"{self.path}{suffix}") for suffix in ("", "-wal", "-shm", "-pulse"))
        return sum(os.path.getsize(file) for file in files if file.exists())

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
    ) -> tuple[AgentState, list[Change] | None, IndexColumns]:
        connection = self._connections.reader()
        try:
            agent_no = self._number(connection, agent)
            state = self._state(connection, agent_no)
            if agent_no is None:
                return state, [], to_index_columns([])
            changes: list[Change] | None = []
            if state.last_change != after_change:
                changes = self._changes(connection, agent_no, after_change)
            if changes:
                state = AgentState(state.last_seq, changes[-1].number)
            columns = self._new_columns(connection, agent_no, after_seq)
        except sqlite3.Error as problem:
            self._connections.complain(problem)
        finally:
            self._connections.release(connection)
        if len(columns.seq):
            state = AgentState(max(state.last_seq, int(columns.seq[-1])), state.last_change)
        return state, changes, columns

    @staticmethod
    def _changes(connection: sqlite3.Connection, agent_no: int, after_change: int) -> list[Change] | None:
        changes = [
            Change(
                number=number,
                kind=ChangeKind(kind),
                tier=None if tier is None else Tier(tier),
                seqs=array("q", seqs),
            )
            for number, kind, tier, seqs in connection.execute(
                "SELECT number, kind, tier, seqs FROM changes WHERE agent = ? AND number > ?"
                " ORDER BY number",
                (agent_no, after_change),
            )
        ]
        complete = bool(changes) and len(changes) == changes[-1].number - after_change
        return changes if complete else None

    @staticmethod
    def _new_columns(connection: sqlite3.Connection, agent_no: int, after_seq: int) -> IndexColumns:
        ranges = [bound for tier in Tier for bound in key_range(agent_no, tier, after_seq, SEQ_MASK)]
        few = connection.execute(_NEW_ROWS, (*ranges, _FEW + 1)).fetchall()
        if len(few) <= _FEW:
            return to_index_columns([[row[:4] for row in few]] if few else [], few)
        return to_index_columns(slices_of(connection.execute(_NEW_COLUMNS, ranges)))

    def columns_of(self, agent: str, seqs: Sequence[int]) -> IndexColumns:
        found = self._by_seq(agent, seqs, f"{_COLUMNS}, vector_codec, vector, fine, terms")
        return to_index_columns([[row[:4] for row in found]] if found else [], found)

    def features(self, agent: str, first_seq: int, last_seq: int) -> Iterator[list[Features]]:
        slices = self._features(agent, first_seq, last_seq)
        return iter(list(slices)) if self.path is None else slices

    def _features(self, agent: str, first_seq: int, last_seq: int) -> Iterator[list[Features]]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return
            for tier in Tier:
                yield from slices_of(
                    connection.execute(
                        f"SELECT key & {SEQ_MASK}, vector_codec, vector, fine, terms FROM memories"
                        " WHERE key > ? AND key <= ?",
                        key_range(agent_no, tier, max(first_seq, 1) - 1, last_seq),
                    )
                )

    def stored_before(self, tier: Tier, moment: float, limit: int) -> dict[str, list[int]]:
        with self._connections.reading() as connection:
            found = connection.execute(
                f"SELECT name, key & {SEQ_MASK} FROM memories INDEXED BY by_age"
                " JOIN agents ON no = agent"
                f" WHERE tier = {int(tier)} AND tier < 2 AND stored_at < ? ORDER BY stored_at LIMIT ?",
                (moment, limit),
            ).fetchall()
        due: dict[str, list[int]] = {}
        for agent, seq in found:
            due.setdefault(agent, []).append(seq)
        return due

    def standing(self, agent: str, tier: Tier) -> list[tuple[int, float, float, int]]:
        with self._connections.reading() as connection:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return []
            return connection.execute(
                f"SELECT key & {SEQ_MASK}, importance, created_at, COALESCE("
                f"(SELECT uses FROM uses WHERE uses.agent = ? AND seq = key & {SEQ_MASK}), 0)"
                " FROM memories WHERE key > ? AND key <= ? ORDER BY key",
                (agent_no, *key_range(agent_no, tier, 0, SEQ_MASK)),
            ).fetchall()

    def codecs(self) -> list[StoredCodec]:
        with self._connections.reading() as connection:
            return [
                StoredCodec(number=number, purpose=purpose, data=data)
                for number, purpose, data in connection.execute(
                    "SELECT number, purpose, data FROM codecs WHERE number > 15"
                )
            ]

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

    @staticmethod
    def _state(connection: sqlite3.Connection, agent_no: int | None) -> AgentState:
        found = connection.execute(
            "SELECT last_seq, last_change FROM agents WHERE no = ?", (agent_no,)
        ).fetchone()
        return AgentState(*found) if found else _NOBODY

    def _by_seq(
        self, agent: str, seqs: Sequence[int], columns: str, tiers: Sequence[int] | None = None
    ) -> list[tuple[Any, ...]]:
        """Rows by seq, in the tier that is given for each or, if none is, wherever they are."""
        connection = self._connections.reader()
        try:
            agent_no = self._number(connection, agent)
            if agent_no is None:
                return []
            if tiers is None:
                return self._fetch_by_seq(connection, agent_no, seqs, columns)
            keys = [key_of(agent_no, tier, seq) for seq, tier in zip(seqs, tiers, strict=True)]
            found = []
            for part in parts_of(keys):
                found += connection.execute(_by_key(columns, len(part)), part).fetchall()
            return found
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
        found = []
        for part in parts_of(seqs, VARIABLES // 3):
            keys = [key_of(agent_no, tier, seq) for tier in _TIER_NUMBERS for seq in part]
            found += connection.execute(_by_key(columns, len(keys)), keys).fetchall()
        return found


@lru_cache(maxsize=256)
def _by_key(columns: str, count: int) -> str:
    return f"SELECT {columns} FROM memories WHERE key IN ({', '.join('?' * count)})"


def _seq(row: Row) -> int:
    return row.seq
