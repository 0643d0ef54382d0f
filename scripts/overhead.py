"""Measures what `bench.time` adds to a figure: its time of an operation ÷ that of a bare loop.

    python scripts/overhead.py      about a minute

The bare loop reads the clock only at its start and end, so it is as close to the true time as Python gets.
It runs before each block of `bench.time`, so both take turns of a few milliseconds in one process. Each
block is compared with the bare loops before and after it. The ratio of a process is the median of these
comparisons. The table has the median over several processes, because in some processes one of the two
loops is slower from start to end.

Exits with 1 if the figure of a 1 µs operation is 5 % or more above that of the bare loop.
"""

from __future__ import annotations

import gc
import json
import statistics
import subprocess
import sys
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import pairwise, repeat

from memory.benchmarking.bench import Bench
from memory.benchmarking.measure.timing import clock_cost_ns, wall_ns
from memory.benchmarking.text.display import figure_text, table

MICROSECONDS = (0.2, 1.0, 10.0, 100.0)
GATED = 1.0
"""The operation, in microseconds, whose ratio decides the exit code."""
MOST = 1.05
PROCESSES = 9
TIMINGS = 20
SECONDS = 0.03
"""Seconds of one timing: 3 ms a block."""


@dataclass(frozen=True)
class Line:
    """One operation: nanoseconds a call in both loops, and their ratio."""

    bare_ns: float
    timed_ns: float
    ratio: float
    calls_per_sample: float


def operation_of(turns: int) -> Callable[[], None]:
    """Return an operation that loops `turns` times and allocates nothing."""
    numbers = range(turns)

    def operation() -> None:
        for _ in numbers:
            pass

    return operation


def bare_ns(operation: Callable[[], None], calls: int) -> float:
    start = wall_ns()
    for _ in repeat(None, calls):
        operation()
    return (wall_ns() - start) / calls


def operation_taking(microseconds: float) -> Callable[[], None]:
    """Return an operation that takes about this long.

    It is found by bisection: the time of one turn of the loop depends on the number of turns.
    """

    def nanoseconds(turns: int) -> float:
        operation = operation_of(turns)
        calls = max(1, int(100 / microseconds))
        return min(bare_ns(operation, calls) for _ in range(50))

    most = int(microseconds * 1000)
    return operation_of(bisect_left(range(most), microseconds * 1000, key=nanoseconds))


def measure(microseconds: float) -> Line:
    operation = operation_taking(microseconds)
    calls = max(1, int(SECONDS / 10 * 1e6 / microseconds))
    bench = Bench(seconds=SECONDS)
    bares: list[float] = []
    timed: list[float] = []
    ratios: list[float] = []
    per_sample: list[int] = []
    for _ in range(TIMINGS):
        loops: list[float] = []

        def bare_block(loops: list[float] = loops) -> None:
            gc.disable()
            loops.append(bare_ns(operation, calls))
            gc.enable()

        timing = bench.time(operation, before_block=bare_block)
        bare_block()
        blocks = [
            wall / (samples * timing.calls_per_sample)
            for wall, samples in zip(timing.block_wall_ns, timing.block_samples, strict=True)
        ]
        # Each neighbour counts by itself: the mean of both would be interrupted twice as often as a block.
        for block, neighbours in zip(blocks, pairwise(loops), strict=True):
            ratios += [block / bare for bare in neighbours]
        bares += loops
        timed += blocks
        per_sample.append(timing.calls_per_sample)
    return Line(*map(statistics.median, (bares, timed, ratios, per_sample)))


def in_fresh_process() -> list[Line]:
    """Measure in a fresh process; return a line for each of MICROSECONDS."""
    done = subprocess.run(
        [sys.executable, __file__, "--round"], stdout=subprocess.PIPE, text=True, check=True
    )
    return [Line(**line) for line in json.loads(done.stdout)]


def main() -> int:
    if sys.argv[1:] == ["--round"]:
        print(json.dumps([asdict(measure(microseconds)) for microseconds in MICROSECONDS]))
        return 0
    rounds = [in_fresh_process() for _ in range(PROCESSES)]
    rows, reached = [], True
    for microseconds, lines in zip(MICROSECONDS, zip(*rounds, strict=True), strict=True):
        ratios = [line.ratio for line in lines]
        ratio = statistics.median(ratios)
        if microseconds == GATED:
            reached = ratio < MOST
        rows.append(
            (
                f"{microseconds:g} µs",
                figure_text(statistics.median(line.bare_ns for line in lines), "ns"),
                figure_text(statistics.median(line.timed_ns for line in lines), "ns"),
                f"{ratio:.3f}",
                f"{min(ratios):.3f}–{max(ratios):.3f}",
                f"{statistics.median(line.calls_per_sample for line in lines):g}",
            )
        )
    headers = ("operation", "bare loop", "bench.time", "ratio", "of all processes", "calls a sample")
    print(table(rows, headers, right=(1, 2, 3, 5)))
    print(f"\none reading of the clock: {figure_text(clock_cost_ns(), 'ns')}; {PROCESSES} processes")
    print(f"at {GATED:g} µs {'below' if reached else 'NOT below'} {MOST}")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
