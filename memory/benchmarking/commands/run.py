"""`membench run`: what to run, how, and what to print."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.config import BenchmarkConfig
    from memory.benchmarking.model.records import Case
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.runner import BenchmarkRunner, FinishedRun

_EXAMPLES = """examples:
  membench run                                         everything, standard profile
  membench run --profile quick                         a smoke run
  membench run --category storage --benchmark write_throughput
  membench run --set storage.batch_sizes=10,100 --rounds 3
  membench run --target agentmemory --target sqlite-baseline
  membench run --path my_benchmarks.py                 your own as well
  membench run --resume                                go on with the last run that was stopped

exit codes: 0 all rounds gave figures, 1 some did not or bad input, 130 stopped by Ctrl-C"""

_SETTLED = (
    "category", "benchmark", "target", "path", "profile", "config", "params", "set", "rounds", "seed",
    "timeout", "parallel", "dry_run",
)  # fmt: skip
"""Options that a run has taken already when it is resumed."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run benchmarks, each round in a fresh process",
        description="Run benchmarks, each round in a fresh process, and save what they measured.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to run (default: everything)")
    what.add_argument("--category", action="append", default=[], metavar="NAME", help="may be repeated")
    what.add_argument("--benchmark", action="append", default=[], metavar="NAME", help="may be repeated")
    what.add_argument("--target", action="append", metavar="NAME", help="memory system; may be repeated")
    what.add_argument("--path", action="append", default=[], metavar="FILE", help="your own benchmarks")
    what.add_argument(
        "--resume", nargs="?", const="latest", metavar="RUN", help="finish a run that was stopped or failed"
    )
    how = parser.add_argument_group("how")
    how.add_argument("--profile", metavar="NAME", help="quick, standard (default) or full")
    how.add_argument("--config", metavar="FILE", help="JSON or TOML (default: $MEMBENCH_CONFIG)")
    how.add_argument("--params", metavar="JSON", help="parameters as JSON, or a file that holds it")
    how.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="storage.batch_sizes=10,100"
    )
    how.add_argument("--rounds", metavar="N", help="fresh processes a case")
    how.add_argument("--seed", metavar="N", help="of all data and orders (default 0)")
    how.add_argument("--timeout", metavar="SECONDS", help="after which a round is ended")
    how.add_argument("--parallel", action="store_true", help="rounds side by side; such figures never gate")
    how.add_argument("--workers", type=int, metavar="N", help="how many (with --parallel; default: cores)")
    out = parser.add_argument_group("output")
    out.add_argument("--output-dir", metavar="DIR", help="where runs are kept (default benchmark_results)")
    out.add_argument("--dry-run", action="store_true", help="show the plan and its time, run nothing")
    out.add_argument("--timings", action="store_true", help="show what the harness itself cost")
    out.add_argument("--json", action="store_true", help="one JSON document on standard output")
    out.add_argument("--quiet", action="store_true", help="print the run's folder and nothing else")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    runner = _runner(arguments)
    if arguments.resume is not None:
        return _finish(arguments, _with_progress(arguments, runner, None))
    overrides = params_of(arguments.params)
    cases = runner.plan(arguments.category, arguments.benchmark, overrides)
    if arguments.dry_run:
        _print_plan(arguments, runner, cases)
        return EXIT_FINE
    return _finish(arguments, _with_progress(arguments, runner, cases))


def _runner(arguments: argparse.Namespace) -> BenchmarkRunner:
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.runner import BenchmarkRunner

    _check(arguments)
    found = discover(arguments.path)
    config = config_of(arguments, found)
    return BenchmarkRunner(config, paths=arguments.path, workers=_workers(arguments))


def _check(arguments: argparse.Namespace) -> None:
    if arguments.workers is not None and not arguments.parallel:
        raise InvalidBenchmarkConfig("--workers says how many rounds run side by side: add --parallel")
    if arguments.workers is not None and arguments.workers < 1:
        raise InvalidBenchmarkConfig(f"--workers is {arguments.workers}: use a whole number ≥ 1")
    if arguments.resume is not None:
        given = [name for name in _SETTLED if getattr(arguments, name)]
        if given:
            raise InvalidBenchmarkConfig(
                f"--{given[0].replace('_', '-')} can't be used with --resume: "
                "a run goes on as it began; start a new one to change it"
            )


def _workers(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.environment import available_cores

    if not arguments.parallel:
        return 1
    workers: int = arguments.workers or available_cores()
    return workers


def config_of(arguments: argparse.Namespace, found: Any) -> BenchmarkConfig:
    """What file, profile and options ask for together."""
    from memory.benchmarking.config import BenchmarkConfig
    from memory.benchmarking.model.profiles import DEFAULT_PROFILE

    known = [(each.category, each.name, each.kinds) for each in found.benchmarks]
    file = arguments.config or os.environ.get("MEMBENCH_CONFIG")
    if file:
        config = BenchmarkConfig.load(file, profile=arguments.profile, known=known)
    else:
        config = BenchmarkConfig(arguments.profile or DEFAULT_PROFILE)
        for each in known:
            config.know(*each)
    for assignment in arguments.set:
        config.set_text(assignment)
    for name, value in (
        ("rounds", arguments.rounds),
        ("seed", arguments.seed),
        ("timeout_seconds", arguments.timeout),
    ):
        if value is not None:
            config.set_text(f"{name}={value}")
    if arguments.output_dir:
        config.output_dir = arguments.output_dir
    if arguments.target:
        config.targets = arguments.target
    return config


def params_of(text: str | None) -> dict[str, Any]:
    """`--params`: JSON, or the name of a file that holds JSON or TOML."""
    if text is None:
        return {}
    if not text.lstrip().startswith("{"):
        from memory.benchmarking.config import read_table

        return read_table(Path(text))
    try:
        values: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InvalidBenchmarkConfig(f"--params is not JSON: {problem}") from None
    return values


def _with_progress(
    arguments: argparse.Namespace, runner: BenchmarkRunner, cases: list[Case] | None
) -> FinishedRun:
    from memory.benchmarking.run.execution import Listener
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.run.progress import make_progress

    config = runner.config
    silent = arguments.quiet or arguments.json
    estimator = Estimator(Path(config.output_dir), config.profile)
    listener = Listener() if silent else make_progress(estimator)
    runner.listener = listener
    try:
        return runner.resume(arguments.resume) if cases is None else runner.run_cases(cases)
    finally:
        listener.close()


def _finish(arguments: argparse.Namespace, finished: FinishedRun) -> int:
    from memory.benchmarking.run.summary import print_summary, summary_for_machines, timings_text
    from memory.benchmarking.text.terminal import print_for_machines

    if arguments.json:
        import msgspec

        document = summary_for_machines(finished.folder, finished.run, interrupted=finished.interrupted)
        print_for_machines(msgspec.json.format(msgspec.json.encode(document), indent=1).decode() + "\n")
    elif arguments.quiet:
        print(finished.folder)
    else:
        print_summary(finished.folder, finished.run)
        if arguments.timings:
            print(f"\n{timings_text(finished.run)}")
    if finished.run.status != "complete":
        place = f" --output-dir {shlex.quote(str(finished.folder.parent))}" if arguments.output_dir else ""
        what = "interrupted" if finished.interrupted else "not complete"
        print(
            f"{what}: what was measured is saved; go on with: "
            f"membench run --resume {finished.run.id}{place}",
            file=sys.stderr,
        )
    if finished.interrupted and finished.run.status == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_FINE if finished.succeeded else EXIT_FAILED


def _print_plan(arguments: argparse.Namespace, runner: BenchmarkRunner, cases: list[Case]) -> None:
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.run.progress import clock_text
    from memory.benchmarking.text.display import table

    config = runner.config
    estimator = Estimator(Path(config.output_dir), config.profile)
    rounds = [min(config.rounds, case.most_rounds or config.rounds) for case in cases]
    seconds = [_seconds(estimator, case, count) for case, count in zip(cases, rounds, strict=True)]
    known = [each for each in seconds if each is not None]
    total = sum(known) / runner.workers
    if arguments.json:
        plan = {
            "profile": config.profile,
            "rounds": config.rounds,
            "estimated_seconds": total if len(known) == len(seconds) else None,
            "cases": [
                {
                    "category": case.category,
                    "benchmark": case.benchmark,
                    "target": case.target,
                    "params": case.params,
                    "estimated_seconds": each,
                }
                for case, each in zip(cases, seconds, strict=True)
            ],
        }
        print(json.dumps(plan, indent=1))
        return
    rows = [
        (case.name, case.target, clock_text(each), _params_text(case.params))
        for case, each in zip(cases, seconds, strict=True)
    ]
    print(table(rows, ("benchmark", "target", "time", "parameters"), right=(2,)))
    unknown = "" if len(known) == len(seconds) else ", and what is not known yet (?)"
    print(
        f"\n{len(cases)} cases, {sum(rounds)} rounds, {config.profile} profile: "
        f"about {clock_text(total)}{unknown}; nothing was run"
    )


def _seconds(estimator: Estimator, case: Case, rounds: int) -> float | None:
    each = estimator.seconds(case)
    return None if each is None else each * rounds


def _params_text(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in params.items())
