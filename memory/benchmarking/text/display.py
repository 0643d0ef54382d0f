"""Figures and tables as plain text, the same in every command."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from unicodedata import combining, east_asian_width

NOTHING = "—"
DIGITS = 3
"""Significant ones: more than that is noise in nearly every measurement."""
TOO_FEW = "too few rounds"
"""In place of bounds that say nothing."""
_FAR = 10
"""Times up or down, from which on bounds say how few rounds there were and nothing of the figure."""

# Units that are the same thing in other sizes, from small to large.
_SCALES: tuple[tuple[tuple[str, float], ...], ...] = (
    (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)),
    (("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)),
)


def figure_text(value: float | None, unit: str = "") -> str:
    """A figure for people: `1.23 µs` for 0.00123 ms, `12,300 /s` for 12345 /s, `—` for None.

    Whole numbers without a unit are counts, and shown to the last digit.
    """
    if value is None or math.isnan(value):
        return NOTHING
    scaled, shown = _scaled(value, unit)
    return _with_unit(_digits(scaled, is_count=not unit), shown)


def interval_text(value: float, low: float | None, high: float | None, unit: str = "") -> str:
    """The bounds in the unit that `figure_text` gives the value: `1.20–1.27`; empty where there are none.

    A figure that is the same in every round needs no bounds.
    """
    if low is None or high is None or low == high:
        return ""
    if is_too_wide(value, low, high, unit):
        return TOO_FEW
    factor = _factor(unit, _scaled(value, unit)[1])
    bounds = [_digits(bound * factor, is_count=not unit) for bound in (low, high)]
    return (" to " if low < 0 else "–").join(bounds)


def is_too_wide(value: float, low: float, high: float, unit: str = "") -> bool:
    """Whether the bounds of a positive figure reach more than ten times up or down.

    Bounds below zero are those of a difference, bounds of a share end at 1, and nothing is below zero: such
    bounds tell something, however small the figure is.
    """
    if value <= 0 or low < 0 or (not unit and high <= 1):
        return False
    return high > _FAR * value or (low > 0 and value > _FAR * low)


def with_interval(value: float | None, low: float | None, high: float | None, unit: str = "") -> str:
    """`1.23 µs (1.20–1.27)`, or the figure alone where nothing bounds it."""
    if value is None:
        return NOTHING
    bounds = interval_text(value, low, high, unit)
    return f"{figure_text(value, unit)} ({bounds})" if bounds else figure_text(value, unit)


def unit_for(value: float, unit: str) -> str:
    """The unit that `figure_text` gives a value: `µs` for 0.00123 ms."""
    return _scaled(value, unit)[1]


def in_other_unit(value: float, unit: str, other: str) -> float:
    """The same amount in another unit of its kind."""
    return value if unit == other else value * _factor(unit, other)


def table(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str] = (),
    *,
    right: Collection[int] = (),
    indent: str = "",
    width: int | None = None,
) -> str:
    """Aligned columns, two spaces between them; `right` names the columns of figures.

    Where the lines would be wider than `width`, the widest left-aligned column is cut, with an ellipsis.
    """
    lines = [[clean(cell) for cell in row] for row in ((headers, *rows) if headers else rows)]
    if not lines:
        return ""
    widths = [max(map(text_width, column)) for column in zip(*lines, strict=True)]
    if width is not None:
        _fit(widths, right, width - len(indent) - 2 * (len(widths) - 1))
    shown = []
    for line in lines:
        cells = []
        for number, (cell, space) in enumerate(zip(line, widths, strict=True)):
            cell = shorten(cell, space)
            gap = " " * (space - text_width(cell))
            cells.append(gap + cell if number in right else cell + gap)
        shown.append(indent + "  ".join(cells).rstrip())
    return "\n".join(shown)


def shorten(text: str, width: int) -> str:
    """Cut to this many columns, with an ellipsis where something was lost."""
    if text_width(text) <= width:
        return text
    kept, used = "", 1
    for letter in text:
        used += text_width(letter)
        if used > width:
            break
        kept += letter
    return kept + "…"


def clean(text: str) -> str:
    """Without what a terminal would obey: a name from a file can't move the cursor or colour the screen."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def text_width(text: str) -> int:
    """Columns on a terminal."""
    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in ("W", "F") else 1 for letter in text
    )


def _fit(widths: list[int], right: Collection[int], most: int) -> None:
    left = [number for number in range(len(widths)) if number not in right]
    while left and sum(widths) > most:
        widest = max(left, key=lambda number: widths[number])
        if widths[widest] <= 8:
            return
        widths[widest] -= 1


def _scaled(value: float, unit: str) -> tuple[float, str]:
    """The value in the largest unit of its kind in which it is not below 1, as it will be rounded."""
    for scale in _SCALES:
        sizes = dict(scale)
        if unit in sizes and value and math.isfinite(value):
            base = value * sizes[unit]
            # Rounded first, so that 999.9 µs becomes 1.00 ms and not 1,000 µs.
            size = abs(float(f"{base:.{DIGITS}g}"))
            name, factor = next(
                ((name, factor) for name, factor in reversed(scale) if size >= factor), scale[0]
            )
            return (value if name == unit else base / factor), name
    return value, unit


def _factor(unit: str, other: str) -> float:
    """What turns figures of one unit into figures of another of the same kind."""
    for scale in _SCALES:
        sizes = dict(scale)
        if unit in sizes:
            return sizes[unit] / sizes[other]
    return 1.0


def _digits(value: float, is_count: bool) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if value == 0:
        return "0"
    if is_count and value == int(value) and size < 1e15:
        return f"{int(value):,}"
    if not 1e-4 <= size < 1e15:
        return f"{value:.{DIGITS - 1}e}"
    rounded = float(f"{value:.{DIGITS}g}")
    decimals = max(0, DIGITS - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"


def _with_unit(digits: str, unit: str) -> str:
    return f"{digits} {unit}" if unit else digits
