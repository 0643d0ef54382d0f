"""A SQLite store that adds single new rows as the memory does: without an index, to the agent's tail."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from memory.entry import Tier
from memory.storage import Row, SQLiteStore

_one_at_a_time = threading.Lock()
"""Between the check that an id is new and the addition, no other thread may add the same id."""


class TailStore(SQLiteStore):
    """Takes rows of stm whose ids are all new as rows with generated ids, and adds each by itself."""

    def __init__(self, path: Path | None) -> None:
        super().__init__(path)
        self._add_as_given = self.add
        self.add = self._add_to_tails  # type: ignore[method-assign,assignment]

    def _add_to_tails(self, rows: Sequence[Row]) -> list[int | None]:
        with _one_at_a_time:
            return self._add_each(rows)

    def _add_each(self, rows: Sequence[Row]) -> list[int | None]:
        ids = {(row.agent, row.id) for row in rows}
        are_new = len(ids) == len(rows) and not any(self.get_one(*pair) for pair in ids)
        # A batch with a row that can't be stored must stay one transaction.
        are_sound = all(isinstance(row.body, bytes) and abs(row.step or 0) < 2**63 for row in rows)
        in_stm = all(row.tier is Tier.STM for row in rows)
        if len(rows) > 100 or not (are_new and are_sound and in_stm):
            return self._add_as_given(rows)
        return [self._add_as_given([msgspec.structs.replace(row, has_new_id=True)])[0] for row in rows]

    def in_tails(self) -> int:
        """Return how many rows are in no index."""
        ((count,),) = self._connections.fetch("SELECT COUNT(*) FROM memories WHERE indexed = 0")
        return int(count)
