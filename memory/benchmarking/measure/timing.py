"""The one clock of the benchmarks: an operation called many times, in blocks, every sample kept.

    warm up ─▶ calibrate ─▶ block ─▶ block ─▶ … ─▶ block
                            │ sample │ sample │ …        garbage is collected between blocks, never in one
                            └ calls_per_sample calls between two readings

In lockstep several smaller blocks are a turn, and garbage is collected between turns (see pace.py).

A sample is one call where the call is long against reading the clock, and a few calls in a row where it
is not: its time is then their mean, and the percentiles are those of such means. CPU time is read once a
block, because reading it costs more than reading the wall clock. See docs/measuring.md.
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
from memory.benchmarking.measure.pace import Pace, Plan, Proposal
from memory.benchmarking.measure.statistics import PERCENTILES, percentiles

BLOCKS = 10
CLOCK_SHARE = 0.01
"""At most this part of a sample may be the reading of the clock."""
MOST_CALLS_PER_SAMPLE = 10_000
MOST_SAMPLES = 50_000
"""Of a timing that is asked for by its seconds: the tail is known by then, and the file stays small."""

SHORTEST_BLOCK_NS = 1_000_000
"""The first call after a collection of garbage is a little slower; in a longer block it hardly counts."""

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
    """CPU time of the whole process, all threads, over the block's samples."""
    calls_per_sample: int = 1
    work: int = 1
    """How many things one call does; throughput counts these."""
    turn_blocks: tuple[int, ...] = ()
    """How many blocks each turn holds, in lockstep; empty where a turn is one block."""
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
    calls_per_sample: int | None = None,
    before_block: Callable[[], object] | None = None,
    pace: Pace | None = None,
) -> Timing:
    """Call `operation` (with the next of `items`, if there are any) and time it.

    `calls` fixes how often; where that is no multiple of what a sample needs, it is less than a sample
    more. Without it: about `seconds` of work, and every item at least once. Items are taken in order,
    over and over. Warming up takes the first items too, so an operation must bear to meet an item again;
    one that can't is given `warm_up=0`. Then nothing is known of it, each call is a sample of its own,
    and without `calls` each item is met exactly once. `calls_per_sample` overrides the calibration.
    `before_block` is called before each block, off the clock; there are at most `blocks` of them, and
    fewer where they would be too short. A `pace` divides the work into turns of several blocks and says
    when each may begin; `before_block` is then called before each turn.
    """
    _check(items, calls, seconds, work, warm_up, blocks, calls_per_sample)
    stream = chain.from_iterable(repeat(items)) if items is not None else None
    wall: list[int] = []
    sizes, walls, cpus, shares = [], [], [], []
    with frozen_heap():
        call_ns = _warm_up(operation, items, warm_up, seconds, calls)
        plan = _plan(call_ns, items, calls, seconds, calls_per_sample, warm_up, blocks, pace)
        turns = list(_turns(plan))
        for turn in turns:
            if before_block is not None:
                before_block()
            with _no_collection():
                for size in turn:
                    start = len(wall)
                    cpu, elapsed = _block(operation, stream, size, plan.calls_per_sample, wall)
                    on_clock = sum(wall[start:])
                    sizes.append(size)
                    walls.append(on_clock)
                    cpus.append(cpu)
                    shares.append(on_clock / max(elapsed, 1))
            if pace is not None:
                pace.next_turn()
    # The loop around the samples is off the wall clock, so its part is taken off the CPU's too: that of
    # the middle block, because one that was interrupted outside of its samples knows it badly.
    share = statistics.median(shares)
    return Timing(
        tuple(wall),
        tuple(sizes),
        tuple(walls),
        tuple(round(cpu * share) for cpu in cpus),
        plan.calls_per_sample,
        work,
        tuple(map(len, turns)) if pace is not None else (),
    )


def _check(
    items: Sequence[Any] | None,
    calls: int | None,
    seconds: float,
    work: int,
    warm_up: int | None,
    blocks: int,
    calls_per_sample: int | None,
) -> None:
    if items is not None and not len(items):
        raise InvalidResult("there is nothing to time: items is empty")
    whole = {
        "calls": (calls, 1),
        "work": (work, 1),
        "warm_up": (warm_up, 0),
        "blocks": (blocks, 1),
        "calls_per_sample": (calls_per_sample, 1),
    }
    for name, (value, least) in whole.items():
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise InvalidResult(f"{name} is {value!r}: use a whole number ≥ {least}")
    if not 0 < seconds < math.inf:
        raise InvalidResult(f"seconds is {seconds!r}: use a number > 0")


def _plan(
    call_ns: float,
    items: Sequence[Any] | None,
    calls: int | None,
    seconds: float,
    calls_per_sample: int | None,
    warm_up: int | None,
    blocks: int,
    pace: Pace | None,
) -> Plan:
    per_sample, samples = _samples(call_ns, items, calls, seconds, calls_per_sample)
    known = call_ns < math.inf
    if pace is not None:
        return pace.agree(
            Proposal(
                call_ns=call_ns if known else None,
                calls_per_sample=per_sample,
                samples=samples,
                fixed=calls is not None or warm_up == 0,
            )
        )
    if known:
        blocks = min(blocks, max(1, int(samples * per_sample * call_ns / SHORTEST_BLOCK_NS)))
    return Plan(calls_per_sample=per_sample, samples=samples, blocks=blocks, turns=blocks)


def _turns(plan: Plan) -> Iterator[list[int]]:
    """The samples of each block of each turn."""
    sizes = iter(_split(plan.samples, plan.blocks))
    for blocks in _split(min(plan.blocks, plan.samples), plan.turns):
        yield list(islice(sizes, blocks))


def _samples(
    call_ns: float,
    items: Sequence[Any] | None,
    calls: int | None,
    seconds: float,
    calls_per_sample: int | None,
) -> tuple[int, int]:
    """How many calls a sample takes, and how many samples are taken."""
    known = call_ns < math.inf
    per_sample = calls_per_sample or 1
    if known and calls_per_sample is None:
        needed = math.ceil(clock_cost_ns() / CLOCK_SHARE / call_ns)
        per_sample = min(max(needed, 1), MOST_CALLS_PER_SAMPLE)
    if calls is not None:
        if calls_per_sample is None:
            # Somewhat larger samples, if they make the number of calls come out exactly.
            sizes = range(per_sample, min(2 * per_sample, calls) + 1)
            per_sample = next((size for size in sizes if calls % size == 0), min(per_sample, calls))
        return per_sample, -(-calls // per_sample)
    wanted = max(int(seconds * 1e9 / call_ns), len(items) if items is not None else 0, 1)
    if known and calls_per_sample is None:
        per_sample = max(per_sample, -(-wanted // MOST_SAMPLES))
    return per_sample, -(-wanted // per_sample)


def _block(
    operation: Callable[..., object],
    stream: Iterator[Any] | None,
    samples: int,
    per_sample: int,
    wall: list[int],
) -> tuple[int, int]:
    """Append the wall time of each sample; give back the CPU and the wall time of the whole block.

    Four loops that differ in one line each: a test inside the loop would be on the clock.
    """
    clock, keep = wall_ns, wall.append
    # In the same order at both ends, so that either span holds one reading of each clock.
    cpu_start, wall_start = cpu_ns(), clock()
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
    cpu, elapsed = cpu_ns() - cpu_start, clock() - wall_start
    return cpu, elapsed


def _warm_up(
    operation: Callable[..., object],
    items: Sequence[Any] | None,
    warm_up: int | None,
    seconds: float,
    calls: int | None,
) -> float:
    """Call until caches are warm; the nanoseconds a call took at the end, infinite if none was made.

    By itself it spends a tenth of the measuring time, or a tenth of the calls, and at least one call.
    """
    by_itself = 10_000 if calls is None else max(1, calls // 10)
    most = by_itself if warm_up is None else warm_up
    deadline = wall_ns() + int(seconds * 1e8)
    stream = chain.from_iterable(repeat(items)) if items is not None else None
    done, turn = 0, 1
    took: list[float] = []
    while done < most:
        turn = min(turn, most - done)
        arguments = [()] * turn if stream is None else [(item,) for item in islice(stream, turn)]
        start = wall_ns()
        for each in arguments:
            operation(*each)
        took.append((wall_ns() - start) / turn)
        done += turn
        if warm_up is None and wall_ns() >= deadline:
            break
        turn *= 2
    # Of the last two turns the quicker one: being interrupted only ever adds, and rarely hits both.
    return max(min(took[-2:], default=math.inf), 1.0)


def _split(samples: int, blocks: int) -> list[int]:
    """Nearly equal parts, none of them empty."""
    blocks = min(blocks, samples)
    short, longer = divmod(samples, blocks)
    return [short + 1] * longer + [short] * (blocks - longer)


@contextmanager
def frozen_heap() -> Iterator[None]:
    """Collect garbage once; what lives by then is not walked again by the collections between blocks."""
    gc.collect()
    ours = gc.get_freeze_count() == 0
    try:
        if ours:
            gc.freeze()
        yield
    finally:
        if ours:
            gc.unfreeze()


@contextmanager
def _no_collection() -> Iterator[None]:
    """Collect garbage before, and none inside."""
    gc.collect()
    was_on = gc.isenabled()
    try:
        gc.disable()
        yield
    finally:
        if was_on:
            gc.enable()


def clock_cost_ns() -> float:
    """What one reading of the wall clock adds to a sample.

    Measured anew each time, and right after the warm-up: what matters is its ratio to a call, and on a
    shared machine both may take twice as long a moment later.
    """
    clock = wall_ns
    rounds = []
    for _ in range(10):
        start = clock()
        for _ in repeat(None, 100):
            clock()
        rounds.append((clock() - start) / 100)
    return min(rounds)
