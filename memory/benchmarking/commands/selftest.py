"""`membench selftest`: measure how often `membench ab` gives the right verdict on this machine."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import EXIT_FINE, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.lockstep.selftest import Trials

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
    options.add_selection(parser, f"what to run (default: {DEFAULT_BENCHMARK})")
    how = parser.add_argument_group("settings")
    how.add_argument("--minutes", type=float, metavar="N", help="how long (default 5)")
    how.add_argument(
        "--comparisons", type=int, metavar="N", help="comparisons of each kind; replaces --minutes"
    )
    options.add_settings(how, "quick (default), standard or full")
    options.add_output_dir(parser, default=None)
    parser.add_argument("--json", action="store_true", help="print the counts as JSON")
    parser.set_defaults(execute=execute, rounds=None)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.lockstep.scratch import scratch_below
    from memory.benchmarking.lockstep.selftest import run_trials
    from memory.benchmarking.lockstep.sequence import Rules
    from memory.benchmarking.lockstep.store import AB
    from memory.benchmarking.lockstep.subjects import same_cases
    from memory.benchmarking.model.environment import describe
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.targets.embedders import embedder_label
    from memory.benchmarking.verdicts.noise import load_noise
    from memory.benchmarking.verdicts.thresholds import LOCKSTEP_THRESHOLD, thresholds_from

    options.check_minutes(arguments.minutes)
    if arguments.comparisons is not None and arguments.comparisons < 1:
        raise InvalidBenchmarkConfig(f"--comparisons is {arguments.comparisons}: use a whole number ≥ 1")
    if not arguments.benchmark and not arguments.category:
        arguments.benchmark = [DEFAULT_BENCHMARK]
    options.default_to_quick(arguments)
    found = discover(arguments.path)
    config = options.config_of(arguments, found)
    subjects = same_cases(options.cases_of(arguments, found, config))
    output_dir = Path(config.output_dir)
    environment = describe(output_dir, embedder=embedder_label(config.embedder))
    rules = Rules(
        thresholds_from(config.compare, None, LOCKSTEP_THRESHOLD),
        load_noise(output_dir, environment.fingerprint, "lockstep"),
    )
    start = time.monotonic()
    deadline = start + 60 * (arguments.minutes or 5)
    with scratch_below(output_dir / AB / ".scratch") as scratch:
        trials = run_trials(
            subjects,
            rules,
            lambda sides, number: options.make_engine(config, sides, scratch, config.seed + 1000 * number),
            lambda of_each_kind: _continues(arguments, of_each_kind, deadline),
            lambda number, share: options.show_status(
                f"{number} comparisons, the last with {100 * share:.0f} % more work"
            ),
        )
    options.show_status()
    _print_report(trials, time.monotonic() - start, len(subjects), as_json=arguments.json)
    return EXIT_FINE


def _continues(arguments: argparse.Namespace, of_each_kind: int, deadline: float) -> bool:
    if arguments.comparisons is not None:
        return bool(of_each_kind < arguments.comparisons)
    return time.monotonic() < deadline


def _print_report(trials: dict[float, Trials], seconds: float, benchmarks: int, *, as_json: bool) -> None:
    import json

    from memory.benchmarking.lockstep.selftest import Share
    from memory.benchmarking.text.display import table

    if as_json:
        counts = [
            {
                "extra_work": share,
                "ab": {"found": tally.by_ab, "of": tally.count},
                "mean_above_10_percent": {"found": tally.by_usual_rule, "of": tally.count},
            }
            for share, tally in trials.items()
        ]
        print(json.dumps(counts, indent=1))
        return
    lines = [
        (
            "identical code" if not share else f"{100 * share:.0f} % more work in reads",
            str(Share(tally.by_ab, tally.count)),
            str(Share(tally.by_usual_rule, tally.count)),
        )
        for share, tally in trials.items()
    ]
    print(table(lines, ("called slower", "membench ab", "mean > 10 %, one process")))
    comparisons = benchmarks * sum(tally.count for tally in trials.values())
    print(f"\n{seconds / max(comparisons, 1):.1f} s per benchmark and comparison")
