"""`membench calibrate`: how far identical code lies apart from itself on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands.ab import add_sizes
from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.model.records import Result
    from memory.benchmarking.runner import FinishedRun
    from memory.benchmarking.verdicts.noise import Calibration

_EPILOG = """examples:
  membench calibrate                                   ten minutes, all benchmarks, quick sizes
  membench calibrate --category storage --minutes 3

It measures identical code in both ways of comparing, over the whole time, and keeps what it differed by
beside the results: `compare` and `ab` take no smaller change for real afterwards. Repeat it when the
machine or the versions change; a calibration made in other surroundings is not used."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "calibrate",
        help="measure this machine's noise: which change can be trusted?",
        description="Measure identical code against itself, and keep how far it lies apart.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to run (default: everything)")
    what.add_argument("--category", action="append", default=[], metavar="NAME", help="may be repeated")
    what.add_argument("--benchmark", action="append", default=[], metavar="NAME", help="may be repeated")
    what.add_argument("--target", action="append", metavar="NAME", help="memory system")
    what.add_argument("--path", action="append", default=[], metavar="FILE", help="your own benchmarks")
    how = parser.add_argument_group("how")
    how.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long (default 10)")
    how.add_argument("--rounds", metavar="N", help="of each run, as in the runs to be compared")
    add_sizes(how)
    parser.add_argument(
        "--output-dir", metavar="DIR", help="where runs are kept (default benchmark_results)"
    )
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.ab import cases_of, default_to_quick, timing_seconds
    from memory.benchmarking.commands.run import config_of
    from memory.benchmarking.lockstep.calibration import LEAST, lockstep_calibration, stored_calibration
    from memory.benchmarking.lockstep.engine import Engine
    from memory.benchmarking.lockstep.pair import Limits, Pair, Side
    from memory.benchmarking.lockstep.scratch import scratch_below
    from memory.benchmarking.lockstep.store import AB
    from memory.benchmarking.lockstep.subjects import same_cases
    from memory.benchmarking.model.environment import describe
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.runner import BenchmarkRunner
    from memory.benchmarking.verdicts.noise import store_noise

    if not 0 < arguments.minutes < float("inf"):
        raise InvalidBenchmarkConfig(f"--minutes is {arguments.minutes}: use a number > 0")
    default_to_quick(arguments)
    found = discover(arguments.path)
    config = config_of(arguments, found)
    cases = cases_of(arguments, found, config)
    subjects = same_cases(cases)
    output_dir = Path(config.output_dir)
    deadline = time.monotonic() + 60 * arguments.minutes
    runs: list[list[Result]] = []
    pairs: dict[str, list[Pair]] = {subject.case.key: [] for subject in subjects}
    with scratch_below(output_dir / AB / ".scratch") as scratch:
        engine = Engine(
            (Side("one"), Side("the same")),
            config.seed,
            timing_seconds(config),
            scratch / "pairs",
            Limits(2 * config.timeout_seconds),
        )
        config.output_dir = str(scratch / "runs")
        runner = BenchmarkRunner(config, paths=arguments.path)
        while len(runs) < LEAST or time.monotonic() < deadline:
            _say(f"run {len(runs) + 1}")
            runs.append(_results(runner.run_cases(cases)))
            for subject in subjects:
                if time.monotonic() < deadline or len(runs) <= LEAST:
                    _say(f"pair {len(runs)} of {subject.case.name}")
                    pairs[subject.case.key].append(engine.measure(subject, len(runs) - 1))
    made_at = datetime.now().astimezone().isoformat(timespec="seconds")
    lockstep = lockstep_calibration(subjects, pairs, made_at)
    stored = stored_calibration(runs, made_at)
    _say("")
    if not lockstep.floors and not stored.floors:
        print("membench: nothing that was measured is timed, so there is no noise to keep", file=sys.stderr)
        return EXIT_FAILED
    fingerprint = describe(output_dir).fingerprint
    store_noise(output_dir, fingerprint, "lockstep", lockstep)
    path = store_noise(output_dir, fingerprint, "stored", stored)
    _print(lockstep, stored)
    print(f"\nkept in {path}; `membench ab` and `membench compare` use it from now on")
    return EXIT_FINE


def _results(finished: FinishedRun) -> list[Result]:
    from memory.benchmarking.errors import BenchmarkError
    from memory.benchmarking.model.files import read_result

    if finished.interrupted:
        raise KeyboardInterrupt
    if not finished.succeeded:
        first = finished.run.failures[0]
        raise BenchmarkError(f"{first.case} failed, so its noise can't be known: {first.message}")
    return [read_result(finished.folder / ref.file) for ref in finished.run.results]


def _print(lockstep: Calibration, stored: Calibration) -> None:
    """What effect can be trusted, by benchmark: from where on half of its metrics show it, and all."""
    import statistics

    from memory.benchmarking.text.display import table

    rows = []
    names = dict.fromkeys(key.partition(":")[0] for key in (*lockstep.floors, *stored.floors))
    for name in names:
        cells = [name]
        for calibration in (lockstep, stored):
            floors = [floor for key, floor in calibration.floors.items() if key.partition(":")[0] == name]
            cells.append(f"{statistics.median(floors):.1%} … {max(floors):.1%}" if floors else "–")
        rows.append(cells)
    heads = ("identical code differs by up to", "in lockstep (ab)", "stored (compare)")
    print(table(rows, heads, right=(1, 2)))
    counts = f"{stored.comparisons} runs and {lockstep.comparisons} pairs"
    print(f"\nhalf of a benchmark's metrics … all of them; from {counts}")


def _say(what: str) -> None:
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what}", end="", file=sys.stderr, flush=True)
