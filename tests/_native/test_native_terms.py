"""Leaves, search terms and attributes: the compiled functions and their twins give the same results."""

from __future__ import annotations

import math
import struct
import threading
from array import array
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory._base import content
from memory._base.content import MAX_DEPTH, leaves_of, leaves_of_pure
from memory._base.native import core
from memory.errors import InvalidMemory
from memory.search import terms
from memory.search.terms import attribute_terms, terms_of_memory

pytestmark = pytest.mark.skipif(core is None, reason="there is no compiled core")

PARTS = [
    "a",
    "Dogs",
    " ",
    "  ",
    "_",
    ".",
    "日本",
    "İx",
    "\ud800",
    "\0",
    "ß",
    "-7",
    "running",
    "'s",
    "x" * 50,
]
TEXTS = st.lists(st.sampled_from(PARTS), max_size=12).map("".join) | st.text(max_size=40)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False) | st.integers() | st.integers(-(2**70), 10**400)
SCALARS = TEXTS | NUMBERS | st.booleans() | st.none()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(TEXTS, inner, max_size=5)
)


@contextmanager
def pure_python() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(terms, "core", None)
        patch.setattr(terms, "_compiled", None)
        patch.setattr(terms, "_encoded", {})
        patch.setattr(content, "core", None)
        yield


@given(VALUES, st.dictionaries(TEXTS, SCALARS, max_size=4))
@settings(max_examples=250, deadline=None)
def test_any_content_has_the_same_leaves_and_terms(value: Any, metadata: dict[str, Any]) -> None:
    def all_of_it() -> tuple[Any, ...]:
        leaves, others = leaves_of(value), leaves_of(metadata)
        texts = [text for _, text in others if isinstance(text, str)]
        return leaves, others, terms_of_memory(leaves, "state", texts, others, 1.6e9)

    compiled = all_of_it()
    with pure_python():
        assert compiled == all_of_it()


@given(st.lists(st.floats(), max_size=60))
@settings(max_examples=300, deadline=None)
def test_any_number_has_the_same_attribute(numbers: list[float]) -> None:
    leaves: content.Leaves = [("at.x", number) for number in numbers]
    compiled = attribute_terms(leaves)
    with pure_python():
        assert compiled == attribute_terms(leaves)


def test_each_attribute_has_one_term_in_the_order_of_the_first_ones() -> None:
    numbers = [float(number % 700) for number in range(3000)]
    expected = [terms.attribute_term("x", number) for number in numbers[:700]]
    leaves: content.Leaves = [("x", number) for number in numbers]
    found = attribute_terms(leaves)
    assert array("I", found).tolist() == list(dict.fromkeys(expected))
    with pure_python():
        assert found == attribute_terms(leaves)


def test_numbers_near_every_rounding_have_the_same_attribute() -> None:
    numbers = [0.0, -0.0, 5e-324, 1.7976931348623157e308, 999.5, 999.4999, 0.00009995, 0.0001, 123.5, 0.125]
    for exponent in range(-8, 8):
        for digits in range(95, 1005, 3):
            middle = (digits + 0.5) * 10.0**exponent
            numbers += [middle, math.nextafter(middle, 0), math.nextafter(middle, math.inf), -middle]
    random = np.random.default_rng(2)
    numbers += (random.standard_normal(20_000) * 10.0 ** random.integers(-6, 6, 20_000)).tolist()
    numbers += [struct.unpack("d", random.bytes(8))[0] for _ in range(5000)]
    for number in numbers:
        compiled = attribute_terms([("x", number)])
        with_python = [terms.attribute_term("x", number)]
        assert array("I", compiled).tolist() == with_python, number


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        {"a": np.float64(1.5), "b": Text("Dogs run")},
        OrderedDict(a=1, b=[True, False, None]),
        {"a": (1, 2, ("x", {"y": 3}))},
        {"a": 2**80, "b": -(2**80)},
        [],
        {},
        {"": {"": 1}},
        {Text("key"): 1},
        [[[1, [2.5, "a b"]], "x"], "y"],
    ],
)
def test_unusual_content_has_the_same_leaves_and_terms(value: Any) -> None:
    compiled = leaves_of(value), terms_of_memory(leaves_of(value), "state", [], [], None)
    with pure_python():
        assert compiled == (leaves_of(value), terms_of_memory(leaves_of(value), "state", [], [], None))


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def test_the_same_content_is_refused() -> None:
    assert leaves_of(nested(MAX_DEPTH)) == leaves_of_pure(nested(MAX_DEPTH)) == [("", 1)]
    itself: list[Any] = []
    itself.append(itself)
    for value in (
        nested(MAX_DEPTH + 1),
        nested(5000),
        itself,
        {1: 2},
        {"a": {None: 1}},
        {"a": b"x"},
        {"a": {1}},
    ):
        with pytest.raises(InvalidMemory) as compiled:
            leaves_of(value)
        with pytest.raises(InvalidMemory) as pure:
            leaves_of_pure(value)
        assert str(compiled.value) == str(pure.value)


def test_a_full_cache_is_emptied_and_gives_the_same_terms() -> None:
    assert core is not None
    small = core.TermCache(terms._terms_of_part, terms._words_of_value, 10, 8)
    for number in range(100):
        text = f"w{number} w{number % 7} {'long' * 9} x"
        assert small.of_text(text) == terms._encoded_terms(text)
        assert len(small) <= 10


def test_threads_that_share_the_cache_get_the_same_terms() -> None:
    assert core is not None
    small = core.TermCache(terms._terms_of_part, terms._words_of_value, 50, 40)
    texts = [" ".join(f"word{number * other % 97}" for other in range(20)) for number in range(200)]
    expected = [terms._encoded_terms(text) for text in texts]
    wrong: list[str] = []

    def encode() -> None:
        for _ in range(5):
            wrong.extend(t for t, e in zip(texts, expected, strict=True) if small.of_text(t) != e)

    threads = [threading.Thread(target=encode) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_wrong_arguments_are_refused() -> None:
    assert core is not None
    cache: Any = core.TermCache(terms._terms_of_part, terms._words_of_value, 10, 8)
    functions: Any = core
    for function, arguments in (
        (cache.of_text, (b"bytes",)),
        (cache.of_text, (None,)),
        (cache.of_leaves, ("text",)),
        (cache.of_leaves, ([("a",)],)),
        (cache.of_leaves, ([(1, 2)],)),
        (cache.of_leaves, ([["a", 1]],)),
        (functions.attribute_terms, (None,)),
        (functions.attribute_terms, ([("a", object())],)),
        (functions.attribute_terms, ([("a", 1, 2)],)),
        (functions.leaves_of, (1,)),
        (functions.leaves_of, (1, -1)),
        (functions.leaves_of, (1, 10**6)),
        (functions.TermCache, (None, None, 10, 10)),
        (functions.TermCache, (str, str, 0, 10)),
    ):
        with pytest.raises((TypeError, ValueError)):
            function(*arguments)
    odd: Any = core.TermCache(lambda part: b"123", lambda value: "text", 10, 8)  # type: ignore[arg-type,return-value]
    for function, argument in ((odd.of_text, "a"), (odd.of_leaves, [("", True)])):
        with pytest.raises((TypeError, ValueError)):
            function(argument)


def test_an_error_of_the_functions_is_raised_and_the_cache_stays_usable() -> None:
    assert core is not None
    calls: list[str] = []

    def fail_once(part: str) -> bytes:
        calls.append(part)
        if len(calls) == 1:
            raise RuntimeError("the first call fails")
        return b"abcd"

    cache = core.TermCache(fail_once, terms._words_of_value, 10, 8)
    with pytest.raises(RuntimeError, match="the first call fails"):
        cache.of_text("one two")
    assert cache.of_text("one two") == b"abcdabcd"
    assert calls == ["one", "one", "two"]


def test_a_first_part_without_terms_is_kept() -> None:
    # `make native-sanitize` refuses to copy nothing to no memory.
    assert core is not None
    cache = core.TermCache(lambda part: b"", terms._words_of_value, 10, 8)
    assert cache.of_text("_ _") == b""
    assert len(cache) == 1
