"""AgentMemory: the methods of AgentMemorySystem for one agent."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from memory.entry import Hit, MemoryEntry, Tier, TierName, Timestamp
from memory.errors import InvalidMemory
from memory.system import AgentMemorySystem, Reranker


class AgentMemory:
    """A view of one agent's memories. A view holds no data, so creating one is cheap.

    Each method calls the method of `system` with the same name, unless its docstring names another. The
    arguments are documented there.
    """

    def __init__(self, system: AgentMemorySystem, agent_id: str) -> None:
        self.system = system
        self.agent_id = agent_id

    def add(
        self,
        content: Any,
        *,
        kind: str | None = None,
        tier: TierName = Tier.STM,
        importance: float = 1.0,
        step: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        timestamp: Timestamp | None = None,
        vector: Sequence[float] | NDArray[np.float32] | None = None,
    ) -> str:
        """Store one memory and return its id."""
        return self.system.add(
            self.agent_id,
            content,
            kind=kind,
            tier=tier,
            importance=importance,
            step=step,
            metadata=metadata,
            id=id,
            timestamp=timestamp,
            vector=vector,
        )

    def add_many(self, batch: Iterable[Mapping[str, Any]]) -> list[str]:
        """Store many memories in one commit. The keys of an item are the arguments of `add`."""
        items = [{"agent_id": self.agent_id, **item} for item in batch]
        for item in items:
            if item["agent_id"] != self.agent_id:
                raise InvalidMemory(
                    f"an item of the batch is for agent {item['agent_id']!r}, not for {self.agent_id!r}: "
                    "leave its agent_id out, or use the system's add_many()"
                )
        return self.system.add_many(items)

    def get(self, id: str) -> MemoryEntry | None:
        """Return the memory with this id, or None."""
        return self.system.get(self.agent_id, id)

    def get_many(self, ids: Sequence[str]) -> list[MemoryEntry | None]:
        """Return one memory for each id, in the same order; None for an id that does not exist."""
        return self.system.get_many(self.agent_id, ids)

    def exists(self, id: str, tier: TierName | None = None) -> bool:
        """Return whether there is such a memory, in one tier or in any."""
        return self.system.exists(self.agent_id, id, tier)

    def update(
        self,
        id: str,
        *,
        content: Any = UNSET,
        metadata: Mapping[str, Any] | UnsetType | None = UNSET,
        importance: float | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        step: int | UnsetType | None = UNSET,
        erase: bool = False,
    ) -> bool:
        """Change the given fields of a memory; return False if there is no such memory."""
        return self.system.update(
            self.agent_id,
            id,
            content=content,
            metadata=metadata,
            importance=importance,
            kind=kind,
            step=step,
            erase=erase,
        )

    def delete(self, id: str, *, erase: bool = False) -> bool:
        """Delete one memory; return False if there is no such memory."""
        return self.system.delete(self.agent_id, id, erase=erase)

    def delete_many(self, ids: Sequence[str], *, erase: bool = False) -> int:
        """Delete memories in one commit; return how many existed."""
        return self.system.delete_many(self.agent_id, ids, erase=erase)

    def delete_all(self, *, erase: bool = False) -> int:
        """Delete all memories of this agent; return how many there were."""
        return self.system.delete_all(self.agent_id, erase=erase)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        tier: TierName = "all",
        filters: Mapping[str, Any] | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        now: Timestamp | None = None,
        min_confidence: float = 0.0,
        reranker: Reranker | None = None,
    ) -> list[Hit]:
        """Return the k memories that match a text best, best first."""
        return self.system.search(
            self.agent_id,
            query,
            k,
            tier=tier,
            filters=filters,
            since=since,
            until=until,
            now=now,
            min_confidence=min_confidence,
            reranker=reranker,
        )

    def iter_search(
        self,
        query: str,
        most: int = 100,
        *,
        now: Timestamp | None = None,
        min_confidence: float = 0.0,
    ) -> Iterator[Hit]:
        """Yield the hits of `search` one by one."""
        return self.system.iter_search(self.agent_id, query, most, now=now, min_confidence=min_confidence)

    def similar(
        self,
        state: Any,
        k: int = 10,
        tier: TierName = "all",
        memory_type: str | None = None,
        threshold: float | None = None,
    ) -> list[Hit]:
        """Return the k memories nearest to a state, text or vector; see `retrieve_similar_states`."""
        return self.system.retrieve_similar_states(self.agent_id, state, k, tier, memory_type, threshold)

    def recent(self, k: int = 10, *, tier: TierName = "all") -> list[MemoryEntry]:
        """Return the k memories that happened last, newest first."""
        return self.system.recent(self.agent_id, k, tier=tier)

    def statistics(self) -> dict[str, Any]:
        """Count the memories by tier; see `get_memory_statistics`."""
        return self.system.get_memory_statistics(self.agent_id)
