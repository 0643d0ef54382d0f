"""A repeated search reads from the entry cache, and never returns a stale entry."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem, Hit
from memory._base.native import core

Open = Callable[..., AgentMemorySystem]
WORDS = ("amber", "birch", "cedar", "delta", "ember", "frost")


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    memory = open_memory(embedder=small_embedder())
    for tier in ("im", "ltm", "stm"):
        memory.add_many(
            [
                {
                    "agent_id": "ann",
                    "content": {"word": word, "at": f"{word} {tier}"},
                    "id": f"{word} {tier}",
                    "tier": tier,
                }
                for word in WORDS
            ]
        )
    return memory


@pytest.fixture
def fetched(memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the number of records of each read from the store."""
    counts: list[int] = []
    get_by_seq = memory._store.get_by_seq

    def counted(agent: str, seqs: list[int], tiers: Any = None) -> Any:
        counts.append(len(seqs))
        return get_by_seq(agent, seqs, tiers)

    monkeypatch.setattr(memory._store, "get_by_seq", counted)
    return counts


def search(memory: AgentMemorySystem, query: str = "amber", k: int = 6) -> list[Hit]:
    return memory.search("ann", query, k)


def test_a_repeated_search_reads_nothing_from_the_store(
    memory: AgentMemorySystem, fetched: list[int]
) -> None:
    first = search(memory)
    assert {hit.tier for hit in first} == {"stm", "im", "ltm"}
    fetched.clear()
    assert search(memory) == first
    assert fetched == []


def test_only_new_memories_are_read_from_the_store(memory: AgentMemorySystem, fetched: list[int]) -> None:
    search(memory, k=4)
    search(memory, k=18)
    fetched.clear()
    assert len(search(memory, k=18)) == 18
    assert fetched == []
    memory.add("ann", {"word": "amber"}, tier="im", id="one more")
    assert "one more" in {hit.id for hit in search(memory, k=19)}
    assert fetched == [1]


def test_a_caller_that_changes_a_hit_does_not_change_the_cache(memory: AgentMemorySystem) -> None:
    for hit in search(memory):
        hit.entry.content["word"] = "changed"
        hit.entry.metadata["changed"] = True
    assert all(hit.entry.content["word"] != "changed" and not hit.entry.metadata for hit in search(memory))


@pytest.mark.parametrize("who", ["itself", "another"])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (
            lambda memory: memory.update(
                "ann", "amber im", content={"word": "amber", "at": "amber im", "new": 1}
            ),
            ("im", 3),
        ),
        (lambda memory: memory.force_transition_to_ltm(agent_id="ann"), ("ltm", 2)),
        (lambda memory: memory.delete("ann", "amber im"), None),
        (lambda memory: memory.delete_all("ann"), None),
    ],
    ids=["update", "move", "delete", "delete_all"],
)
def test_a_search_sees_a_change_at_once(
    open_memory: Open,
    memory: AgentMemorySystem,
    change: Callable[[AgentMemorySystem], object],
    expected: tuple[str, int] | None,
    who: str,
) -> None:
    search(memory)
    assert change(memory if who == "itself" else open_memory(embedder=small_embedder()))
    entry = {hit.id: hit.entry for hit in search(memory)}.get("amber im")
    assert (entry and (entry.tier, len(entry.content))) == expected
    again = open_memory(embedder=small_embedder())
    assert search(memory) == search(again)


def test_reads_are_counted_by_tier(memory: AgentMemorySystem) -> None:
    before = memory.get_access_statistics()["reads"]
    first, second = search(memory), search(memory)
    reads = memory.get_access_statistics()["reads"]
    for tier in ("stm", "im", "ltm"):
        assert reads[tier] - before[tier] == sum(hit.tier == tier for hit in first + second)
    assert sum(memory._entry_cache.read_counts.counts["ann"].values()) == len(first) + len(second)


def test_a_search_for_everything_is_not_cached(memory: AgentMemorySystem) -> None:
    memory.add_many([{"agent_id": "ann", "content": f"{number}", "tier": "im"} for number in range(200)])
    before = memory.get_memory_statistics()["bytes_in_cache"]
    memory.search("ann", "amber", 1000)
    held = memory._entry_cache.agents["ann"].records
    assert not held
    search(memory)
    assert held or memory._entry_cache.agents["ann"].records
    assert memory.get_memory_statistics()["bytes_in_cache"] > before


def test_the_entry_cache_stays_within_its_limit(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), cache_bytes=1 << 20)
    memory.add_many(
        [{"agent_id": "ann", "content": f"{number} " + "x" * 1000, "tier": "im"} for number in range(1500)]
    )
    for number in range(1500):
        memory.search("ann", f"{number}", 5)
        assert memory._entry_cache.nbytes <= 1 << 18


@pytest.mark.parametrize("tier", ["im", "stm"])
@pytest.mark.parametrize("look", [1, 2, 3])
def test_entries_that_another_thread_caches_after_a_change_are_not_mixed_with_stale_ones(
    open_memory: Open, tier: str, look: int
) -> None:
    """Another search may refill the cache whenever a search reads the version."""
    memory, other = open_memory(embedder=small_embedder()), open_memory(embedder=small_embedder())
    for number in range(5):
        memory.add("ann", f"old text {number}", id=str(number), tier=tier)
    memory.search("ann", "text")
    assert other.update("ann", "0", content="new text 0")
    records = memory._entry_cache.agents["ann"]
    watch, looks = records.read_version, count(1)

    def interrupted() -> int:
        if next(looks) == look:
            records.read_version = watch
            thread = threading.Thread(target=memory.search, args=("ann", "text"))
            thread.start()
            thread.join()
        return watch()

    records.read_version = interrupted
    hits = memory.search("ann", "text")
    assert records.read_version is watch, "it was not interrupted"
    assert [hit.entry.content for hit in hits if hit.id == "0"] == ["new text 0"]


@pytest.mark.skipif(
    "AGENTMEMORY_TEST_URL" in os.environ,
    reason="with a server, all cached memories of the agent are dropped",
)
@pytest.mark.skipif(core is None, reason="only the compiled core knows that nobody else has changed rows")
@pytest.mark.parametrize(
    "change",
    [
        lambda memory: memory.delete("ann", "frost stm"),
        lambda memory: memory.delete_many("ann", ["frost stm", "frost im", "frost ltm"]),
        lambda memory: memory.update("ann", "frost im", content="new"),
        lambda memory: memory.force_transition_to_im(1),
    ],
)
def test_a_change_of_this_process_drops_only_what_it_has_changed(
    memory: AgentMemorySystem, fetched: list[int], change: Callable[[AgentMemorySystem], object]
) -> None:
    memory.update("ann", "ember ltm", content="the first change still drops everything")
    search(memory, k=18)
    change(memory)
    fetched.clear()
    hits = search(memory, k=18)
    assert sum(fetched) <= 1
    read = {entry.id: entry for entry in memory.get_many("ann", [hit.id for hit in hits]) if entry}
    assert {hit.id: hit.entry for hit in hits} == read
    assert memory._entry_cache.nbytes == sum(each.size for each in memory._entry_cache.agents.values())


def test_after_delete_all_nothing_is_served_from_the_cache(memory: AgentMemorySystem) -> None:
    search(memory, k=18)
    memory.delete_all("ann")
    assert memory.get("ann", "frost stm") is None
    assert search(memory) == []
    assert memory._entry_cache.nbytes == 0


def test_a_change_of_another_process_still_drops_everything(
    memory: AgentMemorySystem, open_memory: Open, fetched: list[int]
) -> None:
    """Two systems of one file stand for two processes: they share nothing but the file and its versions."""
    other = open_memory(embedder=small_embedder())
    for turn in range(3):
        search(memory, k=18)
        memory.update("ann", "amber stm", content=f"ours {turn}")
        other.update("ann", "birch im", content=f"theirs {turn}")
        memory.update("ann", "cedar ltm", content=f"ours again {turn}")
        for system in (memory, other):
            found = {hit.id: hit.entry.content for hit in system.search("ann", "ours theirs", 18)}
            assert found["amber stm"] == f"ours {turn}"
            assert found["birch im"] == f"theirs {turn}"
            assert found["cedar ltm"] == f"ours again {turn}"


def test_a_memory_that_moves_while_hits_are_read_hides_no_other_hit(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = memory._entry_cache
    version = cache.version
    seq_of = {
        id: record.seq
        for id in ("amber stm", "amber im")
        if (record := memory._reader.find_record("ann", id)) is not None
    }
    stm, im = seq_of["amber stm"], seq_of["amber im"]

    def move_meanwhile(agent: str) -> int:
        # What other threads may do after stm was looked up in the cache.
        monkeypatch.setattr(cache, "version", version)
        memory.force_transition_to_im(100, "ann")
        assert list(memory._reader.by_seq("ann", [stm], [1])) == [stm]
        return version(agent)

    assert memory.get("ann", "amber stm") is not None
    monkeypatch.setattr(cache, "version", move_meanwhile)
    assert memory._reader.by_seq("ann", [stm, im], [0, 1]).keys() == {stm, im}


@pytest.mark.reads_the_file
def test_a_change_of_another_process_whose_mark_was_overwritten_drops_everything(
    memory: AgentMemorySystem, open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A third process that ends its own change may overwrite the mark that another one has just set."""
    other = open_memory(embedder=small_embedder())
    ours, theirs = memory._store._versions, other._store._versions  # type: ignore[attr-defined]
    begin_ours, begin_theirs, end_theirs = ours.begin, theirs.begin, theirs.end_all

    def overwritten(slot: int) -> None:
        begin_theirs(slot)
        theirs.slots[slot] = 12_345_678
        search(memory, k=18)  # caches old rows under the version of the third

    def late() -> Any:
        memory.update("ann", "cedar ltm", content="ours 2")
        return []

    def end_theirs_first(slot: int) -> None:
        begin_ours(slot)
        end_theirs()  # it leaves our mark to us

    memory.update("ann", "cedar ltm", content="ours 1")
    search(memory, k=18)
    with monkeypatch.context() as patched:
        patched.setattr(ours, "begin", end_theirs_first)
        patched.setattr(theirs, "begin", overwritten)
        patched.setattr(theirs, "end_all", late)
        assert other.update("ann", "birch im", content="theirs")
    found = {hit.id: hit.entry.content for hit in search(memory, "ours theirs", 18)}
    assert (found["birch im"], found["cedar ltm"]) == ("theirs", "ours 2")


def test_the_stm_memories_of_a_batch_are_read_from_ram(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    agents = ("ann", "bob")
    for agent in agents:  # an agent's rows have a version from its first memory on
        memory.add(agent, "known")
    batch = [
        {
            "agent_id": agents[number % 2],
            "content": {"number": number} if number % 5 else 10**30 + number,
            "id": f"{number}",
            "tier": "im" if number % 7 == 0 else "stm",
            "metadata": {"speaker": "Ann"},
        }
        for number in range(600)
    ]
    memory.add_many([*batch, batch[1]])
    read_from_store: list[str] = []
    get_uncached = memory._reader.get_uncached

    def counted(agent: str, id: str, version: int) -> Any:
        read_from_store.append(id)
        return get_uncached(agent, id, version)

    monkeypatch.setattr(memory._reader, "get_uncached", counted)
    for item in batch:
        entry = memory.get(item["agent_id"], item["id"])
        assert entry is not None
        assert (entry.content, entry.tier, entry.metadata) == (
            item["content"],
            item["tier"],
            item["metadata"],
        )
    # MessagePack can't hold numbers of more than 64 bits, and the cache no other format.
    assert read_from_store == [str(number) for number in range(600) if number % 5 == 0 or number % 7 == 0]


class _Vanishing(dict[int, Any]):
    """Another thread drops each record right after a look whether it is here."""

    def __contains__(self, seq: object) -> bool:
        return self.pop(seq, None) is not None  # type: ignore[call-overload]


def test_a_record_that_another_thread_drops_while_hits_are_read_is_read_from_the_store(
    memory: AgentMemorySystem,
) -> None:
    first = search(memory, k=18)
    cached = memory._entry_cache.agents["ann"]
    assert cached.records
    cached.records = _Vanishing(cached.records)
    assert search(memory, k=18) == first


class _Interrupted(dict[Any, Any]):
    """An interrupt comes after an element is stored."""

    def __setitem__(self, key: Any, value: Any) -> None:
        super().__setitem__(key, value)
        raise KeyboardInterrupt


@pytest.mark.parametrize("name", ["by_id", "encoded"])
def test_an_interrupt_while_an_entry_is_cached_leaves_no_stale_entry(
    memory: AgentMemorySystem, name: str
) -> None:
    memory.update("ann", "frost stm", content="the first change still drops everything")
    memory.get("ann", "frost stm")
    memory._entry_cache._keep_pending()
    memory.get("ann", "birch stm")  # waits to be cached until the next read
    cached = memory._entry_cache.agents["ann"]
    kept = getattr(cached, name)
    assert kept
    setattr(cached, name, _Interrupted(kept))
    with pytest.raises(KeyboardInterrupt):
        memory.get("ann", "frost stm")
    setattr(cached, name, dict(getattr(cached, name)))
    assert memory.delete("ann", "birch stm")
    assert memory.get("ann", "birch stm") is None


def test_an_import_of_many_agents_takes_no_cache_and_few_agents_do(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    many, few = [f"agent {number}" for number in range(200)], ["ann", "bob"]
    for agents in (many, few):
        for turn in range(3):  # the first memories of an agent are never cached
            batch = [{"agent_id": agent, "content": f"turn {turn}", "id": f"{turn}"} for agent in agents]
            memory.add_many(batch)
        held = sum(len(cached.by_id) for cached in memory._entry_cache.agents.values())
        assert held == (0 if agents is many else 4)
    for agent in (*many, *few):
        entry = memory.get(agent, "2")
        assert entry is not None
        assert entry.content == "turn 2"
