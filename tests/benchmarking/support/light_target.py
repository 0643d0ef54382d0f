"""A target as a user may write it: one file, everything in RAM, lost when closed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.benchmarking.targets.base import WHOLE, Capabilities, Found, Item, Settings, Target


class LightTarget(Target):
    name = "light"
    capabilities = Capabilities(search_by=None, update=False, persistence=False)

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        self._kept: dict[tuple[str, str], Any] = {}
        self._number = 0

    def close(self) -> None:
        self._kept.clear()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = []
        for item in items:
            self._number += 1
            ids.append(str(self._number))
            self._kept[item.agent_id, ids[-1]] = item.content
        return ids

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [self._kept.get((agent_id, id_)) for id_ in ids]

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        return []

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return sum(self._kept.pop((agent_id, id_), None) is not None for id_ in ids)

    def delete_all(self, agent_id: str) -> int:
        return self.delete(agent_id, [id_ for agent, id_ in self._kept if agent == agent_id])

    def count(self) -> dict[str, int]:
        return {WHOLE: len(self._kept)}
