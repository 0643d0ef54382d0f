"""`membench run`: run benchmarks, save their results and print a summary."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.config import BenchmarkConfig
    from memory.benchmarking.model.records import Case
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.run.until_decided import UntilDecided
    from memory.benchmarking.runner import BenchmarkRunner, FinishedRun

_EXAMPLES = """examples:
  membench run                                         everything, standard profile
  membench run --profile quick                         everything, with small sizes
  membench run --category storage --benchmark write_throughput
  membench run --set storage.batch_sizes=10,100 --rounds 3
  membench run --target agentmemory --target sqlite-baseline
  membench run --path my_benchmarks.py                 also run your own benchmarks
  membench run --until-decided --baseline main         more rounds for what `compare` can't decide
  membench run --executor ray=10.0.0.1:6379            rounds on the machines of a Ray cluster
  membench run --resume                                continue the last run that was stopped

exit codes: 0 every round succeeded, 1 a round failed or bad input, 130 stopped by Ctrl-C"""

_NOT_WITH_RESUME = (
    "category", "benchmark", "target", "path", "profile", "config", "params", "set", "rounds", "seed",
    "timeout", "parallel", "dry_run", "until_decided", "embedder", "executor", "generators",
)  # fmt: skip
"""Options that can't change in a resumed run: the run keeps its first values."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "run",
        help="run benchmarks, each round in a fresh process",
        description="Run benchmarks, each round in a fresh process, and save what they measured.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = options.add_selection(parser)
    text = "continue a run that was stopped or failed (default: the latest)"
    what.add_argument("--resume", nargs="?", const="latest", metavar="RUN", help=text)
    how = parser.add_argument_group("settings")
    options.add_settings(how, "quick, standard (default) or full")
    how.add_argument("--rounds", metavar="N", help="run each benchmark in N fresh processes")
    text = "run several rounds at the same time; `compare` does not judge such figures"
    how.add_argument("--parallel", action="store_true", help=text)
    text = "add rounds of what the comparison with --baseline leaves undecided, until --budget ends"
    how.add_argument("--until-decided", action="store_true", help=text)
    how.add_argument("--baseline", metavar="NAME", help="with --until-decided: the baseline")
    text = "with --until-decided: most seconds for added rounds (default 300)"
    how.add_argument("--budget", type=float, metavar="SECONDS", help=text)
    how.add_argument("--workers", type=int, metavar="N", help="how many, with --parallel (default: cores)")
    text = "where rounds run: local (default), ray, or ray=ADDRESS for the machines of a Ray cluster"
    how.add_argument("--executor", metavar="NAME", help=text)
    text = "with --executor ray, for scalability.saturation: send load from N generators on the nodes"
    how.add_argument("--generators", type=int, metavar="N", help=text)
    out = parser.add_argument_group("output")
    options.add_output_dir(out, default=None)
    out.add_argument("--dry-run", action="store_true", help="show the plan and its time; run nothing")
    out.add_argument("--timings", action="store_true", help="also show the time that membench itself took")
    out.add_argument("--json", action="store_true", help="print one JSON document")
    out.add_argument("--quiet", action="store_true", help="print only the run's folder")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    runner = _runner(arguments)
    if arguments.resume is not None:
        return _finish(arguments, _with_progress(arguments, runner, None))
    overrides = options.params_of(arguments.params)
    cases = runner.plan(arguments.category, arguments.benchmark, overrides)
    if arguments.generators is not None:
        _check_generators(cases)
    if arguments.dry_run:
        _print_plan(arguments, runner, cases)
        return EXIT_FINE
    return _finish(arguments, _with_progress(arguments, runner, cases))


def _runner(arguments: argparse.Namespace) -> BenchmarkRunner:
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.run.origins import command_to_repeat
    from memory.benchmarking.runner import BenchmarkRunner

    _check(arguments)
    catalog = discover(arguments.path)
    config = options.config_of(arguments, catalog)
    runner = BenchmarkRunner(
        config,
        catalog=catalog,
        workers=_workers(arguments),
        executor=arguments.executor or "local",
        generators=arguments.generators or 0,
    )
    runner.command = command_to_repeat(arguments.command_line)
    if arguments.until_decided:
        runner.until_decided = _until_decided(arguments, config)
    return runner


def _check_generators(cases: list[Case]) -> None:
    """Raise InvalidBenchmarkConfig if load from other hosts has no effect, or can't reach a target."""
    from memory.benchmarking.targets.spelling import parse_target

    for case in cases:
        if case.name != "scalability.saturation":
            raise InvalidBenchmarkConfig(
                f"--generators has no effect on {case.name}: add --benchmark saturation"
            )
        if not parse_target(case.target).address:
            raise InvalidBenchmarkConfig(
                f"--generators needs a server that all hosts reach, and {case.target} is none: "
                "use --target NAME=ADDRESS, as in pgvector=postgresql://host/db"
            )


def _until_decided(arguments: argparse.Namespace, config: BenchmarkConfig) -> UntilDecided:
    from memory.benchmarking.run.until_decided import UntilDecided
    from memory.benchmarking.verdicts.baselines import baseline_folder
    from memory.benchmarking.verdicts.thresholds import STORED_THRESHOLD, thresholds_from

    if arguments.baseline is None:
        raise InvalidBenchmarkConfig("--until-decided has nothing to compare with: add --baseline NAME")
    if arguments.parallel:
        raise InvalidBenchmarkConfig("--until-decided needs times that can be judged: leave out --parallel")
    budget = 300.0 if arguments.budget is None else arguments.budget
    if not 0 < budget < float("inf"):
        raise InvalidBenchmarkConfig(f"--budget is {budget:g}: use a number of seconds > 0")
    folder = baseline_folder(Path(config.output_dir), arguments.baseline)
    return UntilDecided(folder, budget, thresholds_from(config.compare, None, STORED_THRESHOLD))


def _check(arguments: argparse.Namespace) -> None:
    for name in ("baseline", "budget"):
        if getattr(arguments, name) is not None and not arguments.until_decided:
            raise InvalidBenchmarkConfig(f"--{name} has no effect without --until-decided: add it")
    if arguments.generators is not None and arguments.generators < 1:
        raise InvalidBenchmarkConfig(f"--generators is {arguments.generators}: use a whole number ≥ 1")
    if arguments.workers is not None and not arguments.parallel:
        raise InvalidBenchmarkConfig("--workers has no effect without --parallel: add --parallel")
    if arguments.workers is not None and arguments.workers < 1:
        raise InvalidBenchmarkConfig(f"--workers is {arguments.workers}: use a whole number ≥ 1")
    if arguments.resume is not None:
        given = [name for name in _NOT_WITH_RESUME if getattr(arguments, name)]
        if given:
            raise InvalidBenchmarkConfig(
                f"--{given[0].replace('_', '-')} can't be used with --resume: "
                "a resumed run keeps its options; start a new run to change them"
            )


def _workers(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.environment import available_cores

    if not arguments.parallel:
        return 1
    workers: int = arguments.workers or available_cores()
    return workers


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
        finished = runner.resume(arguments.resume) if cases is None else runner.run_cases(cases)
    finally:
        listener.close()
    if runner.until_decided is not None and not silent:
        print(runner.until_decided.text, file=sys.stderr)
    return finished


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
            f"{what}: what was measured is saved; continue with: "
            f"membench run --resume {finished.run.id}{place}",
            file=sys.stderr,
        )
    if finished.interrupted and finished.run.status == "interrupted":
        return EXIT_INTERRUPTED
    return EXIT_FINE if finished.succeeded else EXIT_FAILED


def _print_plan(arguments: argparse.Namespace, runner: BenchmarkRunner, cases: list[Case]) -> None:
    from memory.benchmarking.model.environment import available_cores
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.run.progress import clock_text
    from memory.benchmarking.text.display import table
    from memory.benchmarking.text.terminal import terminal_width

    config = runner.config
    estimator = Estimator(Path(config.output_dir), config.profile)
    rounds = [min(config.rounds, case.most_rounds or config.rounds) for case in cases]
    seconds = [_seconds(estimator, case, count) for case, count in zip(cases, rounds, strict=True)]
    known = [each for each in seconds if each is not None]
    total = sum(known) / min(runner.workers, available_cores())
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
    headers = ("benchmark", "target", "time", "parameters")
    print(table(rows, headers, right=(2,), width=terminal_width(sys.stdout), wrap=True))
    unknown = "" if len(known) == len(seconds) else ", plus those with ?, which never ran here"
    print(
        f"\n{len(cases)} cases, {sum(rounds)} rounds, {config.profile} profile: "
        f"about {clock_text(total)}{unknown}; nothing was run"
    )


def _seconds(estimator: Estimator, case: Case, rounds: int) -> float | None:
    each = estimator.seconds(case)
    return None if each is None else each * rounds


def _params_text(params: dict[str, Any]) -> str:
    return ", ".join(f"{name}={json.dumps(value)}" for name, value in params.items())
