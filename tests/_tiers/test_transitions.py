"""Memories move down the tiers by age, by capacity and on request, and stay exact."""

from __future__ import annotations

import random
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from filled_tiers import fill, ids_in, tiers_of
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)
from small_embedder import DIMENSIONS, small_embedder

from memory import AgentMemorySystem, ManualClock, MemoryConfig, MemoryEntry
from memory._tiers.importance import keep_score, least_first
from memory._tiers.transitions import TransitionReport
from memory.compression.vectors import CODEC_NAMES
from memory.entry import Tier

Open = Callable[..., AgentMemorySystem]
NOTHING = TransitionReport()


# -- by age ---------------------------------------------------------------------------------------


def test_a_memory_moves_down_after_its_ttl_and_not_before(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": 100.0}, im={"ttl_seconds": 1000.0})
    memory.add("ann", "x")
    clock.advance(100)
    assert memory.maintain() == NOTHING, "exactly at the limit it stays"
    clock.advance(0.001)
    assert memory.maintain() == TransitionReport(moved_to_im=1)
    clock.advance(899.999)
    assert memory.maintain() == NOTHING
    clock.advance(0.001)
    assert memory.maintain() == TransitionReport(moved_to_ltm=1)
    clock.advance(1e9)
    assert memory.maintain() == NOTHING
    assert tiers_of(memory) == (0, 0, 1)


def test_the_age_of_a_memory_starts_when_it_is_stored(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": 100.0})
    memory.add("ann", "long ago", timestamp=0.0)
    memory.add("ann", "in the future", timestamp=clock.now() + 1e6)
    assert memory.maintain() == NOTHING
    clock.advance(101)
    assert memory.maintain() == TransitionReport(moved_to_im=2)


def test_each_memory_moves_by_its_own_age(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": 100.0}, transition_batch=3)
    ids = []
    for number in range(20):
        ids.append(memory.add("ann" if number % 2 else "bob", f"n {number}"))
        clock.advance(10)
    memory.maintain()
    # The last was stored 10 s ago, the first 200 s ago. The first ten are older than 100 s.
    moved = ids_in(memory, "ann", "im") | ids_in(memory, "bob", "im")
    assert moved == set(ids[:10])


def test_an_old_memory_moves_two_tiers_in_one_round(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": 10.0}, im={"ttl_seconds": 20.0})
    fill(memory, 300)
    clock.advance(21)
    assert memory.maintain() == TransitionReport(moved_to_im=300, moved_to_ltm=300)
    assert tiers_of(memory) == (0, 0, 300)


def test_without_a_ttl_nothing_moves(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": None}, im={"ttl_seconds": None})
    fill(memory, 5)
    fill(memory, 5, tier="im")
    clock.advance(1e12)
    assert memory.maintain() == NOTHING
    assert tiers_of(memory) == (5, 5, 0)


def test_a_clock_that_is_set_back_delays_no_other_memory(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"ttl_seconds": 100.0})
    clock.advance(1000)
    memory.add("ann", "from the future")
    clock.advance(-1000)
    late = memory.add("ann", "from now")
    clock.advance(101)
    assert memory.maintain() == TransitionReport(moved_to_im=1)
    assert ids_in(memory, "ann", "im") == {late}


# -- by capacity ----------------------------------------------------------------------------------

LEVELS = [1.0, 2.0, 3.0, 4.0, 5.0]


def arrivals(order: str) -> list[float]:
    importances = sorted(LEVELS * 10)
    if order == "falling":
        importances.reverse()
    if order == "shuffled":
        random.Random(7).shuffle(importances)
    return importances


@pytest.mark.parametrize("every_time", [False, True], ids=["at the end", "after each"])
@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_the_most_important_memories_stay_in_whatever_order_they_were_stored(
    open_memory: Open, clock: ManualClock, order: str, every_time: bool
) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        stm={"memory_limit": 20, "ttl_seconds": None},
        im={"memory_limit": 20, "ttl_seconds": None},
    )
    given: dict[str, float] = {}
    for importance in arrivals(order):
        id_ = memory.add("ann", f"of importance {importance}", importance=importance)
        given[id_] = importance
        clock.advance(3600)
        if importance == 1.0:  # many reads: they may decide only between memories of the same importance
            for _ in range(100):
                memory.get("ann", id_)
        if every_time:
            memory.maintain()
    memory.maintain()
    by_importance = {level: {id_ for id_, value in given.items() if value == level} for level in LEVELS}
    assert ids_in(memory, "ann", "stm") == by_importance[5.0] | by_importance[4.0]
    if not every_time:
        assert ids_in(memory, "ann", "im") == by_importance[3.0] | by_importance[2.0]
        assert ids_in(memory, "ann", "ltm") == by_importance[1.0]


def test_of_equally_important_memories_the_newer_stay(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 3, "ttl_seconds": None})
    ids = []
    for number in range(8):
        ids.append(memory.add("ann", f"n {number}"))
        clock.advance(60)
    memory.maintain()
    assert ids_in(memory, "ann", "stm") == set(ids[5:])


def test_of_equally_important_memories_of_one_time_the_later_stored_stay(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 3})
    ids = fill(memory, 8)
    memory.maintain()
    assert ids_in(memory, "ann", "stm") == set(ids[5:])


def test_of_equally_important_memories_those_that_were_read_stay(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 3})
    ids = fill(memory, 8)
    for id_ in ids[:3]:
        for _ in range(5):
            memory.get("ann", id_)
    memory.maintain()
    assert ids_in(memory, "ann", "stm") == set(ids[:3])


def test_reads_count_after_reopening(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = fill(memory, 8)
    for id_ in ids[:3]:
        memory.get("ann", id_)
    memory.close()
    again = open_memory(embedder=small_embedder(), stm={"memory_limit": 3})
    again.maintain()
    assert ids_in(again, "ann", "stm") == set(ids[:3])


def test_a_limit_counts_for_each_agent_by_itself(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 10})
    fill(memory, 30, "ann")
    fill(memory, 9, "bob")
    assert memory.maintain() == TransitionReport(moved_to_im=20)
    assert (tiers_of(memory, "ann"), tiers_of(memory, "bob")) == ((10, 20, 0), (9, 0, 0))


@pytest.mark.parametrize("batch", [1, 7, 128])
def test_a_limit_of_zero_moves_everything_in_batches_of_any_size(open_memory: Open, batch: int) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        stm={"memory_limit": 0},
        im={"memory_limit": 0},
        transition_batch=batch,
    )
    ids = fill(memory, 40)
    assert memory.maintain() == TransitionReport(moved_to_im=40, moved_to_ltm=40)
    assert ids_in(memory, "ann", "ltm") == set(ids)


def test_only_ltm_evicts_the_least_important_first_and_counts_them(open_memory: Open) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        stm={"memory_limit": 2},
        im={"memory_limit": 3},
        ltm={"memory_limit": 4},
    )
    importances = [float(value) for value in range(1, 21)]
    random.Random(3).shuffle(importances)
    ids = {value: memory.add("ann", f"of {value}", importance=value) for value in importances}
    fill(memory, 4, "bob", tier="ltm", importance=0.0)
    # Recency and reads multiply by up to 1.16, so above 7 neighbouring values could change places.
    for value in importances:
        memory.update("ann", ids[value], importance=2.0**value)
    report = memory.maintain()
    assert report == TransitionReport(moved_to_im=18, moved_to_ltm=15, evicted=11)
    assert tiers_of(memory, "ann") == (2, 3, 4)
    assert ids_in(memory, "ann", "stm") == {ids[20.0], ids[19.0]}
    assert ids_in(memory, "ann", "im") == {ids[18.0], ids[17.0], ids[16.0]}
    assert ids_in(memory, "ann", "ltm") == {ids[value] for value in (15.0, 14.0, 13.0, 12.0)}
    assert memory.get_memory_statistics("ann")["evicted"] == 11
    assert memory.get_memory_statistics("bob")["evicted"] == 0
    assert memory.get_memory_statistics()["evicted"] == 11
    for value in (1.0, 5.0, 11.0):
        assert memory.get("ann", ids[value]) is None
    found = {hit.id for hit in memory.search("ann", "of", 100)}
    assert found == {ids[value] for value in importances if value > 11}
    memory.close()
    assert open_memory(embedder=small_embedder()).get_memory_statistics()["evicted"] == 11


def test_without_a_limit_ltm_evicts_nothing(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 0}, im={"memory_limit": 0})
    ids = fill(memory, 500, importance=0.0)
    clock.advance(1e10)
    for _ in range(3):
        memory.maintain()
        memory.force_consolidation()
    assert ids_in(memory, "ann", "ltm") == set(ids)
    assert memory.get_memory_statistics()["evicted"] == 0


def test_maintain_is_idempotent(open_memory: Open, clock: ManualClock) -> None:
    memory = open_memory(
        embedder=small_embedder(),
        stm={"memory_limit": 5, "ttl_seconds": 50.0},
        im={"memory_limit": 10, "ttl_seconds": 500.0},
        ltm={"memory_limit": 20},
    )
    fill(memory, 60)
    clock.advance(20)
    fill(memory, 3)
    assert memory.maintain() != NOTHING
    before = memory.retrieve_by_time_range("ann")
    assert memory.maintain() == NOTHING
    assert memory.maintain() == NOTHING
    assert memory.retrieve_by_time_range("ann") == before


def test_age_and_reads_never_reverse_the_callers_importance() -> None:
    ages = (-1e9, 0.0, 3600.0, 1e6, 1e12)
    uses = (0, 1, 31, 10**9)
    for low, high in pairwise(LEVELS):
        most = max(keep_score(low, age, count) for age in ages for count in uses)
        least = min(keep_score(high, age, count) for age in ages for count in uses)
        assert most < least


def test_least_first_breaks_ties_by_the_order_of_storing() -> None:
    standing = [(3, 1.0, 0.0, 0), (1, 1.0, 0.0, 0), (2, 0.0, 0.0, 0), (4, 0.0, 5.0, 9)]
    assert least_first(standing, 10.0) == [2, 4, 1, 3]
    assert least_first([], 10.0) == []


def test_least_first_sorts_by_the_score_of_each_memory() -> None:
    standing = [
        (seq, 1.0 + seq * 7 % 5, 1e6 * (seq % 11), seq * 13 % 40 if seq % 3 else 0) for seq in range(200)
    ]
    standing += [(200, 1.7e308, -1e12, 10**9), (201, 0.0, 1e12, 0)]
    now = 5e6
    order = least_first(standing, now)
    assert sorted(order) == [row[0] for row in standing]
    score = {seq: keep_score(value, now - at, reads) for seq, value, at, reads in standing}
    for first, second in pairwise(order):
        assert score[first] <= score[second] * (1 + 1e-12)


def test_the_background_keeps_im_within_its_limit_without_counting_it_each_time(
    open_memory: Open,
) -> None:
    memory = open_memory(embedder=small_embedder(), stm={"memory_limit": 20}, im={"memory_limit": 320})
    counted = []
    counts = memory._store.counts

    def count(agent: str | None = None, tiers: Any = tuple(Tier)) -> dict[Tier, int]:
        counted.extend(tiers)
        return counts(agent, tiers)

    memory._store.counts = count  # type: ignore[method-assign]
    for _ in range(200):
        fill(memory, memory._transitions.check_every)
        memory._transitions.by_capacity(["ann"], in_background=True)
        stm, im, _ = map(counts("ann").get, Tier)
        assert stm == 20 or not im
        assert im is not None
        assert im <= 320 + 320 // 16
    fill(memory, 400, tier="im")
    assert memory._transitions.by_capacity(["ann"])[1] == set()
    assert counts("ann")[Tier.IM] == 320
    assert counted.count(Tier.IM) < counted.count(Tier.STM) * 0.7


# -- on request -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("percentage", "moved"), [(0, 0), (0.4, 0), (10, 2), (50, 10), (99, 20), (33.3, 7), (100, 20)]
)
def test_a_forced_transition_moves_that_share_least_important_first(
    open_memory: Open, percentage: float, moved: int
) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = [memory.add("ann", f"n {n}", importance=2.0**n) for n in range(20)]
    assert memory.force_transition_to_im(percentage) == moved
    assert ids_in(memory, "ann", "im") == set(ids[:moved])
    memory.force_transition_to_im()
    assert memory.force_transition_to_ltm(percentage) == moved
    assert ids_in(memory, "ann", "ltm") == set(ids[:moved])


def test_a_forced_transition_of_one_agent_moves_no_other_agents_memories(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    fill(memory, 10, "ann")
    fill(memory, 10, "bob")
    assert memory.force_transition_to_im(100, "ann") == 10
    assert memory.force_transition_to_im(100, "nobody") == 0
    assert memory.force_transition_to_ltm(50, "ann") == 5
    assert (tiers_of(memory, "ann"), tiers_of(memory, "bob")) == ((0, 5, 5), (10, 0, 0))
    assert memory.force_transition_to_im() == 10


def test_consolidation_moves_everything_to_ltm(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    fill(memory, 10, "ann")
    fill(memory, 4, "bob", tier="im")
    assert memory.force_consolidation("bob") == TransitionReport(moved_to_ltm=4)
    assert memory.force_consolidation() == TransitionReport(moved_to_im=10, moved_to_ltm=10)
    assert memory.force_consolidation() == NOTHING
    assert tiers_of(memory) == (0, 0, 14)


def test_everything_but_the_tier_stays_exact_through_all_transitions(
    open_memory: Open, clock: ManualClock
) -> None:
    memory = open_memory(embedder=small_embedder())
    contents: list[Any] = ["text", "", "x" * 5000, {"a": [1, -0.0, {"b": None}]}, [], 2**70, "\ud800"]
    given: dict[str, MemoryEntry] = {}
    for number, content in enumerate(contents * 3):
        id_ = memory.add(
            "ann",
            content,
            kind=f"kind {number % 4}",
            step=number - 5,
            importance=number / 7,
            metadata={"n": number, "deep": {"é": [content]}},
            timestamp=1e9 / (number + 1) if number % 2 else None,
        )
        entry = memory.get("ann", id_)
        assert entry is not None
        given[id_] = entry
        clock.advance(1.5)
    order = {
        "time": [entry.id for entry in memory.retrieve_by_time_range("ann")],
        "step": [entry.id for entry in memory.retrieve_by_step_range("ann")],
    }
    for tier, move in (("im", memory.force_transition_to_im), ("ltm", memory.force_transition_to_ltm)):
        assert move() == len(given)
        for id_, entry in given.items():
            assert memory.get("ann", id_) == msgspec.structs.replace(entry, tier=tier)
        assert [entry.id for entry in memory.retrieve_by_time_range("ann")] == order["time"]
        assert [entry.id for entry in memory.retrieve_by_step_range("ann")] == order["step"]


# -- against a model ------------------------------------------------------------------------------

AGENTS = st.sampled_from(["ann", "bob"])
CONTENTS = (
    st.text(max_size=12)
    | st.lists(st.integers(-(2**70), 2**70), max_size=3)
    | st.dictionaries(st.text(max_size=4), st.floats(allow_nan=False, allow_infinity=False), max_size=3)
)
STM_LIMIT, IM_LIMIT = 4, 6
STM_AGE, IM_AGE = 100.0, 300.0


class MemoryAgainstModel(RuleBasedStateMachine):
    """Random operations in random order on a memory and on a plain dict, which must agree."""

    stored = Bundle("stored")

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp(prefix="memory-model-"))
        self.clock = ManualClock()
        self.model: dict[tuple[str, str], MemoryEntry] = {}
        self.stored_at: dict[tuple[str, str], float] = {}
        self.depth: dict[tuple[str, str], int] = {}
        self.number = 0
        self.open()

    def open(self) -> None:
        config = MemoryConfig(maintenance="manual", transition_batch=3)
        config.ltm_config.db_path = str(self.folder / "memory.db")
        config.stm_config.memory_limit, config.im_config.memory_limit = STM_LIMIT, IM_LIMIT
        config.stm_config.ttl_seconds, config.im_config.ttl_seconds = STM_AGE, IM_AGE
        self.memory = AgentMemorySystem(config, clock=self.clock, embedder=small_embedder())

    def teardown(self) -> None:
        self.memory.close()
        shutil.rmtree(self.folder)

    def note(self, agent: str, id_: str, content: Any, fields: dict[str, Any]) -> tuple[str, str]:
        key = agent, id_
        self.model[key] = MemoryEntry(
            id=id_,
            agent_id=agent,
            content=content,
            kind="text" if isinstance(content, str) else "state",
            step=fields.get("step"),
            created_at=fields.get("timestamp", self.clock.now()),
            importance=fields.get("importance", 1.0),
            metadata=fields.get("metadata", {}),
            tier=fields.get("tier", "stm"),
        )
        self.stored_at[key] = self.clock.now()
        self.depth[key] = ("stm", "im", "ltm").index(fields.get("tier", "stm"))
        return key

    @initialize(target=stored, agent=AGENTS)
    def first(self, agent: str) -> tuple[str, str]:
        return self.note(agent, self.memory.add(agent, "first"), "first", {})

    @rule(
        target=stored,
        agent=AGENTS,
        content=CONTENTS,
        fields=st.fixed_dictionaries(
            {},
            optional={
                "step": st.integers(-3, 3),
                "importance": st.sampled_from([0.0, 0.5, 1.0, 5.0]),
                "tier": st.sampled_from(["stm", "im", "ltm"]),
                "timestamp": st.floats(0, 2e9),
                "metadata": st.fixed_dictionaries({"tag": st.sampled_from("ab")}),
            },
        ),
        own_id=st.booleans(),
    )
    def add(self, agent: str, content: Any, fields: dict[str, Any], own_id: bool) -> tuple[str, str]:
        self.number += 1
        id_ = self.memory.add(agent, content, id=f"own {self.number}" if own_id else None, **fields)
        assert (agent, id_) not in self.model
        return self.note(agent, id_, content, fields)

    @rule(key=stored)
    def store_again(self, key: tuple[str, str]) -> None:
        if key in self.model:
            self.memory.add(key[0], self.model[key].content, id=key[1])

    @rule(key=stored, content=st.none() | CONTENTS, importance=st.none() | st.sampled_from([0.1, 3.0]))
    def update(self, key: tuple[str, str], content: Any, importance: float | None) -> None:
        changes: dict[str, Any] = {}
        if content is not None:
            changes["content"] = content
        if importance is not None:
            changes["importance"] = importance
        assert self.memory.update(*key, **changes) == (key in self.model)
        if key in self.model:
            self.model[key] = msgspec.structs.replace(self.model[key], **changes)

    @rule(key=consumes(stored))
    def delete(self, key: tuple[str, str]) -> None:
        assert self.memory.delete(*key) == (key in self.model)
        self.model.pop(key, None)

    @rule(agent=AGENTS)
    def delete_all(self, agent: str) -> None:
        keys = [key for key in self.model if key[0] == agent]
        assert self.memory.delete_all(agent) == len(keys)
        for key in keys:
            del self.model[key]

    @rule(seconds=st.sampled_from([0.0, 1.0, 99.0, 101.0, 250.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.advance(seconds)

    @rule()
    def maintain(self) -> None:
        self.memory.maintain()
        now = self.clock.now()
        for agent in ("ann", "bob"):
            stm, im, _ = tiers_of(self.memory, agent)
            assert stm <= STM_LIMIT
            assert im <= IM_LIMIT
        for key in self.model:
            entry = self.memory.get(*key)
            assert entry is not None
            age = now - self.stored_at[key]
            assert entry.tier != "stm" or age <= STM_AGE
            assert entry.tier == "ltm" or age <= IM_AGE
        assert self.memory.maintain() == NOTHING

    @rule(percentage=st.sampled_from([0, 30, 100]), agent=st.none() | AGENTS)
    def force_to_im(self, percentage: int, agent: str | None) -> None:
        self.memory.force_transition_to_im(percentage, agent)

    @rule(percentage=st.sampled_from([0, 30, 100]), agent=st.none() | AGENTS)
    def force_to_ltm(self, percentage: int, agent: str | None) -> None:
        self.memory.force_transition_to_ltm(percentage, agent)

    @rule(agent=AGENTS, tier=st.sampled_from(["all", "stm", "im", "ltm"]), query=st.text(max_size=6))
    def search(self, agent: str, tier: str, query: str) -> None:
        wanted = {entry.id for entry in self.entries(agent) if tier in ("all", entry.tier)}
        for hits in (
            self.memory.search(agent, query, 1000, tier=tier),
            self.memory.retrieve_similar_states(agent, query, 1000, tier=tier),
        ):
            assert len(hits) == len(wanted)
            assert {hit.id for hit in hits} == wanted

    @rule(agent=AGENTS, tag=st.sampled_from("ab"))
    def by_attribute(self, agent: str, tag: str) -> None:
        found = [entry.id for entry in self.memory.retrieve_by_attributes(agent, {"tag": tag})]
        wanted = {
            key[1]
            for key, entry in self.model.items()
            if key[0] == agent and entry.metadata == {"tag": tag}
        }
        assert len(found) == len(wanted)
        assert set(found) == wanted

    @rule()
    def reopen(self) -> None:
        self.memory.close()
        self.open()

    @rule(agent=st.none() | AGENTS)
    def drop_caches(self, agent: str | None) -> None:
        self.memory.drop_caches(agent)

    def entries(self, agent: str) -> list[MemoryEntry]:
        found = [self.memory.get(*key) for key in self.model if key[0] == agent]
        return [entry for entry in found if entry is not None]

    @invariant()
    def nothing_is_lost_doubled_or_changed(self) -> None:
        for agent in ("ann", "bob"):
            expected = {key[1]: entry for key, entry in self.model.items() if key[0] == agent}
            listed = self.memory.retrieve_by_time_range(agent)
            assert [entry.created_at for entry in listed] == sorted(
                entry.created_at for entry in expected.values()
            )
            assert sorted(entry.id for entry in listed) == sorted(expected)
            for entry in listed:
                wanted = expected[entry.id]
                assert entry == msgspec.structs.replace(wanted, tier=entry.tier)
                assert repr(entry.content) == repr(wanted.content)
                assert self.memory.exists(agent, entry.id, entry.tier)
                assert self.memory.get(agent, entry.id) == entry
                depth = ("stm", "im", "ltm").index(entry.tier)
                assert depth >= self.depth[agent, entry.id], "a memory moved up"
                self.depth[agent, entry.id] = depth
            statistics = self.memory.get_memory_statistics(agent)
            assert statistics["total"] == len(expected)
            for tier in ("stm", "im", "ltm"):
                assert statistics["tiers"][tier] == sum(entry.tier == tier for entry in listed)
            assert statistics["evicted"] == 0


MemoryAgainstModel.TestCase.settings = settings(max_examples=25, stateful_step_count=30, deadline=None)
TestMemoryAgainstModel = MemoryAgainstModel.TestCase


# -- codecs ---------------------------------------------------------------------------------------


def sentences(count: int) -> list[str]:
    words = ("the", "cat", "dog", "house", "river", "walks", "sleeps", "sees", "under", "old", "red", "and")
    choose = random.Random(5)
    return [" ".join(choose.choices(words, k=8)) + f" {number}" for number in range(count)]


def test_with_little_data_ltm_keeps_int8_vectors(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    memory.add_many([{"agent_id": "ann", "content": text} for text in sentences(63)])
    memory.force_consolidation()
    memory.maintain()
    assert memory.get_memory_statistics()["codecs"] == {"stm": "float32", "im": "int8", "ltm": "int8"}
    assert memory.get_encoder("ltm").name == "int8"


@pytest.mark.parametrize("keep_fine", [True, False])
def test_with_enough_data_codecs_are_fitted_and_all_rows_stay_readable(
    open_memory: Open, keep_fine: bool
) -> None:
    options: dict[str, Any] = {"embedder": small_embedder(), "ltm": {"keep_fine_vectors": keep_fine}}
    memory = open_memory(**options)
    texts = sentences(2300)
    before = memory.add_many([{"agent_id": "ann", "content": text} for text in texts[:2000]])
    memory.force_transition_to_im(15)
    memory.force_transition_to_ltm()
    assert tiers_of(memory) == (1700, 0, 300)
    memory.maintain()
    assert memory.get_encoder("ltm").name == "centred"
    assert memory.get_encoder("im").name == "int8"
    after = memory.add_many([{"agent_id": "ann", "content": text} for text in texts[2000:]])
    memory.force_consolidation()
    contents = dict(zip(before + after, texts, strict=True))
    assert ids_in(memory, "ann", "ltm") == set(contents)
    for system in (memory, None):
        if system is None:
            memory.close()
            system = open_memory(**options)
        assert system.get_encoder("ltm").name == "centred"
        found = system.get_many("ann", list(contents))
        assert [entry.content if entry else None for entry in found] == texts
        for id_ in (before[0], before[1000], after[-1]):
            hit, *_ = system.search("ann", contents[id_], 5)
            assert hit.id == id_
            nearest = system.retrieve_similar_states("ann", contents[id_], 20)
            assert id_ in {hit.id for hit in nearest}
            assert nearest[0].id == id_
            assert nearest[0].score > 0.99


@pytest.mark.reads_the_file
def test_a_dictionary_makes_contents_smaller_and_never_less_exact(
    open_memory: Open, tmp_path: Path
) -> None:
    def bytes_of_contents() -> int:
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
            (total,) = connection.execute("SELECT SUM(LENGTH(body)) FROM memories").fetchone()
        return int(total)

    memory = open_memory(embedder=small_embedder(), ltm={"codec": "int8"})
    texts = sentences(1200)
    ids = memory.add_many([{"agent_id": "ann", "content": {"said": text}} for text in texts])
    memory.maintain()
    raw = bytes_of_contents()
    memory.force_consolidation()
    assert bytes_of_contents() < 0.6 * raw
    late = memory.add("ann", {"said": "nothing like the others: ä😀"}, tier="ltm")
    reader = open_memory(embedder=small_embedder(), ltm={"codec": "int8"})
    for system in (memory, reader):
        found = system.get_many("ann", ids)
        assert [entry.content["said"] if entry else None for entry in found] == texts
        assert getattr(system.get("ann", late), "content", None) == {"said": "nothing like the others: ä😀"}


def test_a_system_reads_memories_of_a_codec_that_another_has_fitted(open_memory: Open) -> None:
    reader = open_memory(embedder=small_embedder())
    writer = open_memory(embedder=small_embedder())
    texts = sentences(2000)
    ids = writer.add_many([{"agent_id": "ann", "content": text} for text in texts])
    assert len(reader.search("ann", texts[0])) == 10
    writer.maintain()
    writer.force_consolidation()
    assert writer.get_encoder("ltm").name == "centred"
    found = reader.get_many("ann", ids)
    assert [entry.content if entry else None for entry in found] == texts
    assert reader.search("ann", texts[7], tier="ltm")[0].id == ids[7]
    reader.drop_caches()
    assert reader.retrieve_similar_states("ann", texts[7])[0].id == ids[7]


@pytest.mark.parametrize("keep_fine", [True, False], ids=["with fine vectors", "without"])
@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_every_codec_works_in_ltm(open_memory: Open, codec: str, keep_fine: bool) -> None:
    options: dict[str, Any] = {
        "embedder": small_embedder(),
        "ltm": {"codec": codec, "keep_fine_vectors": keep_fine},
    }
    if codec == "autoencoder":
        options["ltm"]["codec_options"] = {"epochs": 1}
    memory = open_memory(**options)
    texts = sentences(2000)
    ids = memory.add_many([{"agent_id": "ann", "content": text} for text in texts])
    memory.maintain()
    assert memory.get_encoder("ltm").name == codec
    memory.force_consolidation()
    memory.close()
    again = open_memory(**options)
    assert again.get_encoder("ltm").name == codec
    assert [entry.content if entry else None for entry in again.get_many("ann", ids)] == texts
    for number in (0, 777, 1999):
        assert again.search("ann", texts[number], 10)[0].id == ids[number]
        nearest = again.retrieve_similar_states("ann", texts[number], 5)
        assert len(nearest) == 5
        if keep_fine or codec in ("float32", "int8"):
            assert nearest[0].id == ids[number]
    assert again.update("ann", ids[5], content="something else entirely")
    assert getattr(again.get("ann", ids[5]), "content", None) == "something else entirely"
    assert again.search("ann", "something else entirely")[0].id == ids[5]


@pytest.mark.parametrize("codec", ["pq", "binary", "float32"])
def test_a_codec_works_in_im(open_memory: Open, codec: str) -> None:
    memory = open_memory(embedder=small_embedder(), im={"codec": codec})
    texts = sentences(2000)
    ids = memory.add_many([{"agent_id": "ann", "content": text} for text in texts])
    memory.maintain()
    assert memory.get_encoder("im").name == codec
    memory.force_transition_to_im()
    memory.force_transition_to_ltm(50)
    assert tiers_of(memory) == (0, 1000, 1000)
    assert [entry.content if entry else None for entry in memory.get_many("ann", ids)] == texts
    assert memory.search("ann", texts[3])[0].id == ids[3]


def test_a_file_can_be_opened_with_another_codec(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder())
    texts = sentences(2100)
    ids = memory.add_many([{"agent_id": "ann", "content": text} for text in texts[:2000]])
    memory.maintain()
    memory.force_consolidation()
    memory.close()
    other = open_memory(embedder=small_embedder(), ltm={"codec": "binary"})
    assert other.get_encoder("ltm").name == "int8"
    ids += other.add_many([{"agent_id": "ann", "content": text} for text in texts[2000:]])
    other.maintain()
    assert other.get_encoder("ltm").name == "binary"
    other.force_consolidation()
    other.close()
    back = open_memory(embedder=small_embedder())
    assert back.get_encoder("ltm").name == "centred"
    assert [entry.content if entry else None for entry in back.get_many("ann", ids)] == texts
    for number in (3, 2050):
        assert back.search("ann", texts[number])[0].id == ids[number]


def test_a_zero_vector_survives_every_codec(open_memory: Open) -> None:
    memory = open_memory(embedder=small_embedder(), ltm={"keep_fine_vectors": False})
    memory.add_many([{"agent_id": "ann", "content": text} for text in sentences(2000)])
    memory.maintain()
    id_ = memory.add("ann", "", vector=np.zeros(DIMENSIONS))
    memory.force_consolidation()
    memory.drop_caches()
    (hit,) = [hit for hit in memory.retrieve_similar_states("ann", "the cat", 3000) if hit.id == id_]
    assert hit.score == 0.0


@pytest.mark.reads_the_file
def test_memories_stored_in_ltm_get_their_small_form_from_maintenance(
    open_memory: Open, tmp_path: Path
) -> None:
    memory = open_memory(embedder=small_embedder())
    texts = sentences(300)
    ids = memory.add_many([{"agent_id": "ann", "content": text, "tier": "ltm"} for text in texts[:200]])
    memory.maintain()
    ids += memory.add_many([{"agent_id": "ann", "content": text, "tier": "ltm"} for text in texts[200:]])

    def forms() -> set[tuple[int, int, int]]:
        with closing(sqlite3.connect(tmp_path / "memory.db")) as connection:
            return set(connection.execute("SELECT body_codec, terms_codec, vector_codec FROM memories"))

    hits = [hit.id for hit in memory.search("ann", texts[250])]
    assert len(forms()) == 2
    assert memory._store.unsettled() == [("ann", 201, 300)]
    memory.maintain()
    assert len(forms()) == 1
    assert min(next(iter(forms()))) >= 16
    assert memory._store.unsettled() == []
    assert [entry.content if entry else None for entry in memory.get_many("ann", ids)] == texts
    memory.drop_caches()
    assert [hit.id for hit in memory.search("ann", texts[250])] == hits


def test_dictionaries_are_trained_again_when_there_are_eight_times_as_many_memories(
    open_memory: Open,
) -> None:
    memory = open_memory(embedder=small_embedder(), im={"memory_limit": None})
    texts = sentences(1000)

    def trained_on() -> list[int]:
        return [codec.trained_on for codec in memory._store.codecs() if "dictionary" in codec.purpose]

    ids = memory.add_many([{"agent_id": "ann", "content": text, "tier": "im"} for text in texts[:99]])
    memory.maintain()
    assert trained_on() == []
    ids += memory.add_many([{"agent_id": "ann", "content": text, "tier": "im"} for text in texts[99:700]])
    memory.maintain()
    assert trained_on() == [700]
    other = open_memory(embedder=small_embedder())
    for _ in range(2):
        memory.maintain()
    assert trained_on() == [700]
    more = [{"agent_id": "bob", "content": text, "tier": "ltm"} for text in texts[:300] * 17]
    memory.add_many(more)
    memory.maintain()
    assert trained_on() == [5800]
    # The other system still has the old dictionary, which nothing may be written with any more.
    ids.append(other.add("ann", "a memory of the other system", tier="im"))
    assert memory.get("ann", ids[-1]).content == "a memory of the other system"
    for system in (memory, other):
        found = system.get_many("ann", ids[:-1])
        assert [entry.content if entry else None for entry in found] == texts[:700]


def test_few_memories_are_counted_but_not_read_for_fitting(
    open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = open_memory(embedder=small_embedder())
    memory.add_many([{"agent_id": "ann", "content": text} for text in sentences(60)])
    for name in ("rows", "all_rows", "counts"):
        monkeypatch.setattr(memory._store, name, None)
    assert not memory._transitions.fit_codecs()
