"""A clock that returns only finite times."""

from __future__ import annotations

import math
from collections.abc import Callable

from memory.errors import InvalidMemory, short


class FiniteClock:
    """Reads another clock, and raises InvalidMemory if the result is not a finite number."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now

    def now(self) -> float:
        now = self._now()
        try:
            if math.isfinite(now):
                return now
        except (TypeError, OverflowError):
            pass  # not a number, or too large for a float
        raise InvalidMemory(f"the clock gave {short(now)}: use seconds since 1970, a finite number")
