"""`membench selftest`: what is the gate worth on this machine?"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands.ab import add_sizes
from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.lockstep.selftest import Share

SHARES = (0.0, 0.05, 0.10, 0.20)
DEFAULT_BENCHMARK = "storage.read_latency"

_EPILOG = """examples:
  membench selftest                                    five minutes of storage.read_latency
  membench selftest --minutes 30 --benchmark retrieval.vector_search_latency
  membench selftest --comparisons 20                   that many of each kind

Identical code should be called slower in hardly any comparison, extra work in nearly all. Neither is an
error here: the exit code is 0 when everything was measured."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "selftest",
        help="run the gate against itself: what is it worth here?",
        description="Run `ab` on identical code and on real extra work of 5, 10 and 20 % in the memory's "
        "read path, and count how often it says so.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to run")
    what.add_argument("--category", action="append", default=[], metavar="NAME")
    what.add_argument("--benchmark", action="append", metavar="NAME", help=f"default {DEFAULT_BENCHMARK}")
    what.add_argument("--target", action="append", metavar="NAME", help="memory system")
    what.add_argument("--path", action="append", default=[], metavar="FILE", help="your own benchmarks")
    how = parser.add_argument_group("how")
    how.add_argument("--minutes", type=float, metavar="N", help="how long (default 5)")
    how.add_argument("--comparisons", type=int, metavar="N", help="how many of each kind, however long")
    add_sizes(how)
    parser.add_argument("--output-dir", metavar="DIR", help="for scratch files (default benchmark_results)")
    parser.add_argument("--json", action="store_true", help="the counts as JSON")
    parser.set_defaults(execute=execute, rounds=None)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.ab import cases_of, default_to_quick, timing_seconds
    from memory.benchmarking.commands.run import config_of
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

    if arguments.minutes is not None and not 0 < arguments.minutes < float("inf"):
        raise InvalidBenchmarkConfig(f"--minutes is {arguments.minutes}: use a number > 0")
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
        while _goes_on(arguments, number // len(SHARES), deadline):
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
            for counts, said in (
                (gate, found_by_gate(verdicts)),
                (usual, found_by_usual_rule(subjects, measured)),
            ):
                counts[share][0] += said
                counts[share][1] += 1
            number += 1
            _progress(number, share)
    seconds = time.monotonic() - start
    return _report(arguments, gate, usual, seconds, number * len(subjects))


def _goes_on(arguments: argparse.Namespace, whole_rounds: int, deadline: float) -> bool:
    if arguments.comparisons is not None:
        return bool(whole_rounds < arguments.comparisons)
    return time.monotonic() < deadline


def _progress(number: int, share: float) -> None:
    if sys.stderr.isatty():
        print(
            f"\r\x1b[K{number} comparisons, the last with {100 * share:.0f} %",
            end="",
            file=sys.stderr,
            flush=True,
        )


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

    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
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
    print(f"\n{seconds / max(comparisons, 1):.1f} s a benchmark and comparison")
    return EXIT_FINE


def _plain(share: float, by_gate: Share, by_usual: Share) -> dict[str, Any]:
    return {
        "extra_work": share,
        "ab": {"found": by_gate.times, "of": by_gate.of},
        "mean_above_10_percent": {"found": by_usual.times, "of": by_usual.of},
    }
