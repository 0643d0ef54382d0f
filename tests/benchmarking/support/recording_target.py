"""A target that records all calls, and finds nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, ClassVar

from light_target import LightTarget

from memory.benchmarking.targets.base import Capabilities, Found, Item, Settings

RECORDING = f"{__name__}:RecordingTarget"
"""The name for `--target`."""


class RecordingTarget(LightTarget):
    name = "recording"
    capabilities = Capabilities(update=False, persistence=False, confidence=True)
    given: ClassVar[list[tuple[str, Any]]] = []
    """The calls of all stores, in order, with their arguments."""

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self.given.append(("open", settings))

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        self.given.append(("add", ([asdict(item) for item in items], place)))
        return super().add(items, place)

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        self.given.append(("search", (agent_id, query, k, place)))
        return super().search(agent_id, query, k, place)

    def settle(self, sample: Sequence[Item]) -> None:
        self.given.append(("settle", [asdict(item) for item in sample]))
