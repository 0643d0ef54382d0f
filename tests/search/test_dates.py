"""The times that a question mentions, and the memories of these times."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import AgentMemorySystem, ManualClock
from memory.errors import InvalidMemory
from memory.search.dates import Span, closeness, may_mention_time, spans_in, without_ordinals
from memory.search.terms import words_of

Open = Callable[..., AgentMemorySystem]
NOW = datetime(2024, 3, 6, 12, tzinfo=UTC).timestamp()
"""A Wednesday."""


def days(*parts: int) -> tuple[date, date]:
    return date(*parts[:3]), date(*parts[3:])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("in May 2023", days(2023, 5, 1, 2023, 6, 1)),
        ("in December, 2023", days(2023, 12, 1, 2024, 1, 1)),
        ("on 8 May 2023", days(2023, 5, 8, 2023, 5, 9)),
        ("on the 8th of May, 2023", days(2023, 5, 8, 2023, 5, 9)),
        ("on May 8th, 2023?", days(2023, 5, 8, 2023, 5, 9)),
        ("on December 1,2023", days(2023, 12, 1, 2023, 12, 2)),
        ("on 2023-05-08", days(2023, 5, 8, 2023, 5, 9)),
        ("on 02.01.2024", days(2024, 1, 2, 2024, 1, 3)),
        ("in 2023", days(2023, 1, 1, 2024, 1, 1)),
        ("yesterday", days(2024, 3, 5, 2024, 3, 6)),
        ("last night", days(2024, 3, 5, 2024, 3, 6)),
        ("today", days(2024, 3, 6, 2024, 3, 7)),
        ("last week", days(2024, 2, 26, 2024, 3, 4)),
        ("this week", days(2024, 3, 4, 2024, 3, 11)),
        ("last weekend", days(2024, 3, 2, 2024, 3, 4)),
        ("last Friday", days(2024, 3, 1, 2024, 3, 2)),
        ("last Wednesday", days(2024, 2, 28, 2024, 2, 29)),
        ("last month", days(2024, 2, 1, 2024, 3, 1)),
        ("last year", days(2023, 1, 1, 2024, 1, 1)),
        ("this year", days(2024, 1, 1, 2025, 1, 1)),
        ("three days ago", days(2024, 3, 3, 2024, 3, 4)),
        ("2 weeks ago", days(2024, 2, 18, 2024, 2, 25)),
        ("in the past 5 days", days(2024, 3, 1, 2024, 3, 7)),
        ("over the last week", days(2024, 2, 28, 2024, 3, 7)),
    ],
)
def test_a_time_is_a_span_of_days(text: str, expected: tuple[date, date]) -> None:
    assert [(span.start, span.end, span.every_year) for span in spans_in(f"what was {text}", NOW)] == [
        (*expected, False)
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("in June", days(2000, 6, 1, 2000, 7, 1)), ("on November 11th", days(2000, 11, 11, 2000, 11, 12))],
)
def test_a_date_without_a_year_is_of_every_year(text: str, expected: tuple[date, date]) -> None:
    assert spans_in(text, NOW) == [Span(*expected, every_year=True)]


@pytest.mark.parametrize(
    "text",
    [
        "What may have happened?", "in a march", "Room 2023", "at last", "May I?", "",
        "12:30 on a sunny day", "the last name", "30.02.2023",
    ],
)  # fmt: skip
def test_other_texts_mention_no_time(text: str) -> None:
    assert spans_in(text, NOW) == []


_PARTS = st.sampled_from(
    [
        "in",
        "May",
        "2023",
        "8th",
        "of",
        "on",
        "yesterday",
        "last",
        "night",
        "week",
        "Friday",
        "three",
        "days",
        "ago",
        "the",
        "past",
        "5",
        "_June",
        "x2024",
        "2023-05-08",
        "02.01.2024",
        "June.",
        "1,2023",
        "this-year",
        "é",
        "tonight",
        "mid-march",
        "agony",
        "may_",
        "(sept)",
    ]
)


@given(st.lists(st.tuples(_PARTS, st.sampled_from([" ", " ", ", ", "-", "_", ""]))))
def test_the_first_check_rules_out_only_texts_without_a_time(parts: list[tuple[str, str]]) -> None:
    text = "".join(word + space for word, space in parts)
    assert may_mention_time(text, words_of(text)) or spans_in(text, NOW) == []


def test_the_first_check_rules_out_most_questions() -> None:
    text = "What does Ann like about her dog?"
    assert not may_mention_time(text, words_of(text))


@given(st.text(), st.floats(allow_nan=False, allow_infinity=False))
def test_no_text_and_no_moment_fails(text: str, now: float) -> None:
    for words in (text, f"{text} 9999 years ago", "999 years ago", "on 29 February", "in December 2099"):
        spans = spans_in(words, now)
        closeness(spans, np.array([now, 0.0, NOW]))


def test_closeness_is_halved_every_two_days() -> None:
    day = 86_400
    start = datetime(2023, 5, 8, tzinfo=UTC).timestamp()
    times = np.array([start, start + day, start + 3 * day, start - 4 * day])
    close = closeness(spans_in("on 8 May 2023", NOW), times)
    assert close is not None
    assert close.tolist() == pytest.approx([1, 1, 0.5, 0.25])
    assert closeness(spans_in("on 8 May 2019", NOW), times) is None
    leap = closeness(spans_in("on 29 February", NOW), times - 69 * day)  # 28 February and later
    assert leap is None  # 2023 has no such day


def test_ordinals_are_also_numbers() -> None:
    assert without_ordinals(["november", "11th", "2nd", "th", "4x"]) == [
        "november", "11th", "11", "2nd", "2", "th", "4x",
    ]  # fmt: skip


@pytest.fixture
def memory(open_memory: Open, clock: ManualClock) -> AgentMemorySystem:
    memory = open_memory()
    for day in (1, 6, 11, 16):
        for number in range(12):
            memory.add(
                "ann",
                f"we met {('at the pool', 'for tea', 'in the park')[number % 3]}",
                id=f"{day}/{number}",
                timestamp=datetime(2023, 11, day, 9, number, tzinfo=UTC),
            )
    return memory


def test_a_question_about_a_day_finds_its_memories(memory: AgentMemorySystem) -> None:
    for question in ("Where did we meet on November 11th?", "where did we meet on 11.11.2023"):
        hits = memory.search("ann", question, 4)
        assert {hit.id.split("/")[0] for hit in hits} == {"11"}
        assert all(hit.why.bonus > 0 for hit in hits)
    assert {hit.why.bonus for hit in memory.search("ann", "where did we meet?")} == {0.0}


def test_relative_times_are_counted_from_now(memory: AgentMemorySystem, clock: ManualClock) -> None:
    now = datetime(2023, 11, 17, tzinfo=UTC)
    hits = memory.search("ann", "where did we meet yesterday?", 4, now=now)
    assert {hit.id.split("/")[0] for hit in hits} == {"16"}
    view = memory.agent("ann").search(
        "where did we meet two weeks ago?", 4, now=now.timestamp() + 3 * 86_400
    )
    assert {hit.id.split("/")[0] for hit in view} == {"6"}
    with pytest.raises(InvalidMemory, match="now"):
        memory.search("ann", "yesterday", now="today")  # type: ignore[arg-type]
