"""The inverted index, compared with a plain dict."""

from __future__ import annotations

import random
import sys
from array import array
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory._base.native import core
from memory.search import postings as postings_module
from memory.search._lookups import add_to_tail, add_to_tail_pure, find_in_tail, find_in_tail_pure
from memory.search.postings import Postings
from memory.search.terms import ATTRIBUTE_BIT

TERMS = [0, 1, 2, 7, ATTRIBUTE_BIT - 1, ATTRIBUTE_BIT, ATTRIBUTE_BIT | 1, 2**32 - 1]
ABSENT = [3, ATTRIBUTE_BIT - 2, ATTRIBUTE_BIT | 5]


class Model:
    """Postings, and a dict of what they should hold."""

    def __init__(self) -> None:
        self.postings = Postings()
        self.held: list[list[int]] = []

    def add(self, memories: list[list[int]]) -> None:
        """Add memories at the next positions."""
        first = len(self.held)
        self.held.extend(memories)
        lengths = self.postings.add(
            np.arange(first, len(self.held), dtype=np.int64),
            [array("I", memory).tobytes() for memory in memories],
        )
        assert lengths.dtype == np.float32
        assert lengths.tolist() == [words_in(memory) for memory in memories]

    def replace(self, position: int, terms: list[int]) -> None:
        self.held[position] = terms
        assert self.postings.replace(position, array("I", terms).tobytes()) == words_in(terms)

    def check(self, terms: list[int]) -> None:
        searched = [*terms, *ABSENT]
        parts = self.postings.find_words(searched)
        assert len(parts) <= 2
        for number, term in enumerate(searched):
            slices = [packed[bounds[2 * number] : bounds[2 * number + 1]] for packed, bounds in parts]
            found = np.concatenate([np.empty(0, np.uint32), *slices])
            counts = [Counter(memory)[term] for memory in self.held]
            expected = [position << 8 | min(count, 255) for position, count in enumerate(counts) if count]
            assert found.tolist() == expected
            assert self.postings.find(term).tolist() == [posting >> 8 for posting in expected]


def words_in(terms: list[int]) -> int:
    return sum(term < ATTRIBUTE_BIT for term in terms)


memories = st.lists(st.sampled_from(TERMS), max_size=6)
additions = st.tuples(st.just("add"), st.lists(memories, max_size=12))
replacements = st.tuples(st.just("replace"), st.integers(0, 200), memories)


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(additions | replacements, max_size=14), checked=st.booleans())
def test_postings_equal_a_dict_for_any_order_of_adding(steps: list[tuple], checked: bool) -> None:  # type: ignore[type-arg]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postings_module, "_TAIL_MIN", 8)
        patch.setattr(postings_module, "_REPLACED_MAX", 4)
        model = Model()
        for kind, *given_ in steps:
            if kind == "add":
                model.add(given_[0])
            elif model.held:
                model.replace(given_[0] % len(model.held), given_[1])
            if checked:
                model.check(TERMS)
        model.check(TERMS)
        assert model.postings.nbytes >= 0


def random_memories(count: int, seed: int) -> list[list[int]]:
    choose = random.Random(seed)
    return [
        [*choose.choices(range(50), k=choose.randrange(8)), ATTRIBUTE_BIT | choose.randrange(5)]
        for _ in range(count)
    ]


@pytest.mark.parametrize(
    "sizes",
    [[511], [512], [513], [1] * 514, [511, 1, 1], [512, 512, 1], [600, 100, 100, 1], [300, 300, 300]],
)
def test_postings_are_correct_around_the_size_at_which_the_tail_is_merged(sizes: list[int]) -> None:
    model = Model()
    for number, size in enumerate(sizes):
        model.add(random_memories(size, number))
        if len(sizes) < 100 or number > 505:
            model.check([*range(0, 50, 7), ATTRIBUTE_BIT | 2])
    model.check(list(range(50)))


def test_occurrences_of_a_term_are_counted_up_to_255() -> None:
    for repeats in (254, 255, 256, 1000):
        model = Model()
        model.add([[5] * repeats, [5]])
        model.check([5])


def test_the_last_position_of_a_block_is_found() -> None:
    postings = Postings()
    positions = np.array([0, 65_535], np.int64)
    postings.add(positions, [array("I", [9]).tobytes()] * 2)
    assert postings.find(9).tolist() == [0, 65_535]
    full = Postings()
    everything = np.arange(65_536, dtype=np.int64)
    full.add(everything, [array("I", [9, ATTRIBUTE_BIT]).tobytes()] * 65_536)
    assert np.array_equal(full.find(9), everything)
    assert np.array_equal(full.find(ATTRIBUTE_BIT), everything)


def test_postings_that_were_returned_do_not_change_when_more_are_added() -> None:
    model = Model()
    model.add([[1], [2], [1]])
    ((found, bounds),) = model.postings.find_words([1])
    assert bounds == [0, 2]
    copy = found.copy()
    for seed in range(5):
        model.add(random_memories(300, seed))
        model.replace(0, [2])
    assert np.array_equal(found, copy)


def test_empty_postings_find_nothing() -> None:
    postings = Postings()
    assert postings.find(1).tolist() == []
    assert postings.add(np.empty(0, np.int64), []).tolist() == []
    for terms in ([1, 2], []):
        assert postings.find_words(terms) == []


@pytest.mark.parametrize("find", [find_in_tail, find_in_tail_pure])
def test_a_tail_can_be_read_while_another_thread_appends(find: Callable[..., Any]) -> None:
    tail = {1: array("I", range(0, 20_000 << 8, 256))}
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(lambda: [len(find(tail, [1], 1 << 24)[0]) for _ in range(1500)])
            while not reading.done():
                tail[1].append(20_000 << 8)  # raises BufferError while the array is read in place
        assert min(reading.result()) >= 20_000
    finally:
        sys.setswitchinterval(interval)


@given(st.lists(st.lists(st.sampled_from(TERMS), max_size=40), max_size=40))
@settings(max_examples=200, deadline=None)
def test_the_compiled_tail_equals_its_twin(memories: list[list[int]]) -> None:
    compiled: dict[int, Any] = {}
    pure: dict[int, Any] = {}
    for position, memory in enumerate(memories):
        terms = array("I", memory).tobytes()
        assert add_to_tail(compiled, position, terms) == add_to_tail_pure(pure, position, terms)
    assert compiled == pure
    assert [type(each) for each in compiled.values()] == [type(each) for each in pure.values()]


@pytest.mark.skipif(core is None, reason="the compiled core was not built")
def test_a_tail_of_another_form_is_refused() -> None:
    assert core is not None
    term = array("I", [7]).tobytes()
    for tail, position, terms in (
        ({}, -1, term),
        ({}, 1 << 16, term),
        ({}, 1, b"123"),
        ([], 1, term),
        ({7: []}, 1, term),
    ):
        with pytest.raises((ValueError, OverflowError)):
            core.add_to_tail(tail, position, terms, 16, list)
    with pytest.raises(TypeError):
        core.add_to_tail({7: None}, 1, term, 16, list)
