"""Finds out whether a file shows all its memories, before an answer depends on it.

Every row is checked when it is read. But a changed byte in the header of a page, in an index or in the
table of agents can hide rows, and a row that is never read is never checked. So before the memory says
that something does not exist, or counts or lists memories, it compares what is in the file twice:

- A file of at most SMALL_BYTES: SQLite compares all indexes with the rows and adds up the bytes of every
  page (`PRAGMA integrity_check`). This takes about 2 µs a memory.
- In a larger file: the table of agents in this way, and then for each agent that is used the number of its
  rows and the sum of their seqs, in both indexes that hold all rows, and in the table when a search reads
  all rows. This takes 0.1 µs a memory for each of the three.
- A search that has the older memories from elsewhere, as from a saved index, reads the later rows by their
  seqs, without an index. An agent's seqs have no gaps, so these rows are compared with the last seq and
  with the log of deletions instead.

A process does this once. A writer does not have to do anything for it: the indexes, and the marks in the
table of agents, are written by SQLite in the same transaction as the rows.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from memory.errors import StoreCorrupt
from memory.storage._tail import IN_TAIL
from memory.storage.base import Change, ChangeKind
from memory.storage.connections import Connections
from memory.storage.schema import AGENT_SHIFT, MARK, SEQ_MASK, TIER_MASK, TIER_SHIFT

SMALL_BYTES = 8 * 1024 * 1024

_WRONG_MARKS = f"SELECT COUNT(*) FROM agents WHERE mark IS NOT {MARK}"
_WRONG_KEYS = (
    f"SELECT COUNT(*) FROM memories WHERE key >> {AGENT_SHIFT} != agent"
    f" OR (key >> {TIER_SHIFT} & {TIER_MASK}) != tier OR agent NOT IN (SELECT no FROM agents)"
)
_WRONG_TAILS = (
    "SELECT COUNT(*) FROM memories LEFT JOIN agents ON no = agent"
    f" WHERE indexed != (tail IS NOT 1 OR tier != 0 OR key & {SEQ_MASK} <= last_seq)"
)


class Completeness:
    """Whether memories may be hidden in a file. What was found once is remembered."""

    def __init__(self, path: Path | None, connections: Connections, file_format: int) -> None:
        """`path`: None for a database in RAM, which is not checked."""
        self._path = path
        self._connections = connections
        self._has_tails = file_format > 2
        self._has_marks = file_format > 3
        self._is_whole = path is None
        self._are_agents_whole = path is None
        self._is_large = False
        """Whether the file was found to be large. Then it counts as large, also if it shrinks."""
        self._whole_agents: set[int | None] = set()
        self._damage: str | None = None
        """What is wrong with a small file, or with the table of agents."""
        self._damaged_agents: dict[int | None, str] = {}
        """What is wrong with an agent of a larger file, by its number; None is for all agents together."""

    def confirm(self, agent_no: int | None = None) -> None:
        """Raise StoreCorrupt if memories may be hidden: of one agent, or of any if None is given."""
        if self._is_whole or agent_no in self._whole_agents:
            return
        if damage := self._damage or self._damaged_agents.get(agent_no):
            raise self._error(damage)
        try:
            if self._is_small():
                self._refuse(self.structure_problems(1) + self.table_problems())
                self._is_whole = True
                return
            self.confirm_agents()
        except StoreCorrupt as problem:
            self._damage = str(problem)
            raise
        try:
            self._refuse(self._connections.read(lambda connection: _compare(connection, agent_no)))
        except StoreCorrupt as problem:
            self._damaged_agents[agent_no] = str(problem)
            raise
        self._whole_agents.add(agent_no)

    def confirm_agents_or_all(self) -> None:
        """Raise StoreCorrupt if agents may be hidden; in a small file, if anything may be hidden.

        For callers that compare the rows that they read themselves."""
        if self._is_whole or (self._is_large and self._are_agents_whole):
            return
        if self._damage is not None or self._is_small():
            self.confirm()
        else:
            self.confirm_agents()

    def compare_new(
        self,
        connection: sqlite3.Connection,
        agent_no: int,
        after_seq: int,
        last_seq: int,
        seqs: NDArray[np.int64],
        changes: Sequence[Change],
    ) -> None:
        """Raise StoreCorrupt if `seqs`, ascending, lack rows between `after_seq` and `last_seq`.

        changes: all since `after_seq` was the last one"""
        if self._is_whole:
            return
        first = after_seq + 1
        deleted: set[int] = set()
        for change in changes:
            if change.kind is ChangeKind.CLEARED:
                first = max(first, change.seqs[0] + 1)
            elif change.kind is ChangeKind.DELETED:
                deleted.update(change.seqs)
        expected = last_seq - first + 1 - sum(first <= seq <= last_seq for seq in deleted)
        found = seqs[(seqs >= first) & (seqs <= last_seq)]
        if len(found) != max(expected, 0):
            self.compare(connection, agent_no, found, first, last_seq)

    def compare(
        self,
        connection: sqlite3.Connection,
        agent_no: int,
        seqs: NDArray[np.int64],
        first: int = 1,
        last: int = SEQ_MASK,
    ) -> None:
        """Raise StoreCorrupt if these are not the seqs of all rows of an agent, by the index of the times.

        first, last: compare only the rows with these seqs and those in between

        For larger files: the whole check of a small file includes this."""
        if self._is_whole or not self._has_tails:
            return
        count, total = connection.execute(
            f"SELECT COUNT(*), TOTAL(key & {SEQ_MASK}) FROM (SELECT key FROM memories INDEXED BY by_time"
            f" WHERE agent = ? AND indexed = 1 UNION ALL SELECT key FROM memories WHERE {IN_TAIL})"
            f" WHERE key & {SEQ_MASK} BETWEEN ? AND ?",
            (agent_no, agent_no, agent_no, first, last),
        ).fetchone()
        if (count, total) != (len(seqs), float(seqs.sum())):
            self._refuse([f"an agent has {len(seqs):,} memories, or {count:,}, or not the same ones"])

    def confirm_agents(self) -> None:
        """Raise StoreCorrupt if agents may be hidden, or their numbers are wrong."""
        if self._is_whole or self._are_agents_whole:
            return
        self._refuse(
            [line for (line,) in self._connections.fetch("PRAGMA integrity_check(agents)") if line != "ok"]
            + self._marks()
        )
        self._are_agents_whole = True

    def structure_problems(self, most: int) -> list[str]:
        """Return up to `most` problems that SQLite finds in the whole file."""
        found = self._connections.fetch(f"PRAGMA integrity_check({most})")
        return [str(line) for (line,) in found if line != "ok"]

    def table_problems(self) -> list[str]:
        """Return what is wrong in columns that no checksum covers."""
        checks = {_WRONG_KEYS: "memories have a key that does not fit their agent or tier"}
        if self._has_tails:
            checks[_WRONG_TAILS] = "memories are in no index, or in an index too early"
        problems = [
            f"{wrong} {problem}"
            for statement, problem in checks.items()
            if (wrong := self._connections.fetch_one(statement)[0])
        ]
        return problems + self._marks()

    def _marks(self) -> list[str]:
        wrong = self._connections.fetch_one(_WRONG_MARKS)[0] if self._has_marks else 0
        return [f"the numbers of {wrong} agents do not match their checksum"] if wrong else []

    def _is_small(self) -> bool:
        if not self._is_large:
            (pages,), (size,) = map(self._connections.fetch_one, ("PRAGMA page_count", "PRAGMA page_size"))
            self._is_large = pages * size > SMALL_BYTES
        return not self._is_large

    def _refuse(self, problems: list[str]) -> None:
        if problems:
            raise self._error(problems[0])

    def _error(self, problem: str) -> StoreCorrupt:
        if problem.startswith(str(self._path)):
            return StoreCorrupt(problem)
        return StoreCorrupt(
            f"{self._path} is damaged, and memories may be hidden ({problem}): restore it from a copy, "
            "or export what can be read"
        )


def _compare(connection: sqlite3.Connection, agent_no: int | None) -> list[str]:
    """Compare the two indexes that hold all rows of an agent, or of all agents."""
    is_indexed = "agent > 0 AND indexed = 1" if agent_no is None else "agent = ? AND indexed = 1"
    values = () if agent_no is None else (agent_no,)
    by_id, by_time = (
        connection.execute(
            f"SELECT COUNT(*), TOTAL(key & {SEQ_MASK}) FROM memories INDEXED BY {index} WHERE {is_indexed}",
            values,
        ).fetchone()
        for index in ("by_id", "by_time")
    )
    if by_id != by_time:
        return [f"one index has {by_id[0]:,} memories, another {by_time[0]:,}, or not the same ones"]
    return []
