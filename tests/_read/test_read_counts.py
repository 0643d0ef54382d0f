"""Read counts take little space, and are saved without a call of `maintain`."""

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
from memory.errors import StoreBusy, StoreFull, StoreUnavailable

Open = Callable[..., AgentMemorySystem]


def saved(tmp_path: Path) -> int:
    """Return the sum of the read counts in the file."""
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
        return int(file.execute("SELECT coalesce(sum(uses), 0) FROM uses").fetchone()[0])


@pytest.mark.reads_the_file
def test_repeated_reads_of_the_same_memories_are_all_counted_in_constant_space(
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


@pytest.mark.reads_the_file
def test_the_background_saves_in_short_transactions_and_loses_no_count_when_stopped(
    open_memory: Open, tmp_path: Path
) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = [memory.add("ann", f"note {number}") for number in range(250)]
    for id_ in ids:
        memory.get("ann", id_)
    found: list[int] = []

    def pause() -> bool:
        found.append(saved(tmp_path))
        return not stopped

    stopped = False
    memory._entry_cache.save_read_counts_in_parts(100, pause)
    assert found == [100, 200, 250]
    stopped = True
    for id_ in ids:
        memory.get("ann", id_)
    memory._entry_cache.save_read_counts_in_parts(100, pause)
    assert found[3:] == [350, 500], "whoever stops it waits for one more transaction, and no count is lost"


@pytest.mark.reads_the_file
@pytest.mark.parametrize("failing", ["a part", "the pause", "all at once"])
def test_read_counts_that_could_not_be_saved_are_saved_later(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    memory = open_memory(embedder=small_embedder())
    cache, add_read_counts = memory._entry_cache, memory._store.add_read_counts
    ids = [memory.add(f"agent {number % 2}", f"note {number}") for number in range(300)]

    def read_all() -> None:
        for number, id_ in enumerate(ids):
            memory.get(f"agent {number % 2}", id_)

    def second_call_fails(counts: dict[str, dict[int, int]]) -> None:
        calls.append(counts)
        if len(calls) == 2 or failing == "all at once":
            memory.get("agent 0", ids[0])  # a read of another thread
            raise StoreBusy("another process writes")
        add_read_counts(counts)

    def pause() -> bool:
        if failing == "the pause":
            raise StoreBusy("another process writes")
        return True

    def save() -> None:
        if failing == "all at once":
            cache.save_read_counts()
        else:
            cache.save_read_counts_in_parts(64, pause)

    calls: list[object] = []
    read_all()
    with monkeypatch.context() as now:
        now.setattr(memory._store, "add_read_counts", second_call_fails)
        with pytest.raises(StoreBusy):
            save()
    assert saved(tmp_path) == (0 if failing == "all at once" else 64)
    read_all()
    cache.save_read_counts_in_parts(64, lambda: True)
    assert saved(tmp_path) == 600 + (failing != "the pause")
    assert not cache.read_counts.memories


@pytest.mark.parametrize(("stored", "left"), [(False, 300), (None, 236)])
def test_read_counts_that_may_be_stored_are_not_counted_twice(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch, stored: bool | None, left: int
) -> None:
    def broken(_: object) -> None:
        raise StoreUnavailable("the connection broke", stored=stored)

    memory = open_memory(embedder=small_embedder())
    for number in range(300):
        memory.get("ann", memory.add("ann", f"note {number}"))
    with monkeypatch.context() as now:
        now.setattr(memory._store, "add_read_counts", broken)
        with pytest.raises(StoreUnavailable):
            memory._entry_cache.save_read_counts_in_parts(64, lambda: True)
    assert memory._entry_cache.read_counts.memories == left


@pytest.mark.reads_the_file
def test_without_maintenance_storing_calls_save_read_counts_in_parts(
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


def test_saved_read_counts_count_in_a_transition(
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


def test_storing_succeeds_if_the_read_counts_can_not_be_saved(
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


def test_above_the_limit_the_oldest_unsaved_counts_are_dropped() -> None:
    unsaved = ReadCounts()
    for seq in range(read_counts._MAX_UNSAVED + 5 * read_counts._CHECK_EVERY):
        unsaved.add("ann", [seq])
        unsaved.add("ann", [seq])
    assert unsaved.memories <= read_counts._MAX_UNSAVED + read_counts._CHECK_EVERY
    taken = unsaved.take()["ann"]
    assert 0 not in taken
    assert taken[read_counts._MAX_UNSAVED] == 2


def test_taking_a_part_takes_the_memories_that_were_read_first() -> None:
    unsaved = ReadCounts()
    for agent, seq in (("ann", 1), ("ann", 2), ("ben", 1), ("ann", 1), ("ben", 2), ("eve", 1)):
        unsaved.add(agent, [seq])
    assert unsaved.take(3) == {"ann": {1: 2, 2: 1}, "ben": {1: 1}}
    assert unsaved.take(0) == {}
    assert unsaved.take() == {"ben": {2: 1}, "eve": {1: 1}}
    assert unsaved.take() == {}


@pytest.mark.parametrize("most", [None, 3], ids=["all", "a part"])
def test_no_read_is_lost_or_counted_twice_while_other_threads_take(most: int | None) -> None:
    unsaved, readings = ReadCounts(), 30_000
    taken: list[int] = []

    def read() -> None:
        for number in range(readings):
            unsaved.counts["ann"][number % 7] += 1

    def take() -> None:
        for _ in range(2000):
            taken.extend(sum(counts.values()) for counts in unsaved.take(most).values())

    together(read, read, take, take)
    assert sum(taken) + sum(unsaved.take().get("ann", {}).values()) == 2 * readings
