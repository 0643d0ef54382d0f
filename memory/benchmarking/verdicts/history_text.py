"""A history for the terminal: a plot each for few series, a line of bars each for many."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memory.benchmarking.metrics import is_timed
from memory.benchmarking.text.display import (
    DIGITS,
    clean,
    distinct_texts,
    figure_text,
    shorten,
    table,
    text_width,
)
from memory.benchmarking.verdicts.changes import SHORTEST
from memory.benchmarking.verdicts.history import HistoryPoint, LevelChange, Series

_DAY, _MINUTE, _SECOND = 10, 16, 19
"""How many characters of an ISO time give the day, the minute and the second."""
ROWS = 10
MOST_PLOTS = 3
"""More series than this are shown as one line each."""
WIDTH = 80
_BARS = 24
"""The most points in the line of bars of a series: the newest ones."""
_IN_ASCII = str.maketrans({"µ": "u", "→": "->", "…": "...", "—": "-", "×": "x"})
_BETTER = {"lower": "lower is better", "higher": "higher is better", "neither": "no direction is better"}


@dataclass(frozen=True)
class Characters:
    """The characters of a plot."""

    point: str
    level: str
    axis: str
    corner: str
    base: str
    bars: str
    mark: str
    outside: str


UNICODE = Characters("●", "─", "┤", "└", "─", "▁▂▃▄▅▆▇█", "▲", "×")
ASCII = Characters("o", "-", "|", "+", "-", "_.-=+*#@", "^", "x")


def characters_for(encoding: str | None) -> Characters:
    """Return the characters that a terminal of this encoding can show."""
    try:
        "".join((UNICODE.point, UNICODE.level, UNICODE.bars)).encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return ASCII
    return UNICODE


def history_text(
    series: Sequence[Series],
    *,
    characters: Characters = UNICODE,
    width: int = WIDTH,
    show_all: bool = False,
) -> str:
    """Return plots of all series, or one line each where there are many and `show_all` is not set."""
    if len(series) <= MOST_PLOTS or show_all:
        text = "\n\n".join(_plot_of(each, characters, width) for each in series) + "\n"
    else:
        text = _list_of(series, characters)
    return text if characters is UNICODE else text.translate(_IN_ASCII)


def _list_of(series: Sequence[Series], characters: Characters) -> str:
    ordered = sorted(series, key=lambda each: (not each.changes, -len(each.points)))
    rows = [_row(each, characters) for each in ordered]
    changed = sum(bool(each.changes) for each in series)
    lines = table(rows, ("metric", "runs", "newest last", "now", "changes"), right=(1, 3))
    return (
        f"{lines}\n\n{len(series)} series, {changed} with changes; "
        "a pattern that fits fewer of them, or --all, shows plots\n"
    )


def change_text(change: LevelChange, series: Series) -> str:
    """Return `worse since 20261116_115624_1af3 (7d927a8): 2.91 ms → 3.18 ms, 9.3 % slower`."""
    revision = f" ({change.revision})" if change.revision else ""
    direction = "changed" if change.direction == "neither" else change.direction
    figures = f"{figure_text(change.before, series.unit)} → {figure_text(change.after, series.unit)}"
    return f"{direction} since {change.run_id}{revision}: {figures}{_amount(change, series)}"


def _amount(change: LevelChange, series: Series) -> str:
    if change.before <= 0 or change.after <= 0 or not series.unit:
        return ""
    share = change.after / change.before - 1
    if is_timed(series.unit) and not series.unit.startswith("/"):
        return f", {abs(share):.1%} {'slower' if share > 0 else 'faster'}".replace("%", " %")
    return f", {abs(share):.1%} {'more' if share > 0 else 'less'}".replace("%", " %")


# -- many series ------------------------------------------------------------------------------


def _row(series: Series, characters: Characters) -> tuple[str, str, str, str, str]:
    changes = "; ".join(change_text(change, series) for change in series.changes)
    now = figure_text(series.values[-1], series.unit)
    return _title(series), str(len(series.points)), _bars(series.values, characters), now, changes


def _bars(values: Sequence[float], characters: Characters) -> str:
    shown = values[-_BARS:]
    low, high = _range(shown)
    top = len(characters.bars) - 1
    heights = [round(top * (value - low) / (high - low)) for value in shown]
    return "".join(characters.bars[min(max(height, 0), top)] for height in heights)


def _title(series: Series) -> str:
    target = "" if series.target == "agentmemory" else f" on {series.target}"
    return f"{series.name}{target} {series.path}"


# -- one series -------------------------------------------------------------------------------


def _plot_of(series: Series, characters: Characters, width: int) -> str:
    count = len(series.points)
    heading = (
        f"{_title(series)}: {_BETTER[series.better]}, {count} run{'s' if count > 1 else ''} "
        f"in environment {series.fingerprint}"
    )
    lines = [clean(heading), *_canvas(series, characters, width)]
    lines += [f"  {characters.mark} {clean(change_text(change, series))}" for change in series.changes]
    if not series.changes:
        enough = count >= 2 * SHORTEST
        lines.append(
            "  no change of level" if enough else f"  {2 * SHORTEST} runs are needed to see changes"
        )
    return "\n".join(lines)


def _canvas(series: Series, characters: Characters, width: int) -> list[str]:
    values = series.values
    low, high = _range(values)
    rows = (0, ROWS // 2, ROWS - 1)
    ticks = [high - (high - low) * row / (ROWS - 1) for row in rows]
    texts = distinct_texts(ticks, lambda tick, digits: figure_text(tick, series.unit, digits), DIGITS)
    labels = dict(zip(rows, texts, strict=True))
    margin = max(text_width(label) for label in labels.values())
    places = _places(len(values), max(10, width - margin - 4))
    grid = [[" "] * (max(places) + 1) for _ in range(ROWS)]

    def row_of(value: float) -> int:
        return min(max(round((high - value) / (high - low) * (ROWS - 1)), 0), ROWS - 1)

    for start, end in pairwise([0, *(change.index for change in series.changes), len(values)]):
        level = row_of(statistics.median(values[start:end]))
        for column in range(places[start], places[end - 1] + 1):
            grid[level][column] = characters.level
    for value, column in zip(values, places, strict=True):
        grid[row_of(value)][column] = characters.point if low <= value <= high else characters.outside
    lines = [
        f"{labels.get(row, ''):>{margin}} {characters.axis} {''.join(line)}".rstrip()
        for row, line in enumerate(grid)
    ]
    under = [characters.base] * (max(places) + 1)
    for change in series.changes:
        under[places[change.index]] = characters.mark
    lines.append(f"{'':>{margin}} {characters.corner}{characters.base}{''.join(under)}")
    lines.append(f"{'':>{margin}}   {_dates(series.points, max(places) + 1)}".rstrip())
    return lines


def _range(values: Sequence[float]) -> tuple[float, float]:
    """Return the limits of the axis. Outliers are drawn at its edge and do not flatten the others."""
    ordered = sorted(values)
    odd = len(ordered) // 20
    inner = ordered[odd : len(ordered) - odd] if odd else ordered
    room = 0.5 * (inner[-1] - inner[0])
    low, high = max(ordered[0], inner[0] - room), min(ordered[-1], inner[-1] + room)
    if low == high:
        room = abs(low) * 0.05 or 1.0
        return low - room, high + room
    return low, high


def _places(count: int, columns: int) -> list[int]:
    """Return the column of each point. Points share columns where there is too little room."""
    if count == 1:
        return [0]
    step = min(3.0, (columns - 1) / (count - 1))
    if step >= 1:
        step = float(int(step))
    return [int(number * step) for number in range(count)]


def _dates(points: Sequence[HistoryPoint], columns: int) -> str:
    if len(points) == 1:
        return clean(points[0].started_at[:_MINUTE])
    first, last = date_texts([points[0].started_at, points[-1].started_at], shortest=_MINUTE)
    gap = columns - len(first) - len(last)
    return f"{first}{' ' * gap}{last}" if gap > 1 else shorten(f"{first} … {last}", max(columns, 41))


def date_texts(times: Sequence[str], shortest: int) -> list[str]:
    """Cut times like `2026-11-18T00:08:35+00:00` to the shortest length at which they differ.

    `shortest` is the smallest length.
    """
    texts: list[str] = []
    for length in (_DAY, _MINUTE, _SECOND):
        texts = [clean(time[:length]) for time in times]
        if length >= shortest and len(set(texts)) == len(times):
            break
    return texts
