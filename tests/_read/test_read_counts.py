"""How often memories were read: counted in little room, and saved without anybody's asking."""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from small_embedder import small_embedder
from threads import together

from memory import AgentMemorySystem, system
from memory._read import read_counts
from memory._read.read_counts import ReadCounts
from memory.errors import StoreFull

Open = Callable[..., AgentMemorySystem]


def saved(tmp_path: Path) -> int:
    """Readings in the file."""
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
        return int(file.execute("SELECT coalesce(sum(uses), 0) FROM uses").fetchone()[0])


def test_reading_the_same_over_and_over_takes_no_room_and_is_counted_whole(
    open_memory: Open, tmp_path: Path
) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = [memory.add("ann", f"note {number}") for number in range(5)]
    for _ in range(30_000):
        for id_ in ids:
            memory.get("ann", id_)
    assert memory._entry_cache.read_counts.memories == 5
    memory.close()
    assert saved(tmp_path) == 150_000


def test_without_maintenance_storing_saves_what_was_read_in_parts(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_MAX_UNSAVED_COUNTS", 100)
    monkeypatch.setattr(system, "_COUNTS_PER_SAVE", 80)
    memory = open_memory(embedder=small_embedder())
    most = 0
    for number in range(1000):
        memory.get("ann", memory.add("ann", f"note {number}"))
        most = max(most, memory._entry_cache.read_counts.memories)
    assert most <= 100 + system._CHECK_COUNTS_EVERY + 1
    kept = sum(map(sum, (counts.values() for counts in memory._entry_cache.read_counts.counts.values())))
    assert saved(tmp_path) == 1000 - kept >= 800
    memory.maintain()
    assert saved(tmp_path) == 1000


def test_what_was_saved_by_the_way_counts_in_a_transition(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(system, "_MAX_UNSAVED_COUNTS", 0)
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 1})
    first, second = memory.add("ann", "the first note"), memory.add("ann", "the second note")
    for _ in range(20):
        memory.get("ann", first)
    for number in range(system._CHECK_COUNTS_EVERY):
        memory.add("ben", f"note {number}")
    assert not memory._entry_cache.read_counts.memories
    memory.maintain()
    entry, other = memory.get("ann", first), memory.get("ann", second)
    assert entry is not None
    assert other is not None
    assert (entry.tier, other.tier) == ("stm", "im")


def test_storing_succeeds_where_only_the_uses_can_not_be_saved(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(_: object) -> None:
        raise StoreFull("no space left")

    monkeypatch.setattr(system, "_MAX_UNSAVED_COUNTS", 0)
    memory = open_memory(embedder=small_embedder())
    with monkeypatch.context() as now, caplog.at_level(logging.WARNING):
        now.setattr(memory._store, "add_read_counts", full)
        ids = [memory.add("ann", f"note {number}") for number in range(10)]
        memory.get("ann", ids[0])
        ids += [memory.add("ann", f"later note {number}") for number in range(system._CHECK_COUNTS_EVERY)]
    assert None not in memory.get_many("ann", ids)
    assert ["no space left" in record.getMessage() for record in caplog.records] == [True]


def test_of_memories_that_nobody_saves_the_first_are_given_up() -> None:
    waiting = ReadCounts()
    for seq in range(read_counts._MAX_UNSAVED + 5 * read_counts._CHECK_EVERY):
        waiting.add("ann", [seq])
        waiting.add("ann", [seq])
    assert waiting.memories <= read_counts._MAX_UNSAVED + read_counts._CHECK_EVERY
    taken = waiting.take()["ann"]
    assert 0 not in taken
    assert taken[read_counts._MAX_UNSAVED] == 2


def test_a_part_is_taken_of_those_that_were_first_read() -> None:
    waiting = ReadCounts()
    for agent, seq in (("ann", 1), ("ann", 2), ("ben", 1), ("ann", 1), ("ben", 2), ("eve", 1)):
        waiting.add(agent, [seq])
    assert waiting.take(3) == {"ann": {1: 2, 2: 1}, "ben": {1: 1}}
    assert waiting.take(0) == {}
    assert waiting.take() == {"ben": {2: 1}, "eve": {1: 1}}
    assert waiting.take() == {}


@pytest.mark.parametrize("most", [None, 3], ids=["all", "a part"])
def test_no_reading_is_lost_or_counted_twice_while_others_take(most: int | None) -> None:
    waiting, readings = ReadCounts(), 30_000
    taken: list[int] = []

    def read() -> None:
        for number in range(readings):
            waiting.counts["ann"][number % 7] += 1

    def take() -> None:
        for _ in range(2000):
            taken.extend(sum(counts.values()) for counts in waiting.take(most).values())

    together(read, read, take, take)
    assert sum(taken) + sum(waiting.take().get("ann", {}).values()) == 2 * readings
