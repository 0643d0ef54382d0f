"""What a terminal can show: signs that it has, small plots where it has them, and bytes for machines.

bar(3, of=4, width=8)            ██████
sparkline([1, 5, 2, 8])          ▁▅▂█
"""

from __future__ import annotations

import codecs
import io
import math
import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_STEPS = "▁▂▃▄▅▆▇█"
PLOT_CHARACTERS = re.compile(f"[{_EIGHTHS[1:]}{_STEPS}]+")
"""What `bar` and `sparkline` are made of."""
_PLAIN = {
    "—": "-", "–": "-", "−": "-", "·": "-", "µ": "u", "×": "x", "÷": "/", "±": "+-", "…": "...", "▸": ">",
    "→": "->", "←": "<-", "⟷": "<->", "≥": ">=", "≤": "<=", "∞": "inf", "∕": "/", "²": "2", "✓": "ok",
    "’": "'", "‘": "'", "“": '"', "”": '"',
}  # fmt: skip
"""What stands for a sign that the terminal does not have."""
_HANDLER = "membench-plain"


def replace_unencodable(*streams: TextIO) -> None:
    """From now on a sign that a stream can't show is written as one that it can; none is an error."""
    codecs.register_error(_HANDLER, _plain)
    for stream in streams:
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_HANDLER)


def _plain(problem: UnicodeError) -> tuple[str, int]:
    if not isinstance(problem, UnicodeEncodeError):
        raise problem
    letters = problem.object[problem.start : problem.end]
    return "".join(_PLAIN.get(letter, "?") for letter in letters), problem.end


def print_for_machines(text: str) -> None:
    """JSON and the like: UTF-8, whatever the terminal can show, and to the last byte."""
    sys.stdout.flush()
    binary = getattr(sys.stdout, "buffer", None)
    if binary is None:
        sys.stdout.write(text)
        return
    binary.write(text.encode("utf-8", "surrogateescape"))
    binary.flush()


def can_draw(stream: TextIO) -> bool:
    """Whether small plots can be shown: a terminal that has the signs for them."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        return False
    try:
        (_EIGHTHS + _STEPS).encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


def bar(value: float, of: float, width: int) -> str:
    """A bar as long as the value's share of `of`, to an eighth of a letter. Something is never nothing."""
    if not math.isfinite(value) or not of > 0 or value <= 0:
        return ""
    eighths = max(1, round(8 * width * min(1.0, value / of)))
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def sparkline(values: Sequence[float]) -> str:
    """A letter for each value, as high as it is between the smallest and the largest."""
    known = [value for value in values if math.isfinite(value)]
    if not known:
        return ""
    low, high = min(known), max(known)
    if low == high:
        return _STEPS[3] * len(known)
    # Halved first: the difference of two huge numbers may be beyond the numbers.
    span = high / 2 - low / 2
    steps = len(_STEPS) - 1
    return "".join(_STEPS[round(min(1.0, (value / 2 - low / 2) / span) * steps)] for value in known)
