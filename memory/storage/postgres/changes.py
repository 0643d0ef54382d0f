"""Changes to existing rows: replaced, deleted, moved, evicted. Each is one transaction and one round trip.

The first statement of each transaction locks the agent's row. The next one runs after that lock was
given, so it sees everything that was committed before. A change is logged with the id of its operation:
after a lost connection, the repeated call finds out by it whether the first attempt was committed.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from memory.entry import Tier
from memory.storage._writer import LOG_LENGTH
from memory.storage.base import ChangeKind, Move, Row
from memory.storage.postgres.known_states import KnownStates
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.reader import STATE_COLUMNS, STATE_KINDS, key_of, state_of
from memory.storage.postgres.row_format import INSERTED_COLUMNS, INSERTED_KINDS, move_values, to_params
from memory.storage.postgres.wire import Statement, Wire, encode, rows_of
from memory.storage.postgres.writer import LOCK_AGENT, LOCK_CODECS, refuse_unusable, stored_codecs

_NO = "(SELECT no FROM @agents WHERE key = $1)"
# $1: key of the agent, $2: id of the operation. `total` has the number of rows (n) and their seqs.
_SAMPLES = (
    " forgotten AS (DELETE FROM @samples s USING touched t WHERE s.agent = t.agent AND s.seq = t.seq"
    " RETURNING s.codec),"
    " by_codec AS (SELECT codec, count(*) AS n FROM forgotten GROUP BY codec),"
    " counted AS (UPDATE @codecs c SET deleted = c.deleted + s.n FROM by_codec s WHERE c.number = s.codec),"
)
_LOGGED = (
    " logged AS (INSERT INTO @changes (agent, number, kind, tier, seqs, rows, operation)"
    " SELECT a.no, a.last_change, {kind}, {tier}, {seqs}, t.n, $2 FROM agent a, total t),"
    " trimmed AS (DELETE FROM @changes c USING agent a WHERE c.agent = a.no"
    f" AND c.number <= a.last_change - CASE WHEN a.is_empty THEN 1 ELSE {LOG_LENGTH} END)"
    f" SELECT t.n, {STATE_COLUMNS} FROM total t LEFT JOIN agent a ON true"
)
_RETURNING = (
    " RETURNING a.no, a.last_seq, a.last_change, a.version, a.tableoid, a.name IS NULL AS is_empty),"
)


def _removal(condition: str, types: str, *, kind: ChangeKind, evicted: int = 0) -> Statement:
    """Return a statement that deletes the rows of an agent for which a condition on $3 … holds."""
    seqs = "ARRAY[a.last_seq]" if kind is ChangeKind.CLEARED else "t.seqs"
    collected = "NULL" if kind is ChangeKind.CLEARED else "array_agg(seq ORDER BY seq)"
    return Statement(
        f"WITH touched AS (DELETE FROM @memories WHERE agent = {_NO}{condition}"
        " RETURNING agent, seq, tier),"
        " total AS (SELECT count(*) AS n, count(*) FILTER (WHERE tier = 0) AS stm,"
        " count(*) FILTER (WHERE tier = 1) AS im, count(*) FILTER (WHERE tier = 2) AS ltm,"
        f" {collected} AS seqs FROM touched),"
        # Locked in the order of `add_read_counts`, so that the two never wait for each other.
        " unused AS (DELETE FROM @uses u USING (SELECT r.agent, r.seq FROM @uses r JOIN touched t"
        " ON r.agent = t.agent AND r.seq = t.seq ORDER BY r.seq FOR UPDATE OF r) read"
        " WHERE u.agent = read.agent AND u.seq = read.seq),"
        f"{_SAMPLES}"
        " agent AS (UPDATE @agents a SET last_change = a.last_change + 1, version = a.version + 1,"
        " stm = a.stm - t.stm, im = a.im - t.im, ltm = a.ltm - t.ltm,"
        f" evicted = a.evicted + {evicted} * t.n,"
        " name = CASE WHEN a.stm + a.im + a.ltm = t.n THEN NULL ELSE a.name END"
        f" FROM total t WHERE a.key = $1 AND t.n > 0{_RETURNING}"
        f"{_LOGGED.format(kind=int(kind), tier='NULL', seqs=seqs)}",
        f"bb{types}",
    )


_DELETE = _removal(" AND id = ANY($3)", "T", kind=ChangeKind.DELETED)
_DELETE_AGENT = _removal("", "", kind=ChangeKind.CLEARED)
_EVICT = _removal(" AND seq = ANY($3) AND tier = $4", "Qh", kind=ChangeKind.DELETED, evicted=1)
_NOT_REPLACED = (
    " AND NOT EXISTS (SELECT 1 FROM @codecs c WHERE c.number = ANY({codecs}) AND NOT c.writable)"
    " AND (SELECT count(*) FROM @codecs c WHERE c.number = ANY({required})) = cardinality({required})"
)
_MOVE = Statement(
    "WITH touched AS (UPDATE @memories m SET tier = $4, body_codec = v.body_codec, body = v.body,"
    " vector_codec = v.vector_codec, vector = v.vector, fine = v.fine, terms = v.terms,"
    " terms_codec = v.terms_codec, body_sum = v.body_sum, features_sum = v.features_sum"
    " FROM unnest($6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16) AS v (seq, revision, body_codec, body,"
    " vector_codec, vector, fine, terms, terms_codec, body_sum, features_sum)"
    f" WHERE m.agent = {_NO} AND m.seq = v.seq AND m.revision = v.revision AND m.tier = $3"
    f"{_NOT_REPLACED.format(codecs='$5', required='$17')} RETURNING m.seq),"
    " total AS (SELECT count(*) AS n, array_agg(seq ORDER BY seq) AS seqs FROM touched),"
    " agent AS (UPDATE @agents a SET last_change = a.last_change + ($3 <> $4)::int,"
    " version = a.version + 1,"
    " stm = a.stm + t.n * (($4 = 0)::int - ($3 = 0)::int),"
    " im = a.im + t.n * (($4 = 1)::int - ($3 = 1)::int),"
    " ltm = a.ltm + t.n * (($4 = 2)::int - ($3 = 2)::int)"
    f" FROM total t WHERE a.key = $1 AND t.n > 0{_RETURNING}"
    + _LOGGED.format(kind=int(ChangeKind.MOVED), tier="$4", seqs="t.seqs").replace(
        "FROM agent a, total t)", "FROM agent a, total t WHERE $3 <> $4)"
    ),
    "bbhhIQIIBIBBBIIII",
)
_REPLACED_COLUMNS = INSERTED_COLUMNS.removeprefix("agent, seq, ").split(", ")
_REQUIRED = f"${8 + len(_REPLACED_COLUMNS)}"
_REPLACE = Statement(
    "WITH touched AS (UPDATE @memories SET "
    + ", ".join(f"{column} = ${number}" for number, column in enumerate(_REPLACED_COLUMNS, 8))
    + f" WHERE agent = {_NO} AND seq = $3 AND revision = $4 AND tier = $5"
    f"{_NOT_REPLACED.format(codecs='$6', required=_REQUIRED)} RETURNING agent, seq),"
    " total AS (SELECT count(*) AS n, array_agg(seq) AS seqs FROM touched),"
    f"{_SAMPLES}"
    " agent AS (UPDATE @agents a SET last_change = a.last_change + 1, version = a.version + 1,"
    " stm = a.stm + ($8 = 0)::int - ($5 = 0)::int, im = a.im + ($8 = 1)::int - ($5 = 1)::int,"
    " ltm = a.ltm + ($8 = 2)::int - ($5 = 2)::int,"
    " unsettled = CASE WHEN $7 THEN a.unsettled WHEN a.unsettled = 0 THEN $3"
    " ELSE least(a.unsettled, $3) END"
    f" FROM total t WHERE a.key = $1 AND t.n > 0{_RETURNING}"
    f"{_LOGGED.format(kind=int(ChangeKind.REPLACED), tier='NULL', seqs='t.seqs')}",
    f"bbqihI?{INSERTED_KINDS[2:]}I",
    takes_encoded=True,
)
_OPERATION = Statement(f"SELECT rows FROM @changes WHERE agent = {_NO} AND operation = $2", "bb")


class PostgresChanges:
    """`replace`, `delete`, `delete_agent`, `move` and `evict` of `MemoryStore`, which documents them."""

    def __init__(self, pool: Pool, states: KnownStates, known_codecs: set[int]) -> None:
        """`known_codecs`: numbers of codecs that this process has read or stored."""
        self._known_codecs = known_codecs
        self._pool = pool
        self._states = states
        self.changed_rows = 0
        """Rows that this process has changed or deleted since it last vacuumed. Threads may miscount it a
        little: it only decides when to vacuum."""

    def replace(self, old: Row, new: Row) -> bool:
        values = to_params(new)
        (values[_REPLACED_COLUMNS.index("revision")],) = encode("i", old.revision + 1)
        codecs = stored_codecs([new])
        place = encode("qihI?", old.seq, old.revision, int(old.tier), codecs, new.is_final)
        step = (_REPLACE, *place, *values, *encode("I", self._required(codecs)))
        return self._change(old.agent, step, codecs) > 0

    def delete(self, agent: str, ids: Sequence[str]) -> int:
        return self._change(agent, (_DELETE, list(dict.fromkeys(ids))))

    def delete_agent(self, agent: str) -> int:
        return self._change(agent, (_DELETE_AGENT,))

    def move(self, agent: str, moves: Sequence[Move], source: Tier, target: Tier) -> int:
        codecs = stored_codecs(moves)
        step = (_MOVE, int(source), int(target), codecs, *move_values(moves), self._required(codecs))
        return self._change(agent, step, codecs)

    def evict(self, agent: str, seqs: Sequence[int], tier: Tier) -> int:
        return self._change(agent, (_EVICT, seqs, int(tier)))

    def _required(self, codecs: Sequence[int]) -> list[int]:
        """Return those codecs that must be on the server, unless it went back in time."""
        return sorted(self._known_codecs.intersection(codecs))

    def _change(self, agent: str, step: tuple[Any, ...], codecs: Sequence[int] = ()) -> int:
        """Run one statement of this module, whose first two values are added; return the number of rows."""
        key, operation = key_of(agent), os.urandom(16)
        statement, *values = step
        steps: list[tuple[Any, ...]] = [(LOCK_CODECS, codecs)] if codecs else []
        steps += [(LOCK_AGENT, key), (statement, key, operation, *values)]

        def change(wire: Wire, again: bool) -> int:
            if again:
                done = self._done(wire, key, operation)
                if done is not None:
                    return done
            results = wire.pipeline(steps)
            ((count, *state),) = rows_of(results[-1], f"q{STATE_KINDS}")
            if count:
                self.changed_rows += count
                self._states.learn(agent, *state_of(state))
            elif codecs:
                refuse_unusable(rows_of(results[0], "i?"), self._required(codecs))
            return int(count)

        with self._states.changing(agent):
            return self._pool.write(change)

    @staticmethod
    def _done(wire: Wire, key: bytes, operation: bytes) -> int | None:
        """Return how many rows an earlier attempt has changed; None if it was not committed."""
        # The lock waits until the server has ended the earlier attempt, one way or the other.
        results = wire.pipeline([(LOCK_AGENT, key), (_OPERATION, key, operation)])
        found = rows_of(results[1], "q")
        return int(found[0][0]) if found else None
