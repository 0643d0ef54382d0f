"""How benchmarks measure time: call an operation many times, in blocks, and keep every sample.

    warm up ─▶ calibrate ─▶ block ─▶ block ─▶ … ─▶ block
                            │ sample │ sample │ …        garbage is collected between blocks only
                            └ calls_per_sample calls between two readings of the clock

In lockstep several short blocks make a turn, and garbage is collected between turns (turn_control.py).

A sample is one call if the call is long compared to reading the clock. Otherwise a sample is several calls
in a row: its time is the mean of these calls, and percentiles are computed from such means. CPU time is
read once a block, because reading it takes longer than reading the wall clock. See docs/measuring.md.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain, islice, repeat
from typing import Any

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import PERCENTILES, percentiles
from memory.benchmarking.measure.turn_control import TimingPlan, TimingProposal, TurnControl

BLOCKS = 10
"""The largest number of blocks of a timing by default."""
CLOCK_SHARE = 0.01
"""Reading the clock may take at most this share of a sample's time."""
MOST_CALLS_PER_SAMPLE = 10_000
MOST_SAMPLES = 50_000
"""Limit of samples if the number of calls is not fixed: enough for high percentiles, in a small file."""
SHORTEST_BLOCK_NS = 1_000_000
"""The first call after a garbage collection is slower. In blocks of 1 ms or more this is negligible."""

wall_ns = time.perf_counter_ns
cpu_ns = time.process_time_ns


@dataclass(frozen=True)
class Timing(Mapping[str, float]):
    """What `bench.time` returns. It holds the samples; as a mapping, it gives the figures by name."""

    samples_ns: tuple[int, ...]
    """Wall time of each sample, in the order measured."""
    block_samples: tuple[int, ...]
    """How many samples each block holds."""
    block_wall_ns: tuple[int, ...]
    """The sum of each block's samples, without the time between two samples."""
    block_cpu_ns: tuple[int, ...]
    """CPU time of all threads of the process during each block's samples."""
    calls_per_sample: int = 1
    work: int = 1
    """How many items one call handles; throughput counts items."""
    turn_blocks: tuple[int, ...] = ()
    """How many blocks each turn holds, in lockstep; empty if every turn is one block."""
    figures: Mapping[str, float] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.samples_ns:
            raise InvalidResult("the timing has no samples: the operation was never called")
        object.__setattr__(self, "figures", _figures(self))

    @property
    def calls(self) -> int:
        return len(self.samples_ns) * self.calls_per_sample

    @property
    def milliseconds(self) -> list[float]:
        """Milliseconds a call, one value for each sample."""
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
    items = timing.calls * timing.work
    figures = {
        "throughput_ops_per_second": items / total_ns * 1e9,
        "total_time_seconds": total_ns / 1e9,
        "items_processed": items,
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
    calls_per_sample: int | None = None,
    before_block: Callable[[], object] | None = None,
    turn_control: TurnControl | None = None,
) -> Timing:
    """Time an operation. `Bench.time` explains the parameters that are not listed here.

    Args:
        seconds: about how long to measure if `calls` is not given; every item is used at least once.
        blocks: at most this many blocks; fewer if they would be too short.
        calls_per_sample: replaces the calibration.
        turn_control: divides the timing into turns and waits for them, in lockstep.
    """
    request = _Request(items, calls, seconds, warm_up, blocks, calls_per_sample)
    request.check()
    check_whole("work", work, 1)
    stream = chain.from_iterable(repeat(items)) if items is not None else None
    wall: list[int] = []
    sizes, walls, cpus, sample_shares = [], [], [], []
    with frozen_heap():
        call_ns = _warm_up(operation, request)
        plan = _plan(call_ns, request, turn_control)
        turns = list(_turns(plan))
        for turn in turns:
            if before_block is not None:
                before_block()
            with garbage_collection_off():
                for size in turn:
                    start = len(wall)
                    cpu, elapsed = time_block(operation, stream, size, plan.calls_per_sample, wall)
                    in_samples = sum(wall[start:])
                    sizes.append(size)
                    walls.append(in_samples)
                    cpus.append(cpu)
                    sample_shares.append(in_samples / max(elapsed, 1))
            if turn_control is not None:
                turn_control.next_turn()
    # The wall time covers only the samples, not the loop around them. So only the samples' share of a
    # block's CPU time counts. The share is the median over blocks: one interrupted block can't distort it.
    share = statistics.median(sample_shares)
    return Timing(
        tuple(wall),
        tuple(sizes),
        tuple(walls),
        tuple(round(cpu * share) for cpu in cpus),
        plan.calls_per_sample,
        work,
        tuple(map(len, turns)) if turn_control is not None else (),
    )


@dataclass(frozen=True)
class _Request:
    """The parameters of a timing that determine the number of calls."""

    items: Sequence[Any] | None
    calls: int | None
    seconds: float
    warm_up: int | None
    blocks: int
    calls_per_sample: int | None

    def check(self) -> None:
        if self.items is not None and not len(self.items):
            raise InvalidResult("items is empty: pass at least one item to time")
        for name, least in (("calls", 1), ("warm_up", 0), ("blocks", 1), ("calls_per_sample", 1)):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name), least)
        if not 0 < self.seconds < math.inf:
            raise InvalidResult(f"seconds is {self.seconds!r}: use a number > 0")


def check_whole(name: str, value: object, least: int, error: type[ValueError] = InvalidResult) -> None:
    """Raise an error unless a value is a whole number ≥ `least`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise error(f"{name} is {value!r}: use a whole number ≥ {least}")


def _plan(call_ns: float, request: _Request, turn_control: TurnControl | None) -> TimingPlan:
    per_sample, samples = _samples(call_ns, request)
    known = call_ns < math.inf
    if turn_control is not None:
        return turn_control.agree(
            TimingProposal(
                call_ns=call_ns if known else None,
                calls_per_sample=per_sample,
                samples=samples,
                fixed=request.calls is not None or request.warm_up == 0,
            )
        )
    blocks = request.blocks
    if known:
        blocks = min(blocks, max(1, int(samples * per_sample * call_ns / SHORTEST_BLOCK_NS)))
    return TimingPlan(calls_per_sample=per_sample, samples=samples, blocks=blocks, turns=blocks)


def _turns(plan: TimingPlan) -> Iterator[list[int]]:
    """Yield one list for each turn: the number of samples in each of its blocks."""
    sizes = iter(split_evenly(plan.samples, plan.blocks))
    for blocks in split_evenly(min(plan.blocks, plan.samples), plan.turns):
        yield list(islice(sizes, blocks))


def _samples(call_ns: float, request: _Request) -> tuple[int, int]:
    """Return how many calls make a sample, and how many samples to take."""
    items, calls, calls_per_sample = request.items, request.calls, request.calls_per_sample
    known = call_ns < math.inf
    per_sample = calls_per_sample or 1
    if known and calls_per_sample is None:
        needed = math.ceil(clock_cost_ns() / CLOCK_SHARE / call_ns)
        per_sample = min(max(needed, 1), MOST_CALLS_PER_SAMPLE)
    if calls is not None:
        if calls_per_sample is None:
            # Samples may be up to twice as large if they then divide the number of calls exactly.
            sizes = range(per_sample, min(2 * per_sample, calls) + 1)
            per_sample = next((size for size in sizes if calls % size == 0), min(per_sample, calls))
        return per_sample, -(-calls // per_sample)
    wanted = max(int(request.seconds * 1e9 / call_ns), len(items) if items is not None else 0, 1)
    if known and calls_per_sample is None:
        per_sample = max(per_sample, -(-wanted // MOST_SAMPLES))
    return per_sample, -(-wanted // per_sample)


def time_block(
    operation: Callable[..., object],
    stream: Iterator[Any] | None,
    samples: int,
    per_sample: int,
    wall: list[int],
) -> tuple[int, int]:
    """Append the wall time of each sample to `wall`; return CPU and wall time of the whole block.

    The four loops are nearly the same. A single loop would need an `if` inside, which would be timed too.
    """
    clock, keep = wall_ns, wall.append
    # Read both clocks in the same order at both ends, so that each span includes one reading of each clock.
    cpu_start, wall_start = cpu_ns(), clock()
    if stream is None and per_sample == 1:
        for _ in repeat(None, samples):
            start = clock()
            operation()
            keep(clock() - start)
    elif stream is None:
        for _ in repeat(None, samples):
            calls = repeat(None, per_sample)
            start = clock()
            for _ in calls:
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
    cpu, elapsed = cpu_ns() - cpu_start, clock() - wall_start
    return cpu, elapsed


def _warm_up(operation: Callable[..., object], request: _Request) -> float:
    """Make the warm-up calls; return how many nanoseconds one call takes at their end (∞ without calls).

    If `warm_up` is None, the warm-up ends after a tenth of `seconds`, or after a tenth of `calls` if that
    comes first. It makes at least one call.
    """
    items, calls, warm_up = request.items, request.calls, request.warm_up
    by_default = 10_000 if calls is None else max(1, calls // 10)
    most = by_default if warm_up is None else warm_up
    deadline = wall_ns() + int(request.seconds * 1e8)
    stream = chain.from_iterable(repeat(items)) if items is not None else None
    done, batch = 0, 1
    took: list[float] = []
    while done < most:
        batch = min(batch, most - done)
        arguments = [()] * batch if stream is None else [(item,) for item in islice(stream, batch)]
        start = wall_ns()
        for argument in arguments:
            operation(*argument)
        took.append((wall_ns() - start) / batch)
        done += batch
        if warm_up is None and wall_ns() >= deadline:
            break
        batch *= 2
    # The faster of the last two batches: an interruption makes a batch slower, and rarely hits both.
    return max(min(took[-2:], default=math.inf), 1.0)


def split_evenly(samples: int, blocks: int) -> list[int]:
    """Split a number of samples into nearly equal blocks, none of them empty."""
    blocks = min(blocks, samples)
    size, remainder = divmod(samples, blocks)
    return [size + 1] * remainder + [size] * (blocks - remainder)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Collect garbage once; collections inside the block skip the objects that already exist."""
    gc.collect()
    first = gc.get_freeze_count() == 0
    try:
        if first:
            gc.freeze()
        yield
    finally:
        if first:
            gc.unfreeze()


@contextmanager
def garbage_collection_off() -> Iterator[None]:
    """Collect garbage first, and switch collection off inside the block."""
    gc.collect()
    was_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()


def clock_cost_ns() -> float:
    """Return the nanoseconds that one reading of the wall clock adds to a sample.

    It is measured for each timing, right after the warm-up. Only its ratio to the time of a call matters,
    and on a shared machine both times may double within seconds.
    """
    clock = wall_ns
    rounds = []
    for _ in range(10):
        start = clock()
        for _ in repeat(None, 100):
            clock()
        rounds.append((clock() - start) / 100)
    return min(rounds)
