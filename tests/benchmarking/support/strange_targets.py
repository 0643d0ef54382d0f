"""Targets with unusual capabilities that keep their promises, and targets that break one each."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from light_target import LightTarget
from numpy.typing import NDArray

from memory.benchmarking.errors import NotSupported
from memory.benchmarking.targets.base import Capabilities, Dial, Found, Item, Settings
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget


def place_of(name: str) -> str:
    """Return the name of a class for `--target`."""
    return f"{Path(__file__).resolve()}:{name}"


# -- unusual, but honest ----------------------------------------------------------------------


class FindsLater(SQLiteBaselineTarget):
    """Finds a memory only after `flush`."""

    name = "finds-later"
    capabilities = Capabilities(vector_queries=True, forms=True, delayed_search=True)

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._unseen: set[str] = set()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = super().add(items, place)
        self._unseen.update(ids)
        return ids

    def flush(self) -> None:
        self._unseen.clear()

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        hits = super().search(agent_id, query, k + len(self._unseen), place)
        return [hit for hit in hits if hit.id not in self._unseen][:k]


class HasNoGet(SQLiteBaselineTarget):
    """Reads nothing by id."""

    name = "has-no-get"
    capabilities = Capabilities(vector_queries=True, forms=True, get=False)

    searching = False

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        if not self.searching:
            raise NotSupported(f"{self.name} can't read by id")
        return super().get(agent_id, ids)

    def get_one(self, agent_id: str, id: str) -> Any:
        if not self.searching:
            raise NotSupported(f"{self.name} can't read by id")
        return super().get_one(agent_id, id)

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        self.searching = True
        try:
            return super().search_vector(agent_id, vector, k, place)
        finally:
            self.searching = False


class Rewrites(SQLiteBaselineTarget):
    """Returns texts in capitals, as a system that rewrites what it stores."""

    name = "rewrites"
    capabilities = Capabilities(vector_queries=True, forms=True, exact=False)

    def get_one(self, agent_id: str, id: str) -> Any:
        content = super().get_one(agent_id, id)
        return content.upper() if isinstance(content, str) else content


class FewHits(SQLiteBaselineTarget):
    """Returns at most four hits, and refuses to be asked for more."""

    name = "few-hits"
    capabilities = Capabilities(vector_queries=True, forms=True, max_k=4)

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        if k > 4:
            raise ValueError(f"k is {k}: the limit is 4")
        return super().search(agent_id, query, k, place)


# -- each breaks one promise ------------------------------------------------------------------


class SaysItFindsAtOnce(FindsLater):
    name = "says-it-finds-at-once"
    capabilities = Capabilities(vector_queries=True, forms=True)


class NeverFlushes(FindsLater):
    name = "never-flushes"

    def flush(self) -> None:
        return


class RefusesSpaces(SQLiteBaselineTarget):
    name = "refuses-spaces"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        for item in items:
            if " " in item.agent_id:
                raise ValueError(f"user id {item.agent_id!r} has white space")
        return super().add(items, place)


class RefusesEqualTexts(SQLiteBaselineTarget):
    name = "refuses-equal-texts"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        different = {str(item.content): item for item in items}
        return super().add(list(different.values()), place)


class CountsTwice(SQLiteBaselineTarget):
    name = "counts-twice"

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        known = [id_ for id_ in ids if self.get_one(agent_id, id_) is not None]
        super().delete(agent_id, ids)
        return len(known)


class GetsOnce(SQLiteBaselineTarget):
    name = "gets-once"

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return super().get(agent_id, list(dict.fromkeys(ids)))


class HasNoConfidence(SQLiteBaselineTarget):
    """Promises a confidence, and gives none."""

    name = "has-no-confidence"
    capabilities = replace(SQLiteBaselineTarget.capabilities, confidence=True)


class ReturnsTooMany(SQLiteBaselineTarget):
    name = "returns-too-many"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        return super().search(agent_id, query, k + 1, place)


class FailsWithLargeK(SQLiteBaselineTarget):
    name = "fails-with-large-k"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        if k > sum(self.count().values()) > 0:
            raise IndexError(f"k is {k}")
        return super().search(agent_id, query, k, place)


class MaxKTooLarge(FewHits):
    name = "max-k-too-large"
    capabilities = Capabilities(vector_queries=True, forms=True, max_k=6)


class HasAStuckDial(SQLiteBaselineTarget):
    """Its search looks at every second memory only, whatever its dial says."""

    name = "has-a-stuck-dial"
    dial = Dial("ef", (10, 20, 40, 80))

    def turn_dial(self, setting: int) -> None:
        pass

    def search_vector(
        self, agent_id: str, vector: NDArray[np.float32], k: int, place: str | None = None
    ) -> list[Found]:
        return super().search_vector(agent_id, vector, 2 * k, place)[::2]


class StopsDeletingAtHundred(SQLiteBaselineTarget):
    name = "stops-deleting-at-hundred"

    def delete_all(self, agent_id: str) -> int:
        numbers, _ = self._matrix(agent_id)
        return self.delete(agent_id, [str(number) for number in numbers[:100]])


class Crashes(SQLiteBaselineTarget):
    """Ends its process in `update`, as a fault in C code would."""

    name = "crashes"

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        os.abort()


class Hangs(LightTarget):
    name = "hangs"

    def maintain(self) -> None:
        time.sleep(3600)
