"""Rows that this process added last, kept in RAM for its own search index.

To read them back from the file would cost more than to add them to the index. The seqs that this store
gives have no gaps. So the rows are complete if they have every seq between two given ones.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TypeAlias

import numpy as np

from memory.storage.base import NO_SESSION, NO_STEP, IndexColumns, Row

_MAX_AGENTS = 64  # with _MAX_ROWS: at most 4,096 rows in RAM, without their content
_MAX_ROWS = 64  # of one agent; an index that is further behind reads the file

_RecentRow: TypeAlias = tuple[int, int, float, int, int, int, bytes, bytes | None, bytes, int]
"""Seq, tier, created_at, step, session and the other fields of `Features`; the content is not kept."""


class RecentRows:
    """The newest rows of agents that are searched; the agent that was first searched is evicted first.

    Needs no lock: only the holder of the process's write lock adds rows, each list operation is atomic, and
    an index that misses a row reads the file.
    """

    def __init__(self) -> None:
        self._agents: OrderedDict[int, list[_RecentRow]] = OrderedDict()
        self._versions: dict[int, tuple[int, int]] = {}
        """By agent: the version that the last row left behind, and its seq; see `take_under`."""

    def __contains__(self, agent_no: int) -> bool:
        """Return whether rows of an agent are kept."""
        return agent_no in self._agents

    def add(
        self, agent_no: int, rows: Sequence[Row], seqs: Sequence[int], version: int | None = None
    ) -> None:
        """Keep rows that were just committed under these seqs.

        version: the one of the agent's rows that they left behind, if no other process wrote meanwhile"""
        kept = self._agents.get(agent_no)
        if kept is None:
            return
        if version is not None:
            self._versions[agent_no] = version, seqs[-1]
        if len(kept) + len(rows) > _MAX_ROWS:
            self._agents[agent_no] = []
            return
        kept += [_recent_row(row, seq) for row, seq in zip(rows, seqs, strict=True)]

    def take(self, agent_no: int, after_seq: int, last_seq: int) -> IndexColumns | None:
        """Return the rows with the seqs after_seq + 1 … last_seq if all of them are here, else None.

        Every row is returned at most once. The first call for an agent starts to keep its rows."""
        kept = self._agents.get(agent_no)
        if kept is None:
            self._agents[agent_no] = []
            while len(self._agents) > _MAX_AGENTS:
                evicted, _ = self._agents.popitem(last=False)
                self._versions.pop(evicted, None)
            return None
        copied = kept[:]
        rows = [row for row in copied if after_seq < row[0] <= last_seq]
        del kept[: len(copied)]
        complete = [row[0] for row in rows] == list(range(after_seq + 1, last_seq + 1))
        return _columns(rows) if rows and complete else None

    def take_under(self, agent_no: int, after_seq: int, version: int) -> IndexColumns | None:
        """Return what `take` returns for all rows after `after_seq`.

        That is only known if the version of the agent's rows is the one that the last row of this process
        left behind: then no other process has added a row after it. Else return None."""
        left = self._versions.get(agent_no)
        if left is None or left[0] != version or left[1] <= after_seq:
            return None
        return self.take(agent_no, after_seq, left[1])


def _recent_row(row: Row, seq: int) -> _RecentRow:
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
        row.terms_codec,
    )


def _columns(rows: Sequence[_RecentRow]) -> IndexColumns:
    seqs, tiers, times, steps, sessions, *_ = zip(*rows, strict=True)
    return IndexColumns(
        seq=np.array(seqs, np.int64),
        tier=np.array(tiers, np.uint8),
        created_at=np.array(times, np.float64),
        step=np.array(steps, np.int64),
        session=np.array(sessions, np.int64),
        features=[(row[0], *row[5:]) for row in rows],
    )
