"""The ranking in one native call: the same memories and scores as its twin in NumPy, bit for bit."""

from __future__ import annotations

import random
from array import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem
from memory._base.native import core
from memory.compression.quantise import to_int8_one, to_int8_one_pure
from memory.search import _lookups, dates
from memory.search._rank import rank, rank_pure
from memory.search.index import AgentIndex
from memory.search.lexical import WordMatches
from memory.search.own_scores import Scale
from memory.search.vectors import Query

needs_core = pytest.mark.skipif(core is None, reason="the compiled core was not built")
Open = Callable[..., AgentMemorySystem]


def text(choose: random.Random) -> str:
    return " ".join(f"w{int(500 ** choose.random())}" for _ in range(10))


def fill(memory: AgentMemorySystem, count: int, sessions: int | None) -> list[str]:
    choose = random.Random(count)
    return memory.add_many(
        {
            "agent_id": "ann",
            "content": text(choose),
            # Of three conversations at a time, and some memories without a session.
            "metadata": {"session": number // 30 * 3 + number % 3}
            if sessions and number % 11 < sessions
            else {},
        }
        for number in range(count)
    )


def view_of(memory: AgentMemorySystem) -> AgentIndex:
    index = memory._searcher._indexes.index("ann")
    with index.lock:
        index.catch_up()
        return index.view()


def compare(memory: AgentMemorySystem, seed: int) -> None:
    choose, rng = random.Random(seed), np.random.default_rng(seed)
    index = view_of(memory)
    for number in range(12):
        words = text(choose).split() if number else ["absent"]
        matches = WordMatches(index, words)
        query = Query(rng.standard_normal(index._dimensions, dtype=np.float32))
        bonus = rng.random(index.count, dtype=np.float32) if number % 2 else None
        allowed = rng.random(index.count) < 0.3 if number % 3 == 0 else index.living
        for k in (1, 7, 300, index.count + 5):
            native = rank(index, k, query, matches, bonus, allowed)
            assert native == rank_pure(index, k, query, matches, bonus, allowed)
            assert len(native.positions) == min(k, index.count if allowed is None else int(allowed.sum()))


@needs_core
@pytest.mark.parametrize("sessions", [None, 5, 11])
@pytest.mark.parametrize("count", [1, 3, 15, 16, 700, 3000])
def test_the_same_memories_in_the_same_order_with_the_same_scores(
    open_memory: Open, count: int, sessions: int | None
) -> None:
    memory = open_memory(embedder=small_embedder())
    ids = fill(memory, count, sessions)
    compare(memory, count)
    for _ in range(40):  # a tail
        memory.add("ann", text(random.Random(count)), metadata={"session": 1})
    compare(memory, count + 1)
    memory.delete_many("ann", ids[::9])
    compare(memory, count + 2)
    memory.update("ann", ids[-1], content="w1 w1 w1")
    compare(memory, count + 3)


@needs_core
@pytest.mark.parametrize("count", [1, 9, 10, 15, 16, 17, 95, 5003])
@pytest.mark.parametrize("zeros", [0.0, 0.9, 1.0])
def test_scales_are_alike(count: int, zeros: float) -> None:
    rng = np.random.default_rng(count)
    scores = rng.standard_normal(count, dtype=np.float32) * (rng.random(count) >= zeros)
    scores = scores.astype(np.float32)
    for living in (None, rng.random(count) < 0.5, np.zeros(count, np.bool_)):
        assert Scale.of(scores, living) == Scale.of_pure(scores, living)


@needs_core
@pytest.mark.parametrize("dimensions", [1, 64, 256, 300])
def test_queries_have_the_same_bytes(dimensions: int) -> None:
    vectors = np.random.default_rng(1).standard_normal((200, dimensions), dtype=np.float32)
    vectors[0] = 0
    for vector in vectors:
        ours, theirs = to_int8_one(vector), to_int8_one_pure(vector)
        assert (ours[0].tobytes(), ours[1]) == (theirs[0].tobytes(), theirs[1])


@needs_core
def test_words_are_looked_up_alike() -> None:
    rng = np.random.default_rng(2)
    terms = np.unique(rng.integers(0, 1 << 32, 300, dtype=np.uint64).astype(np.uint32))
    starts = np.append(0, np.cumsum(rng.integers(1, 9, len(terms)))).astype(np.int64)
    packed = np.concatenate(
        [np.sort(rng.permutation(500)[:size]) << 8 | 3 for size in np.diff(starts)]
    ).astype(np.uint32)
    wanted = [*terms[::7].tolist(), 0, 5, (1 << 32) - 1]
    bounds = _lookups.find_postings(terms, starts, wanted)
    assert bounds == _lookups.find_postings_pure(terms, starts, wanted)
    living = rng.random(500) < 0.5
    assert _lookups.count_living(packed, bounds, living) == _lookups.count_living_pure(
        packed, bounds, living
    )
    positions = list(range(0, 500, 3))
    held = _lookups.words_at(packed, bounds, positions)
    assert held == _lookups.words_at_pure(packed, bounds, positions)
    assert any(held)
    tail = {1: [256, 513], 2: array("I", [256, 1024, 4096]), 3: []}
    for most in (0, 1024, 1025, 1 << 24):
        ours, theirs = (
            find(tail, [2, 9, 1, 3], most) for find in (_lookups.find_in_tail, _lookups.find_in_tail_pure)
        )
        assert (ours[0].tolist(), ours[1]) == (theirs[0].tolist(), theirs[1])


@needs_core
@pytest.mark.parametrize("spans", [1, 3])
def test_times_are_as_close(spans: int) -> None:
    assert core is not None
    rng = np.random.default_rng(spans)
    times = 1.6e9 + rng.random(5000) * 1e7
    starts = 1.6e9 + rng.random(spans) * 1e7
    bounds = np.stack((starts, starts + 86_400 * rng.integers(1, 40, spans)), axis=1)
    ours, theirs = np.empty(5000, np.float32), np.empty(5000, np.float32)
    table, steps = dates._CLOSENESS, dates._STEPS_A_SECOND
    nearest = core.closeness(times, bounds, table, steps, ours)
    assert nearest == dates.closeness_pure(times, bounds, theirs)
    assert ours.tobytes() == theirs.tobytes()
    outside = np.maximum(bounds[:, 0] - times[:, None], times[:, None] - bounds[:, 1]).min(axis=1)
    expected = np.exp2(-np.maximum(outside, 0) / (dates.HALF_LIFE_DAYS * dates.DAY))
    assert np.allclose(ours, expected, atol=3e-5)
    with pytest.raises(ValueError, match="do not fit"):
        core.closeness(times[:-1], bounds, table, steps, ours)


@needs_core
def test_arrays_that_do_not_fit_are_refused() -> None:
    assert core is not None
    codes, norms, query = np.zeros((5, 8), np.int8), np.ones(5, np.float32), np.ones(8, np.int8)
    vectors = (codes, norms, query, 1.0)
    floats, lengths = np.zeros(5, np.float32), np.ones(5, np.float32)
    links = (np.empty(0, np.int32), np.empty(0, np.int32), 0.25)
    runs = (np.zeros(1, np.int64), np.zeros(1, np.int64), 1)
    near, shares = (floats, floats, *links), (0.5, 0.5, 1.0)
    whole: list[Any] = [5, 2, vectors, None, None, (floats, near, near, *runs, None, *shares), None, None]
    assert core.rank(*whole)[0] == [4, 3]

    def refused(place: int, value: Any, match: str) -> None:
        assert core is not None
        arguments = [*whole]
        arguments[place] = value
        with pytest.raises((ValueError, TypeError), match=match):
            core.rank(*arguments)

    refused(0, 6, "codes has 40 elements, not 48")
    refused(0, 0, "can't be ranked")
    refused(1, 0, "can't be ranked")
    refused(2, vectors[:3], "no tuple of 4")
    refused(2, (codes, norms[:4], query, 1.0), "norms has 4")
    outside = (np.array([5 << 8 | 1], np.uint32), [0, 1])
    refused(3, ([outside], [1.0], lengths, 1.0, 1.0), "outside of 5 memories")
    refused(3, ([(outside[0], [0, 2])], [1.0], lengths, 1.0, 1.0), "outside of 1 postings")
    refused(3, ([outside] * 5, [1.0], lengths, 1.0, 1.0), "four parts")
    refused(3, ([], [1.0], lengths[:4], 1.0, 1.0), "lengths has 4")
    refused(4, np.ones(4, np.bool_), "living has 4")
    refused(6, floats[:4], "bonus has 4")
    refused(6, floats.astype(np.float64), "bonus has elements")
    refused(7, np.ones(4, np.bool_), "allowed has 4")
    pair = (floats, floats, np.array([5], np.int32), np.array([0], np.int32), 0.25)
    refused(5, (floats, pair, near, *runs, None, *shares), "link is outside")
    refused(5, (floats, near, near, np.array([0, 6]), np.zeros(2, np.int64), 1, None, *shares), "runs")
    refused(5, (floats, near, near, np.array([0]), np.array([1]), 1, None, *shares), "runs")
