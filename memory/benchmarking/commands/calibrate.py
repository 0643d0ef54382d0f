"""`membench calibrate`: measure how much the figures of identical code differ on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE

if TYPE_CHECKING:
    from memory.benchmarking.model.records import Result
    from memory.benchmarking.runner import FinishedRun
    from memory.benchmarking.verdicts.noise import Calibration

_EPILOG = """examples:
  membench calibrate                                   ten minutes, all benchmarks, quick sizes
  membench calibrate --category storage --minutes 3

It compares identical code with itself, both as stored runs and in lockstep, and stores the differences
beside the results. From then on `compare` and `ab` report no change that is smaller. Repeat it when the
machine or the package versions change: a calibration of another environment is not used."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "calibrate",
        help="measure the noise of this machine: how small a change can be trusted?",
        description="Measure identical code against itself, and store how much the figures differ.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    options.add_selection(parser)
    how = parser.add_argument_group("settings")
    how.add_argument("--minutes", type=float, default=10.0, metavar="N", help="how long (default 10)")
    how.add_argument("--rounds", metavar="N", help="rounds a run, as in the runs that you will compare")
    options.add_settings(how, "quick (default), standard or full")
    options.add_output_dir(parser, default=None)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.lockstep.calibration import LEAST, lockstep_calibration, stored_calibration
    from memory.benchmarking.lockstep.pair import Pair, Side
    from memory.benchmarking.lockstep.scratch import scratch_below
    from memory.benchmarking.lockstep.store import AB
    from memory.benchmarking.lockstep.subjects import same_cases
    from memory.benchmarking.model.environment import describe
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.runner import BenchmarkRunner
    from memory.benchmarking.targets.embedders import embedder_label
    from memory.benchmarking.verdicts.noise import store_noise

    options.check_minutes(arguments.minutes)
    options.default_to_quick(arguments)
    found = discover(arguments.path)
    config = options.config_of(arguments, found)
    cases = options.cases_of(arguments, found, config)
    subjects = same_cases(cases)
    output_dir = Path(config.output_dir)
    deadline = time.monotonic() + 60 * arguments.minutes
    runs: list[list[Result]] = []
    pairs: dict[str, list[Pair]] = {subject.case.key: [] for subject in subjects}
    with scratch_below(output_dir / AB / ".scratch") as scratch:
        engine = options.make_engine(config, (Side("one"), Side("the same")), scratch / "pairs")
        config.output_dir = str(scratch / "runs")
        runner = BenchmarkRunner(config, paths=arguments.path)
        while len(runs) < LEAST or time.monotonic() < deadline:
            options.show_status(f"run {len(runs) + 1}")
            runs.append(_results(runner.run_cases(cases)))
            for subject in subjects:
                if time.monotonic() < deadline or len(runs) <= LEAST:
                    options.show_status(f"pair {len(runs)} of {subject.case.name}")
                    pairs[subject.case.key].append(engine.measure(subject, len(runs) - 1))
    made_at = datetime.now().astimezone().isoformat(timespec="seconds")
    lockstep = lockstep_calibration(subjects, pairs, made_at)
    stored = stored_calibration(runs, made_at)
    options.show_status()
    if not lockstep.floors and not stored.floors:
        print("membench: no benchmark has timings, so there is no noise to store", file=sys.stderr)
        return EXIT_FAILED
    fingerprint = describe(output_dir, embedder=embedder_label(config.embedder)).fingerprint
    store_noise(output_dir, fingerprint, "lockstep", lockstep)
    path = store_noise(output_dir, fingerprint, "stored", stored)
    _print(lockstep, stored)
    print(f"\nstored in {path}; `membench ab` and `membench compare` use it from now on")
    return EXIT_FINE


def _results(finished: FinishedRun) -> list[Result]:
    from memory.benchmarking.errors import BenchmarkError
    from memory.benchmarking.model.files import read_result_of

    if finished.interrupted:
        raise KeyboardInterrupt
    if not finished.succeeded:
        first = finished.run.failures[0]
        raise BenchmarkError(f"{first.case} failed, so its noise is unknown: {first.message}")
    return [read_result_of(finished.folder, ref) for ref in finished.run.results]


def _print(lockstep: Calibration, stored: Calibration) -> None:
    """Print, for each benchmark, the median and the largest noise over its metrics."""
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
    print(f"\nmedian … maximum over a benchmark's metrics, from {counts}")
