"""Many memories of about 3 kB each, for tests that need a large file; also for child processes."""

from __future__ import annotations

from memory import AgentMemorySystem

MANY = 1_500  # more than 4 MB together


def text(number: int) -> str:
    return f"memory {number} " + "x" * 3_000


ALL = {str(number): text(number) for number in range(MANY)}


def fill(memory: AgentMemorySystem, agent: str, part: range = range(MANY)) -> None:
    memory.add_many({"agent_id": agent, "content": text(number), "id": str(number)} for number in part)


def contents(memory: AgentMemorySystem, agent: str) -> dict[str, str]:
    return {entry.id: entry.content for entry in memory.recent(agent, 10 * MANY)}
