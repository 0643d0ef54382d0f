"""Adds single new rows to the tails of their agents, each in one statement without a transaction.

Threads that wait for the write lock share one commit: the thread that gets the lock also adds the rows of
those that wait. No call returns before the commit of its row. If the common statement fails, it has added
nothing, and each thread adds its own row: the error of one row is not the error of another.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import lru_cache, partial

import msgspec

from memory.storage._recent_rows import RecentRows
from memory.storage._rows import INSERTED_COLUMNS, Checksums, placeholders, to_values
from memory.storage._tail import IN_TAIL, MAX_TAIL, OpenTail, last_of_tail
from memory.storage.base import Row
from memory.storage.connections import Connections
from memory.storage.schema import SEQ_MASK
from memory.storage.shared_versions import SharedVersions

_ATTEMPTS = 8
"""How often a row is added to a tail to which other processes add rows at the same time."""
_MAX_GROUP = 16
"""Rows in one commit: 16 × 24 values are below the limit of older builds of SQLite."""
_FIND = (
    f"SELECT key & {SEQ_MASK} FROM memories INDEXED BY by_id WHERE agent = ? AND id = ? AND indexed = 1"
    f" UNION ALL SELECT key & {SEQ_MASK} FROM memories WHERE {IN_TAIL} AND id = ?"
)

AddAlone = Callable[[Row, Checksums], tuple[int, int]]
"""Adds one row in a transaction, and opens the tail of its agent. Returns the agent's number and seq."""


class _Request(msgspec.Struct, gc=False, eq=False):
    """One row that a thread wants to add."""

    row: Row
    checksums: Checksums
    is_taken: bool = False
    """Whether another thread has begun to add the row."""
    seq: int | None = None
    """Set when the row is committed."""


class TailWriter:
    """The tails that this process knows, and the threads that wait to add rows to them."""

    def __init__(
        self,
        connections: Connections,
        versions: SharedVersions,
        recent_rows: RecentRows,
        refresh_versions: Callable[[], None],
        add_alone: AddAlone,
    ) -> None:
        self._connections = connections
        self._versions = versions
        self._recent_rows = recent_rows
        self._refresh_versions = refresh_versions
        self._add_alone = add_alone
        self._open: dict[str, OpenTail] = {}
        """By agent. Only the holder of the process's write lock uses it."""
        self._waiting: deque[_Request] = deque()

    def add(self, row: Row, checksums: Checksums) -> int:
        """Add a row that `fits_tail`; return its seq."""
        request = _Request(row, checksums)
        self._waiting.append(request)
        try:
            with self._connections.lock:
                if len(self._waiting) == 1 and not request.is_taken and request.seq is None:
                    # The usual case of `_serve`: only this row is left.
                    self._waiting.clear()
                    request.seq = self._add_one(row, checksums)
                elif request.seq is None:
                    self._serve(request)
        except BaseException:
            with suppress(ValueError):
                self._waiting.remove(request)
            raise
        assert request.seq is not None
        return request.seq

    def _serve(self, own: _Request) -> None:
        """Add a row and those of waiting threads. The caller holds the lock."""
        if own.is_taken:
            # An interrupt stopped the thread that had begun to add this row. It may be committed.
            own.seq = self._find(own.row)
            if own.seq is not None:
                return
        group = self._take_group(own)
        if len(group) > 1:
            # The others add their rows by themselves if this fails.
            with suppress(Exception):
                self._add_group(group)
        if own.seq is None:
            own.seq = self._add_one(own.row, own.checksums)

    def _take_group(self, own: _Request) -> list[_Request]:
        """Return the given request, and the waiting ones that can be added in the same statement."""
        group = [own]
        while self._waiting:
            request = self._waiting.popleft()
            if request is not own and request.row.agent in self._open and len(group) < _MAX_GROUP:
                group.append(request)
        return group

    def _add_group(self, group: Sequence[_Request]) -> None:
        tails: dict[str, OpenTail] = {}
        values: list[object] = []
        conditions: list[object] = []
        added: list[tuple[_Request, OpenTail, int]] = []
        lasts: dict[str, int] = {}
        for request in group:
            tail = self._open.get(request.row.agent)
            if tail is None or tail.is_full:
                continue
            agent = request.row.agent
            seq = lasts.get(agent, tail.last) + 1
            lasts[agent], tails[agent] = seq, tail
            values += to_values(request.row, tail.agent_no, seq, request.checksums)
            conditions += (tail.agent_no, tail.first)
            added.append((request, tail, seq))
        if len(added) < 2:
            return
        for request, _, _ in added:
            request.is_taken = True
        statement = _group_insert(len(added))
        count, versions = self._write(statement, (*values, *conditions), list(tails.values()))
        for request, tail, seq in added:
            if count == len(added):
                tail.last = seq
                # The version is the one after all rows of the group.
                version = versions.get(tail.agent_no) if seq == lasts[request.row.agent] else None
                self._recent_rows.add(tail.agent_no, (request.row,), (seq,), version)
                request.seq = seq
            request.is_taken = False

    def _add_one(self, row: Row, checksums: Checksums) -> int:
        agent = row.agent
        tail = self._open.get(agent)
        seq = None if tail is None else self._add_to(tail, row, checksums)
        if seq is None:
            agent_no, seq = self._add_alone(row, checksums)
            self._recent_rows.add(agent_no, (row,), (seq,))
            self._open[agent] = OpenTail(agent_no, seq)
        return seq

    def _add_to(self, tail: OpenTail, row: Row, checksums: Checksums) -> int | None:
        """Add one row to a tail and return its seq; None if it must be added in a transaction."""
        agent_no, first = tail.agent_no, tail.first
        for _ in range(_ATTEMPTS):
            seq = tail.last + 1
            if seq - first > MAX_TAIL:
                return None
            values = (*to_values(row, agent_no, seq, checksums), agent_no, first)
            try:
                count, versions = self._write(_INSERT, values, (tail,))
            except sqlite3.IntegrityError:  # another process has used this seq
                last = self._connections.read(partial(last_of_tail, tail=tail))
                if last is None:
                    return None
                tail.last = last
                continue
            if count != 1:
                return None
            tail.last = seq
            self._recent_rows.add(agent_no, (row,), (seq,), versions.get(agent_no))
            return seq
        return None

    def _write(
        self, statement: str, values: Sequence[object], tails: Sequence[OpenTail]
    ) -> tuple[int | None, dict[int, int]]:
        """Execute a statement, and store new versions for the agents of the tails.

        Return the number of rows, and by agent the new version, if no other process wrote meanwhile."""
        versions = self._versions
        undisturbed: list[tuple[int, int]] = []
        self._refresh_versions()
        try:
            try:
                for tail in tails:
                    versions.begin(versions.writes_slot(tail.agent_no))
                count = self._connections.write_alone(statement, values)
            finally:
                undisturbed = versions.end_all()
        finally:  # again, in case an interrupt stopped the first call
            if versions.marked:
                versions.end_all()
        left = dict(undisturbed)
        slots = ((tail.agent_no, versions.writes_slot(tail.agent_no)) for tail in tails)
        return count, {agent_no: left[slot] for agent_no, slot in slots if slot in left}

    def _find(self, row: Row) -> int | None:
        """Return the seq of a row that may be stored."""
        agent_no = self._open[row.agent].agent_no
        found = self._connections.fetch_one(_FIND, (agent_no, row.id, agent_no, agent_no, row.id))
        return None if found is None else int(found[0])


_INSERT = (
    f"INSERT INTO memories ({INSERTED_COLUMNS}, indexed) SELECT {placeholders(22)}, 0"
    " FROM agents WHERE no = ? AND last_seq = ? AND tail = 1"
)
"""Adds nothing if another process has closed the tail. The key exists already if it has added to it."""


@lru_cache(maxsize=_MAX_GROUP)
def _group_insert(count: int) -> str:
    """Return the statement that adds `count` rows if the tails of all of them are open."""
    rows = ", ".join([f"({placeholders(22)})"] * count)
    wanted = ", ".join(["(?, ?)"] * count)
    return (
        f"INSERT INTO memories ({INSERTED_COLUMNS}, indexed) SELECT *, 0 FROM (VALUES {rows})"
        f" WHERE {count} = (SELECT COUNT(*) FROM (VALUES {wanted}) AS wanted"
        " JOIN agents ON no = wanted.column1 AND last_seq = wanted.column2 AND tail = 1)"
    )
