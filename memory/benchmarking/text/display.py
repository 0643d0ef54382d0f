"""Format figures and tables as plain text, the same way in every command."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from unicodedata import combining, east_asian_width

NOTHING = "—"
"""Stands where there is no value."""
DIGITS = 3
"""Significant digits: further ones are noise in nearly every measurement."""
TOO_FEW = "too few rounds"
"""Stands in place of an interval that is too wide to be useful."""
_FAR = 10
"""Bounds more than this factor away from the figure are shown as `TOO_FEW`."""
_LEAST_WIDTH = 8
"""Columns of a table are not cut below this width."""

# Units of one kind, from small to large.
_SCALES: tuple[tuple[tuple[str, float], ...], ...] = (
    (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)),
    (("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)),
)


def figure_text(value: float | None, unit: str = "") -> str:
    """Format a figure: `1.23 µs` for 0.00123 ms, `12,300 /s` for 12345 /s, `—` for None.

    Whole numbers without a unit are counts: all their digits are shown.
    """
    if value is None or math.isnan(value):
        return NOTHING
    scaled, shown = _scaled(value, unit)
    return f"{_digits(scaled, is_count=not unit)} {shown}".rstrip()


def interval_text(value: float, low: float | None, high: float | None, unit: str = "") -> str:
    """Format an interval in the unit of `figure_text(value)`: `1.20–1.27`.

    Empty if there are no bounds, or if they are equal: the figure was the same in every round.
    """
    if low is None or high is None or low == high:
        return ""
    if is_too_wide(value, low, high, unit):
        return TOO_FEW
    factor = _factor(unit, _scaled(value, unit)[1])
    bounds = [_digits(bound * factor, is_count=not unit) for bound in (low, high)]
    return (" to " if low < 0 else "–").join(bounds)


def is_too_wide(value: float, low: float, high: float, unit: str = "") -> bool:
    """Return whether a bound of a positive figure is more than ten times away from it.

    False for differences, which have a negative bound, and for shares, whose bounds end at 1: a factor
    means nothing there.
    """
    if value <= 0 or low < 0 or (not unit and high <= 1):
        return False
    return high > _FAR * value or (low > 0 and value > _FAR * low)


def with_interval(value: float | None, low: float | None, high: float | None, unit: str = "") -> str:
    """Format a figure with its interval: `1.23 µs (1.20–1.27)`; without one, the figure alone."""
    if value is None:
        return NOTHING
    bounds = interval_text(value, low, high, unit)
    return f"{figure_text(value, unit)} ({bounds})" if bounds else figure_text(value, unit)


def unit_for(value: float, unit: str) -> str:
    """Return the unit that `figure_text` uses for a value: `µs` for 0.00123 ms."""
    return _scaled(value, unit)[1]


def in_other_unit(value: float, unit: str, other: str) -> float:
    """Convert a value to another unit of the same kind."""
    return value if unit == other else value * _factor(unit, other)


def table(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str] = (),
    *,
    right: Collection[int] = (),
    indent: str = "",
    width: int | None = None,
) -> str:
    """Format rows as aligned columns with two spaces between them.

    `right` are the numbers of the right-aligned columns. Where the lines would be wider than `width`, the
    widest left-aligned column is shortened, with an ellipsis.
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
    """Shorten a text to `width` terminal columns; an ellipsis marks what was cut."""
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
    """Replace control characters, so that a name from a file can't move the cursor or colour the screen."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def text_width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in ("W", "F") else 1 for letter in text
    )


def _fit(widths: list[int], right: Collection[int], most: int) -> None:
    """Narrow the widest left-aligned columns, in place, until all columns together fit into `most`."""
    left = [number for number in range(len(widths)) if number not in right]
    while left and sum(widths) > most:
        widest = max(left, key=lambda number: widths[number])
        if widths[widest] <= _LEAST_WIDTH:
            return
        widths[widest] -= 1


def _scaled(value: float, unit: str) -> tuple[float, str]:
    """Return the value in the largest unit in which it is at least 1 after rounding, and that unit."""
    for scale in _SCALES:
        sizes = dict(scale)
        if unit in sizes and value and math.isfinite(value):
            base = value * sizes[unit]
            # Round first, so that 999.9 µs becomes 1.00 ms and not 1,000 µs.
            size = abs(float(f"{base:.{DIGITS}g}"))
            name, factor = next(
                ((name, factor) for name, factor in reversed(scale) if size >= factor), scale[0]
            )
            return (value if name == unit else base / factor), name
    return value, unit


def _factor(unit: str, other: str) -> float:
    """Return the factor from one unit to another unit of the same kind."""
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
