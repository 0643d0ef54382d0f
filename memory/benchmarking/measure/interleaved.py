"""Time several operations in turns in one process, so that noise of the machine affects all of them.

    turn 1:  a a a a │ b b b b      turn 2:  b b b b │ a a a a      turn 3:  a a a a │ b b b b   …

Each turn gives the difference between the medians of two operations; the result is the median of these
differences. Two figures measured a second apart would be too noisy to show a small difference.

If one operation calls the other, `InnerTime` is more precise: it subtracts the time of the inner calls.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.timing import (
    Timing,
    frozen_heap,
    garbage_collection_off,
    split_evenly,
    time_block,
    wall_ns,
)

TURNS = 50
"""Number of turns by default."""
Result = TypeVar("Result")


def time_interleaved(
    operations: Mapping[str, Callable[[Any], object]],
    items: Mapping[str, Sequence[Any]],
    *,
    turns: int = TURNS,
    warm_up: int = 0,
) -> dict[str, Timing]:
    """Time each operation on its own items, every item once and in order; every call is a sample.

    Args:
        operations: name to operation, called with one item.
        items: name to items, the same number for each operation.
        turns: the number of turns that the items are divided into.
        warm_up: the number of items at the beginning that are not timed.
    """
    counts = {name: len(items[name]) - warm_up for name in operations}
    calls = min(counts.values(), default=0)
    if calls < 1 or set(counts.values()) != {calls}:
        raise InvalidResult(f"there are {counts} items to time: pass each operation the same number, ≥ 1")
    streams = {name: iter(items[name]) for name in operations}
    samples: dict[str, list[int]] = {name: [] for name in operations}
    walls: dict[str, list[int]] = {name: [] for name in operations}
    cpus: dict[str, list[int]] = {name: [] for name in operations}
    sizes = split_evenly(calls, turns)
    with frozen_heap():
        for name, operation in operations.items():
            for item in islice(streams[name], warm_up):
                operation(item)
        order = list(operations)
        for size in sizes:
            with garbage_collection_off():
                for name in order:
                    start = len(samples[name])
                    cpu, elapsed = time_block(operations[name], streams[name], size, 1, samples[name])
                    on_clock = sum(samples[name][start:])
                    walls[name].append(on_clock)
                    cpus[name].append(round(cpu * on_clock / max(elapsed, 1)))
            order.reverse()
    return {
        name: Timing(tuple(samples[name]), tuple(sizes), tuple(walls[name]), tuple(cpus[name]))
        for name in operations
    }


def turn_medians_us(timing: Timing) -> list[float]:
    """Return the median call of each turn, in µs."""
    samples = iter(timing.samples_ns)
    return [statistics.median(islice(samples, size)) / 1000 for size in timing.block_samples]


def overhead_us(whole: Timing, *parts: Timing) -> float:
    """Return how many µs longer `whole` takes than its parts together; all were timed in the same turns."""
    columns = [turn_medians_us(timing) for timing in (whole, *parts)]
    return float(statistics.median(turn[0] - sum(turn[1:]) for turn in zip(*columns, strict=True)))


class InnerTime:
    """Measures how much of an outer call is spent in inner calls.

        inside = InnerTime()
        outer = inside.around(agent_that_calls(inside.watched(store.add)))

    Time `outer`. Then `outside_us` returns how long a call of `outer` takes without `store.add`.
    """

    def __init__(self) -> None:
        self._spent = 0
        self._inner_ns: list[int] = []

    def watched(self, inner: Callable[..., Result]) -> Callable[..., Result]:
        """Wrap an inner function, so that its time is counted."""

        def call(*args: Any, **named: Any) -> Result:
            start = wall_ns()
            try:
                return inner(*args, **named)
            finally:
                self._spent += wall_ns() - start

        return call

    def around(self, outer: Callable[[Any], object]) -> Callable[[Any], None]:
        """Wrap the outer function, so that each outer call stores the time of its inner calls."""

        def call(item: Any) -> None:
            self._spent = 0
            outer(item)
            self._inner_ns.append(self._spent)

        return call

    def outside_us(self, timing: Timing) -> float:
        """Return the median time of an outer call without its inner calls, in µs.

        `timing` must hold the most recent outer calls.
        """
        inner = self._inner_ns[-len(timing.samples_ns) :]
        return statistics.median(
            (outer - own) / 1000 for outer, own in zip(timing.samples_ns, inner, strict=True)
        )
