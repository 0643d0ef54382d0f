"""Memories are stored, changed, deleted and read by id."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime, timedelta, timezone
from enum import StrEnum
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem, ManualClock, MemoryEntry
from memory.errors import IdConflict, InvalidMemory, StoreClosed, StoreReadOnly, UnknownTier

Open = Callable[..., AgentMemorySystem]
TIERS = ("stm", "im", "ltm")


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    return open_memory(embedder=small_embedder())


def everything(memory: AgentMemorySystem, *agents: str) -> dict[str, list[MemoryEntry]]:
    return {agent: memory.retrieve_by_time_range(agent) for agent in agents}


# -- adding ---------------------------------------------------------------------------------------


def test_get_returns_all_fields_of_an_added_memory(memory: AgentMemorySystem, clock: ManualClock) -> None:
    id_ = memory.add(
        "ann",
        {"room": "kitchen"},
        kind="sight",
        importance=3.5,
        step=7,
        metadata={"by": "eye"},
        id="m1",
    )
    assert id_ == "m1"
    assert memory.get("ann", "m1") == MemoryEntry(
        id="m1",
        agent_id="ann",
        content={"room": "kitchen"},
        kind="sight",
        step=7,
        created_at=clock.now(),
        importance=3.5,
        metadata={"by": "eye"},
        tier="stm",
    )


def test_missing_fields_have_the_documented_defaults(memory: AgentMemorySystem) -> None:
    text = memory.get("ann", memory.add("ann", "a text"))
    state = memory.get("ann", memory.add("ann", {"x": 1}))
    assert text is not None
    assert state is not None
    assert (text.kind, state.kind) == ("text", "state")
    for entry in (text, state):
        assert (entry.step, entry.importance, entry.metadata, entry.tier) == (None, 1.0, {}, "stm")


def test_ids_are_unique_even_for_equal_contents_in_one_batch(memory: AgentMemorySystem) -> None:
    ids = memory.add_many([{"agent_id": "ann", "content": "the same"} for _ in range(500)])
    ids += [memory.add("ann", "the same") for _ in range(100)]
    assert len(set(ids)) == 600
    assert memory.get_memory_statistics("ann")["total"] == 600


def test_two_memories_of_one_step_are_both_stored(memory: AgentMemorySystem) -> None:
    first = memory.store_agent_state("ann", {"x": 1}, 5)
    second = memory.store_agent_state("ann", {"x": 1}, 5)
    assert first != second
    assert [entry.id for entry in memory.retrieve_by_step_range("ann", 5, 5)] == [first, second]


@pytest.mark.parametrize(
    ("verb", "kind", "id_argument"),
    [
        ("store_agent_state", "state", "state_id"),
        ("store_agent_action", "action", "action_id"),
        ("store_agent_interaction", "interaction", "interaction_id"),
    ],
)
def test_each_store_method_of_the_specification_stores_its_kind(
    memory: AgentMemorySystem, verb: str, kind: str, id_argument: str
) -> None:
    store = getattr(memory, verb)
    id_ = store("ann", {"x": 1}, 4, 2.5, "im", metadata={"m": 1}, timestamp=12.5, **{id_argument: "mine"})
    assert id_ == "mine"
    entry = memory.get("ann", "mine")
    assert entry is not None
    assert (entry.kind, entry.step, entry.importance, entry.tier) == (kind, 4, 2.5, "im")
    assert (entry.content, entry.metadata, entry.created_at) == ({"x": 1}, {"m": 1}, 12.5)
    important = memory.get("ann", store("ann", "a text", priority=2.0, importance=0.0))
    assert important is not None
    assert important.importance == 0.0, "importance overrides priority, also if it is 0"
    assert important.kind == kind


@pytest.mark.parametrize("tier", TIERS)
def test_a_memory_can_be_stored_directly_in_any_tier(memory: AgentMemorySystem, tier: str) -> None:
    id_ = memory.add("ann", {"x": [1, 2]}, tier=tier)
    entry = memory.get("ann", id_)
    assert entry is not None
    assert (entry.tier, entry.content) == (tier, {"x": [1, 2]})
    assert memory.exists("ann", id_, tier)
    assert [memory.exists("ann", id_, other) for other in TIERS].count(True) == 1
    assert memory.get_memory_statistics("ann")["tiers"][tier] == 1


def test_a_batch_can_have_several_tiers_and_agents(memory: AgentMemorySystem) -> None:
    batch = [
        {"agent_id": agent, "content": {"n": number}, "tier": tier, "step": number}
        for agent in ("ann", "bob")
        for number, tier in enumerate(TIERS * 5)
    ]
    ids = memory.add_many(batch)
    for item, id_ in zip(batch, ids, strict=True):
        entry = memory.get(item["agent_id"], id_)
        assert entry is not None
        assert (entry.content, entry.tier, entry.step) == (item["content"], item["tier"], item["step"])


def test_an_empty_batch_stores_nothing(memory: AgentMemorySystem) -> None:
    assert memory.add_many([]) == []
    assert memory.agents() == []


@pytest.mark.parametrize(
    ("timestamp", "seconds"),
    [
        (0, 0.0),
        (-12.25, -12.25),
        (1_683_504_000.123_456, 1_683_504_000.123_456),
        (1e300, 1e300),
        (datetime(2023, 5, 8, tzinfo=UTC), 1_683_504_000.0),
        (datetime(2023, 5, 8, 2, tzinfo=timezone(timedelta(hours=2))), 1_683_504_000.0),
        (datetime(1, 1, 1, tzinfo=UTC), -62_135_596_800.0),
    ],
)
def test_a_timestamp_is_kept_exactly(
    memory: AgentMemorySystem, timestamp: float | datetime, seconds: float
) -> None:
    id_ = memory.add("ann", "once", timestamp=timestamp)
    entry = memory.get("ann", id_)
    assert entry is not None
    assert entry.created_at == seconds
    assert [found.id for found in memory.retrieve_by_time_range("ann", timestamp, timestamp)] == [id_]


@pytest.mark.parametrize("step", [0, -1, 2**53 + 1, 2**63 - 1, -(2**63) + 1])
def test_a_step_is_kept_exactly(memory: AgentMemorySystem, step: int) -> None:
    id_ = memory.add("ann", "x", step=step)
    entry = memory.get("ann", id_)
    assert entry is not None
    assert entry.step == step
    assert [found.id for found in memory.retrieve_by_step_range("ann", step, step)] == [id_]


@pytest.mark.parametrize("importance", [0, 0.0, 1, 0.1, 5e-324, 1e308, 2**53])
def test_an_importance_is_kept_exactly(memory: AgentMemorySystem, importance: float) -> None:
    entry = memory.get("ann", memory.add("ann", "x", importance=importance))
    assert entry is not None
    assert entry.importance == importance


@pytest.mark.parametrize(
    "name", ["a", "é", "日本", "a b\n\t", "x\0y", "'; DROP TABLE memories; --", "n" * 512]
)
def test_any_text_of_1_to_512_characters_names_an_agent_and_a_memory(open_memory: Open, name: str) -> None:
    memory = open_memory(embedder=small_embedder())
    assert memory.add(name, "x", id=name, kind=name) == name
    memory.close()
    again = open_memory(embedder=small_embedder())
    entry = again.get(name, name)
    assert entry is not None
    assert (entry.agent_id, entry.id, entry.kind) == (name, name, name)
    assert again.agents() == [name]
    assert again.delete(name, name)


# -- the same id twice ----------------------------------------------------------------------------


def test_storing_an_id_again_with_the_same_content_is_one_memory(memory: AgentMemorySystem) -> None:
    content = {"a": [1, {"b": None}], "c": "text"}
    assert memory.add("ann", content, id="one", metadata={"m": 1}) == "one"
    before = memory.get("ann", "one")
    assert memory.add("ann", content, id="one", metadata={"m": 1}) == "one"
    assert memory.add_many([{"agent_id": "ann", "content": content, "id": "one"}] * 3) == ["one"] * 3
    assert memory.get("ann", "one") == before
    assert memory.get_memory_statistics("ann")["total"] == 1
    assert len(memory.retrieve_similar_states("ann", content, 10)) == 1


@pytest.mark.parametrize("tier", ["im", "ltm"])
def test_storing_an_id_again_does_not_move_it_up(memory: AgentMemorySystem, tier: str) -> None:
    memory.add("ann", {"a": 1}, id="one", tier=tier)
    memory.add("ann", {"a": 1}, id="one")
    assert memory.get_memory_statistics("ann")["tiers"] == {"stm": 0, "im": 0, "ltm": 0} | {tier: 1}


def test_the_order_of_keys_does_not_change_the_content(memory: AgentMemorySystem) -> None:
    memory.add("ann", {"a": 1, "b": {"c": 2, "d": 3}}, id="one")
    assert memory.add("ann", {"b": {"d": 3, "c": 2}, "a": 1}, id="one") == "one"
    assert memory.get_memory_statistics("ann")["total"] == 1


def test_an_id_conflict_leaves_everything_as_it_was(memory: AgentMemorySystem) -> None:
    memory.add("ann", "first", id="one", importance=2.0)
    before = everything(memory, "ann", "bob")
    with pytest.raises(IdConflict, match=r"'one'.*'ann'.*update"):
        memory.add("ann", "second", id="one")
    with pytest.raises(IdConflict, match="'one'"):
        memory.add_many(
            [
                {"agent_id": "ann", "content": "new"},
                {"agent_id": "bob", "content": "new"},
                {"agent_id": "ann", "content": "second", "id": "one"},
            ]
        )
    assert everything(memory, "ann", "bob") == before
    assert memory.agents() == ["ann"]
    assert [hit.id for hit in memory.search("ann", "new second")] == ["one"]
    memory.add("bob", "still works")
    assert memory.get_memory_statistics()["total"] == 2


def test_a_batch_that_contradicts_itself_stores_nothing(memory: AgentMemorySystem) -> None:
    with pytest.raises(IdConflict):
        memory.add_many(
            [
                {"agent_id": "ann", "content": "one", "id": "x"},
                {"agent_id": "ann", "content": "two", "id": "x"},
            ]
        )
    assert memory.agents() == []
    assert memory.get_memory_statistics()["total"] == 0


def test_two_agents_can_use_the_same_id(memory: AgentMemorySystem) -> None:
    memory.add("ann", "ann's", id="x")
    memory.add("bob", "bob's", id="x")
    contents = [getattr(memory.get(agent, "x"), "content", None) for agent in ("ann", "bob")]
    assert contents == ["ann's", "bob's"]


@pytest.mark.parametrize(
    "bad",
    [
        {"agent_id": "ann", "content": {1, 2}},
        {"agent_id": "", "content": "x"},
        {"agent_id": "ann", "content": "x", "importance": float("nan")},
        {"agent_id": "ann", "content": "x", "tier": "attic"},
        {"agent_id": "ann", "content": "x", "vector": [1.0]},
        {"agent_id": "ann", "content": "x", "colour": "red"},
        {"agent_id": "ann"},
    ],
)
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_batch_with_one_bad_item_stores_nothing(
    memory: AgentMemorySystem, bad: dict[str, Any], place: int
) -> None:
    batch: list[dict[str, Any]] = [{"agent_id": "ann", "content": f"good {number}"} for number in range(3)]
    batch.insert(place, bad)
    with pytest.raises(InvalidMemory):
        memory.add_many(batch)
    assert memory.get_memory_statistics()["total"] == 0
    assert memory.search("ann", "good") == []


# -- reading by id --------------------------------------------------------------------------------


def test_get_many_returns_the_order_of_the_ids(memory: AgentMemorySystem) -> None:
    ids = [memory.add("ann", {"n": number}, tier=TIERS[number % 3]) for number in range(1100)]
    asked = [*reversed(ids), "nobody", ids[0], ids[0]]
    found = memory.get_many("ann", asked)
    assert [entry.id if entry else None for entry in found] == [*reversed(ids), None, ids[0], ids[0]]
    assert memory.get_many("ann", []) == []
    assert memory.get_many("ann", ["nobody"]) == [None]
    assert memory.get_many("bob", ids[:2]) == [None, None]


def test_exists_checks_one_tier_or_all(memory: AgentMemorySystem) -> None:
    memory.add("ann", "x", id="one", tier="im")
    assert memory.exists("ann", "one")
    assert memory.exists("ann", "one", "all")
    assert memory.exists("ann", "one", "im")
    assert not memory.exists("ann", "one", "stm")
    assert not memory.exists("ann", "two")
    assert not memory.exists("bob", "one")
    with pytest.raises(UnknownTier):
        memory.exists("ann", "one", "attic")


def test_changing_a_returned_memory_changes_nothing_stored(memory: AgentMemorySystem) -> None:
    given = {"list": [1, 2], "deep": {"a": {}}}
    metadata = {"tags": ["x"]}
    id_ = memory.add("ann", given, metadata=metadata)
    given["list"].append("changed by the giver")  # type: ignore[attr-defined]
    metadata["tags"].append("changed by the giver")
    reads: list[Callable[[], MemoryEntry | None]] = [
        lambda: memory.get("ann", id_),
        lambda: memory.get_many("ann", [id_, "nobody"])[0],
        lambda: memory.search("ann", "list deep")[0].entry,
        lambda: memory.recent("ann")[0],
        lambda: memory.retrieve_by_attributes("ann", {"tags": "x"})[0],
    ]
    for read in reads * 2:
        entry = read()
        assert entry is not None
        assert entry.content == {"list": [1, 2], "deep": {"a": {}}}
        assert entry.metadata == {"tags": ["x"]}
        entry.content["list"].append(3)
        entry.content["deep"]["a"]["b"] = 1
        entry.metadata["tags"].clear()
        entry.metadata["new"] = 1


def test_reading_the_same_memories_again_does_not_fill_the_cache(memory: AgentMemorySystem) -> None:
    ids = [memory.add("ann", f"memory {number}") for number in range(50)]
    memory.get_many("ann", ids)
    held = memory.get_memory_statistics()["bytes_in_cache"]
    for _ in range(20):
        memory.get_many("ann", ids)
        memory.recent("ann", 50)
        memory.retrieve_by_time_range("ann")
    assert memory.get_memory_statistics()["bytes_in_cache"] == held


# -- changing -------------------------------------------------------------------------------------


@pytest.mark.parametrize("tier", TIERS)
def test_update_changes_only_the_given_fields(memory: AgentMemorySystem, tier: str) -> None:
    memory.add("ann", {"a": 1}, id="x", tier=tier, step=3, metadata={"m": 1}, timestamp=50.0, kind="k")
    old = memory.get("ann", "x")
    changes: list[dict[str, Any]] = [
        {"content": "new text"},
        {"importance": 4.0},
        {"metadata": {"other": [1]}},
        {"metadata": None},
        {"kind": "new kind"},
        {"step": 9},
        {"step": None},
        {"content": {"b": None}, "importance": 0.5, "kind": "z", "step": 1, "metadata": {"z": 0}},
    ]
    assert old is not None
    expected = old
    for change in changes:
        assert memory.update("ann", "x", **change)
        expected = msgspec.structs.replace(
            expected,
            **{name: {} if name == "metadata" and not new else new for name, new in change.items()},
        )
        assert memory.get("ann", "x") == expected
        assert memory.get_memory_statistics("ann")["total"] == 1


def test_update_of_a_missing_memory_returns_false(memory: AgentMemorySystem) -> None:
    memory.add("ann", "x", id="one")
    assert not memory.update("ann", "two", content="y")
    assert not memory.update("bob", "one", content="y")
    assert memory.get_memory_statistics()["total"] == 1


def test_a_refused_update_changes_nothing(memory: AgentMemorySystem) -> None:
    memory.add("ann", {"a": 1}, id="x", importance=2.0)
    before = memory.get("ann", "x")
    for bad in (
        {"content": {1}},
        {"importance": float("nan")},
        {"metadata": [1]},
        {"kind": ""},
        {"step": 1.5},
        {"content": "good", "importance": -1},
    ):
        with pytest.raises(InvalidMemory):
            memory.update("ann", "x", **bad)
        assert memory.get("ann", "x") == before


def test_an_updated_memory_keeps_its_place_in_time(memory: AgentMemorySystem) -> None:
    ids = memory.add_many([{"agent_id": "ann", "content": f"turn {number}"} for number in range(5)])
    memory.update("ann", ids[1], importance=2.0)
    assert [entry.id for entry in memory.retrieve_by_time_range("ann")] == ids
    assert [entry.id for entry in memory.recent("ann")] == ids[::-1]


def test_an_update_of_the_importance_adds_no_search_terms(memory: AgentMemorySystem) -> None:
    """The date is a search term only if the caller passed the timestamp."""
    memory.add("ann", "the cat sat", id="x")
    memory.update("ann", "x", importance=2.0)
    (hit,) = memory.search("ann", "cat november 2023")
    assert hit.why.words == ("cat",)


def test_an_update_does_not_reset_the_age_of_a_memory(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": 100.0})
    memory.add("ann", "old", id="x")
    clock.advance(60)
    memory.update("ann", "x", importance=2.0)
    clock.advance(60)
    memory.maintain()
    assert memory.exists("ann", "x", "im")


# -- deleting -------------------------------------------------------------------------------------


def test_a_deleted_memory_is_gone_after_reopening(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = [memory.add("ann", f"memory {number}", tier=tier) for number, tier in enumerate(TIERS * 2)]
    assert memory.search("ann", "memory 1")
    assert memory.delete("ann", ids[1])
    assert not memory.delete("ann", ids[1])
    assert not memory.delete("bob", ids[2])
    for system in (memory, None):
        if system is None:
            memory.close()
            system = open_memory(embedder=small_embedder())
        assert system.get("ann", ids[1]) is None
        assert not system.exists("ann", ids[1])
        assert {hit.id for hit in system.search("ann", "memory 1")} == {ids[0], *ids[2:]}
        assert system.get_memory_statistics("ann")["total"] == 5


def test_a_deleted_id_can_be_used_again_with_other_content(memory: AgentMemorySystem) -> None:
    memory.add("ann", "apple", id="x", tier="ltm")
    memory.delete("ann", "x")
    memory.add("ann", "pear", id="x")
    entry = memory.get("ann", "x")
    assert entry is not None
    assert (entry.content, entry.tier) == ("pear", "stm")
    assert [hit.entry.content for hit in memory.search("ann", "apple")] == ["pear"]


def test_delete_many_returns_how_many_existed(memory: AgentMemorySystem) -> None:
    ids = [memory.add("ann", f"memory {number}") for number in range(1200)]
    kept = memory.add("bob", "x", id=ids[0])
    assert memory.delete_many("ann", [*ids[:1100], ids[0], "nobody"]) == 1100
    assert memory.get_memory_statistics("ann")["total"] == 100
    assert memory.delete_many("ann", []) == 0
    assert memory.exists("bob", kept)


def test_delete_all_deletes_nothing_of_other_agents(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    names = ["ann", "ann ", "Ann", "anna", "%", "a_n", "bob"]
    for name in names:
        memory.add_many(
            [
                {"agent_id": name, "content": f"of {name}", "tier": tier, "id": f"{tier} {number}"}
                for tier in TIERS
                for number in range(3)
            ]
        )
    others = [name for name in names if name not in ("ann", "%")]
    before = everything(memory, *others)
    found = {name: memory.search(name, "of") for name in names}
    assert memory.delete_all("ann") == 9
    assert memory.delete_all("%") == 9
    assert memory.delete_all("ann") == 0
    assert memory.delete_all("nobody") == 0
    for system in (memory, None):
        if system is None:
            memory.close()
            system = open_memory(embedder=small_embedder())
        assert everything(system, *others) == before
        assert {name: system.search(name, "of") for name in others} == {n: found[n] for n in others}
        for gone in ("ann", "%"):
            assert system.get(gone, "stm 0") is None
            assert system.search(gone, "of ann") == []
            assert system.retrieve_similar_states(gone, "of ann") == []
            assert system.recent(gone) == []
            assert system.retrieve_by_attributes(gone, {"kind": "text"}) == []
            assert system.get_memory_statistics(gone)["total"] == 0


def test_an_agent_can_store_again_after_delete_all(memory: AgentMemorySystem) -> None:
    memory.add("ann", "before", id="x")
    memory.search("ann", "before")
    memory.delete_all("ann")
    memory.add("ann", "after", id="x")
    assert [hit.entry.content for hit in memory.search("ann", "before")] == ["after"]
    assert memory.agents() == ["ann"]


# -- statistics -----------------------------------------------------------------------------------


def test_reading_statistics_does_not_change_them(memory: AgentMemorySystem) -> None:
    ids = [memory.add("ann", f"memory {number}") for number in range(10)]
    memory.get("ann", ids[0])
    memory.get_many("ann", ids[:4])
    memory.search("ann", "memory", 3)
    memory_statistics = memory.get_memory_statistics(), memory.get_memory_statistics("ann")
    access_statistics = memory.get_access_statistics()
    assert access_statistics == {
        "reads": {"stm": 1 + 4 + 3, "im": 0, "ltm": 0},
        "writes": 10,
        "searches": 1,
    }
    for _ in range(3):
        memory.exists("ann", ids[0])
        memory.agents()
        memory.get_encoder("stm")
        assert (memory.get_memory_statistics(), memory.get_memory_statistics("ann")) == memory_statistics
        assert memory.get_access_statistics() == access_statistics


def test_statistics_count_memories_by_tier_and_agent(memory: AgentMemorySystem) -> None:
    for number, tier in enumerate(("stm", "im", "im", "ltm", "ltm", "ltm")):
        memory.add("ann" if number % 2 else "bob", "x", tier=tier)
    whole = memory.get_memory_statistics()
    assert (whole["total"], whole["tiers"]) == (6, {"stm": 1, "im": 2, "ltm": 3})
    assert (whole["agents"], whole["evicted"]) == (2, 0)
    assert whole["bytes_on_disk"] > 0
    assert memory.get_memory_statistics("ann")["tiers"] == {"stm": 0, "im": 1, "ltm": 2}
    assert memory.get_memory_statistics("nobody")["total"] == 0


# -- opening and closing --------------------------------------------------------------------------

VERBS: dict[str, Callable[[AgentMemorySystem], object]] = {
    "add": lambda memory: memory.add("ann", "x"),
    "add_many": lambda memory: memory.add_many([{"agent_id": "ann", "content": "x"}]),
    "store_agent_state": lambda memory: memory.store_agent_state("ann", {"x": 1}),
    "update": lambda memory: memory.update("ann", "one", content="y"),
    "delete": lambda memory: memory.delete("ann", "one"),
    "delete_many": lambda memory: memory.delete_many("ann", ["one"]),
    "delete_all": lambda memory: memory.delete_all("ann"),
    "get": lambda memory: memory.get("ann", "one"),
    "get of nobody": lambda memory: memory.get("nobody", "one"),
    "get_many": lambda memory: memory.get_many("ann", ["one", "two"]),
    "exists": lambda memory: memory.exists("ann", "one"),
    "search": lambda memory: memory.search("ann", "x"),
    "retrieve_similar_states": lambda memory: memory.retrieve_similar_states("ann", "x"),
    "retrieve_by_time_range": lambda memory: memory.retrieve_by_time_range("ann"),
    "retrieve_by_step_range": lambda memory: memory.retrieve_by_step_range("ann"),
    "retrieve_by_attributes": lambda memory: memory.retrieve_by_attributes("ann", {"kind": "text"}),
    "recent": lambda memory: memory.recent("ann"),
    "maintain": lambda memory: memory.maintain(),
    "force_transition_to_im": lambda memory: memory.force_transition_to_im(),
    "force_transition_to_ltm": lambda memory: memory.force_transition_to_ltm(),
    "force_consolidation": lambda memory: memory.force_consolidation(),
    "get_memory_statistics": lambda memory: memory.get_memory_statistics(),
    "agents": lambda memory: memory.agents(),
}
WRITING = {
    "add", "add_many", "store_agent_state", "update", "delete", "delete_many", "delete_all",
}  # fmt: skip


@pytest.mark.parametrize("where", ["file", ":memory:"])
@pytest.mark.parametrize("verb", VERBS)
def test_every_method_of_a_closed_memory_raises_store_closed(
    open_memory: Open, tmp_path: Path, verb: str, where: str
) -> None:
    memory = open_memory(
        embedder=small_embedder(), path=where if where == ":memory:" else tmp_path / "closed.db"
    )
    memory.add("ann", "x", id="one")
    memory.add("ann", "x", id="two")
    memory.get("ann", "two")
    memory.close()
    memory.close()
    with pytest.raises(StoreClosed, match="open a new AgentMemorySystem"):
        VERBS[verb](memory)


def test_the_context_manager_closes_the_memory(open_memory: Open) -> None:
    with open_memory(embedder=small_embedder()) as memory:
        memory.add("ann", "x", id="one")
    with pytest.raises(StoreClosed):
        memory.get("ann", "one")
    with open_memory(embedder=small_embedder()) as again:
        assert again.exists("ann", "one")


def test_a_memory_in_ram_ends_with_its_system(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory(path=":memory:", embedder=small_embedder())
    ids = [memory.add("ann", {"n": number}, tier=tier) for number, tier in enumerate(TIERS * 4)]
    other = open_memory(path=":memory:", embedder=small_embedder())
    assert other.agents() == []
    memory.force_transition_to_im()
    memory.force_transition_to_ltm()
    assert [entry.content for entry in memory.get_many("ann", ids) if entry] == [
        {"n": number} for number in range(12)
    ]
    assert len(memory.search("ann", "n", 20)) == 12
    assert memory.get_memory_statistics()["bytes_on_disk"] > 0
    assert list(tmp_path.iterdir()) == []


def test_a_read_only_memory_reads_and_refuses_to_write(open_memory: Open) -> None:
    writer = open_memory(embedder=small_embedder())
    for tier in TIERS:
        writer.add("ann", f"text {tier}", id=tier, tier=tier)
    reader = open_memory(embedder=small_embedder(), read_only=True)
    assert [entry.content for entry in reader.get_many("ann", TIERS) if entry] == [
        f"text {tier}" for tier in TIERS
    ]
    assert len(reader.search("ann", "text")) == 3
    writer.add("ann", "text", id="one")
    for verb in sorted(WRITING):
        with pytest.raises(StoreReadOnly):
            VERBS[verb](reader)
    assert writer.get_memory_statistics("ann")["total"] == 4
    writer.add("ann", "text later", id="later")
    assert {hit.id for hit in reader.search("ann", "text")} == {*TIERS, "one", "later"}


class _Name(StrEnum):
    ANN = "ann"


def test_an_agents_view_has_the_methods_without_the_agent_id(memory: AgentMemorySystem) -> None:
    ann = memory.agent(_Name.ANN)
    id_ = ann.add({"x": 1}, step=2)
    more = ann.add_many([{"content": "two"}, {"content": "three"}])
    assert ann.get(id_) == memory.get("ann", id_)
    assert [entry.id if entry else None for entry in ann.get_many(more)] == more
    assert ann.exists(id_, "stm")
    assert ann.update(id_, importance=3.0)
    assert {entry.id for entry in ann.recent()} == {id_, *more}
    assert ann.search("two")[0].id == more[0]
    assert ann.similar({"x": 1})[0].id == id_
    assert ann.statistics()["total"] == 3
    assert ann.delete(id_)
    assert ann.delete_all() == 2


def test_an_agents_view_refuses_memories_of_another_agent(memory: AgentMemorySystem) -> None:
    with pytest.raises(InvalidMemory):
        memory.agent("ann").add_many([{"agent_id": "bob", "content": "x"}])
    assert memory.agents() == []


@pytest.mark.reads_the_file
def test_the_read_counts_of_deleted_memories_are_deleted(open_memory: Open, tmp_path: Path) -> None:
    memory = open_memory(embedder=small_embedder())
    kept, *others = (memory.add("ann", f"note {number}", tier="im") for number in range(5))
    for id_ in (kept, *others):
        memory.get("ann", id_)
    memory.delete_many("ann", others)
    memory.close()
    with closing(sqlite3.connect(tmp_path / "memory.db")) as file:
        assert file.execute("SELECT count(*), sum(uses) FROM uses").fetchall() == [(1, 1)]


def test_changing_metadata_after_the_call_changes_no_memory(memory: AgentMemorySystem) -> None:
    memory.add("ann", "the first", metadata={})  # new memories are cached only after the agent's first
    stored = []
    for number in range(40):
        metadata: dict[str, Any] = {"speaker": "Ann", "tags": ["a"]}
        id = memory.add("ann", f"note {number}", metadata=metadata)
        (other,) = memory.add_many([{"agent_id": "ann", "content": {"note": number}, "metadata": metadata}])
        metadata["speaker"] = "somebody with a much longer name"
        metadata["tags"].append("b")
        metadata["new"] = number
        stored += [(id, f"note {number}"), (other, {"note": number})]
    for id, content in stored:
        entry = memory.get("ann", id)
        assert entry is not None
        assert (entry.content, entry.metadata) == (content, {"speaker": "Ann", "tags": ["a"]})
    assert {hit.entry.metadata["speaker"] for hit in memory.search("ann", "note", 5)} == {"Ann"}
