"""All reads of the PostgreSQL store. A read is one round trip, except for a large agent's index."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

from psycopg.pq.abc import PGresult

from memory.entry import ALL_TIERS, Tier
from memory.errors import StoreCorrupt
from memory.storage.base import (
    FIRST_STORED_CODEC,
    AgentState,
    Change,
    ChangeKind,
    CodedVector,
    Features,
    IndexColumns,
    RangeColumn,
    Record,
    Row,
    StoredCodec,
)
from memory.storage.postgres.known_states import KnownStates
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.row_format import (
    FEATURE_COLUMNS,
    RECORD,
    ROW_COLUMNS,
    ROW_KINDS,
    copied_columns,
    copied_features,
    no_columns,
    to_record,
    to_records,
    to_row,
)
from memory.storage.postgres.wire import Statement, Wire, escape_text, rows_of
from memory.storage.schema import codec_digest

_UNKNOWN_AGENT = AgentState(0, 0)
_NO = "(SELECT no FROM @agents WHERE key = $1)"
_STARTED, _TABLE = "pg_postmaster_start_time()", "hashtextextended(pg_relation_filepath(a.tableoid), 0)"
EPOCH = f"{_STARTED}, {_TABLE}"
"""Two values that `epoch_of` makes one number of; `a` is the table of agents. The start time differs after
a restart, a failover or a restored backup, when the server may have gone back in time. The path of the
table's file has the number of the database and the number of the file. So it differs in a copy of the
database, in restored tables and after a TRUNCATE. After a VACUUM FULL it differs too, without need: every
process then reads its indexes again."""
STATE_COLUMNS = f"last_seq, last_change, version, {EPOCH}"
STATE_KINDS = "qqqqq"
_STATE_VALUE = (
    "int8send(last_seq) || int8send(last_change) || int8send(version)"
    f" || timestamptz_send({_STARTED}) || int8send({_TABLE})"
)
"""STATE_COLUMNS as one value: to take five values from the driver takes longer."""
_state_value = struct.Struct(">qqqqq").unpack

GET_ONE = Statement(
    f"SELECT {RECORD} FROM @memories WHERE agent = {_NO} AND id = $2", "bt", takes_encoded=True
)
"""The agent's number is looked up in the same statement: after a restore it can be another agent's."""
_GET = Statement(f"SELECT {RECORD} FROM @memories WHERE agent = {_NO} AND id = ANY($2)", "bT")
_BY_SEQ = Statement(f"SELECT {RECORD} FROM @memories WHERE agent = {_NO} AND seq = ANY($2)", "bQ")
_ROWS = Statement(f"SELECT {ROW_COLUMNS} FROM @memories WHERE agent = {_NO} AND seq = ANY($2)", "bQ")
_STATE = Statement(f"SELECT {_STATE_VALUE} FROM @agents a WHERE key = $1", "b")
_CHANGES = Statement(
    f"SELECT {STATE_COLUMNS}, c.number, c.kind, c.tier, c.seqs"
    " FROM @agents a LEFT JOIN @changes c ON c.agent = a.no AND c.number > $2"
    " WHERE a.key = $1 ORDER BY c.number",
    "bq",
)
_AGENTS = Statement("SELECT name FROM @agents WHERE name IS NOT NULL ORDER BY no")
_COUNTS = Statement("SELECT stm, im, ltm FROM @agents WHERE key = $1", "b")
_ALL_COUNTS = Statement(
    "SELECT coalesce(sum(stm), 0)::bigint, coalesce(sum(im), 0)::bigint, coalesce(sum(ltm), 0)::bigint"
    " FROM @agents"
)
_EVICTED = Statement("SELECT evicted FROM @agents WHERE key = $1", "b")
_ALL_EVICTED = Statement("SELECT coalesce(sum(evicted), 0)::bigint FROM @agents")
_STORED_TOTAL = Statement("SELECT coalesce(sum(last_seq), 0)::bigint FROM @agents")
_SIZE = Statement(
    "SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint FROM pg_class"
    " WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'",
    "t",
)
_IMPORTANCE = Statement(
    "SELECT m.seq, m.importance, m.created_at, coalesce(u.uses, 0) FROM @memories m"
    " LEFT JOIN @uses u ON u.agent = m.agent AND u.seq = m.seq"
    f" WHERE m.agent = {_NO} AND m.tier = $2 ORDER BY m.seq",
    "bh",
)
_CODECS = Statement("SELECT number, purpose, data, digest, trained_on, deleted, writable FROM @codecs")
_UNSETTLED = Statement(
    "SELECT name, CASE WHEN settled_codec < newest THEN 1 ELSE unsettled END, last_seq FROM @agents,"
    " (SELECT coalesce(max(number), 0) AS newest FROM @codecs) c"
    " WHERE name IS NOT NULL AND (unsettled > 0 OR settled_codec < newest) ORDER BY no"
)
_SEQS_AFTER = Statement(
    f"SELECT seq FROM @memories WHERE agent = {_NO} AND tier = $2 AND seq > $3 ORDER BY seq LIMIT $4",
    "bhqq",
)
_NAMES = Statement("SELECT no, name FROM @agents WHERE name IS NOT NULL ORDER BY no")
_NAME = Statement("SELECT no, name FROM @agents WHERE key = $1 AND name IS NOT NULL", "b")

RETIRED = "retired"
"""The purpose of a codec that no row uses any more. Its number is never used again."""
_MAX_WITH_FEATURES = 1 << 16
"""The most new rows that `catch_up` reads with their features. For more rows, it reads only the columns."""
_AT_ONCE = 8192
"""Rows that `features` reads at a time."""
_CURSOR_ROWS = 500


@lru_cache(maxsize=65_536)
def key_of(agent: str) -> bytes:
    """Return the key of an agent: a hash of its name, which stays when the name is removed."""
    return blake2b(agent.encode(), digest_size=16, person=b"agentmemory").digest()


def state_of(values: Sequence[Any]) -> tuple[AgentState, int]:
    """Return the state and the version for values of STATE_COLUMNS."""
    last_seq, last_change, version, started_at, table = values
    return AgentState(last_seq, last_change, epoch_of(started_at, table)), version


def epoch_of(started_at: int, table: int) -> int:
    """Return the epoch for the values of EPOCH."""
    return started_at ^ table


class PostgresReader:
    """The reading methods of `MemoryStore`, which documents them."""

    def __init__(self, pool: Pool, states: KnownStates, schema: str) -> None:
        self._pool = pool
        self._states = states
        self._schema = schema
        self.known_codecs: set[int] = set()
        """Codecs of the server that this process may use. If one is gone, the server went back in time."""

    def _fetch(self, statement: Statement, kinds: str, *values: Any) -> list[tuple[Any, ...]]:
        return rows_of(self._pool.fetch(statement, *values), kinds)

    def _copy(self, query: str) -> list[bytes]:
        return self._pool.read(lambda wire: wire.copy_out(query))

    def get_one(self, agent: str, id: str) -> Record | None:
        found = self._pool.fetch(GET_ONE, key_of(agent), escape_text(id).encode())
        return to_record(agent, found.get_value(0, 0)) if found.ntuples else None

    def get(self, agent: str, ids: Sequence[str]) -> list[Record]:
        return to_records(agent, self._pool.fetch(_GET, key_of(agent), ids))

    def get_by_seq(
        self, agent: str, seqs: Sequence[int], tiers: Sequence[int] | None = None
    ) -> list[Record]:
        return to_records(agent, self._pool.fetch(_BY_SEQ, key_of(agent), seqs))

    def rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        return [to_row(agent, values) for values in self._fetch(_ROWS, ROW_KINDS, key_of(agent), seqs)]

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
        statement = _range(column, low is not None, high is not None, tiers, newest_first)
        if column == "step":
            low = None if low is None else _whole(low, math.ceil)
            high = None if high is None else _whole(high, math.floor)
        bounds = [bound for bound in (low, high) if bound is not None]
        return to_records(agent, self._pool.fetch(statement, key_of(agent), limit, *bounds))

    def all_rows(
        self, agent: str | None = None, on_damage: Callable[[StoreCorrupt], None] | None = None
    ) -> Iterator[Row]:
        # One transaction with one snapshot, so that rows that move or are replaced meanwhile are read once.
        with self._pool.hold("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY") as wire:
            found = wire.run(_NAMES) if agent is None else wire.run(_NAME, key_of(agent))
            for agent_no, name in rows_of(found, "it"):
                wire.command(
                    f"DECLARE all_rows CURSOR FOR SELECT {ROW_COLUMNS} FROM @memories"
                    f" WHERE agent = {agent_no} ORDER BY seq"
                )
                while part := rows_of(wire.run(_FETCH), ROW_KINDS):
                    for values in part:
                        try:
                            row = to_row(name, values)
                        except StoreCorrupt as problem:
                            if on_damage is None:
                                raise
                            on_damage(problem)
                        else:
                            yield row
                wire.command("CLOSE all_rows")
            wire.command("COMMIT")

    def agents(self) -> list[str]:
        return [name for (name,) in self._fetch(_AGENTS, "t")]

    def counts(self, agent: str | None = None, tiers: Collection[Tier] = ()) -> dict[Tier, int]:
        if agent is None:
            found = self._fetch(_ALL_COUNTS, "qqq")
        else:
            found = self._fetch(_COUNTS, "qqq", key_of(agent)) or [(0, 0, 0)]
        return dict(zip(Tier, found[0], strict=True))

    def evicted(self, agent: str | None = None) -> int:
        if agent is None:
            found = self._fetch(_ALL_EVICTED, "q")
        else:
            found = self._fetch(_EVICTED, "q", key_of(agent)) or [(0,)]
        return int(found[0][0])

    def bytes_on_disk(self) -> int:
        return int(self._fetch(_SIZE, "q", self._schema)[0][0])

    def state(self, agent: str) -> AgentState:
        fresh = self._states.fresh_state(agent)
        if fresh is not None:
            return fresh
        return self._state_in(agent, self._pool.fetch(_STATE, key_of(agent)))

    def ask_state(self, agent: str) -> Callable[[], AgentState]:
        asked = self._pool.ask(_STATE, key_of(agent))
        return lambda: self._state_in(agent, asked.result())

    def _state_in(self, agent: str, found: PGresult) -> AgentState:
        if not found.ntuples:
            return self._learnt(agent, ())
        value = found.get_value(0, 0)
        assert value is not None
        # What `_learnt` does, written out: every search and every cached read does this.
        last_seq, last_change, version, started_at, table = _state_value(value)
        state = AgentState(last_seq, last_change, started_at ^ table)
        self._states.learn(agent, state, version)
        return state

    def _learnt(self, agent: str, found: Sequence[Sequence[Any]]) -> AgentState:
        state, version = state_of(found[0][:5]) if found else (_UNKNOWN_AGENT, 0)
        self._states.learn(agent, state, version)
        return state

    def catch_up(
        self, agent: str, after_seq: int, after_change: int
    ) -> tuple[AgentState, list[Change] | None, IndexColumns]:
        def read(wire: Wire) -> tuple[AgentState, list[Change] | None, IndexColumns]:
            found = rows_of(wire.run(_CHANGES, key_of(agent), after_change), f"{STATE_KINDS}qhhQ")
            state = self._learnt(agent, found)
            if not found:
                return state, [], no_columns()
            changes: list[Change] | None = [
                _change(values[5:]) for values in found if values[5] is not None
            ]
            if state.last_change != after_change + len(changes or ()):
                changes = None  # the log no longer reaches back that far
            columns = self._new_columns(wire, agent, after_seq, state.last_seq)
            if len(columns.seq):
                last_seq = max(state.last_seq, int(columns.seq[-1]))
                state = AgentState(last_seq, state.last_change, state.epoch)
            return state, changes, columns

        return self._pool.read(read)

    @staticmethod
    def _new_columns(wire: Wire, agent: str, after_seq: int, last_seq: int) -> IndexColumns:
        """Return the rows after `after_seq`. The statement runs after the one that read the changes."""
        if last_seq <= after_seq:
            # Rows that were stored since the state was read are for the next time.
            return no_columns()
        many = last_seq - after_seq > _MAX_WITH_FEATURES
        columns = (
            FEATURE_COLUMNS
            if not many
            else FEATURE_COLUMNS.replace("vector, terms, fine", "''::bytea, ''::bytea, NULL::bytea")
        )
        found = wire.copy_out(
            f"SELECT {columns} FROM @memories WHERE agent = {agent_number_sql(agent)}"
            f" AND seq > {after_seq:d}"
        )
        return copied_columns(agent, found, with_features=not many)

    def columns_of(self, agent: str, seqs: Sequence[int]) -> IndexColumns:
        wanted = ", ".join(f"{seq:d}" for seq in seqs)
        if not wanted:
            return no_columns()
        query = (
            f"SELECT {FEATURE_COLUMNS} FROM @memories WHERE agent = {agent_number_sql(agent)}"
            f" AND seq IN ({wanted})"
        )
        return copied_columns(agent, self._copy(query))

    def features(self, agent: str, first_seq: int, last_seq: int) -> Iterator[list[Features]]:
        after = first_seq - 1
        while True:
            query = (
                f"SELECT {FEATURE_COLUMNS} FROM @memories WHERE agent = {agent_number_sql(agent)}"
                f" AND seq > {after:d} AND seq <= {last_seq:d} ORDER BY seq LIMIT {_AT_ONCE}"
            )
            part = copied_features(agent, self._copy(query))
            if part:
                yield part
            if len(part) < _AT_ONCE:
                return
            after = part[-1][0]

    def coded_vectors(self, agent: str, last_seq: int) -> Iterator[list[CodedVector]]:
        # Saved indexes on a server hold their vectors: a second query costs more than a longer index.
        for rows in self.features(agent, 1, last_seq):
            yield [row[:4] for row in rows if row[1] >= FIRST_STORED_CODEC]

    def stored_before(self, tier: Tier, timestamp: float, limit: int) -> dict[str, list[int]]:
        found = self._fetch(_stored_before(int(tier)), "tq", timestamp, limit)
        due: dict[str, list[int]] = {}
        for agent, seq in found:
            due.setdefault(agent, []).append(seq)
        return due

    def importance_inputs(self, agent: str, tier: Tier) -> list[tuple[int, float, float, int]]:
        return self._fetch(_IMPORTANCE, "qddq", key_of(agent), int(tier))

    def codecs(self) -> list[StoredCodec]:
        codecs = []
        self.known_codecs.clear()
        for number, purpose, data, digest, trained_on, deleted, writable in self._fetch(_CODECS, "itbbqq?"):
            if purpose != RETIRED:
                self.known_codecs.add(number)
                is_damaged = digest != codec_digest(purpose, data)
                codecs.append(StoredCodec(number, purpose, data, trained_on, deleted, is_damaged, writable))
        return sorted(codecs, key=lambda codec: codec.number)

    def stored_total(self) -> int:
        return int(self._fetch(_STORED_TOTAL, "q")[0][0])

    def unsettled(self) -> list[tuple[str, int, int]]:
        return self._fetch(_UNSETTLED, "tqq")

    def seqs_after(self, agent: str, tier: Tier, after_seq: int, limit: int) -> list[int]:
        found = self._fetch(_SEQS_AFTER, "q", key_of(agent), int(tier), after_seq, limit)
        return [seq for (seq,) in found]


_FETCH = Statement(f"FETCH {_CURSOR_ROWS} FROM all_rows")


def agent_number_sql(agent: str) -> str:
    """Return an expression for the agent's number. COPY takes no parameters."""
    return f"(SELECT no FROM @agents WHERE key = '\\x{key_of(agent).hex()}'::bytea)"


def _change(values: Sequence[Any]) -> Change:
    number, kind, tier, seqs = values
    return Change(
        number=number,
        kind=ChangeKind(kind),
        tier=None if tier is None else Tier(tier),
        seqs=seqs,
    )


def _whole(bound: float, rounded: Callable[[float], int]) -> int:
    """Return a bound as a whole number of 64 bits."""
    largest = 2**63 - 1
    return int(max(min(bound, largest), -largest) if abs(bound) > largest else rounded(bound))


@lru_cache(maxsize=256)
def _range(
    column: RangeColumn, has_low: bool, has_high: bool, tiers: frozenset[Tier], newest_first: bool
) -> Statement:
    conditions = [f"agent = {_NO}"]
    if column == "step":
        conditions.append("step IS NOT NULL")
    number = 2
    for sign, is_given in ((">=", has_low), ("<=", has_high)):
        if is_given:
            number += 1
            conditions.append(f"{column} {sign} ${number}")
    if tiers != ALL_TIERS:
        conditions.append(f"tier = ANY('{{{', '.join(str(int(tier)) for tier in sorted(tiers))}}}')")
    direction = "DESC" if newest_first else "ASC"
    return Statement(
        f"SELECT {RECORD} FROM @memories WHERE {' AND '.join(conditions)}"
        f" ORDER BY {column} {direction}, seq {direction} LIMIT $2",
        "bq" + ("q" if column == "step" else "d") * (number - 2),
    )


@lru_cache(maxsize=3)
def _stored_before(tier: int) -> Statement:
    # The tier is part of the text, so that the server can use the index of the two upper tiers.
    return Statement(
        "SELECT a.name, m.seq FROM @memories m JOIN @agents a ON a.no = m.agent"
        f" WHERE m.tier = {tier} AND m.tier < 2 AND m.stored_at < $1 ORDER BY m.stored_at, m.agent, m.seq"
        " LIMIT $2",
        "dq",
    )
