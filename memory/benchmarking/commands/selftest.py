"""`membench selftest`: measure how often `membench ab` gives the right verdict on this machine."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands.options import (
    add_output_dir,
    add_selection,
    add_settings,
    cases_of,
    check_minutes,
    config_of,
    default_to_quick,
    show_status,
    timing_seconds,
)
from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.lockstep.selftest import Share

SHARES = (0.0, 0.05, 0.10, 0.20)
"""Extra work in the read path, as a share of its time; 0 is identical code."""
DEFAULT_BENCHMARK = "storage.read_latency"

_EPILOG = """examples:
  membench selftest                                    five minutes of storage.read_latency
  membench selftest --minutes 30 --benchmark retrieval.vector_search_latency
  membench selftest --comparisons 20                   20 comparisons of each kind

`ab` should call identical code slower in almost no comparison, and extra work in almost all. A wrong
verdict is no error here: the exit code is 0 if everything was measured."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "selftest",
        help="check the verdicts of `ab`: how often is it right on this machine?",
        description="Run `ab` on identical code, and on code whose read path does 5, 10 and 20 %\n"
        "more work. Count how often it reports that the code is slower.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_selection(parser, f"what to run (default: {DEFAULT_BENCHMARK})")
    how = parser.add_argument_group("settings")
    how.add_argument("--minutes", type=float, metavar="N", help="how long (default 5)")
    how.add_argument(
        "--comparisons", type=int, metavar="N", help="comparisons of each kind; replaces --minutes"
    )
    add_settings(how, "quick (default), standard or full")
    add_output_dir(parser, default=None)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.set_defaults(execute=execute, rounds=None)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.lockstep.engine import Engine
    from memory.benchmarking.lockstep.pair import Limits
    from memory.benchmarking.lockstep.scratch import scratch_below
    from memory.benchmarking.lockstep.selftest import found_by_gate, found_by_usual_rule, slowed_sides
    from memory.benchmarking.lockstep.sequence import Measured, Rules
    from memory.benchmarking.lockstep.store import AB
    from memory.benchmarking.lockstep.subjects import same_cases
    from memory.benchmarking.model.environment import describe
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.verdicts.noise import load_noise
    from memory.benchmarking.verdicts.thresholds import LOCKSTEP_THRESHOLD, thresholds_from

    check_minutes(arguments.minutes)
    if arguments.comparisons is not None and arguments.comparisons < 1:
        raise InvalidBenchmarkConfig(f"--comparisons is {arguments.comparisons}: use a whole number ≥ 1")
    if not arguments.benchmark and not arguments.category:
        arguments.benchmark = [DEFAULT_BENCHMARK]
    default_to_quick(arguments)
    found = discover(arguments.path)
    config = config_of(arguments, found)
    subjects = same_cases(cases_of(arguments, found, config))
    output_dir = Path(config.output_dir)
    rules = Rules(
        thresholds_from(config.compare, None, LOCKSTEP_THRESHOLD),
        load_noise(output_dir, describe(output_dir).fingerprint, "lockstep"),
    )
    gate = {share: [0, 0] for share in SHARES}
    usual = {share: [0, 0] for share in SHARES}
    start = time.monotonic()
    deadline = start + 60 * (arguments.minutes or 5)
    number = 0
    with scratch_below(output_dir / AB / ".scratch") as scratch:
        while _continues(arguments, number // len(SHARES), deadline):
            share = SHARES[number % len(SHARES)]
            engine = Engine(
                slowed_sides(subjects[0].sides[0].target, share),
                config.seed + 1000 * number,
                timing_seconds(config),
                scratch,
                Limits(2 * config.timeout_seconds),
            )
            measured: dict[str, Measured] = {}
            verdicts = engine.compare(subjects, rules, measured)
            for message in engine.failures.values():
                print(f"membench: {message}", file=sys.stderr)
            if engine.failures:
                return EXIT_FAILED
            for counts, called_slower in (
                (gate, found_by_gate(verdicts)),
                (usual, found_by_usual_rule(subjects, measured)),
            ):
                counts[share][0] += called_slower
                counts[share][1] += 1
            number += 1
            show_status(f"{number} comparisons, the last with {100 * share:.0f} % more work")
    seconds = time.monotonic() - start
    return _report(arguments, gate, usual, seconds, number * len(subjects))


def _continues(arguments: argparse.Namespace, of_each_kind: int, deadline: float) -> bool:
    if arguments.comparisons is not None:
        return bool(of_each_kind < arguments.comparisons)
    return time.monotonic() < deadline


def _report(
    arguments: argparse.Namespace,
    gate: dict[float, list[int]],
    usual: dict[float, list[int]],
    seconds: float,
    comparisons: int,
) -> int:
    import json

    from memory.benchmarking.lockstep.selftest import Share
    from memory.benchmarking.text.display import table

    show_status()
    rows = [(share, Share(*gate[share]), Share(*usual[share])) for share in SHARES]
    if arguments.json:
        print(json.dumps([_plain(*row) for row in rows], indent=1))
        return EXIT_FINE
    lines = [
        (
            "identical code" if not share else f"{100 * share:.0f} % more work in reads",
            str(by_gate),
            str(by_usual),
        )
        for share, by_gate, by_usual in rows
    ]
    print(table(lines, ("called slower", "membench ab", "mean > 10 %, one process")))
    print(f"\n{seconds / max(comparisons, 1):.1f} s per benchmark and comparison")
    return EXIT_FINE


def _plain(share: float, by_gate: Share, by_usual: Share) -> dict[str, Any]:
    return {
        "extra_work": share,
        "ab": {"found": by_gate.times, "of": by_gate.of},
        "mean_above_10_percent": {"found": by_usual.times, "of": by_usual.of},
    }
