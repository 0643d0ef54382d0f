"""Rows that this process has just added, kept for its own search index.

Reading them back from the file would cost more than all the rest of taking them in. Rows of an agent are
numbered without gaps: whoever knows the agent's last number, and has every row up to it, has missed none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from memory.storage.base import NO_SESSION, NO_STEP, IndexColumns, Row

_MOST_AGENTS = 64
_MOST_ROWS = 64  # of one agent; further back, the file is read

_FreshRow: TypeAlias = tuple[int, int, float, int, int, int, bytes, bytes | None, bytes]
"""Seq, tier, created_at, step, session, and the rest of its `Features`: not its content."""


class FreshRows:
    """The newest rows of agents that are searched; of too many, those that were first searched go.

    Without a lock: rows are added by whoever holds the process's write lock, each step on a list is one of
    the interpreter's own, and whoever misses a row reads the file.
    """

    def __init__(self) -> None:
        self._agents: OrderedDict[int, list[_FreshRow]] = OrderedDict()

    def add(self, agent_no: int, rows: Sequence[Row], seqs: Sequence[int]) -> None:
        """Note rows that were committed."""
        held = self._agents.get(agent_no)
        if held is None:
            return
        if len(held) + len(rows) > _MOST_ROWS:
            self._agents[agent_no] = []
            return
        held += [_fresh(row, seq) for row, seq in zip(rows, seqs, strict=True)]

    def between(self, agent_no: int, after_seq: int, last_seq: int) -> IndexColumns | None:
        """The rows with the seqs after_seq + 1 … last_seq, if all of them are here; each is given once."""
        held = self._agents.get(agent_no)
        if held is None:
            self._agents[agent_no] = []  # somebody searches this agent: its next rows are wanted
            while len(self._agents) > _MOST_AGENTS:
                self._agents.popitem(last=False)
            return None
        seen = held[:]
        rows = [row for row in seen if after_seq < row[0] <= last_seq]
        del held[: len(seen)]
        complete = [row[0] for row in rows] == list(range(after_seq + 1, last_seq + 1))
        return _columns(rows) if rows and complete else None


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
