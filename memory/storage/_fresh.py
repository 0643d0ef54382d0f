"""Rows that this process has just added, kept for its own search index.

Reading them back from the file would cost more than all the rest of taking them in. Which rows they are is
told by the pulse: each batch knows the number that it found under its agent's slot and the one that it left
there. Where the numbers form a chain, nothing else happened in between, in whichever process.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from memory.storage.base import NO_SESSION, NO_STEP, IndexColumns, Row

_MOST_AGENTS = 64
_MOST_ROWS = 64  # of one agent; further back, the file is read


_FreshRow: TypeAlias = tuple[int, int, float, int, int, int, bytes, bytes | None, bytes]
"""Seq, tier, created_at, step, session, and the rest of its `Features`: not its content."""


class _Batch(NamedTuple):
    before: int
    after: int
    rows: list[_FreshRow]


class FreshRows:
    """Batches by agent, of the agents that were followed last.

    Without a lock: batches are added by whoever holds the process's write lock, each step on a list is
    one of the interpreter's own, and whoever misses a batch finds the chain broken and reads the file.
    """

    def __init__(self) -> None:
        self._agents: OrderedDict[int, list[_Batch]] = OrderedDict()

    def follow(self, agent_no: int) -> None:
        """Somebody has an index of this agent."""
        self._agents.setdefault(agent_no, [])
        while len(self._agents) > _MOST_AGENTS:
            self._agents.popitem(last=False)

    def add(self, agent_no: int, before: int, after: int, rows: Sequence[Row], seqs: Sequence[int]) -> None:
        """Note rows that were committed while the agent's number went from `before` to `after`."""
        batches = self._agents.get(agent_no)
        if batches is None:
            return
        if len(rows) + sum(len(batch.rows) for batch in batches) > _MOST_ROWS:
            self._agents[agent_no] = []
            return
        batches.append(
            _Batch(before, after, [_fresh(row, seq) for row, seq in zip(rows, seqs, strict=True)])
        )

    def since(self, agent_no: int, number: int, after_seq: int) -> tuple[int, IndexColumns | None] | None:
        """See `MemoryStore.fresh_rows`. Each row is given once."""
        batches = self._agents.get(agent_no)
        if not batches:
            return None
        rows: list[_FreshRow] = []
        start = number
        seen = batches[:]
        for batch in seen:
            if batch.before == number:
                number = batch.after
                rows += [row for row in batch.rows if row[0] > after_seq]
        del batches[: len(seen)]
        return None if number == start else (number, _columns(rows) if rows else None)


def _fresh(row: Row, seq: int) -> _FreshRow:
    return (
        seq,
        row.tier,
        row.created_at,
        NO_STEP if row.step is None else row.step,
        NO_SESSION if row.session is None else row.session,
        row.vector_codec,
        row.vector,
        row.fine,
        row.terms,
    )


def _columns(rows: Sequence[_FreshRow]) -> IndexColumns:
    seqs, tiers, moments, steps, sessions, *_ = zip(*rows, strict=True)
    return IndexColumns(
        seq=np.array(seqs, np.int64),
        tier=np.array(tiers, np.uint8),
        created_at=np.array(moments, np.float64),
        step=np.array(steps, np.int64),
        session=np.array(sessions, np.int64),
        features=[(row[0], *row[5:]) for row in rows],
    )
