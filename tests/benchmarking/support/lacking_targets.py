"""SQLite baselines that lack one capability each, and fail if a benchmark uses it all the same."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import NotSupported
from memory.benchmarking.targets.base import Found, Item, Settings, Target
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget

HAS = SQLiteBaselineTarget.capabilities
Query = str | Mapping[str, Any]


def lacking(name: str) -> str:
    """Return the name of a class for `--target`."""
    return f"{Path(__file__).resolve()}:{name}"


class Baseline(Target):
    """Passes every call to a baseline. A subclass overrides a method without changing the others."""

    name = "baseline"
    capabilities = HAS

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        self.inner = SQLiteBaselineTarget()
        self.inner.open(folder)

    def close(self) -> None:
        self.inner.close()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        return self.inner.add(items)

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return self.inner.get(agent_id, ids)

    def search(self, agent_id: str, query: Query, k: int, place: str | None = None) -> list[Found]:
        return self.inner.search(agent_id, query, k)

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        return self.inner.search_vector(agent_id, vector, k)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        return self.inner.delete(agent_id, ids)

    def delete_all(self, agent_id: str) -> int:
        return self.inner.delete_all(agent_id)

    def count(self) -> dict[str, int]:
        return self.inner.count()


class WithoutGet(Baseline):
    name = "without-get"
    capabilities = replace(HAS, get=False)

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        raise NotSupported(f"{self.name} can't read by id")


class Rewriting(Baseline):
    """Returns other contents than those that were stored."""

    name = "rewriting"
    capabilities = replace(HAS, exact=False)

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [None if each is None else f"Noted: {each}" for each in super().get(agent_id, ids)]

    def search(self, agent_id: str, query: Query, k: int, place: str | None = None) -> list[Found]:
        hits = super().search(agent_id, query, k, place)
        return [Found(hit.id, hit.score, f"Noted: {hit.content}") for hit in hits]


class FewHits(Baseline):
    name = "few-hits"
    capabilities = replace(HAS, max_k=3)

    def search(self, agent_id: str, query: Query, k: int, place: str | None = None) -> list[Found]:
        assert k <= 3, f"a search for {k} hits"
        return super().search(agent_id, query, k, place)

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        assert k <= 3, f"a search for {k} hits"
        return super().search_vector(agent_id, vector, k, place)


class Late(Baseline):
    """Finds only what was there at the last flush."""

    name = "late"
    capabilities = replace(HAS, delayed_search=True)
    _new: frozenset[str] = frozenset()

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        ids = super().add(items, place)
        self._new |= set(ids)
        return ids

    def search(self, agent_id: str, query: Query, k: int, place: str | None = None) -> list[Found]:
        hits = super().search(agent_id, query, k + len(self._new), place)
        return [hit for hit in hits if hit.id not in self._new][:k]

    def flush(self) -> None:
        self._new = frozenset()


class LateWithoutAWord(Late):
    name = "late-without-a-word"
    capabilities = HAS


class WithoutUpdate(Baseline):
    name = "without-update"
    capabilities = replace(HAS, update=False)


class WithoutVectors(Baseline):
    name = "without-vectors"
    capabilities = replace(HAS, vector_queries=False, search_by="words")

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        raise AssertionError("a search by vector")


class WithoutSearch(Baseline):
    name = "without-search"
    capabilities = replace(HAS, search_by=None, vector_queries=False)

    def search(self, agent_id: str, query: Query, k: int, place: str | None = None) -> list[Found]:
        raise AssertionError("a search")
