"""A repeated search reads from the entry cache, and never returns a stale entry."""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem, Hit

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
