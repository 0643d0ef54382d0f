"""`iter_search`, which reads hits only as they are reached."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice

import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem
from memory.errors import InvalidMemory

Open = Callable[..., AgentMemorySystem]
TIERS = ("stm", "im", "ltm")
COUNT = 40


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    memory = open_memory(embedder=small_embedder())
    memory.add_many(
        [
            {
                "agent_id": "ann",
                "content": f"amber {'birch ' * (number % 7)}{number}",
                "tier": TIERS[number % 3],
            }
            for number in range(COUNT)
        ]
    )
    return memory


def reads(memory: AgentMemorySystem) -> int:
    return sum(memory.get_access_statistics()["reads"].values())


@pytest.mark.parametrize("most", [0, 1, 7, 8, 9, COUNT, COUNT + 1])
def test_iter_search_returns_the_same_hits_as_search(memory: AgentMemorySystem, most: int) -> None:
    for query in ("amber birch 7", "nothing of it", ""):
        assert list(memory.iter_search("ann", query, most)) == memory.search("ann", query, most)
        assert list(memory.agent("ann").iter_search(query, most)) == memory.search("ann", query, most)


def test_an_agent_without_memories_has_no_hits(memory: AgentMemorySystem) -> None:
    assert list(memory.iter_search("bob", "amber")) == []


def test_hits_that_are_not_reached_are_not_read(memory: AgentMemorySystem) -> None:
    before = reads(memory)
    hits = memory.iter_search("ann", "amber birch")
    assert reads(memory) == before
    next(hits)
    assert reads(memory) - before < COUNT / 4
    hits.close()  # type: ignore[attr-defined]
    assert memory.get_access_statistics()["searches"] == 1


def test_memories_deleted_during_iteration_are_left_out_and_moved_ones_are_not(
    memory: AgentMemorySystem,
) -> None:
    expected = [hit.id for hit in memory.search("ann", "amber birch", COUNT)]
    hits = memory.iter_search("ann", "amber birch", COUNT)
    first = [hit.id for hit in islice(hits, 1)]
    deleted = expected[-5:]
    for id in deleted:
        memory.delete("ann", id)
    memory.force_transition_to_im(agent_id="ann")
    memory.force_transition_to_ltm(agent_id="ann")
    memory.add("ann", "amber birch birch")  # added after the ranking
    rest = list(hits)
    assert first + [hit.id for hit in rest] == [id for id in expected if id not in deleted]
    assert rest[-1].tier == "ltm"


def test_a_hit_that_was_read_ahead_is_not_returned_stale(
    memory: AgentMemorySystem,
) -> None:
    expected = [hit.id for hit in memory.search("ann", "amber birch", 3)]
    hits = memory.iter_search("ann", "amber birch", 3)
    next(hits)
    memory.update("ann", expected[1], content="another text")
    assert next(hits).entry.content == "another text"
    memory.delete_all("ann")
    assert list(hits) == []


def test_other_searches_and_writes_can_run_during_iteration(memory: AgentMemorySystem) -> None:
    expected = [hit.id for hit in memory.search("ann", "amber", COUNT)]
    found = []
    for number, hit in enumerate(memory.iter_search("ann", "amber", COUNT)):
        found.append(hit.id)
        memory.add("ann", f"cedar {number}")
        memory.search("ann", "cedar", 3)
        if number == 10:
            memory.drop_caches()
    assert found == expected


def test_invalid_input_is_refused_at_the_call_not_at_the_first_hit(memory: AgentMemorySystem) -> None:
    for agent, query, most in (("", "amber", 1), ("ann", 3, 1), ("ann", "amber", -1)):
        with pytest.raises(InvalidMemory):
            memory.iter_search(agent, query, most)  # type: ignore[arg-type]


def test_iter_search_takes_now_and_min_confidence_as_search_does(open_memory: Open) -> None:
    memory = open_memory()
    for day in range(1, 25):
        memory.add("ann", f"News of the dog, part {day}.", timestamp=day * 86_400.0)
        memory.add("ann", f"The rent is {day} pounds.", timestamp=day * 86_400.0)
    query, now = "What was the news of the dog yesterday?", 12.5 * 86_400
    together = memory.search("ann", query, 40, now=now)
    assert list(memory.iter_search("ann", query, 40, now=now)) == together
    assert together != memory.search("ann", query, 40)
    middle = together[10].confidence or 0.0
    sure = memory.search("ann", query, 40, now=now, min_confidence=middle)
    assert list(memory.agent("ann").iter_search(query, 40, now=now, min_confidence=middle)) == sure
    assert 0 < len(sure) < len(together)
    for wrong in ({"now": "noon"}, {"min_confidence": "high"}):
        with pytest.raises(InvalidMemory, match=next(iter(wrong))):
            memory.iter_search("ann", query, **wrong)  # type: ignore[arg-type]
