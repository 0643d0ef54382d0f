"""The times that a question mentions: "in May 2023", "November 11th", "last weekend".

A time is a span of days in UTC. A month or a day without a year stands for the same span of every year.
Relative times are counted from `now`. English only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory._base.native import core

DAY = 86_400.0
HALF_LIFE_DAYS = 2.0
"""Days outside of a span after which a memory's closeness to it is halved. People also tell a few days
later what they did; of 148 dated questions of two sets, 8 % had their evidence 1 to 2 days after."""
_STEPS = 64  # Elements of `_CLOSENESS` for each half-life: the line between two is exact to 2e-5
_STEPS_A_SECOND = _STEPS / (HALF_LIFE_DAYS * DAY)
_CLOSENESS = np.exp2(np.arange(0, -24 * _STEPS - 1, -1) / _STEPS).astype(np.float32)
"""The closeness at each step of the distance."""
_MAX_YEARS = 50  # Years in which a date without a year is looked for, the newest ones: a bound on the cost

_MONTH_NAMES = (
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
)  # fmt: skip
_MONTHS = {
    form: number
    for number, name in enumerate(_MONTH_NAMES, start=1)
    for form in (name, name[:3], "sept" if name == "september" else name)
}
_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAYS = {name: number for number, name in enumerate(_DAY_NAMES)}
_NUMBER_NAMES = (
    "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_NUMBERS = {name: number for number, name in enumerate(_NUMBER_NAMES, start=1)}
_NUMBERS |= {"a": 1, "an": 1, "a couple of": 2, "a few": 3}

_MONTH = f"(?P<month>{'|'.join(sorted(_MONTHS, key=len, reverse=True))})"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_WORD_BEFORE = r"\b(?:in|during|of|since|this|last|early|late|mid|by|until|before|after|for)[ -]+"
_ABSOLUTE = [
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"\b(?P<year>(?:19|20)\d\d)-(?P<month>\d\d)-(?P<day>\d\d)\b",
        r"\b(?P<day>\d{1,2})\.(?P<month>\d{1,2})\.(?P<year>(?:19|20)\d\d)\b",
        rf"\b{_DAY}(?: of)? {_MONTH}\b\.?(?:,? {_YEAR}\b)?",
        rf"\b{_MONTH}\b\.? ?,? ?(?:the )?{_DAY}\b(?!:| ?[ap]\.?m\b)(?:,? ?{_YEAR}\b)?",
        rf"\b{_MONTH}\b\.?,? (?:of )?{_YEAR}\b",
        rf"{_WORD_BEFORE}{_MONTH}\b",
        rf"{_WORD_BEFORE}{_YEAR}\b",
    )
]  # The first pattern that matches a part of the text counts
_RELATIVE = re.compile(
    r"\b(?:(?P<day>today|tonight|yesterday|last night|this morning|the day before yesterday)"
    r"|(?P<which>last|this|past) (?P<unit>week|weekend|month|year|"
    + "|".join(_WEEKDAYS)
    + r")|(?P<amount>\d{1,3}|"
    + "|".join(sorted(_NUMBERS, key=len, reverse=True))
    + r") (?P<units>day|week|month|year)s? ago"
    r"|(?:in|over|during) the (?:last|past) (?P<recent>\d{1,3} |"
    + "|".join(f"{word} " for word in sorted(_NUMBERS, key=len, reverse=True))
    + r"|)(?P<recent_units>day|week|month|year)s?)\b",
    re.IGNORECASE,
)
_HINTS = (
    "ago",
    "last ",
    "past ",
    "this ",
    "today",
    "yesterday",
    "tonight",
    *{name[:3] for name in _MONTHS},
)
"""One of these, or a year, is in every lower-case text that one of the patterns could match."""
_HINT_LETTERS = frozenset(hint[:3] for hint in _HINTS)
_YEAR_HINT = re.compile(r"\d{4}")
_ORDINAL = re.compile(r"\d+(?=(?:st|nd|rd|th)$)")
_ORDINAL_ENDINGS = frozenset(("st", "nd", "rd", "th"))
_UNIT_DAYS = {"day": 1, "week": 7, "month": 30, "year": 365}


class Span(NamedTuple):
    """A span of days: of one year, or of every year if `year` is None."""

    start: date
    end: date
    """The first day after the span."""
    every_year: bool = False


def spans_in(text: str, now: float) -> list[Span]:
    """Return the times that a text mentions. `now` is in seconds since 1970."""
    if not _may_mention_time(text):
        return []
    spans: list[Span] = []
    used: list[tuple[int, int]] = []
    for pattern in _ABSOLUTE:
        for match in pattern.finditer(text):
            start, end = match.span()
            if not any(start < other_end and other_start < end for other_start, other_end in used):
                span = _absolute(match)
                if span is not None:
                    used.append((start, end))
                    spans.append(span)
    today = _date_of(now)
    if today is not None:
        for match in _RELATIVE.finditer(text):
            try:
                spans.append(_relative(match, today))
            except (OverflowError, ValueError):
                continue  # before the first year of the calendar
    return spans


def may_mention_time(text: str, words: list[str]) -> bool:
    """Return False only if `spans_in` finds nothing. `words` are those of the text, from `words_of`.

    Every search calls this: it takes a fifth of the time in which `spans_in` finds the same."""
    if not text.isascii():
        return True
    starts = {word[:3] for word in words}
    return not starts.isdisjoint(_HINT_LETTERS) or any(map(str.isdigit, {start[0] for start in starts}))


def _may_mention_time(text: str) -> bool:
    """Return False only if none of the patterns can match, in a hundredth of their time."""
    # Outside of ASCII, patterns match letters that `lower` does not change.
    if not text.isascii():
        return True
    lower = text.lower()
    return any([hint in lower for hint in _HINTS]) or _YEAR_HINT.search(lower) is not None


def closeness(spans: list[Span], created_at: NDArray[np.float64]) -> NDArray[np.float32] | None:
    """Return how close each memory is to one of the spans: 1 inside, halved every two days outside.

    None if no memory is close to one.
    """
    if not len(created_at):
        return None
    first, last = _date_of(float(created_at.min())), _date_of(float(created_at.max()))
    if first is None or last is None:
        return None  # the times of a simulation
    bounds = np.array(list(_seconds(spans, first.year, last.year)), np.float64)
    if not len(bounds):
        return None
    close = np.empty(len(created_at), np.float32)
    if core is None:
        nearest = closeness_pure(created_at, bounds, close)
    else:
        nearest = core.closeness(created_at, bounds, _CLOSENESS, _STEPS_A_SECOND, close)
    return None if nearest > 10 * HALF_LIFE_DAYS * DAY else close


def closeness_pure(
    times: NDArray[np.float64], bounds: NDArray[np.float64], close: NDArray[np.float32]
) -> float:
    """Write how close each time is to one of some spans. Return the least distance, negative inside.

    A table and a line between its elements stand for the power of two: the compiled core does the same,
    bit for bit."""
    distance = np.full(len(times), np.inf)
    for start, end in bounds:
        np.minimum(distance, np.maximum(start - times, times - end), out=distance)
    last = len(_CLOSENESS) - 1
    places = np.minimum(np.maximum(distance, 0) * _STEPS_A_SECOND, last)
    steps = np.minimum(places.astype(np.int64), last - 1)
    values = _CLOSENESS[steps]
    close[:] = values + (_CLOSENESS[steps + 1] - values) * (places - steps).astype(np.float32)
    close[places == last] = _CLOSENESS[last]
    return float(distance.min())


def without_ordinals(words: list[str]) -> list[str]:
    """Return the words, with "11" after every "11th": dates are stored with plain numbers."""
    forms: list[str] = []
    for word in words:
        forms.append(word)
        if word[-2:] in _ORDINAL_ENDINGS:
            forms += _ORDINAL.findall(word)
    return forms


def _seconds(spans: list[Span], first: int, last: int) -> Iterator[tuple[float, float]]:
    """Yield the first second of each span and the first after it, in the years from `first` to `last`."""
    for span in spans:
        years = range(max(first, last - _MAX_YEARS), last + 1) if span.every_year else [span.start.year]
        for year in years:
            try:
                start = span.start.replace(year=year)
                end = span.end.replace(year=year + span.end.year - span.start.year)
            except ValueError:
                continue  # 29 February of another year, or after the last year of the calendar
            yield _timestamp(start), _timestamp(end)


def _absolute(match: re.Match[str]) -> Span | None:
    given = match.groupdict()
    month_name = given.get("month")
    if month_name == "may":
        return None  # the verb
    try:
        month = None if month_name is None else int(month_name)
    except ValueError:
        month = _MONTHS[str(month_name).lower()]
    day, year = given.get("day"), given.get("year")
    in_year = int(year) if year else 2000  # any leap year
    try:
        if month is None:
            return Span(date(in_year, 1, 1), date(in_year + 1, 1, 1))
        if day is None:
            return Span(date(in_year, month, 1), _next_month(in_year, month), year is None)
        start = date(in_year, month, int(day))
    except ValueError:
        return None  # no such day
    return Span(start, start + timedelta(days=1), year is None)


def _relative(match: re.Match[str], today: date) -> Span:
    given = {name: (value or "").lower().strip() for name, value in match.groupdict().items()}
    if given["day"]:
        back = {"yesterday": 1, "last night": 1, "the day before yesterday": 2}.get(given["day"], 0)
        return _days(today - timedelta(days=back), 1)
    if given["units"]:
        amount, unit = _number(given["amount"]), given["units"]
        centre = today - timedelta(days=amount * _UNIT_DAYS[unit])
        around = {"day": 0, "week": 3, "month": 10, "year": 60}[unit]  # "two weeks ago" is not exact
        return _days(centre - timedelta(days=around), 2 * around + 1)
    if given["recent_units"]:
        length = _number(given["recent"]) * _UNIT_DAYS[given["recent_units"]]
        return _days(today - timedelta(days=length), length + 1)
    unit, is_last = given["unit"], given["which"] != "this"
    if unit in _WEEKDAYS:
        back = (today.weekday() - _WEEKDAYS[unit]) % 7 or 7
        return _days(today - timedelta(days=back), 1)
    monday = today - timedelta(days=today.weekday())
    if unit == "week":
        return _days(monday - timedelta(days=7 * is_last), 7)
    if unit == "weekend":
        return _days(monday - timedelta(days=2) if is_last else monday + timedelta(days=5), 2)
    if unit == "month":
        start = (
            (today.replace(day=1) - timedelta(days=1)).replace(day=1) if is_last else today.replace(day=1)
        )
        return Span(start, _next_month(start.year, start.month))
    return Span(date(today.year - is_last, 1, 1), date(today.year - is_last + 1, 1, 1))


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _NUMBERS.get(text, 1)


def _days(start: date, count: int) -> Span:
    return Span(start, start + timedelta(days=count))


def _next_month(year: int, month: int) -> date:
    return date(year + month // 12, month % 12 + 1, 1)


def _date_of(timestamp: float) -> date | None:
    try:
        return datetime.fromtimestamp(timestamp, tz=UTC).date()
    except (OverflowError, OSError, ValueError):
        return None


def _timestamp(day: date) -> float:
    return datetime(day.year, day.month, day.day, tzinfo=UTC).timestamp()
