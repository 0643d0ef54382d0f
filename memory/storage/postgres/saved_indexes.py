"""Saved search indexes on the server: one for each agent with many memories, in parts that fit a page.

A saved index is a copy of what the table of memories holds, so losing it loses nothing. One transaction
stores the parts, a random token and the state of the agent that they hold. So a reader gets all parts of
one index or none, and a server that went back in time has the index of that time. An index holds vectors
and terms, which are content: maintenance removes one that holds deleted or replaced content.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Callable, Iterator
from io import BytesIO
from typing import BinaryIO
from zlib import crc32

from memory.errors import StoreBusy, StoreFull
from memory.storage.base import AgentState, ChangeKind, SavedIndex
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.reader import EPOCH, agent_number_sql, epoch_of, key_of
from memory.storage.postgres.wire import Statement, Wire, rows_of

_log = logging.getLogger(__name__)

PART_BYTES = 8000
"""Bytes of a part. With its header it fills one page of the server, so it is never split by TOAST."""

_HAS_CHANGED = (
    "(SELECT count(*) < a.last_change - {since} OR coalesce(bool_or(c.kind <> "
    f"{int(ChangeKind.MOVED)}), false) FROM @changes c WHERE c.agent = a.no AND c.number > {{since}})"
)
"""Whether memories were deleted or replaced after a change, or the log does not reach back to it."""
_ENTRY = f"i.token, i.last_seq, i.last_change, i.checksum, {EPOCH}"
_STATE = Statement(
    f"SELECT {_ENTRY} FROM @agents a JOIN @indexes i ON i.agent = a.no WHERE a.key = $1", "b"
)
_LOAD = (
    f"SELECT {_ENTRY}, p.part, p.data FROM @agents a JOIN @indexes i ON i.agent = a.no"
    " JOIN @index_parts p ON p.agent = a.no WHERE a.no = "
)
# The fields of a row of _LOAD, each with its length before it. A token has 32 characters.
_head = struct.Struct(">2x 4x32s 4xq 4xq 4xi 4xq 4xq 4xi 4x")
_part_of = struct.Struct(">i").unpack_from
_PART_AT = _head.size - 8
_BASIS = Statement(
    f"SELECT a.no, {EPOCH}, {_HAS_CHANGED.format(since='$2')}"
    " FROM @agents a WHERE a.key = $1 AND a.name IS NOT NULL",
    "bq",
)
_PUBLISH = Statement(
    "INSERT INTO @indexes (agent, token, last_seq, last_change, checksum) VALUES ($1, $2, $3, $4, $5)"
    " ON CONFLICT (agent) DO UPDATE SET token = excluded.token, last_seq = excluded.last_seq,"
    " last_change = excluded.last_change, checksum = excluded.checksum",
    "itqqi",
)
_COPY = "COPY @index_parts (agent, part, data) FROM STDIN (FORMAT binary)"
_part_head = struct.Struct(">hiiiii").pack
_STALE = Statement(
    "SELECT i.agent FROM @indexes i WHERE NOT EXISTS (SELECT 1 FROM @agents a WHERE a.no = i.agent"
    f" AND NOT {_HAS_CHANGED.format(since='i.last_change')})"
)
_LOCK = Statement("SELECT agent FROM @indexes WHERE agent = ANY($1) ORDER BY agent FOR UPDATE", "I")
_DELETE = Statement("DELETE FROM @indexes WHERE agent = ANY($1)", "I")
_DELETE_PARTS = Statement("DELETE FROM @index_parts WHERE agent = ANY($1)", "I")
_ABOVE = Statement("SELECT name FROM @agents WHERE last_seq > $1 AND name IS NOT NULL ORDER BY no", "q")
_NO = Statement("SELECT no FROM @agents WHERE key = $1", "b")


class SavedIndexes:
    """The methods of `MemoryStore` for saved indexes, which documents them."""

    def __init__(self, pool: Pool, *, read_only: bool) -> None:
        self._pool = pool
        self._read_only = read_only

    def saved_index(self, agent: str) -> SavedIndex | None:
        query = _LOAD + agent_number_sql(agent)
        rows = self._pool.read(lambda wire: wire.copy_out(query))
        if not rows:
            return None
        token, last_seq, last_change, checksum, started_at, table, _ = _head.unpack_from(rows[0])
        state = _state_of(token.decode(), last_seq, last_change, checksum, started_at, table)
        if state is None:
            return None
        rows.sort(key=lambda row: _part_of(row, _PART_AT)[0])
        parts = [memoryview(row)[_head.size :] for row in rows]
        return SavedIndex(token.decode(), state, memoryview(bytearray(b"").join(parts)), is_mapped=False)

    def saved_index_state(self, agent: str) -> AgentState | None:
        found = rows_of(self._pool.fetch(_STATE, key_of(agent)), "tqqiqq")
        return _state_of(*found[0]) if found else None

    def save_index(self, agent: str, state: AgentState, write: Callable[[BinaryIO, str], None]) -> bool:
        if self._read_only:
            return False
        token = os.urandom(16).hex()
        draft = _Draft()
        write(draft, token)
        try:
            is_saved = self._pool.write(lambda wire, again: _publish(wire, agent, token, state, draft))
        except (StoreBusy, StoreFull) as problem:
            _log.info("the search index of an agent was not saved: %s", problem)
            return False
        if not is_saved:
            _log.info("the search index of an agent was not saved: it is not current any more")
        return is_saved

    def drop_saved_index(self, agent: str) -> None:
        if not self._read_only:
            numbers = [no for (no,) in rows_of(self._pool.fetch(_NO, key_of(agent)), "i")]
            self._remove(numbers)

    def erase_indexes(self) -> int:
        """Remove all saved indexes that hold deleted or replaced content; return how many."""
        if self._read_only:
            return 0
        stale = [number for (number,) in rows_of(self._pool.fetch(_STALE), "i")]
        self._remove(stale)
        return len(stale)

    def agents_above(self, memories: int) -> list[str]:
        if self._read_only:
            return []
        return [name for (name,) in rows_of(self._pool.fetch(_ABOVE, memories), "t")]

    def _remove(self, numbers: list[int]) -> None:
        # The lock comes first: the next statement then sees the parts of an index that was saved meanwhile.
        steps = [(_LOCK, numbers), (_DELETE, numbers), (_DELETE_PARTS, numbers)]
        if numbers:
            self._pool.write(lambda wire, again: wire.pipeline(steps))


class _Draft(BytesIO):
    """A file in RAM that `truncate` also makes longer, as it does with other files."""

    def truncate(self, size: int | None = None) -> int:
        missing = 0 if size is None else size - len(self.getbuffer())
        if missing > 0:
            self.seek(0, os.SEEK_END)
            self.write(bytes(missing))
        return super().truncate(size)


def _publish(wire: Wire, agent: str, token: str, state: AgentState, draft: _Draft) -> bool:
    """Store an index in one transaction. Return False if the agent is not what the index was made of.

    A deletion that is committed at the same time is not seen. The index then has an older state than the
    agent, so searches apply the deletion to it, and the next maintenance removes it."""
    wire.command("BEGIN")
    basis = rows_of(wire.run(_BASIS, key_of(agent), state.last_change), "iqq?")
    if not basis or basis[0][3] or epoch_of(*basis[0][1:3]) != state.epoch:
        wire.command("ROLLBACK")
        return False
    number = basis[0][0]
    checksum = _checksum(token, state.last_seq, state.last_change)
    # This locks the index of the agent, so that two processes that save it take turns.
    wire.run(_PUBLISH, number, token, state.last_seq, state.last_change, checksum)
    wire.run(_DELETE_PARTS, [number])
    wire.copy_in(_COPY, _copied_parts(number, draft))
    wire.command("COMMIT")
    return True


def _copied_parts(number: int, draft: _Draft) -> Iterator[bytes]:
    with draft.getbuffer() as data:
        for part, start in enumerate(range(0, len(data), PART_BYTES)):
            piece = data[start : start + PART_BYTES]
            yield _part_head(3, 4, number, 4, part, len(piece)) + piece


def _checksum(token: str, last_seq: int, last_change: int) -> int:
    """Return 31 bits that fit a positive integer."""
    return crc32(f"{token} {last_seq} {last_change}".encode()) >> 1


def _state_of(
    token: str, last_seq: int, last_change: int, checksum: int, started_at: int, table: int
) -> AgentState | None:
    # A wrong state would hide memories from searches. Without one, the index is made again.
    if checksum != _checksum(token, last_seq, last_change):
        return None
    return AgentState(last_seq, last_change, epoch_of(started_at, table))
