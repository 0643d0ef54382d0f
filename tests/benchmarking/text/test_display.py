"""Figures and tables as plain text."""

from __future__ import annotations

import math
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.text.display import (
    NOTHING,
    TOO_FEW,
    clean,
    figure_text,
    interval_text,
    paragraph,
    shorten,
    table,
    table_rows,
    text_width,
    with_interval,
    wrap_words,
)

SIZES = {
    "ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "B": 1.0, "KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12,
}  # fmt: skip
words = st.text("abcdefgh_/", min_size=1, max_size=10)
some_figures = st.floats(min_value=1e-12, max_value=1e12, allow_nan=False)


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0.00123, "ms", "1.23 µs"),
        (12345, "/s", "12,300 /s"),
        (1234567.8, "/s", "1,230,000 /s"),
        (0.9999, "ms", "1.00 ms"),
        (999.9, "µs", "1.00 ms"),
        (0.0004, "ns", "0.000400 ns"),
        (4000, "s", "4,000 s"),
        (123456, "B", "123 KB"),
        (0.5, "MB", "500 KB"),
        (2500, "MB", "2.50 GB"),
        (12345, "", "12,345"),
        (0.99612, "", "0.996"),
        (-1.5, "ms", "-1.50 ms"),
        (0, "ms", "0 ms"),
        (1.234, "×", "1.23 ×"),
        (45.678, "%", "45.7 %"),
        (1e-9, "", "1.00e-09"),
        (None, "ms", NOTHING),
        (math.nan, "ms", NOTHING),
        (math.inf, "ms", "∞ ms"),
    ],
)
def test_a_figure_has_three_digits_and_a_fitting_unit(value: float | None, unit: str, text: str) -> None:
    assert figure_text(value, unit) == text


@given(some_figures, st.sampled_from([*SIZES]))
def test_a_shown_figure_is_within_half_a_percent_of_the_figure(value: float, unit: str) -> None:
    digits, _, shown = figure_text(value, unit).partition(" ")
    back = float(digits.replace(",", "")) * SIZES[shown]
    assert back == pytest.approx(value * SIZES[unit], rel=0.0051)


@given(st.integers(min_value=-(10**14), max_value=10**14))
def test_a_count_is_shown_to_the_last_digit(value: int) -> None:
    assert int(figure_text(float(value)).replace(",", "")) == value


@given(some_figures, st.floats(0.5, 1), st.floats(1, 2), st.sampled_from(["ms", "B", "/s", "%", "×"]))
def test_the_bounds_have_the_unit_of_the_figure(
    value: float, below: float, above: float, unit: str
) -> None:
    text = with_interval(value, value * below, value * above, unit)
    found = re.fullmatch(r"(\S+) (\S+)(?: \((\S+)–(\S+)\))?", text)
    assert found
    if found[3]:
        middle, low, high = (float(found[n].replace(",", "")) for n in (1, 3, 4))
        assert low * 0.99 <= middle <= high * 1.01


def test_a_figure_without_bounds_is_shown_alone() -> None:
    assert with_interval(1.5, None, None, "ms") == "1.50 ms"
    assert with_interval(100, 100, 100) == "100"
    assert with_interval(None, None, None) == NOTHING
    assert interval_text(0.5, -1.0, 2.0, "ms") == "-1,000 to 2,000"


@pytest.mark.parametrize(
    ("value", "low", "high", "unit", "text"),
    [
        (0.722, 2.33e-10, 2.23e9, "ms", TOO_FEW),
        (1.0, 0.099, 2.0, "ms", TOO_FEW),
        (1.0, 0.5, 10.1, "", TOO_FEW),
        (1.0, 0.0, math.inf, "ms", TOO_FEW),
        (1.0, 0.1, 10.0, "ms", "0.100–10.0"),
        (100.0, 0.0, 200.0, "/s", "0–200"),
        (0.0172, 0.0001, 0.06, "", "0.000100–0.0600"),
        (0.0172, 0.0, 0.9, "", "0–0.900"),
        (8.3, -276.0, 293.0, "µs", "-276 to 293"),
        (-6.39, -144.0, 131.0, "ns", "-144 to 131"),
    ],
)
def test_bounds_that_are_too_wide_are_not_shown(
    value: float, low: float, high: float, unit: str, text: str
) -> None:
    assert interval_text(value, low, high, unit) == text


def test_a_table_is_aligned_and_figures_stand_on_the_right() -> None:
    text = table([["read", "1.23 ms"], ["write all", "12 ms"]], ["what", "p50"], right={1})
    assert text.split("\n") == ["what           p50", "read       1.23 ms", "write all    12 ms"]


def test_a_table_fits_its_width_and_never_cuts_a_figure() -> None:
    rows = [["a" * 200, "123,456,789 /s", "b" * 30]]
    text = table(rows, ["name", "value", "where"], right={1}, width=60)
    assert all(text_width(line) <= 60 for line in text.split("\n"))
    assert "123,456,789 /s" in text
    assert "…" in text


def test_a_wrapped_table_breaks_lines_between_words_only() -> None:
    rows = [["20261118_000835_5e6f", "12 ms", "one target and another-one"], ["short", "3 ms", "one"]]
    text = table(rows, ["run", "time", "targets"], right={1}, width=42, wrap=True)
    assert text.split("\n") == [
        "run                    time  targets",
        "20261118_000835_5e6f  12 ms  one target",
        "                             and",
        "                             another-one",
        "short                  3 ms  one",
    ]
    assert len(table_rows(rows, width=42, wrap=True)) == 2


@given(st.lists(words, min_size=1, max_size=30).map(" ".join), st.integers(10, 60))
def test_wrapping_keeps_every_word_and_the_width(text: str, width: int) -> None:
    lines = wrap_words(text, width)
    assert " ".join(lines) == text
    assert all(text_width(line) <= width for line in lines)
    whole = paragraph(text, width + 4, indent="  ")
    assert whole.split() == text.split()
    assert all(text_width(line) <= width + 4 for line in whole.split("\n"))
    assert paragraph(text, None, indent="  ") == f"  {text}"


def test_a_table_without_rows_is_empty() -> None:
    assert table([]) == ""


@given(st.text(max_size=30), st.integers(1, 20))
def test_a_cut_text_is_never_wider_than_asked(text: str, width: int) -> None:
    assert text_width(shorten(clean(text), width)) <= width


@given(st.text())
def test_control_characters_are_replaced(text: str) -> None:
    assert clean(text).isprintable()
