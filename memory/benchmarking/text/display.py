"""Format figures and tables as plain text, the same way in every command."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import zip_longest
from unicodedata import combining, east_asian_width

NOTHING = "—"
"""Shown instead of a missing value."""
DIGITS = 3
"""Significant digits of a figure: more digits are noise in nearly every measurement."""
TOO_FEW = "too few rounds"
"""Shown instead of an interval that is too wide to be useful."""
_FAR = 10
"""If a bound is more than this factor away from the figure, `TOO_FEW` is shown."""
_MOST_DIGITS = 17
"""With this many significant digits, any two different floats have different texts."""
_LEAST_WIDTH = 8
"""The smallest width of a shortened column of a table, in characters."""

# Units of time and of size, from small to large, each with its value in seconds or bytes.
_SCALES: tuple[tuple[tuple[str, float], ...], ...] = (
    (("ns", 1e-9), ("µs", 1e-6), ("ms", 1e-3), ("s", 1.0)),
    (("B", 1.0), ("KB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)),
)


def figure_text(value: float | None, unit: str = "", digits: int = DIGITS) -> str:
    """Format a figure: `1.23 µs` for 0.00123 ms, `12,300 /s` for 12345 /s, `—` for None.

    Whole numbers without a unit are counts: all their digits are shown. `digits` applies to other numbers.
    """
    if value is None or math.isnan(value):
        return NOTHING
    scaled, shown = _scaled(value, unit)
    return f"{_digits(scaled, not unit, digits)} {shown}".rstrip()


def distinct_texts(values: Sequence[float], text_of: Callable[[float, int], str], digits: int) -> list[str]:
    """Return a text for each value, with enough digits that different values have different texts.

    `text_of` is called with a value and a number of digits. `digits` is the first number to try.
    """
    count = len(set(values))
    for more in range(digits, _MOST_DIGITS):
        texts = [text_of(value, more) for value in values]
        if len(set(texts)) == count:
            return texts
    return [text_of(value, _MOST_DIGITS) for value in values]


def interval_text(value: float, low: float | None, high: float | None, unit: str = "") -> str:
    """Format an interval in the unit of `figure_text(value)`: `1.20–1.27`.

    Return an empty text if there are no bounds, or if they are equal (the same figure in every round).
    """
    if low is None or high is None or low == high:
        return ""
    if is_too_wide(value, low, high, unit):
        return TOO_FEW
    factor = _factor(unit, _scaled(value, unit)[1])
    bounds = [_digits(bound * factor, is_count=not unit) for bound in (low, high)]
    return (" to " if low < 0 else "–").join(bounds)


def is_too_wide(value: float, low: float, high: float, unit: str = "") -> bool:
    """Return whether a bound of a positive figure is more than a factor of ten away from the figure.

    Return False for differences, which can have a negative bound, and for shares, whose bounds are at most
    1: a factor has no meaning for them.
    """
    if value <= 0 or low < 0 or (not unit and high <= 1):
        return False
    return high > _FAR * value or (low > 0 and value > _FAR * low)


def with_interval(value: float | None, low: float | None, high: float | None, unit: str = "") -> str:
    """Format a figure with its interval: `1.23 µs (1.20–1.27)`; without bounds, only the figure."""
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
    wrap: bool = False,
) -> str:
    """Format rows as aligned columns with two spaces between them.

    `right` holds the numbers of the right-aligned columns. If the lines would be wider than `width`, the
    widest left-aligned column is shortened, with an ellipsis. With `wrap` its cells are wrapped between
    words instead.
    """
    return "\n".join(table_rows(rows, headers, right=right, indent=indent, width=width, wrap=wrap))


def table_rows(
    rows: Sequence[Sequence[str]],
    headers: Sequence[str] = (),
    *,
    right: Collection[int] = (),
    indent: str = "",
    width: int | None = None,
    wrap: bool = False,
) -> list[str]:
    """Return the rows of a `table`, the headers first. With `wrap` a row can have several lines."""
    lines = [[clean(cell) for cell in row] for row in ((headers, *rows) if headers else rows)]
    if not lines:
        return []
    columns = list(zip(*lines, strict=True))
    widths = [max(map(text_width, column)) for column in columns]
    if width is not None:
        most = width - len(indent) - 2 * (len(widths) - 1)
        left = [number for number in range(len(widths)) if number not in right]
        if wrap:
            _fit(widths, {number: _longest_word(columns[number]) for number in left}, most)
            left = left[1:]  # never shorten the first column: users copy the names in it
        _fit(widths, dict.fromkeys(left, _LEAST_WIDTH), most)
    shown = []
    for line in lines:
        cells = [
            [shorten(piece, space) for piece in (wrap_words(cell, space) if wrap else [cell])]
            for cell, space in zip(line, widths, strict=True)
        ]
        shown.append(
            "\n".join(
                _aligned(pieces, widths, right, indent) for pieces in zip_longest(*cells, fillvalue="")
            )
        )
    return shown


def _aligned(cells: Sequence[str], widths: Sequence[int], right: Collection[int], indent: str) -> str:
    padded = []
    for number, (cell, space) in enumerate(zip(cells, widths, strict=True)):
        gap = " " * (space - text_width(cell))
        padded.append(gap + cell if number in right else cell + gap)
    return indent + "  ".join(padded).rstrip()


def wrap_words(text: str, width: int) -> list[str]:
    """Split a text between words into lines of at most `width` terminal columns.

    A word that is wider than `width` gets its own line.
    """
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if lines[-1] and text_width(longer) > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


def paragraph(text: str, width: int | None, indent: str = "", further: str | None = None) -> str:
    """Wrap a text into lines of at most `width` columns; if `width` is None, into a single line.

    `indent` starts the first line, and `further` starts the others. By default `further` is `indent` and
    two spaces.
    """
    if width is None:
        return indent + text
    rest = f"{indent}  " if further is None else further
    first, *others = wrap_words(text, max(1, width - len(rest)))
    return "\n".join([indent + first, *(rest + line for line in others)])


def _longest_word(column: Sequence[str]) -> int:
    return max(text_width(word) for cell in column for word in cell.split(" "))


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
    """Replace control characters: a name from a file must not move the cursor or change colours."""
    return "".join(letter if letter.isprintable() else "�" for letter in text)


def text_width(text: str) -> int:
    """Return how many terminal columns a text takes."""
    return sum(
        0 if combining(letter) else 2 if east_asian_width(letter) in ("W", "F") else 1 for letter in text
    )


def _fit(widths: list[int], least: Mapping[int, int], most: int) -> None:
    """Narrow the widest columns, in place, until the sum of all widths is at most `most`.

    Only the columns in `least` are narrowed; `least` maps their numbers to their smallest widths.
    """
    while sum(widths) > most:
        wide = [number for number, fewest in least.items() if widths[number] > fewest]
        if not wide:
            return
        widths[max(wide, key=lambda number: widths[number])] -= 1


def _scaled(value: float, unit: str) -> tuple[float, str]:
    """Return the value in the largest unit in which it rounds to at least 1, and the name of that unit."""
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


def _digits(value: float, is_count: bool, digits: int = DIGITS) -> str:
    if not math.isfinite(value):
        return "∞" if value > 0 else "-∞"
    size = abs(value)
    if value == 0:
        return "0"
    if is_count and value == int(value) and size < 1e15:
        return f"{int(value):,}"
    if not 1e-4 <= size < 1e15:
        return f"{value:.{digits - 1}e}"
    rounded = float(f"{value:.{digits}g}")
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(rounded))))
    return f"{rounded:,.{decimals}f}"
