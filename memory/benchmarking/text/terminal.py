"""Output to a terminal: replacement of characters, small plots, and unchanged bytes for programs.

bar(3, of=4, width=8)            ██████
sparkline([1, 5, 2, 8])          ▁▅▂█
"""

from __future__ import annotations

import codecs
import io
import math
import os
import re
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STEPS = "▁▂▃▄▅▆▇█"
PLOT_CHARACTERS = re.compile(f"[{_EIGHTHS[1:]}{_STEPS}]+")
"""Matches what `bar` and `sparkline` draw."""
_REPLACEMENTS = {
    "—": "-", "–": "-", "−": "-", "·": "-", "µ": "u", "×": "x", "÷": "/", "±": "+-", "…": "...", "▸": ">",
    "→": "->", "←": "<-", "⟷": "<->", "≥": ">=", "≤": "<=", "∞": "inf", "∕": "/", "²": "2", "✓": "ok",
    "’": "'", "‘": "'", "“": '"', "”": '"',
}  # fmt: skip
"""ASCII text for characters that the terminal's encoding may lack."""
_HANDLER = "membench-plain"


def replace_unencodable(*streams: TextIO) -> None:
    """Make streams write ASCII for characters that their encoding lacks, instead of raising an error."""
    codecs.register_error(_HANDLER, _replace)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _replace(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    letters = problem.object[problem.start : problem.end]
    return "".join(_REPLACEMENTS.get(letter, "?") for letter in letters), problem.end


def print_for_machines(text: str) -> None:
    """Print JSON and other text for programs: always as UTF-8, without replacing any character."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
        return
    binary.write(text.encode("utf-8", "surrogateescape"))
    binary.flush()


def terminal_width(stream: TextIO) -> int | None:
    """Return the width of a terminal; None for a pipe or a file, where lines are not cut."""
    return shutil.get_terminal_size().columns if stream.isatty() else None


def can_draw(stream: TextIO) -> bool:
    """Return whether a stream is a terminal that can show `bar` and `sparkline`."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        (_EIGHTHS + _STEPS).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar(value: float, of: float, width: int) -> str:
    """Draw a bar of `width` × `value` ÷ `of` cells, rounded to an eighth of a cell, at most `width`.

    A positive value draws at least one eighth of a cell.
    """
    if not math.isfinite(value) or not of > 0 or value <= 0:
        return ""
    eighths = max(1, round(8 * width * min(1.0, value / of)))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def sparkline(values: Sequence[float]) -> str:
    """Draw one character for each value, between ▁ for the smallest and █ for the largest."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    if low == high:
        return _STEPS[3] * len(known)
    # Halve first: the difference of two huge numbers could overflow a float.
    span = high / 2 - low / 2
    steps = len(_STEPS) - 1
    return "".join(_STEPS[round(min(1.0, (value / 2 - low / 2) / span) * steps)] for value in known)
