"""The tail of an agent: its newest rows, which are in no index of the file yet.

To put one row into four indexes costs more than to store it. So `add` stores a single new memory with
`indexed = 0`, which changes the table only. Later, one transaction puts many rows into the indexes.

- The tail is the rows of stm with a seq above `agents.last_seq`. Only such rows have `indexed = 0`.
- An agent has a tail only while `agents.tail` is 1. Only `add` sets it, and only in a transaction that
  leaves no row in the tail.
- Every other write of an agent first puts its tail into the indexes, in its own transaction: `close_tail`.

So rows with given ids, moves, deletions and replacements never meet a row that is in no index, and a seq is
never used again. Reads by key find the tail as they find all rows. Reads through an index also read the
tail, in the same statement: otherwise a row that leaves the tail between two statements would be missed.
"""

from __future__ import annotations

import sqlite3

from memory.entry import Tier
from memory.storage.base import Row
from memory.storage.schema import AGENT_SHIFT, FIRST_STORED_CODEC, SEQ_MASK, TIER_SHIFT

MAX_TAIL = 128
"""Rows of a tail. To index them takes about 10 µs a row, in a tail of 64 rows 14 µs. Reads through an index
scan the tail: that takes 10 to 60 µs for 128 rows."""
MAX_TAILS = 64
"""Agents with a tail, after maintenance."""

_END_OF_STM = 1 << TIER_SHIFT
IN_TAIL = (
    f"key > (SELECT no << {AGENT_SHIFT} | last_seq FROM agents WHERE no = ? AND tail = 1)"
    f" AND key < (? << {AGENT_SHIFT} | {_END_OF_STM})"
)
"""The condition for rows of one agent's tail. Both values are the agent's number."""
_LAST_OF_TAIL = (
    f"(SELECT MAX(key) FROM memories WHERE key > (no << {AGENT_SHIFT} | last_seq)"
    f" AND key < (no << {AGENT_SHIFT} | {_END_OF_STM}))"
)
LAST_SEQ = f"(CASE tail WHEN 0 THEN last_seq ELSE IFNULL({_LAST_OF_TAIL} & {SEQ_MASK}, last_seq) END)"
"""The last seq of a row of `agents`, its tail included."""
ALL_TAILS = (
    f"agents INDEXED BY tails CROSS JOIN memories ON key > (no << {AGENT_SHIFT} | last_seq)"
    f" AND key < (no << {AGENT_SHIFT} | {_END_OF_STM})"
)
"""The tables for a query of the rows of all tails. Its condition must have the term `agents.tail = 1`."""


class OpenTail:
    """What this process knows of an agent's tail. Another process may have added to it, or closed it."""

    __slots__ = ("agent_no", "first", "last")

    def __init__(self, agent_no: int, last_seq: int) -> None:
        self.agent_no = agent_no
        self.first = last_seq
        """The `last_seq` of the agent: the seq before the first of the tail."""
        self.last = last_seq
        """The last seq of the tail."""

    @property
    def is_full(self) -> bool:
        return self.last - self.first >= MAX_TAIL


def fits_tail(row: Row) -> bool:
    """Return whether a row may be stored without looking at other rows."""
    return (
        row.has_new_id
        and row.tier is Tier.STM
        and row.is_final
        and row.body_codec < FIRST_STORED_CODEC
        and row.vector_codec < FIRST_STORED_CODEC
        and row.terms_codec < FIRST_STORED_CODEC
    )


def close_tail(connection: sqlite3.Connection, agent_no: int) -> None:
    """Put the rows of an agent's tail into the indexes, in the caller's transaction."""
    found = connection.execute(
        f"SELECT no << {AGENT_SHIFT} | last_seq, {_LAST_OF_TAIL} FROM agents WHERE no = ? AND tail = 1",
        (agent_no,),
    ).fetchone()
    if found is None:
        return
    floor, last = found
    if last is not None:
        connection.execute("UPDATE memories SET indexed = 1 WHERE key > ? AND key <= ?", (floor, last))
    connection.execute(
        "UPDATE agents SET tail = 0, last_seq = ? WHERE no = ?", ((last or floor) & SEQ_MASK, agent_no)
    )


def last_of_tail(connection: sqlite3.Connection, tail: OpenTail) -> int | None:
    """Return the last seq of a tail, None if another process has closed it."""
    found = connection.execute(
        f"SELECT {LAST_SEQ} FROM agents WHERE no = ? AND last_seq = ? AND tail = 1",
        (tail.agent_no, tail.first),
    ).fetchone()
    return None if found is None else int(found[0])
