"""The parts below the facade of AgentMemory, called directly: the same work without the facade."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.benchmarking.targets.memory_content import decode_body
from memory.entry import ALL_TIERS
from memory.search import by_vector
from memory.storage import Record, Row
from memory.system import AgentMemorySystem, NewMemory


class Below:
    """Checking, embedding, the store, the index and decoding, without caches and counts."""

    def __init__(self, memory: AgentMemorySystem) -> None:
        self._intake = memory._intake
        self._store = memory._store
        # Version 0.1, which `membench ab` may measure, had them under another name.
        self._codecs: Any = getattr(memory, "_codecs", None) or vars(memory)["_forms"]
        self._indexes = memory._indexes

    def rows(self, agent: str, contents: Sequence[Any]) -> list[Row]:
        """Return checked, embedded and encoded rows."""
        return [self._intake.rows([NewMemory(agent_id=agent, content=each)])[0] for each in contents]

    def add_row(self, row: Row) -> None:
        self._store.add([row])

    def add(self, agent: str, content: Any) -> str:
        rows = self._intake.rows([NewMemory(agent_id=agent, content=content)])
        self._store.add(rows)
        return rows[0].id

    def get(self, agent: str, id: str) -> Any:
        record = self._store.get_one(agent, id)
        return None if record is None else self._decoded(record)[0]

    def search(self, agent: str, vector: NDArray[np.float32], k: int) -> list[tuple[float, Any]]:
        index = self._indexes.index(agent)
        with index.lock:
            index.catch_up()
            matches = by_vector(index, vector, k, index.allowed(ALL_TIERS))
        seqs, tiers = [match.seq for match in matches], [match.tier for match in matches]
        records = self._store.get_by_seq(agent, seqs, tiers)
        contents = {record.seq: self._decoded(record)[0] for record in records}
        return [(match.score, contents[match.seq]) for match in matches]

    def update(self, agent: str, id: str, content: Any) -> bool:
        record = self._store.get_one(agent, id)
        if record is None:
            return False
        old = self._store.rows(agent, [record.seq])[0]
        new = NewMemory(
            agent_id=agent,
            content=content,
            kind=old.kind,
            tier=old.tier,
            importance=old.importance,
            step=old.step,
            metadata=self._decoded(old)[1],
            id=id,
            timestamp=old.created_at,
        )
        row = self._intake.rows([new], [old.dated])[0]
        return self._store.replace(old, msgspec.structs.replace(row, stored_at=old.stored_at))

    def delete(self, agent: str, id: str) -> int:
        return self._store.delete(agent, [id])

    def _decoded(self, record: Record) -> tuple[Any, dict[str, Any]]:
        return decode_body(self._codecs.raw_body(record.body_codec, record.body))
