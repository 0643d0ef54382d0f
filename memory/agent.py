"""AgentMemory: one agent's three tiers, the verbs of the system without naming the agent each time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from memory._read.finding import Moment, TierName
from memory.entry import Hit, MemoryEntry
from memory.errors import InvalidMemory
from memory.system import AgentMemorySystem


class AgentMemory:
    """A view of one agent's memories; costs nothing to make and holds nothing of its own."""

    def __init__(self, system: AgentMemorySystem, agent_id: str) -> None:
        self.system = system
        self.agent_id = agent_id

    def add(self, content: Any, **fields: Any) -> str:
        """Store one memory; the fields are those of `AgentMemorySystem.add`."""
        return self.system.add(self.agent_id, content, **fields)

    def add_many(self, batch: Iterable[Mapping[str, Any]]) -> list[str]:
        """Store many memories in one commit; each item has the arguments of `add` as its keys."""
        items = [{"agent_id": self.agent_id, **item} for item in batch]
        for item in items:
            if item["agent_id"] != self.agent_id:
                raise InvalidMemory(
                    f"an item of the batch is for agent {item['agent_id']!r}, not for {self.agent_id!r}"
                )
        return self.system.add_many(items)

    def get(self, id: str) -> MemoryEntry | None:
        return self.system.get(self.agent_id, id)

    def get_many(self, ids: Sequence[str]) -> list[MemoryEntry | None]:
        return self.system.get_many(self.agent_id, ids)

    def exists(self, id: str, tier: TierName | None = None) -> bool:
        return self.system.exists(self.agent_id, id, tier)

    def update(self, id: str, **fields: Any) -> bool:
        """Change some fields of a memory; the fields are those of `AgentMemorySystem.update`."""
        return self.system.update(self.agent_id, id, **fields)

    def delete(self, id: str) -> bool:
        return self.system.delete(self.agent_id, id)

    def delete_all(self) -> int:
        return self.system.delete_all(self.agent_id)

    def search(
        self,
        query: str,
        k: int = 10,
        *,
        tier: TierName = "all",
        filters: Mapping[str, Any] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[Hit]:
        """The k memories that fit a text best."""
        return self.system.search(
            self.agent_id, query, k, tier=tier, filters=filters, since=since, until=until
        )

    def iter_search(self, query: str, most: int = 100) -> Iterator[Hit]:
        """The same one after the other, each read when it is reached."""
        return self.system.iter_search(self.agent_id, query, most)

    def similar(self, state: Any, k: int = 10, **conditions: Any) -> list[Hit]:
        """The k memories nearest to a state, text or vector; see `retrieve_similar_states`."""
        return self.system.retrieve_similar_states(self.agent_id, state, k, **conditions)

    def recent(self, k: int = 10, *, tier: TierName = "all") -> list[MemoryEntry]:
        return self.system.recent(self.agent_id, k, tier=tier)

    def statistics(self) -> dict[str, Any]:
        return self.system.get_memory_statistics(self.agent_id)
