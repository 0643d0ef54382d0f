"""Record RAM and CPU time of this process and its children at regular intervals, in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from memory.benchmarking.measure.resources import ProcessTree


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of this process, and of the children that it had at the start, at one time."""

    seconds: float
    """Since the timeline began."""
    done: int
    """The caller's count of finished work."""
    rss_bytes: int
    cpu_seconds: float
    """CPU time of all threads and children since the timeline began."""


class Timeline:
    """A context manager that records readings at regular intervals, and at the start and end of its block.

    Args:
        every_seconds: time between two readings.
        done: returns the caller's count of finished work.
        before_reading: called before each reading.
    """

    def __init__(
        self,
        every_seconds: float,
        done: Callable[[], int],
        before_reading: Callable[[], None] | None = None,
    ) -> None:
        self.readings: list[Reading] = []
        self._every = every_seconds
        self._done = done
        self._before_reading = before_reading
        self._processes = ProcessTree()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._start, self._cpu_start = time.perf_counter(), self._processes.cpu_seconds()
        self._read()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._read()

    def cpu_percents(self) -> list[float]:
        """Return the CPU use between each pair of successive readings, in per cent of one core."""
        return [
            (later.cpu_seconds - earlier.cpu_seconds) / max(later.seconds - earlier.seconds, 1e-9) * 100
            for earlier, later in zip(self.readings, self.readings[1:], strict=False)
        ]

    def _watch(self) -> None:
        while not self._stop.wait(self._every):
            self._read()

    def _read(self) -> None:
        if self._before_reading is not None:
            self._before_reading()
        self.readings.append(
            Reading(
                time.perf_counter() - self._start,
                self._done(),
                self._processes.rss_bytes(),
                self._processes.cpu_seconds() - self._cpu_start,
            )
        )
