"""Targets with one fault each. Every fault must be found by the right checks, and by no others.

All derive from the SQLite baseline, which keeps what it promises. `FOUND_BY` says which checks find which
fault; the tests and scripts/faults.py read it.
"""

from __future__ import annotations

import sqlite3
import time
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memory.benchmarking.targets.base import Found, Item, Settings
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget


class DropsWrites(SQLiteBaselineTarget):
    """Acknowledges every 100th single write of a store without storing it: the 20th, the 120th, …"""

    name = "drops-writes"

    def add_one(self, item: Item, place: str | None = None) -> str:
        (id_,) = self.add([item], place)
        (writes,) = self._db.execute("PRAGMA user_version").fetchone()
        self._db.execute(f"PRAGMA user_version = {writes + 1}")
        if writes % 100 == 19:
            self.delete(item.agent_id, [id_])
        return id_


class ForgetsAtRestart(SQLiteBaselineTarget):
    """Keeps memories in RAM, and writes them to the file in `close`."""

    name = "forgets-at-restart"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._file = self._db
        self._db = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        self._file.backup(self._db)

    def close(self) -> None:
        self._db.backup(self._file)
        self._db.close()
        self._file.close()


class LeaksAcrossAgents(SQLiteBaselineTarget):
    """Filters agents with LIKE, so that % and _ are wildcards, and names ignore their case."""

    name = "leaks-across-agents"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        found: list[Found] = []
        agents = self._db.execute("SELECT DISTINCT agent FROM memories WHERE agent LIKE ?", (agent_id,))
        for (agent,) in agents.fetchall():
            found += super().search(agent, query, k)
        return sorted(found, key=lambda hit: -hit.score)[:k]


class ResurrectsDeletes(SQLiteBaselineTarget):
    """Only marks deleted memories; opening the store again shows them."""

    name = "resurrects-deletes"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        super().open(folder, settings)
        self._deleted: set[str] = set()

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        return [
            None if id_ in self._deleted else super(ResurrectsDeletes, self).get_one(agent_id, id_)
            for id_ in ids
        ]

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        hits = super().search(agent_id, query, k + len(self._deleted))
        return [hit for hit in hits if hit.id not in self._deleted][:k]

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        known = {id_ for id_ in ids if self.get_one(agent_id, id_) is not None} - self._deleted
        self._deleted |= known
        return len(known)

    def delete_all(self, agent_id: str) -> int:
        ids = self._db.execute("SELECT number FROM memories WHERE agent = ?", (agent_id,)).fetchall()
        return self.delete(agent_id, [str(number) for (number,) in ids])

    def count(self) -> dict[str, int]:
        return {"store": super().count()["store"] - len(self._deleted)}


class ReadsStale(SQLiteBaselineTarget):
    """Searches in vectors that it read once, so that new memories are not found."""

    name = "reads-stale"

    def _drop_cached_vectors(self, *agents: str) -> None:
        """Keep them, which is the fault; a deleted memory's content is read from the table all the same."""

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        hits = super().search_vector(agent_id, vector, k, place)
        return [hit for hit in hits if hit.content is not None]


class CutsHits(SQLiteBaselineTarget):
    """Takes the best hits of all agents first, and then those of the agent."""

    name = "cuts-hits"

    def search_vector(self, agent_id: str, vector: Any, k: int, place: str | None = None) -> list[Found]:
        agents = [agent for (agent,) in self._db.execute("SELECT DISTINCT agent FROM memories")]
        hits = [
            (agent, hit)
            for agent in agents
            for hit in super(CutsHits, self).search_vector(agent, vector, 2 * k)
        ]
        hits.sort(key=lambda pair: -pair[1].score)
        return [hit for agent, hit in hits[: 2 * k] if agent == agent_id][:k]


class CountsTextsAsHits(SQLiteBaselineTarget):
    """Takes the 2k best texts first, and then the memories that they belong to (LangGraph #8977)."""

    name = "counts-texts-as-hits"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        found: list[Found] = []
        texts = 0
        for hit in super().search(agent_id, query, k):
            if texts < 2 * k:
                found.append(hit)
            texts += len(hit.content) if isinstance(hit.content, list) else 1
        return found


class CorruptsUnicode(SQLiteBaselineTarget):
    """Normalises texts, so that some come back different."""

    name = "corrupts-unicode"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        return super().add([replace(item, content=_normalised(item.content)) for item in items], place)


def _normalised(content: Any) -> Any:
    return unicodedata.normalize("NFC", content) if isinstance(content, str) else content


class StopsDeletingAt100(SQLiteBaselineTarget):
    """`delete_all` deletes one page of results (mem0 #4957)."""

    name = "stops-deleting-at-100"

    def delete_all(self, agent_id: str) -> int:
        ids = self._db.execute(
            "SELECT number FROM memories WHERE agent = ? LIMIT 100", (agent_id,)
        ).fetchall()
        return self.delete(agent_id, [str(number) for (number,) in ids])


class DeletesEverybody(SQLiteBaselineTarget):
    """`delete_all` forgets its filter (mem0 #3746)."""

    name = "deletes-everybody"

    def delete_all(self, agent_id: str) -> int:
        deleted = super().delete_all(agent_id)
        self._db.execute("DELETE FROM memories")
        self._vectors.clear()
        return deleted


class Hangs(SQLiteBaselineTarget):
    """A batch delete never returns."""

    name = "hangs"

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        if len(ids) > 100:
            import threading

            threading.Event().wait()
        return super().delete(agent_id, ids)


class Crashes(SQLiteBaselineTarget):
    """A search for k above the size kills the process."""

    name = "crashes"

    def search(
        self, agent_id: str, query: str | Mapping[str, Any], k: int, place: str | None = None
    ) -> list[Found]:
        if k > 100:
            import os

            os.abort()
        return super().search(agent_id, query, k, place)


class Slow(SQLiteBaselineTarget):
    """Has no fault: a write takes a tenth of a second."""

    name = "slow"

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        time.sleep(0.1)
        return super().add(items, place)


DELETES = {
    "deleted_one_by_one_is_gone",
    "deleted_in_a_batch_is_gone",
    "delete_all_deletes_all_of_one_agent",
}
KILLED = "a_killed_process_loses_nothing"
FOUND_BY = {
    "DropsWrites": {KILLED, "the_same_thread_reads_it", "the_same_thread_finds_it"},
    # It notices a full disk only in `close`, when everything was acknowledged.
    "ForgetsAtRestart": {KILLED, "a_full_disk_is_an_error_and_loses_nothing"},
    "LeaksAcrossAgents": {"names_with_syntax_stay_apart", "similar_names_stay_apart"},
    "ResurrectsDeletes": {KILLED, *DELETES},
    "ReadsStale": {"the_same_thread_finds_it"},
    "CutsHits": {"a_small_agent_gets_its_k_hits"},
    "CountsTextsAsHits": {"lists_of_texts_do_not_crowd_out_others"},
    "CorruptsUnicode": {"any_text_is_read_back"},
    "StopsDeletingAt100": {"delete_all_deletes_all_of_one_agent"},
    "DeletesEverybody": {"delete_all_deletes_all_of_one_agent"},
}
"""For each fault, the checks that must call a promise broken; all others must not."""
