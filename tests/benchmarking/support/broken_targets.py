"""AgentMemory with deliberate faults, which the benchmarks must detect."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from light_target import LightTarget

from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Capabilities, Found, Item, Settings, Stored


def place_of(name: str) -> str:
    """Return the name of a class for `--target`."""
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
    """Ignores importance: evicts the oldest memories."""

    def add_one(self, item: Item, place: str | None = None) -> str:
        return super().add_one(Item(item.agent_id, item.content, item.step), place)


class FindsTheWrongOnes(AgentMemoryTarget):
    """Reverses every ranking."""

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


class Forgetful(AgentMemoryTarget):
    """Never returns a memory by its id."""

    def get_one(self, agent_id: str, id: str) -> Any:
        return None


class Hoarding(AgentMemoryTarget):
    """Leaks 1 MB in every search."""

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        self.hoard = [*getattr(self, "hoard", []), b"x" * 1_000_000]
        return super().search(agent_id, query, k, place)


class Talkative(AgentMemoryTarget):
    """Answers every agent with the first agent's memories."""

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        return super().search("agent_0", query, k, place)


class Alone(AgentMemoryTarget):
    """Has no tiers, threads or vector queries."""

    capabilities = Capabilities()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        return super().add(items)


class HalfBlind(AgentMemoryTarget):
    """Returns half of the hits."""

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        return super().search_vector(agent_id, vector, k, place)[: k // 2]


class LosesHalf(AgentMemoryTarget):
    """Acknowledges every memory, but stores only every second one."""

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        kept = super().add(items[::2], place)
        return [id_ for id_ in kept for _ in range(2)][: len(items)]

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        self._number, self._last, self._lock = 0, "", threading.Lock()
        super().open(folder, settings)

    def add_one(self, item: Item, place: str | None = None) -> str:
        with self._lock:  # threads share the target
            self._number += 1
            if self._number % 2:
                self._last = super().add_one(item, place)
            return self._last


class KeepsNothing(AgentMemoryTarget):
    """Acknowledges every memory and stores none."""

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        self._number = getattr(self, "_number", 0) + len(items)
        return [str(self._number - number) for number in range(len(items))]

    def add_one(self, item: Item, place: str | None = None) -> str:
        return self.add([item], place)[0]


class DictionaryThatClaimsPersistence(LightTarget):
    """Keeps everything in RAM, and declares that it survives the process."""

    name = "dictionary"
    capabilities = Capabilities(search_by=None, update=False)


_OF_THIS_MODULE: dict[Path, dict[tuple[str, str], Any]] = {}


class VariableThatClaimsPersistence(DictionaryThatClaimsPersistence):
    """Survives `close`, but not the process: a new object of the same process finds everything again."""

    name = "variable"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        self._kept = _OF_THIS_MODULE.setdefault(folder, {})
        self._number = len(self._kept)

    def close(self) -> None:
        pass


class VariableWithoutDurability(VariableThatClaimsPersistence):
    capabilities = Capabilities(search_by=None, update=False, durability="ram")


class WritesItsFileInClose(DictionaryThatClaimsPersistence):
    """Keeps its promises only if nobody kills it."""

    name = "late"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._file = folder / "all.pickle"
        if self._file.is_file():
            self._kept = pickle.loads(self._file.read_bytes())
            self._number = len(self._kept)

    def close(self) -> None:
        self._file.write_bytes(pickle.dumps(self._kept))


class ChangesContent(LightTarget):
    """Returns every text in capitals."""

    name = "loud"

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [str(content).upper() for content in super().get(agent_id, ids)]
