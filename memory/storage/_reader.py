"""All reads of the SQLite store; nothing here changes the file."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from operator import attrgetter
from pathlib import Path
from typing import Any

from memory._base.native import core
from memory._base.yielding import yield_gil
from memory.entry import ALL_TIERS, Tier
from memory.errors import StoreCorrupt, short
from memory.storage._agent_numbers import AgentNumbers
from memory.storage._change_log import to_change
from memory.storage._completeness import Completeness
from memory.storage._rows import (
    FEATURE_COLUMNS,
    INDEX_COLUMNS,
    RECORD_COLUMNS,
    ROW_COLUMNS,
    TIERS,
    VARIABLES,
    damaged,
    fetch_slices,
    has_types,
    in_parts,
    is_intact,
    is_row_intact,
    key_range,
    old_columns,
    placeholders,
    to_index_columns,
    to_record,
    to_row,
)
from memory.storage._store_errors import is_wrong_type
from memory.storage._tail import ALL_TAILS, IN_TAIL, LAST_SEQ
from memory.storage.base import (
    FIRST_STORED_CODEC,
    AgentState,
    Change,
    CodedVector,
    Features,
    IndexColumns,
    RangeColumn,
    Record,
    Row,
    StoredCodec,
)
from memory.storage.connections import Connections
from memory.storage.schema import RETIRED, SEQ_MASK, TIER_MASK, TIER_SHIFT, codec_digest, key_of

# Without the call of the function in `_rows.py`: this is the most frequent read.
_is_row_intact = is_row_intact if core is None else core.is_row_intact
_GET = "SELECT key, checksum, kind, step, created_at, importance, body_codec, body FROM memories"
_STATE = "SELECT {last_seq}, last_change FROM agents WHERE no = ?"
_TIER_OF_KEY = f"(key >> {TIER_SHIFT} & {TIER_MASK})"
_UNKNOWN_AGENT = AgentState(0, 0)
_ROWS_BETWEEN_YIELDS = 64
"""Rows that a long read fetches between two points where it may yield to other threads."""
_NO_ROW = "key > ? AND key < ?"
"""A condition that no row fulfils if both values are the same."""

# An agent's new rows are in three ranges of keys, one for each tier. One statement reads all three, so that
# a move between two statements can't hide a row.
_NEW_COLUMNS = " UNION ALL ".join([f"SELECT {INDEX_COLUMNS} FROM memories WHERE key > ? AND key <= ?"] * 3)
_NEW_ROWS = (
    " UNION ALL ".join([f"SELECT {FEATURE_COLUMNS} FROM memories WHERE key > ? AND key <= ?"] * 3)
    + " LIMIT ?"
)
_CODED_VECTORS = (
    f"SELECT key & {SEQ_MASK}, vector_codec, vector, fine FROM memories"
    f" WHERE key > ? AND key <= ? AND vector_codec >= {FIRST_STORED_CODEC}"
    " ORDER BY key"
)
# The name of an agent without memories was replaced by a hash.
_AGENTS = "SELECT name FROM agents WHERE typeof(name) = 'text' ORDER BY no"
_TIER_NUMBERS = tuple(map(int, Tier))
_PLACES = {"step": 4, "created_at": 5}
"""Where RECORD_COLUMNS has the columns of ranges."""
_MAX_WITH_FEATURES = 256
"""The most new rows that `catch_up` reads with their features. For more rows, it reads only the columns."""


class SQLiteReader:
    """The reading methods of `MemoryStore`, which documents them."""

    def __init__(
        self,
        path: Path | None,
        connections: Connections,
        agent_numbers: AgentNumbers,
        completeness: Completeness,
        *,
        file_format: int,
        was_migrated: bool,
    ) -> None:
        """`was_migrated`: whether the file was of format 1, so that rows may lack checksums."""
        self._path = path
        self._connections = connections
        self._fetch_one = connections.fetch_one
        self._agent_numbers = agent_numbers
        self._completeness = completeness
        # A file of format 1 that is opened read-only is read as it is.
        same = file_format > 1
        self._may_lack = was_migrated or not same
        self._record_columns = RECORD_COLUMNS if same else old_columns(RECORD_COLUMNS)
        self._row_columns = ROW_COLUMNS if same else old_columns(ROW_COLUMNS)
        self._feature_columns = FEATURE_COLUMNS if same else old_columns(FEATURE_COLUMNS)
        # Only files of the current format have tails. The statements for older ones take the same values.
        self._has_tails = file_format > 2
        self._is_indexed = "indexed = 1" if self._has_tails else "1"
        self._in_tail = IN_TAIL if self._has_tails else _NO_ROW
        self._state_of = _STATE.format(last_seq=LAST_SEQ if self._has_tails else "last_seq")
        get = _GET if same else old_columns(_GET)
        self._get_indexed = f"{get} INDEXED BY by_id WHERE agent = ? AND id = ? AND {self._is_indexed}"
        self._get = f"{self._get_indexed} UNION ALL {get} WHERE {self._in_tail} AND id = ?"
        self._new_rows = _NEW_ROWS if same else old_columns(_NEW_ROWS)
        self._codec_columns = (
            f"number, purpose, data{', digest, trained_on, deleted, writable' if same else ''}"
        )

    def get_one(self, agent: str, id: str) -> Record | None:
        agent_no = self._agent_numbers.get(agent) or self._agent_no(agent)
        # Most rows are in the index. The statement that also reads the tail takes longer.
        found = self._fetch_one(self._get_indexed, (agent_no, id))
        if found is None:
            found = self._fetch_one(self._get, (agent_no, id, agent_no, agent_no, id))
            if found is None:
                self._confirm(agent_no)
                return None
        if not _is_row_intact(found, id) and not (
            found[1] is None and self._may_lack and has_types((id, *found[2:]))
        ):
            raise damaged(agent, id)
        key, _, kind, step, created_at, importance, body_codec, body = found
        tier = TIERS[key >> TIER_SHIFT & TIER_MASK]
        return Record(agent, id, key & SEQ_MASK, tier, kind, step, created_at, importance, body_codec, body)

    def _confirm(self, agent_no: int | None) -> None:
        """Raise StoreCorrupt if memories of an agent may be hidden; None is an unknown agent."""
        if agent_no is None:
            self._completeness.confirm_agents()
        else:
            self._completeness.confirm(agent_no)

    def _confirm_agent(self, agent: str) -> None:
        self._confirm(self._agent_numbers.get(agent) or self._agent_no(agent))

    def _agent_no(self, agent: str) -> int | None:
        return self._connections.read(lambda connection: self._agent_numbers.look_up(connection, agent))

    def get(self, agent: str, ids: Sequence[str]) -> list[Record]:
        def read(connection: sqlite3.Connection) -> list[Record]:
            agent_no = self._agent_numbers.look_up(connection, agent)
            return [
                to_record(agent, values, self._may_lack)
                for part in in_parts(ids, VARIABLES // 2)
                for values in connection.execute(
                    f"SELECT {self._record_columns} FROM memories INDEXED BY by_id"
                    f" WHERE agent = ? AND {self._is_indexed} AND id IN ({placeholders(len(part))})"
                    f" UNION ALL SELECT {self._record_columns} FROM memories"
                    f" WHERE {self._in_tail} AND id IN ({placeholders(len(part))})",
                    (agent_no, *part, agent_no, agent_no, *part),
                )
            ]

        records = self._connections.read(read)
        if len(records) < len(ids):
            self._confirm_agent(agent)
        return records

    def get_by_seq(
        self, agent: str, seqs: Sequence[int], tiers: Sequence[int] | None = None
    ) -> list[Record]:
        columns, lack = self._record_columns, self._may_lack
        records = [to_record(agent, row, lack) for row in self._by_seq(agent, seqs, columns, tiers)]
        if tiers is not None and len(records) < len(seqs):
            found = {record.seq for record in records}
            moved = [seq for seq in seqs if seq not in found]
            records += [to_record(agent, row, lack) for row in self._by_seq(agent, moved, columns)]
        return records

    def rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        return [
            to_row(agent, values, self._may_lack) for values in self._by_seq(agent, seqs, self._row_columns)
        ]

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
        order = f"ORDER BY {column} {direction}, key & {SEQ_MASK} {direction} LIMIT ?"
        # Without INDEXED BY, SQLite may scan all rows of the agent.
        statement = (
            f"SELECT * FROM (SELECT {self._record_columns} FROM memories INDEXED BY {index}"
            f" WHERE {' AND '.join(['agent = ?', self._is_indexed, *conditions])} {order})"
            f" UNION ALL SELECT {self._record_columns} FROM memories WHERE key IN"
            f" (SELECT key FROM memories WHERE {' AND '.join([self._in_tail, *conditions])} {order})"
        )
        agent_no = self._agent_numbers.get(agent) or self._agent_no(agent)
        self._confirm(agent_no)
        most = -1 if limit is None else limit
        found = self._connections.fetch(
            statement, (agent_no, *bounds, most, agent_no, agent_no, *bounds, most)
        )
        # Only rows of the tail are out of order.
        place = _PLACES[column]
        found.sort(key=lambda values: (values[place], values[0] & SEQ_MASK), reverse=newest_first)
        return [to_record(agent, values, self._may_lack) for values in found[:limit]]

    def all_rows(
        self, agent: str | None = None, on_damage: Callable[[StoreCorrupt], None] | None = None
    ) -> Iterator[Row]:
        # One transaction, so that rows that move or are replaced meanwhile are read once.
        on_damage = on_damage or _raise

        def read(connection: sqlite3.Connection) -> Iterator[Row]:
            names = "typeof(name) = 'text'" if agent is None else "name = ?"
            for agent_no, name in connection.execute(
                f"SELECT no, name FROM agents WHERE {names} ORDER BY no", () if agent is None else (agent,)
            ).fetchall():
                keys = [
                    key
                    for (key,) in connection.execute(
                        "SELECT key FROM memories INDEXED BY by_time"
                        f" WHERE agent = ? AND {self._is_indexed}"
                        f" UNION ALL SELECT key FROM memories WHERE {self._in_tail}",
                        (agent_no, agent_no, agent_no),
                    )
                ]
                keys.sort(key=SEQ_MASK.__and__)
                for part in in_parts(keys):
                    found = self._whole_rows(connection, name, part, on_damage)
                    yield from sorted(found, key=attrgetter("seq"))

        try:
            self._completeness.confirm() if agent is None else self._confirm_agent(agent)
        except StoreCorrupt as problem:
            on_damage(problem)
        return self._connections.iterate(read)

    def _whole_rows(
        self,
        connection: sqlite3.Connection,
        agent: str,
        keys: Sequence[int],
        on_damage: Callable[[StoreCorrupt], None],
    ) -> Iterator[Row]:
        """Yield the rows with these keys; call `on_damage` with the errors of the others."""
        statement = f"SELECT {self._row_columns} FROM memories WHERE key IN ({placeholders(len(keys))})"
        try:
            found = connection.execute(statement, keys).fetchall()
        except sqlite3.OperationalError as problem:
            if not is_wrong_type(problem):
                raise
            if len(keys) > 1:  # one of them is damaged: find out which
                for key in keys:
                    yield from self._whole_rows(connection, agent, [key], on_damage)
            else:
                where = "SELECT CAST(id AS BLOB) FROM memories WHERE key = ?"
                ((id_,),) = connection.execute(where, keys).fetchall()
                on_damage(damaged(agent, id_.decode(errors="replace")))
            return
        if len(found) < len(keys):
            hidden = len(keys) - len(found)
            on_damage(
                StoreCorrupt(f"{hidden} memories of agent {short(agent)} are hidden in a damaged file")
            )
        for values in found:
            try:
                yield to_row(agent, values, self._may_lack)
            except StoreCorrupt as problem:
                on_damage(problem)

    def agents(self) -> list[str]:
        self._completeness.confirm_agents()
        return self.named_agents()

    def named_agents(self) -> list[str]:
        """Return what `agents` returns, also if the file is damaged."""
        return [name for (name,) in self._connections.fetch(_AGENTS)]

    def counts(self, agent: str | None = None, tiers: Collection[Tier] = TIERS) -> dict[Tier, int]:
        def read(connection: sqlite3.Connection) -> list[tuple[int, int]]:
            if agent is None:
                # Count in an index, which is far smaller than the rows and holds the key.
                indexed = connection.execute(
                    f"SELECT {_TIER_OF_KEY}, COUNT(*) FROM memories INDEXED BY by_time"
                    f" WHERE agent > 0 AND {self._is_indexed} GROUP BY 1"
                ).fetchall()
                return [*indexed, (Tier.STM, self._in_all_tails(connection))]
            agent_no = self._agent_numbers.look_up(connection, agent) or 0
            return [
                (
                    tier,
                    connection.execute(
                        "SELECT COUNT(*) FROM memories WHERE key > ? AND key <= ?",
                        key_range(agent_no, tier, 0, SEQ_MASK),
                    ).fetchone()[0],
                )
                for tier in tiers
            ]

        self._completeness.confirm() if agent is None else self._confirm_agent(agent)
        counts = dict.fromkeys(Tier, 0)
        for tier, count in self._connections.read(read):
            counts[Tier(tier)] += count
        return counts

    def _in_all_tails(self, connection: sqlite3.Connection) -> int:
        """Return the number of rows that are in no index."""
        if not self._has_tails:
            return 0
        (count,) = connection.execute(f"SELECT COUNT(*) FROM {ALL_TAILS} WHERE agents.tail = 1").fetchone()
        return int(count)

    def evicted(self, agent: str | None = None) -> int:
        def read(connection: sqlite3.Connection) -> int:
            if agent is None:
                found = connection.execute("SELECT TOTAL(forgotten) FROM agents")
            else:
                # An agent whose last memory was evicted has no name any more.
                names = (agent, self._agent_numbers.pseudonym(connection, agent))
                found = connection.execute(
                    "SELECT TOTAL(forgotten) FROM agents WHERE name IN (?, ?)", names
                )
            return int(found.fetchone()[0])

        return self._connections.read(read)

    def bytes_on_disk(self) -> int:
        if self._path is None:
            (pages,), (size,) = map(self._connections.fetch_one, ("PRAGMA page_count", "PRAGMA page_size"))
            return int(pages * size)
        files = (Path(f"{self._path}{suffix}") for suffix in ("", "-wal", "-shm", "-pulse"))
        return sum(os.path.getsize(file) for file in files if file.exists())

    def state(self, agent: str) -> AgentState:
        agent_no = self._agent_numbers.get(agent) or self._agent_no(agent)
        found = self._connections.fetch_one(self._state_of, (agent_no,))
        return AgentState(*found) if found else _UNKNOWN_AGENT

    def catch_up(
        self, agent: str, after_seq: int, after_change: int
    ) -> tuple[AgentState, list[Change] | None, IndexColumns]:
        def read(connection: sqlite3.Connection) -> tuple[AgentState, list[Change] | None, IndexColumns]:
            agent_no = self._agent_numbers.look_up(connection, agent)
            state = self._state(connection, agent_no)
            if agent_no is None:
                return state, [], to_index_columns([])
            changes: list[Change] | None = []
            if state.last_change != after_change:
                changes = self._changes(connection, agent_no, after_change, state.last_change)
            columns = self._new_columns(connection, agent, agent_no, after_seq)
            if after_seq == 0:
                self._completeness.compare(connection, agent_no, columns.seq)
            elif changes is not None:
                self._completeness.compare_new(
                    connection, agent_no, after_seq, state.last_seq, columns.seq, changes
                )
            if len(columns.seq):
                state = AgentState(max(state.last_seq, int(columns.seq[-1])), state.last_change)
            return state, changes, columns

        if after_seq == 0:
            self._confirm_agent(agent)
        else:  # no index of the file is read, so comparing two of them would say nothing
            self._completeness.confirm_agents_or_all()
        return self._connections.read(read)

    @staticmethod
    def _changes(
        connection: sqlite3.Connection, agent_no: int, after_change: int, last_change: int
    ) -> list[Change] | None:
        """Return the changes up to `last_change`, None if one of them is damaged or no longer there."""
        changes = [
            to_change(agent_no, *values)
            for values in connection.execute(
                "SELECT number, kind, tier, seqs FROM changes WHERE agent = ? AND number > ?"
                " ORDER BY number",
                (agent_no, after_change),
            )
        ]
        intact = [change for change in changes if change is not None]
        complete = [change.number for change in intact] == list(range(after_change + 1, last_change + 1))
        return intact if complete else None

    def _new_columns(
        self, connection: sqlite3.Connection, agent: str, agent_no: int, after_seq: int
    ) -> IndexColumns:
        ranges = [bound for tier in Tier for bound in key_range(agent_no, tier, after_seq, SEQ_MASK)]
        rows = connection.execute(self._new_rows, (*ranges, _MAX_WITH_FEATURES + 1)).fetchall()
        if len(rows) <= _MAX_WITH_FEATURES:
            return self._with_features(agent, rows)
        return to_index_columns(fetch_slices(connection.execute(_NEW_COLUMNS, ranges)))

    def columns_of(self, agent: str, seqs: Sequence[int]) -> IndexColumns:
        return self._with_features(agent, self._by_seq(agent, seqs, self._feature_columns))

    def _with_features(self, agent: str, rows: list[tuple[Any, ...]]) -> IndexColumns:
        self._check(agent, rows)
        return to_index_columns([[row[:4] for row in rows]] if rows else [], rows)

    def _check(self, agent: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Raise StoreCorrupt if values of FEATURE_COLUMNS do not match their checksum."""
        for row in rows:
            if not is_intact(row, self._may_lack):
                found = self._connections.fetch("SELECT id FROM memories WHERE key = ?", row[:1])
                raise damaged(agent, found[0][0] if found else "?")

    def features(self, agent: str, first_seq: int, last_seq: int) -> Iterator[list[Features]]:
        def read(connection: sqlite3.Connection) -> Iterator[list[Features]]:
            agent_no = self._agent_numbers.look_up(connection, agent)
            if agent_no is None:
                return
            for tier in Tier:
                for rows in fetch_slices(
                    connection.execute(
                        f"SELECT {self._feature_columns} FROM memories WHERE key > ? AND key <= ?",
                        key_range(agent_no, tier, max(first_seq, 1) - 1, last_seq),
                    )
                ):
                    self._check(agent, rows)
                    yield [(row[0] & SEQ_MASK, *row[4:9]) for row in rows]

        return self._connections.iterate(read)

    def coded_vectors(self, agent: str, last_seq: int) -> Iterator[list[CodedVector]]:
        # Without the other columns and their checksum this takes half the time of `features`.
        def read(connection: sqlite3.Connection) -> Iterator[list[CodedVector]]:
            agent_no = self._agent_numbers.look_up(connection, agent)
            if agent_no is None:
                return
            for tier in Tier:
                yield from fetch_slices(
                    connection.execute(_CODED_VECTORS, key_range(agent_no, tier, 0, last_seq))
                )

        return self._connections.iterate(read)

    def stored_before(self, tier: Tier, timestamp: float, limit: int) -> dict[str, list[int]]:
        statement = (
            f"SELECT * FROM (SELECT name, key & {SEQ_MASK}, stored_at"
            " FROM memories INDEXED BY by_age JOIN agents ON no = agent"
            f" WHERE tier = {int(tier)} AND tier < 2 AND {self._is_indexed} AND stored_at < ?"
            " ORDER BY stored_at LIMIT ?)"
        )
        values = [timestamp, limit]
        if tier is Tier.STM and self._has_tails:
            statement += (
                f" UNION ALL SELECT name, key & {SEQ_MASK}, stored_at FROM {ALL_TAILS}"
                " WHERE agents.tail = 1 AND stored_at < ? ORDER BY 3 LIMIT ?"
            )
            values += [timestamp, limit]
        due: dict[str, list[int]] = {}
        for agent, seq, _ in self._connections.fetch(statement, values):
            due.setdefault(agent, []).append(seq)
        return due

    def importance_inputs(self, agent: str, tier: Tier) -> list[tuple[int, float, float, int]]:
        agent_no = self._agent_numbers.get(agent) or self._agent_no(agent)
        if agent_no is None:
            return []
        values = (agent_no, *key_range(agent_no, tier, 0, SEQ_MASK))

        def read(connection: sqlite3.Connection) -> list[tuple[int, float, float, int]]:
            cursor = connection.execute(
                f"SELECT key & {SEQ_MASK}, importance, created_at, COALESCE("
                f"(SELECT uses FROM uses WHERE uses.agent = ? AND seq = key & {SEQ_MASK}), 0)"
                " FROM memories WHERE key > ? AND key <= ? ORDER BY key",
                values,
            )
            found: list[tuple[int, float, float, int]] = []
            while part := cursor.fetchmany(_ROWS_BETWEEN_YIELDS):
                found += part
                yield_gil()
            return found

        return self._connections.read(read)

    def codecs(self) -> list[StoredCodec]:
        found = self._connections.fetch(f"SELECT {self._codec_columns} FROM codecs WHERE number > 15")
        codecs = []
        for number, purpose, data, *rest in found:
            digest, trained_on, deleted, writable = rest or (codec_digest(purpose, data), 0, 0, 1)
            if purpose != RETIRED:
                is_damaged = digest != codec_digest(purpose, data)
                codecs.append(
                    StoredCodec(number, purpose, data, trained_on, deleted, is_damaged, bool(writable))
                )
        return codecs

    def stored_total(self) -> int:
        def read(connection: sqlite3.Connection) -> int:
            (total,) = connection.execute("SELECT TOTAL(last_seq) FROM agents").fetchone()
            return int(total) + self._in_all_tails(connection)

        return self._connections.read(read)

    def unsettled(self) -> list[tuple[str, int, int]]:
        return self._connections.fetch(
            "SELECT name, unsettled, last_seq FROM agents WHERE unsettled > 0 AND typeof(name) = 'text'"
        )

    def seqs_after(self, agent: str, tier: Tier, after_seq: int, limit: int) -> list[int]:
        def read(connection: sqlite3.Connection) -> list[int]:
            agent_no = self._agent_numbers.look_up(connection, agent)
            if agent_no is None:
                return []
            found = connection.execute(
                f"SELECT key & {SEQ_MASK} FROM memories WHERE key > ? AND key <= ? ORDER BY key LIMIT ?",
                (*key_range(agent_no, tier, after_seq, SEQ_MASK), limit),
            )
            return [seq for (seq,) in found]

        return self._connections.read(read)

    def _state(self, connection: sqlite3.Connection, agent_no: int | None) -> AgentState:
        found = connection.execute(self._state_of, (agent_no,)).fetchone()
        return AgentState(*found) if found else _UNKNOWN_AGENT

    def _by_seq(
        self, agent: str, seqs: Sequence[int], columns: str, tiers: Sequence[int] | None = None
    ) -> list[tuple[Any, ...]]:
        """Return values of rows by seq: from the given tier of each, or from all tiers if none is given."""
        agent_no = self._agent_numbers.get(agent) or self._agent_no(agent)
        if agent_no is None:
            return []
        found: list[tuple[Any, ...]] = []
        if tiers is not None:
            keys = [key_of(agent_no, tier, seq) for seq, tier in zip(seqs, tiers, strict=True)]
            for part in in_parts(keys):
                found += self._connections.fetch(_by_key(columns, len(part)), part)
            return found
        # One statement searches all three tiers: a move between two statements could hide a row.
        for part in in_parts(seqs, VARIABLES // 3):
            keys = [key_of(agent_no, tier, seq) for tier in _TIER_NUMBERS for seq in part]
            found += self._connections.fetch(_by_key(columns, len(keys)), keys)
        return found


def _raise(problem: StoreCorrupt) -> None:
    raise problem


@lru_cache(maxsize=256)
def _by_key(columns: str, count: int) -> str:
    return f"SELECT {columns} FROM memories WHERE key IN ({placeholders(count)})"
