"""A benchmark whose true ratio is known: one side runs a loop longer by a given per cent.

gate.py uses it; it is not called by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from memory.benchmarking.bench import Bench

TURNS = 2000
"""Repetitions of the loop: so many that the cost of the call itself is negligible."""


def benchmark_known_ratio(
    longer_percent: tuple[float, ...] = (0.0,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """Time the same loop several times, each time longer by the given per cent."""
    bench = bench or Bench()
    return {
        f"timing_{number}": bench.time(_loop(round(TURNS * (1 + percent / 100))))
        for number, percent in enumerate(longer_percent)
    }


def _loop(turns: int) -> Callable[[], None]:
    """Return a loop whose repetitions all do the same work, without allocations."""
    table = {"key": 1}

    def work() -> None:
        for _ in repeat(None, turns):
            table["key"]

    return work
