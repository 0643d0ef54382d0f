"""Index terms of words and attributes."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory._base.content import leaves_of
from memory.search.names import sound_of
from memory.search.terms import (
    ATTRIBUTE_BIT,
    KIND,
    SPEAKER,
    attribute_term,
    date_words,
    term_of,
    terms_of_memory,
    terms_of_text,
    words_of,
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\n", []),
        ("The CAT, the cat's hat!", ["the", "cat", "the", "cat", "s", "hat"]),
        ("snake_case and kebab-case", ["snake", "case", "and", "kebab", "case"]),
        ("42 3.14 x1", ["42", "3", "14", "x1"]),
        ("Ünïcödé ŒUVRE", ["ünïcödé", "œuvre"]),
        ("東京 タワー", ["東", "京", "タ", "ワ", "ー"]),
        ("한국", ["한", "국"]),
        ("😀", []),
        ("\ud800", []),
        ("nul\0nul", ["nul", "nul"]),
    ],
)
def test_words_are_lower_case_and_in_order(text: str, words: list[str]) -> None:
    assert words_of(text) == words


@pytest.mark.parametrize(
    ("one", "other"),
    [("running", "runs"), ("cats", "cat"), ("adopted", "adopting"), ("nation", "nations")],
)
def test_inflections_of_a_word_share_a_term(one: str, other: str) -> None:
    assert term_of(one) == term_of(other)
    assert term_of(one) != term_of("zebra")


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=())))
def test_each_word_of_any_text_has_a_31_bit_term(text: str) -> None:
    terms = terms_of_text(text)
    assert len(terms) == len(words_of(text))
    assert all(0 <= term < ATTRIBUTE_BIT for term in terms)
    assert terms == terms_of_text(text)


@settings(deadline=None)
@given(
    path=st.text(st.characters(exclude_categories=())),
    value=st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
)
def test_attribute_terms_are_32_bit_numbers_with_the_high_bit(path: str, value: object) -> None:
    term = attribute_term(path, value)  # type: ignore[arg-type]
    assert ATTRIBUTE_BIT <= term < 2**32


def test_numbers_that_are_equal_have_one_attribute_term() -> None:
    assert attribute_term("x", 1) == attribute_term("x", 1.0)
    assert attribute_term("x", 0.0) == attribute_term("x", -0.0) == attribute_term("x", 0)
    assert attribute_term("x", 2**60) == attribute_term("x", float(2**60))
    assert attribute_term("x", 1) != attribute_term("x", True)
    assert attribute_term("x", 1) != attribute_term("x", "1")
    assert attribute_term("x", None) != attribute_term("x", "None")
    assert attribute_term("x", 1) != attribute_term("y", 1)


@settings(deadline=None)
@given(one=st.integers() | st.floats(allow_nan=False), other=st.integers() | st.floats(allow_nan=False))
def test_equal_numbers_never_have_different_attribute_terms(one: float, other: float) -> None:
    whole = int(one) if abs(one) < 1e300 else one
    for left, right in ((one, other), (one, whole), (whole, float(whole) if abs(whole) < 2**53 else whole)):
        if left == right:
            assert attribute_term("p", left) == attribute_term("p", right)


def terms_and_attributes(raw: bytes) -> tuple[list[int], set[int]]:
    terms = array("I", raw).tolist()
    return [t for t in terms if t < ATTRIBUTE_BIT], {t for t in terms if t >= ATTRIBUTE_BIT}


def test_a_text_is_found_by_its_words_and_its_kind() -> None:
    raw = terms_of_memory(leaves_of("two cats, two dogs"), "text", [], [], None)
    words, attributes = terms_and_attributes(raw)
    assert words == [term_of(word) for word in ("two", "cats", "two", "dogs")]
    assert attributes == {attribute_term(KIND, "text")}


def test_a_state_is_found_by_its_keys_words_whole_numbers_and_attributes() -> None:
    content = {
        "pos": {"x": 3, "y": 1.5},
        "status": "hungry",
        "seen": ["cat", "dog"],
        "ok": True,
        "no": None,
    }
    raw = terms_of_memory(leaves_of(content), "state", [], [], None)
    words, attributes = terms_and_attributes(raw)
    assert {term_of(w) for w in ("pos", "x", "y", "3", "status", "hungry", "seen", "cat", "dog")} <= set(
        words
    )
    assert attributes == {
        attribute_term(KIND, "state"),
        attribute_term("pos.x", 3),
        attribute_term("pos.y", 1.5),
        attribute_term("status", "hungry"),
        attribute_term("seen", "cat"),
        attribute_term("seen", "dog"),
        attribute_term("ok", True),
        attribute_term("no", None),
    }


def test_metadata_gives_attributes_and_the_words_of_given_texts() -> None:
    metadata = {"speaker": "Ann", "turn": 4}
    raw = terms_of_memory(leaves_of("hello"), "text", ["Ann"], leaves_of(metadata), None)
    words, attributes = terms_and_attributes(raw)
    assert words == [term_of("hello"), term_of("ann")]
    assert attributes == {
        attribute_term(KIND, "text"),
        attribute_term("speaker", "Ann"),
        attribute_term(SPEAKER, sound_of("ann")),
        attribute_term("turn", 4),
    }


def test_a_given_timestamp_adds_its_date() -> None:
    raw = terms_of_memory(leaves_of("x"), "text", [], [], 1_683_504_000.0)
    words, _ = terms_and_attributes(raw)
    assert words == [term_of(word) for word in ("x", "8", "may", "2023")]


def test_dates_are_written_as_day_month_and_year() -> None:
    assert date_words(1_683_504_000.0) == "8 May 2023"
    assert date_words(0.0) == "1 January 1970"
    for outside in (1e18, -1e18, 1e300, -1e300):
        assert date_words(outside) == ""


def test_an_empty_object_is_found_by_its_kind_alone() -> None:
    words, attributes = terms_and_attributes(terms_of_memory([], "state", [], [], None))
    assert (words, attributes) == ([], {attribute_term(KIND, "state")})
