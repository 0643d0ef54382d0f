"""AgentMemory with something wrong on purpose: a benchmark that does not notice is no benchmark."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Found, Item, Settings, Stored


def place_of(name: str) -> str:
    """As `--target` takes it."""
    return f"{Path(__file__).resolve()}:{name}"


class ForgetsSteps(AgentMemoryTarget):
    """Loses the step of every second memory."""

    def inspect(self, agent_id: str, ids: Sequence[str]) -> list[Stored | None]:
        found = super().inspect(agent_id, ids)
        return [
            Stored(each.id, each.content, each.place, None, each.kind, each.importance)
            if each is not None and number % 2
            else each
            for number, each in enumerate(found)
        ]


class IgnoresImportance(AgentMemoryTarget):
    """Everything matters alike: what is oldest goes."""

    def add_one(self, item: Item, place: str | None = None) -> str:
        return super().add_one(Item(item.agent_id, item.content, item.step), place)


class FindsTheWrongOnes(AgentMemoryTarget):
    """Turns every ranking round."""

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        everything = super().search(agent_id, query, 1000, place)
        return everything[::-1][:k]


class NeverMoves(AgentMemoryTarget):
    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder)


class FindsNothing(AgentMemoryTarget):
    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        return []


class FailsToSearch(AgentMemoryTarget):
    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        raise RuntimeError("the index is gone")
