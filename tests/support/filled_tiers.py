"""Fill a memory, and look at which tiers its memories are in."""

from __future__ import annotations

from typing import Any

from memory import AgentMemorySystem


def tiers_of(memory: AgentMemorySystem, agent: str | None = None) -> tuple[int, int, int]:
    tiers = memory.get_memory_statistics(agent)["tiers"]
    return tiers["stm"], tiers["im"], tiers["ltm"]


def ids_in(memory: AgentMemorySystem, agent: str, tier: str) -> set[str]:
    return {entry.id for entry in memory.retrieve_by_time_range(agent, tier=tier)}


def fill(memory: AgentMemorySystem, count: int, agent: str = "ann", **fields: Any) -> list[str]:
    return memory.add_many(
        [{"agent_id": agent, "content": f"memory number {n}", **fields} for n in range(count)]
    )
