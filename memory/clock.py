"""The source of the current time: the system clock, or a clock that tests and benchmarks set."""

from __future__ import annotations

import threading
import time
from typing import Protocol


class Clock(Protocol):
    """Returns the current time."""

    def now(self) -> float:
        """Return seconds since 1970."""
        ...


class SystemClock:
    """The clock of the machine."""

    def now(self) -> float:
        return time.time()


class ManualClock:
    """A clock that only `advance` changes, so that a test of a time limit need not sleep.

    `start` is in seconds since 1970.
    """

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        with self._lock:
            self._now += seconds
