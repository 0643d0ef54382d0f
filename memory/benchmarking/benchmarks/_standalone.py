"""A category as a program: `python -m memory.benchmarking.benchmarks.agent_execution`, and the like.

Everything runs in one process, through `BenchmarkRunner`. To find out what
became slower, use `membench run`: it measures the same operations in several fresh processes.
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
FOLDER = Path("benchmarks")
"""Where the reports go, below the current folder, as the second specification document says."""
Prepare = Callable[["BenchmarkRunner", int, ExitStack], None]
"""Adds the benchmarks to a runner; everything to close afterwards goes onto the stack."""


def main(category: str, goal_ms: float, prepare: Prepare, arguments: Sequence[str] | None = None) -> None:
    """Run, print summary and goals, write `<category>_results.json`, and end the program."""
    parser = argparse.ArgumentParser(prog=f"python -m memory.benchmarking.benchmarks.{category}")
    parser.add_argument(
        "--iterations", type=int, default=ITERATIONS, help="calls of each benchmark (default: %(default)s)"
    )
    parser.add_argument(
        "--output",
        type=Path,
        default=FOLDER,
        metavar="PLACE",
        help=f"a file, or a folder for {category}_results.json (default: {FOLDER})",
    )
    options = parser.parse_args(arguments)
    path: Path = options.output
    if path.is_dir() or path.suffix != ".json":
        path /= f"{category}_results.json"
    try:
        report = _run(category, options.iterations, prepare)
        path.parent.mkdir(parents=True, exist_ok=True)
        report.save(path)
    except (BenchmarkError, OSError) as problem:
        sys.exit(f"{category}: {problem}")
    print(report.summary())
    print("\n".join(goal_lines(report, goal_ms)))
    print(f"written to {path}")
    sys.exit(1 if report.failures else 0)


def _run(category: str, iterations: int, prepare: Prepare) -> BenchmarkReport:
    from memory.benchmarking.benchmarks import BenchmarkRunner

    runner = BenchmarkRunner(category)
    with ExitStack() as stack:
        prepare(runner, iterations, stack)
        return runner.run()


def goal_lines(report: BenchmarkReport, goal_ms: float) -> list[str]:
    """Return a line for each benchmark: whether its median reaches the goal."""
    lines = [f"goal: median below {goal_ms:g} ms"]
    for result in report.results:
        median_ms = result.median * 1e3
        state = "reached" if median_ms < goal_ms else "NOT reached"
        lines.append(f"  {result.benchmark_name}: {state} ({median_ms:.3g} ms)")
    return lines
