"""Operations timed in turns, so that whatever disturbs the machine disturbs all of them alike.

    turn 1:  a a a a │ b b b b      turn 2:  b b b b │ a a a a      turn 3:  a a a a │ b b b b   …

What one costs more than another is then the median over the turns of the difference of their medians: a
small difference of two large figures that were measured a second apart would drown in noise.

Where one calls the other, `InnerTime` does better: it takes the time of the inner call off the outer one.
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
Result = TypeVar("Result")


def time_interleaved(
    operations: Mapping[str, Callable[[Any], object]],
    items: Mapping[str, Sequence[Any]],
    *,
    turns: int = TURNS,
    warm_up: int = 0,
) -> dict[str, Timing]:
    """Time each operation on its own items, every item once, in the order given.

    The first `warm_up` items of each are not timed. Every call is a sample of its own.
    """
    counts = {name: len(items[name]) - warm_up for name in operations}
    calls = min(counts.values(), default=0)
    if calls < 1 or set(counts.values()) != {calls}:
        raise InvalidResult(f"there are {counts} items to time: give each operation the same number, ≥ 1")
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
    """The median call of each turn, in µs."""
    rest = iter(timing.samples_ns)
    return [statistics.median(islice(rest, size)) / 1000 for size in timing.block_samples]


def overhead_us(whole: Timing, *parts: Timing) -> float:
    """What a call costs more than its parts together, all timed in the same turns."""
    columns = [turn_medians_us(timing) for timing in (whole, *parts)]
    return float(statistics.median(turn[0] - sum(turn[1:]) for turn in zip(*columns, strict=True)))


class InnerTime:
    """How much of an outer call is spent in inner ones.

        inside = InnerTime()
        outer = inside.around(agent_that_calls(inside.watched(store.add)))

    `outer` is what is timed, and `outside_us` then tells what a call of it costs besides `store.add`.
    """

    def __init__(self) -> None:
        self._spent = 0
        self._inner_ns: list[int] = []

    def watched(self, inner: Callable[..., Result]) -> Callable[..., Result]:
        def call(*args: Any, **named: Any) -> Result:
            start = wall_ns()
            try:
                return inner(*args, **named)
            finally:
                self._spent += wall_ns() - start

        return call

    def around(self, outer: Callable[[Any], object]) -> Callable[[Any], None]:
        def call(item: Any) -> None:
            self._spent = 0
            outer(item)
            self._inner_ns.append(self._spent)

        return call

    def outside_us(self, timing: Timing) -> float:
        """The median call without what was spent inside; the timing's calls are the last that were made."""
        inner = self._inner_ns[-len(timing.samples_ns) :]
        return statistics.median(
            (outer - own) / 1000 for outer, own in zip(timing.samples_ns, inner, strict=True)
        )
