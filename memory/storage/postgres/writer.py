"""Adding rows: one statement for one row, one COPY for many; and the writes that no reader waits for.

The row of an agent in the table of agents is its lock. A write updates that row first and holds it until
the commit, so seqs and changes get their numbers in the order of the commits: whoever reads `last_seq` can
read every row up to it.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from memory.entry import Tier
from memory.errors import CodecRetired, IdConflict
from memory.storage._recent_rows import RecentRows
from memory.storage.base import FIRST_STORED_CODEC, AgentState, Move, Row, Sample, StoredCodec
from memory.storage.postgres.known_states import KnownStates
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.reader import RETIRED, STATE_COLUMNS, STATE_KINDS, key_of, state_of
from memory.storage.postgres.row_format import INSERTED_COLUMNS, INSERTED_KINDS, to_copy, to_params
from memory.storage.postgres.schema import lock_number
from memory.storage.postgres.wire import (
    ConnectionLost,
    ServerError,
    Statement,
    Wire,
    changed_rows,
    in_parts,
    rows_of,
)
from memory.storage.schema import codec_digest

_LARGEST_GAP = 100_000
"""The numbers of codecs have random gaps. If a server went back in time and lost a codec, the next codec
gets another number, so that no process decodes rows with the lost one."""
_AGENTS_AT_ONCE = 500
_UNIQUE_VIOLATION = "23505"

_COLUMNS_OF_ONE = INSERTED_COLUMNS.removeprefix("agent, seq, ")
_PLACES_OF_ONE = ", ".join(f"${number}" for number in range(3, 3 + len(INSERTED_KINDS) - 2))
_ADD_ONE = Statement(
    "WITH a AS (UPDATE @agents SET last_seq = last_seq + 1,"
    " stm = stm + ($3 = 0)::int, im = im + ($3 = 1)::int, ltm = ltm + ($3 = 2)::int,"
    " unsettled = CASE WHEN $2 OR unsettled > 0 THEN unsettled ELSE last_seq + 1 END"
    " WHERE key = $1 AND name IS NOT NULL RETURNING no, last_seq)"
    f" INSERT INTO @memories (agent, seq, {_COLUMNS_OF_ONE})"
    f" SELECT a.no, a.last_seq, {_PLACES_OF_ONE} FROM a RETURNING seq",
    "b?" + INSERTED_KINDS[2:],
    takes_encoded=True,
)
BEGIN = Statement("BEGIN")
COMMIT = Statement("COMMIT")
LOCK_CODECS = Statement("SELECT number, writable FROM @codecs WHERE number = ANY($1) FOR KEY SHARE", "I")
"""Keeps `retire_codec` waiting until rows that refer to these codecs are committed."""
LOCK_AGENT = Statement("SELECT no FROM @agents WHERE key = $1 FOR UPDATE", "b")
_LOCK_AGENTS = Statement("SELECT no FROM @agents WHERE key = ANY($1) ORDER BY key FOR UPDATE", "B")
_RESERVE = Statement(
    "UPDATE @agents a SET name = $2, last_seq = last_seq + $3, stm = stm + $4, im = im + $5,"
    " ltm = ltm + $6, unsettled = CASE WHEN $7 = 0 OR unsettled > 0 THEN unsettled ELSE last_seq + $7 END"
    f" WHERE key = $1 RETURNING no, {STATE_COLUMNS}",
    "btqqqqq",
)
_NEW_AGENT = Statement(
    "INSERT INTO @agents AS a (key, name, last_seq, stm, im, ltm, unsettled, settled_codec)"
    " VALUES ($1, $2, $3, $4, $5, $6, $7, coalesce((SELECT max(number) FROM @codecs), 0))"
    " ON CONFLICT (key) DO UPDATE SET name = excluded.name, last_seq = a.last_seq + excluded.last_seq,"
    " stm = a.stm + excluded.stm, im = a.im + excluded.im, ltm = a.ltm + excluded.ltm,"
    " unsettled = CASE WHEN excluded.unsettled = 0 OR a.unsettled > 0 THEN a.unsettled"
    f" ELSE a.last_seq + excluded.unsettled END RETURNING no, {STATE_COLUMNS}",
    "btqqqqq",
)
_EXISTING = Statement(
    "SELECT a.key, m.id, m.digest, m.seq, m.stored_at FROM unnest($1, $2) AS wanted (key, id)"
    " JOIN @agents a ON a.key = wanted.key JOIN @memories m ON m.agent = a.no AND m.id = wanted.id",
    "BT",
)
_COPY = f"COPY @memories ({INSERTED_COLUMNS}) FROM STDIN (FORMAT binary)"
_ADD_COUNTS = Statement(
    "INSERT INTO @uses AS u (agent, seq, uses) SELECT m.agent, m.seq, read.times"
    " FROM unnest($2, $3) AS read (seq, times) JOIN @memories m ON m.seq = read.seq"
    " WHERE m.agent = (SELECT no FROM @agents WHERE key = $1) ORDER BY m.seq"
    " ON CONFLICT (agent, seq) DO UPDATE SET uses = u.uses + excluded.uses",
    "bQQ",
)
_LOCK = Statement("SELECT pg_advisory_xact_lock($1)", "q")
_CODEC_OF = Statement(
    "SELECT number, purpose, data, trained_on, deleted FROM @codecs WHERE purpose = $1", "t"
)
_NEWEST_CODEC = Statement("SELECT coalesce(max(number), 15) FROM @codecs")
_ADD_CODEC = Statement(
    "INSERT INTO @codecs (number, purpose, digest, trained_on, deleted, writable, data)"
    " VALUES ($1, $2, $3, $4, $5, true, $6)",
    "itbqqb",
)
_ADD_SAMPLES = Statement(
    "INSERT INTO @samples (agent, seq, codec) SELECT a.no, m.seq, $3 FROM unnest($1, $2) AS s (key, seq)"
    " JOIN @agents a ON a.key = s.key JOIN @memories m ON m.agent = a.no AND m.seq = s.seq"
    " ON CONFLICT DO NOTHING",
    "BQi",
)
_REPLACE_CODECS = Statement("UPDATE @codecs SET writable = false WHERE number = ANY($1)", "I")
_SETTLE = Statement(
    "UPDATE @agents SET unsettled = CASE WHEN last_seq > $2 THEN $2 + 1 ELSE 0 END,"
    " settled_codec = greatest(settled_codec, $3)"
    " WHERE key = $1 AND NOT EXISTS (SELECT 1 FROM @codecs WHERE number > greatest($3, 15))",
    "bqi",
)
_AGENT_EXISTS = Statement("SELECT no FROM @agents WHERE key = $1", "b")
_LOCK_CODEC = Statement("SELECT number FROM @codecs WHERE number = $1 FOR UPDATE", "i")
_CODEC_IN_USE = Statement(
    "SELECT agent FROM @memories WHERE $1 IN (body_codec, terms_codec, vector_codec) LIMIT 1", "i"
)
_RETIRE = Statement(
    "UPDATE @codecs SET purpose = $2, digest = '', trained_on = 0, data = '', writable = false"
    " WHERE number = $1",
    "it",
)
_FORGET_SAMPLES = Statement("DELETE FROM @samples WHERE codec = $1", "i")
_SETTING = Statement("SELECT value FROM @settings WHERE name = $1", "t")
_ADD_SETTING = Statement(
    "INSERT INTO @settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING", "tt"
)


class PostgresWriter:
    """`add` and the writes for maintenance of `MemoryStore`, which documents them."""

    def __init__(self, pool: Pool, states: KnownStates, schema: str, known_codecs: set[int]) -> None:
        """`known_codecs`: numbers of codecs that this process has read or stored."""
        self._pool = pool
        self._states = states
        self._known_codecs = known_codecs
        self._codec_lock = lock_number(schema, "codecs")
        self.recent = OwnRows(states)

    # -- adding -------------------------------------------------------------------------------

    def add(self, rows: Sequence[Row]) -> list[int | None]:
        if not rows:
            return []
        may_be_stored = False
        epochs = self._states.epochs
        if len(rows) == 1 and not stored_codecs(rows):
            seq, may_be_stored = self._add_one(rows[0], epochs)
            if seq is not None:
                return [seq]
        seqs = self._pool.write(lambda wire, again: self._add(wire, rows, again or may_be_stored))
        for agent in {row.agent for row in rows}:
            self._states.spoil(agent)
            new = [
                (row, seq)
                for row, seq in zip(rows, seqs, strict=True)
                if row.agent == agent and seq is not None
            ]
            self.recent.add(agent, [row for row, _ in new], [seq for _, seq in new], epochs)
        return seqs

    def _add_one(self, row: Row, epochs: int) -> tuple[int | None, bool]:
        """Add one row in one round trip. Return its seq, or None if its agent is new or its id exists.

        Also returns whether an attempt was interrupted, which may have stored the row."""
        values = key_of(row.agent), b"\x01" if row.is_final else b"\x00", *to_params(row)

        def insert(wire: Wire, again: bool) -> tuple[int | None, bool]:
            if again:
                return None, True  # `_add` finds out whether the first attempt was committed
            try:
                found = rows_of(wire.run(_ADD_ONE, *values), "q")
            except ServerError as problem:
                if problem.sqlstate == _UNIQUE_VIOLATION:
                    return None, False
                raise
            return (int(found[0][0]) if found else None), False

        seq, may_be_stored = self._pool.write(insert)
        if seq is not None:
            self._states.spoil(row.agent)
            self.recent.add(row.agent, (row,), (seq,), epochs)
        return seq, may_be_stored

    def _add(self, wire: Wire, rows: Sequence[Row], again: bool) -> list[int | None]:
        """Add rows in one transaction. At first all ids are expected to be new."""
        check = again or len({(row.agent, row.id) for row in rows}) < len(rows)
        while True:
            try:
                return self._add_once(wire, rows, check=check, again=again)
            except ServerError as problem:
                wire.command("ROLLBACK")
                if problem.sqlstate != _UNIQUE_VIOLATION:
                    raise
                check = True
            except ConnectionLost:
                raise
            except BaseException:
                wire.become_idle()
                raise

    def _add_once(self, wire: Wire, rows: Sequence[Row], *, check: bool, again: bool) -> list[int | None]:
        keys = sorted({key_of(row.agent) for row in rows})
        wire.command("BEGIN")
        codecs = stored_codecs(rows)
        if codecs:
            found = rows_of(wire.run(LOCK_CODECS, codecs), "i?")
            refuse_unusable(found, self._known_codecs.intersection(codecs))
        known: list[int | None] = [None] * len(rows)
        is_new = [True] * len(rows)
        if check:
            wire.run(_LOCK_AGENTS, keys)
            is_new, known = _compare(wire, rows, again=again)
        new = [row for row, fresh in zip(rows, is_new, strict=True) if fresh]
        agents = _reserve(wire, new)
        next_seqs = {agent: first for agent, (_, first, _) in agents.items()}
        given = []
        for row in new:
            seq = next_seqs[row.agent]
            next_seqs[row.agent] = seq + 1
            given.append(seq)
        if new:
            places = zip(new, given, strict=True)
            wire.copy_in(_COPY, (to_copy(row, agents[row.agent][0], seq) for row, seq in places))
        wire.command("COMMIT")
        # Otherwise the next read would learn an agent's first counters, and drop what was cached before.
        for agent, (_, _, state) in agents.items():
            self._states.learn(agent, *state)
        remaining = iter(given)
        return [next(remaining) if fresh else seq for fresh, seq in zip(is_new, known, strict=True)]

    def refuse_conflicts(self, rows: Sequence[Row]) -> None:
        self._pool.read(lambda wire: _compare(wire, rows, again=False))

    # -- for maintenance ----------------------------------------------------------------------

    def add_read_counts(self, read_counts: dict[str, dict[int, int]]) -> None:
        # Every process locks the rows in the same order. Otherwise two that add counts of the same agents
        # wait for each other until the server notices the deadlock, after a second by default.
        in_order = sorted(
            (key_of(agent), list(counts), list(counts.values())) for agent, counts in read_counts.items()
        )

        def add(wire: Wire, again: bool) -> None:
            # A lost answer may mean that the counts were added. Counts only adjust the importance, so to
            # lose some is better than to count them twice.
            if not again:
                for part in in_parts(in_order, _AGENTS_AT_ONCE):
                    wire.pipeline([(_ADD_COUNTS, *values) for values in part])

        if read_counts:
            self._pool.write(add)

    def save_codec(
        self,
        purpose: str,
        data: bytes,
        *,
        trained_on: int = 0,
        samples: Sequence[Sample] = (),
        replaces: Sequence[int] = (),
    ) -> StoredCodec:
        def save(wire: Wire, again: bool) -> StoredCodec:
            wire.command("BEGIN")
            # Locked first, so that a deletion waits, and then counts the samples that are added here.
            keys = [key_of(agent) for agent, _ in samples]
            wire.run(_LOCK_AGENTS, sorted(set(keys)))
            wire.run(_LOCK, self._codec_lock)
            known = rows_of(wire.run(_CODEC_OF, purpose), "itbqq")
            if known:
                wire.command("ROLLBACK")
                return StoredCodec(*known[0])
            ((newest,),) = rows_of(wire.run(_NEWEST_CODEC), "i")
            number = newest + random.randint(1, _LARGEST_GAP)
            living = changed_rows(wire.run(_ADD_SAMPLES, keys, [seq for _, seq in samples], number))
            deleted = len(samples) - living
            digest = codec_digest(purpose, data)
            wire.run(_ADD_CODEC, number, purpose, digest, trained_on, deleted, data)
            wire.run(_REPLACE_CODECS, list(replaces))
            wire.command("COMMIT")
            self._known_codecs.add(number)
            return StoredCodec(number, purpose, data, trained_on, deleted)

        return self._pool.write(save)

    def settle(self, agent: str, last: int, newest_codec: int) -> bool:
        def record(wire: Wire, again: bool) -> bool:
            if changed_rows(wire.run(_SETTLE, key_of(agent), last, newest_codec)):
                return True
            return wire.run(_AGENT_EXISTS, key_of(agent)).ntuples == 0

        return self._pool.write(record)

    def retire_codec(self, number: int) -> None:
        def retire(wire: Wire, again: bool) -> None:
            wire.command("BEGIN")
            # Waits for rows that refer to this codec and are not committed yet.
            wire.run(_LOCK_CODEC, number)
            if wire.run(_CODEC_IN_USE, number).ntuples == 0:
                wire.run(_RETIRE, number, RETIRED)
                wire.run(_FORGET_SAMPLES, number)
            wire.command("COMMIT")

        self._pool.write(retire)

    def setting(self, name: str, default: str | None = None) -> str | None:
        found = rows_of(self._pool.read(lambda wire: wire.run(_SETTING, name)), "t")
        if found or default is None:
            return found[0][0] if found else None
        self._pool.write(lambda wire, again: wire.run(_ADD_SETTING, name, default))
        return self.setting(name)


class OwnRows:
    """The rows that this process added last, by agent, for its own search indexes.

    They are dropped when the epoch changes: the server may have lost them, and given their seqs again."""

    def __init__(self, states: KnownStates) -> None:
        self._states = states
        self.start_empty()

    def start_empty(self) -> None:
        self._rows = RecentRows()
        self._epochs = 0
        """`KnownStates.epochs` when the rows were added."""
        self._lock = threading.Lock()

    def add(self, agent: str, rows: Sequence[Row], seqs: Sequence[int], epochs: int) -> None:
        """Keep rows that were committed. `epochs`: what `KnownStates.epochs` was before the write."""
        with self._lock:
            current = self._current()
            if epochs == self._epochs:
                current.add(_number_of(agent), rows, seqs)

    def take(self, agent: str, after_seq: int, last_seq: int) -> Any:
        with self._lock:
            return self._current().take(_number_of(agent), after_seq, last_seq)

    def _current(self) -> RecentRows:
        """Return the rows, none if the epoch has changed since. The caller holds the lock."""
        epochs = self._states.epochs
        if epochs != self._epochs:
            self._epochs = epochs
            self._rows = RecentRows()
        return self._rows


def _number_of(agent: str) -> int:
    return int.from_bytes(key_of(agent))


def stored_codecs(rows: Sequence[Row] | Sequence[Move]) -> list[int]:
    """Return the numbers of all codecs in the database that rows refer to."""
    numbers = {row.body_codec for row in rows}
    numbers.update([row.vector_codec for row in rows])
    numbers.update([row.terms_codec for row in rows])
    return sorted(number for number in numbers if number >= FIRST_STORED_CODEC)


def refuse_unusable(found: Sequence[Sequence[Any]], required: Iterable[int]) -> None:
    """Raise CodecRetired if a codec that LOCK_CODECS has found is replaced, or if one is missing."""
    usable = {number for number, writable in found if writable}
    replaced = {number for number, _ in found} - usable
    for number in sorted(replaced | set(required) - usable):
        raise CodecRetired(f"codec {number} was replaced or lost meanwhile: encode the memory again")


def _reserve(wire: Wire, rows: Sequence[Row]) -> dict[str, tuple[int, int, tuple[AgentState, int]]]:
    """Lock the agents of new rows; return each one's number, the first of its new seqs, and its state and
    version after the commit."""
    counts = Counter(row.agent for row in rows)
    tiers = Counter((row.agent, row.tier) for row in rows)
    # The place of each agent's first row that maintenance must encode again, counted from 1; 0 for none.
    unsettled = dict.fromkeys(counts, 0)
    seen = Counter[str]()
    for row in rows:
        seen[row.agent] += 1
        if not row.is_final and not unsettled[row.agent]:
            unsettled[row.agent] = seen[row.agent]
    agents = sorted(counts, key=key_of)  # all writers lock agents in the same order
    values = {
        agent: (
            key_of(agent),
            agent,
            counts[agent],
            *(tiers[agent, tier] for tier in Tier),
            unsettled[agent],
        )
        for agent in agents
    }
    reserved: dict[str, tuple[int, int, tuple[AgentState, int]]] = {}
    for agent in agents:
        result = wire.run(_RESERVE, *values[agent])
        if not result.ntuples:
            result = wire.run(_NEW_AGENT, *values[agent])
        ((agent_no, *after),) = rows_of(result, f"i{STATE_KINDS}")
        state, version = state_of(after)
        reserved[agent] = agent_no, state.last_seq - counts[agent] + 1, (state, version)
    return reserved


def _compare(wire: Wire, rows: Sequence[Row], *, again: bool) -> tuple[list[bool], list[int | None]]:
    """Return for each row whether its id is new, and its seq if an earlier attempt has stored it.

    Raises IdConflict if an id has other content."""
    existing = {
        (key, id_): (digest, seq, stored_at)
        for key, id_, digest, seq, stored_at in rows_of(
            wire.run(_EXISTING, [key_of(row.agent) for row in rows], [row.id for row in rows]), "btqqd"
        )
    }
    seen: dict[tuple[str, str], int] = {}
    is_new: list[bool] = []
    seqs: list[int | None] = []
    for row in rows:
        digest, seq, stored_at = existing.get((key_of(row.agent), row.id), (None, None, None))
        digest = seen.get((row.agent, row.id), digest)
        if digest is not None and digest != row.digest:
            raise IdConflict(
                f"id {row.id!r} of agent {row.agent!r} already has other content: "
                "use another id, or update() to change it"
            )
        is_own = again and stored_at == row.stored_at and (row.agent, row.id) not in seen
        seqs.append(seq if is_own else None)
        is_new.append(digest is None)
        seen[row.agent, row.id] = row.digest
    return is_new, seqs
