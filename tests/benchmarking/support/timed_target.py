"""Targets whose operations take a known time, one after the other: their knee follows from it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any

from light_target import LightTarget

from memory.benchmarking.targets.base import Capabilities, Found, Item

SERVICE_SECONDS = 0.002
_CREDIT_SECONDS = 0.010
"""How far an operation may make up for delays of earlier ones: a sleep ends late on a busy machine."""


class TimedTarget(LightTarget):
    """Every operation takes 2 ms, and only one runs at a time."""

    name = "timed"
    capabilities = Capabilities(search_by="words", update=False, persistence=False, threads=True)
    _lock = threading.Lock()
    _free_at = 0.0

    def _serve(self) -> None:
        now = time.perf_counter()
        self._free_at = max(self._free_at, now - _CREDIT_SECONDS) + SERVICE_SECONDS
        time.sleep(max(0.0, self._free_at - now))

    def add_one(self, item: Item, place: str | None = None) -> str:
        with self._lock:
            self._serve()
            return self.add([item], place)[0]

    def get_one(self, agent_id: str, id: str) -> Any:
        with self._lock:
            self._serve()
            return self.get(agent_id, [id])[0]

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        with self._lock:
            self._serve()
            return [
                Found(id_, 1.0, text) for (agent, id_), text in self._kept.items() if agent == agent_id
            ][:k]


class ForgetfulTarget(TimedTarget):
    """It forgets the memories that a probe starts with."""

    name = "forgetful"

    def get_one(self, agent_id: str, id: str) -> Any:
        return None


class SlowTarget(TimedTarget):
    """A search takes longer than the limit, even alone."""

    name = "slow"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        time.sleep(0.02)
        return super().search(agent_id, query, k, place)
