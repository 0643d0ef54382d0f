"""The one clock of the benchmarks: an operation called many times, in blocks, every sample kept.

    warm up ─▶ calibrate ─▶ block ─▶ block ─▶ … ─▶ block
                            │ sample │ sample │ …        GC off and on the clock
                            └ calls_per_sample calls between two readings

A sample is one call where the call is long against reading the clock, and a few calls in a row where it
is not. CPU time is read once a block, because reading it costs more than reading the wall clock.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import PERCENTILES, percentiles

BLOCKS = 10
CLOCK_SHARE = 0.02
"""At most this part of a sample may be the reading of the clock."""
MOST_SAMPLES = 50_000
"""Kept per timing: the tail is known well enough by then, and the file stays small."""

wall_ns = time.perf_counter_ns
cpu_ns = time.process_time_ns


@dataclass(frozen=True)
class Timing(Mapping[str, float]):
    """What `bench.time` returns: the samples, and as a mapping the figures made from them."""

    samples_ns: tuple[int, ...]
    """Wall time of each sample, in the order of measuring."""
    block_samples: tuple[int, ...]
    """How many samples each block holds."""
    block_wall_ns: tuple[int, ...]
    """The sum of the block's samples: what lies between two samples is not in it."""
    block_cpu_ns: tuple[int, ...]
    """CPU time of the whole process over the block, all threads."""
    calls_per_sample: int = 1
    work: int = 1
    """How many things one call does; throughput counts these."""
    figures: Mapping[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.samples_ns:
            raise InvalidResult("a timing without samples: the operation was never called")
        object.__setattr__(self, "figures", _figures(self))

    @property
    def calls(self) -> int:
        return len(self.samples_ns) * self.calls_per_sample

    @property
    def milliseconds(self) -> list[float]:
        """Each sample as milliseconds a call."""
        scale = 1e6 * self.calls_per_sample
        return [sample / scale for sample in self.samples_ns]

    def __getitem__(self, name: str) -> float:
        return self.figures[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.figures)

    def __len__(self) -> int:
        return len(self.figures)


def _figures(timing: Timing) -> dict[str, float]:
    total_ns = max(sum(timing.samples_ns), 1)
    cpu_total_ns = sum(timing.block_cpu_ns)
    things = timing.calls * timing.work
    figures = {
        "throughput_ops_per_second": things / total_ns * 1e9,
        "total_time_seconds": total_ns / 1e9,
        "items_processed": things,
        "mean_ms": total_ns / timing.calls / 1e6,
    }
    milliseconds = timing.milliseconds
    for name, value in zip(PERCENTILES, percentiles(milliseconds, PERCENTILES.values()), strict=True):
        figures[f"{name}_ms"] = value
    figures["max_ms"] = max(milliseconds)
    figures["cpu_ms"] = cpu_total_ns / timing.calls / 1e6
    if cpu_total_ns:
        figures["wall_to_cpu"] = total_ns / cpu_total_ns
    return figures


def time_calls(
    operation: Callable[..., object],
    items: Sequence[Any] | None = None,
    *,
    calls: int | None = None,
    seconds: float = 0.2,
    work: int = 1,
    warm_up: int | None = None,
    blocks: int = BLOCKS,
    before_block: Callable[[], object] | None = None,
) -> Timing:
    """Call `operation` (with the next of `items`, if there are any) and time it.

    Exactly `calls` calls (rounded up to whole samples) where that is given; otherwise about `seconds`
    of work, and every item at least once. Items are taken in order, over and over. Warming up takes
    the first items too, so an operation must bear to meet an item again.
    """
    if items is not None and not len(items):
        raise InvalidResult("there is nothing to time: items is empty")
    if calls is not None and calls < 1:
        raise InvalidResult(f"calls is {calls}: use a whole number ≥ 1")
    if work < 1 or blocks < 1:
        raise InvalidResult(f"work is {work} and blocks is {blocks}: use whole numbers ≥ 1")
    call_ns = _warm_up(operation, items, warm_up, seconds, calls)
    per_sample = max(1, min(int(clock_cost_ns() / CLOCK_SHARE / call_ns) + 1, 10_000))
    if call_ns > clock_cost_ns() / CLOCK_SHARE:
        per_sample = 1
    wanted = calls if calls is not None else max(int(seconds * 1e9 / call_ns), len(items or ()), 1)
    samples = max(1, -(-wanted // per_sample))
    if calls is None:
        samples = min(samples, MOST_SAMPLES)
    stream = chain.from_iterable(repeat(items)) if items is not None else None
    wall: list[int] = []
    sizes, walls, cpus = [], [], []
    for size in _split(samples, blocks):
        if before_block is not None:
            before_block()
        with _steady():
            start = len(wall)
            cpu = _block(operation, stream, size, per_sample, wall)
        sizes.append(size)
        walls.append(sum(wall[start:]))
        cpus.append(cpu)
    return Timing(tuple(wall), tuple(sizes), tuple(walls), tuple(cpus), per_sample, work)


def _block(
    operation: Callable[..., object],
    stream: Iterator[Any] | None,
    samples: int,
    per_sample: int,
    wall: list[int],
) -> int:
    """Append the wall time of each sample; give back the block's CPU time.

    Four loops that differ in one line each: a test inside the loop would be on the clock.
    """
    clock, keep = wall_ns, wall.append
    cpu_start = cpu_ns()
    if stream is None and per_sample == 1:
        for _ in repeat(None, samples):
            start = clock()
            operation()
            keep(clock() - start)
    elif stream is None:
        for _ in repeat(None, samples):
            turns = repeat(None, per_sample)
            start = clock()
            for _ in turns:
                operation()
            keep(clock() - start)
    elif per_sample == 1:
        for item in islice(stream, samples):
            start = clock()
            operation(item)
            keep(clock() - start)
    else:
        for _ in repeat(None, samples):
            group = list(islice(stream, per_sample))
            start = clock()
            for item in group:
                operation(item)
            keep(clock() - start)
    return cpu_ns() - cpu_start


def _warm_up(
    operation: Callable[..., object],
    items: Sequence[Any] | None,
    warm_up: int | None,
    seconds: float,
    calls: int | None,
) -> float:
    """Call until caches are warm; the nanoseconds a call took at the end.

    By itself it spends a tenth of the measuring time, or a tenth of the calls, and at least one call.
    """
    if warm_up == 0:
        # Nothing is known of the operation then, so every call is a sample of its own.
        return float("inf")
    most = warm_up or (max(1, calls // 10) if calls is not None else 10_000)
    deadline = wall_ns() + int(seconds * 1e8)
    stream = chain.from_iterable(repeat(items)) if items is not None else None
    done, turn, spent = 0, 1, 0
    while done < most:
        turn = min(turn, most - done)
        arguments = [()] * turn if stream is None else [(item,) for item in islice(stream, turn)]
        start = wall_ns()
        for each in arguments:
            operation(*each)
        spent = wall_ns() - start
        done += turn
        if warm_up is None and wall_ns() >= deadline:
            break
        turn *= 2
    return max(spent / turn, 1.0)


def _split(samples: int, blocks: int) -> list[int]:
    """Nearly equal parts, none of them empty."""
    blocks = min(blocks, samples)
    short, longer = divmod(samples, blocks)
    return [short + 1] * longer + [short] * (blocks - longer)


@contextmanager
def _steady() -> Iterator[None]:
    """No garbage collection inside, a clean slate before; what lives already is not walked again."""
    was_on = gc.isenabled()
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_on:
            gc.enable()


_clock_cost: list[float] = []


def clock_cost_ns() -> float:
    """What one reading of the wall clock adds to a sample, measured once a process."""
    if not _clock_cost:
        clock = wall_ns
        rounds = []
        for _ in range(20):
            start = clock()
            for _ in repeat(None, 200):
                clock()
            rounds.append((clock() - start) / 200)
        _clock_cost.append(min(rounds))
    return _clock_cost[0]
