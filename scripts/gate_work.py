"""Work whose true ratio is known: the same loop, so many per cent longer on one side. Used by gate.py."""

from __future__ import annotations

from collections.abc import Callable
from itertools import repeat
from typing import Any

from memory.benchmarking.bench import Bench

TURNS = 2000
"""Long enough that a call's own cost is nothing beside its loop."""


def benchmark_known_ratio(
    longer_percent: tuple[float, ...] = (0.0,), bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """The same loop over and over, so many per cent longer in each timing."""
    bench = bench or Bench()
    return {
        f"timing_{number}": bench.time(_loop(round(TURNS * (1 + percent / 100))))
        for number, percent in enumerate(longer_percent)
    }


def _loop(turns: int) -> Callable[[], None]:
    """Every turn does the same: no number that grows, and nothing that is allocated."""
    table = {"key": 1}

    def work() -> None:
        for _ in repeat(None, turns):
            table["key"]

    return work
