"""A category by itself: `python -m memory.benchmarking.benchmarks.agent_execution`, and the like.

All in one process, on the small interface. What becomes slower or quicker is a question for `membench run`,
which measures the same operations in several fresh processes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from memory.benchmarking.errors import BenchmarkError

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks import BenchmarkReport, BenchmarkRunner

ITERATIONS = 100
Prepare = Callable[["BenchmarkRunner", int, ExitStack], None]
"""Adds the benchmarks to a runner; what must be closed in the end goes onto the stack."""


def main(category: str, goal_ms: float, prepare: Prepare, arguments: Sequence[str] | None = None) -> None:
    """Run, print the summary and the goal, write `<category>_results.json`; ends the program."""
    parser = argparse.ArgumentParser(prog=f"python -m memory.benchmarking.benchmarks.{category}")
    parser.add_argument(
        "--iterations", type=int, default=ITERATIONS, help="calls of each benchmark (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=Path(),
        metavar="PLACE",
        help=f"a file, or a folder for {category}_results.json (default: this folder)",
    )
    options = parser.parse_args(arguments)
    place: Path = options.output
    if place.is_dir() or place.suffix != ".json":
        place /= f"{category}_results.json"
    try:
        report = _run(category, options.iterations, prepare)
        place.parent.mkdir(parents=True, exist_ok=True)
        report.save(place)
    except (BenchmarkError, OSError) as problem:
        sys.exit(f"{category}: {problem}")
    print(report.summary())
    print("\n".join(goal_lines(report, goal_ms)))
    print(f"written to {place}")
    sys.exit(1 if report.failures else 0)


def _run(category: str, iterations: int, prepare: Prepare) -> BenchmarkReport:
    from memory.benchmarking.benchmarks import BenchmarkRunner

    runner = BenchmarkRunner(name=category)
    with ExitStack() as stack:
        prepare(runner, iterations, stack)
        return runner.run()


def goal_lines(report: BenchmarkReport, goal_ms: float) -> list[str]:
    """Which medians are within the stated goal."""
    lines = [f"goal: median below {goal_ms:g} ms"]
    for result in report.results:
        median_ms = result.median * 1e3
        state = "reached" if median_ms < goal_ms else "NOT reached"
        lines.append(f"  {result.benchmark_name}: {state} ({median_ms:.3g} ms)")
    return lines
