"""`membench check`: try what a memory promises, and print what held and what did not."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import (
    EXIT_BROKEN,
    EXIT_FAILED,
    EXIT_FINE,
    EXIT_INTERRUPTED,
    UnknownName,
    nearest,
)

if TYPE_CHECKING:
    from memory.benchmarking.runner import FinishedRun

CATEGORY = "promises"
_EPILOG = """examples:
  membench check                                   the promises of agentmemory, less than a minute
  membench check --target sqlite-baseline          those of another target
  membench check --only delete_all_deletes_all_of_one_agent
  membench check --profile full                    more kills, more flipped bytes: minutes

exit codes: 0 all promises kept, 2 a promise is broken, 1 the checks could not be run. Each check is
explained in docs/promises.md. The results are kept like those of `membench run`."""
_BUSY = 4
"""How many seconds a CPU second may take."""
_MARKS = {"kept": "kept", "broken": "BROKEN", "not promised": "not promised", "not tried": "not tried"}


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "check",
        help="try what a memory promises: durability, isolation, deletion, exactness",
        description="Try what a memory promises, and print what held and what did not, with the evidence.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to try")
    text = "memory system to try (default: agentmemory); may be repeated"
    what.add_argument("--target", action="append", default=None, metavar="NAME", help=text)
    what.add_argument(
        "--only", action="append", default=[], metavar="CHECK", help="only this check; may be repeated"
    )
    how = parser.add_argument_group("settings")
    options.add_settings(how, "quick (default), standard or full")
    options.add_output_dir(parser, default=None)
    parser.add_argument("--json", action="store_true", help="print the outcomes as JSON")
    parser.set_defaults(execute=execute, path=[], rounds=None, category=[CATEGORY], benchmark=[])


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.environment import available_cores
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.run.execution import Listener
    from memory.benchmarking.run.origins import command_to_repeat
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.run.progress import make_progress
    from memory.benchmarking.runner import BenchmarkRunner

    options.default_to_quick(arguments)
    if arguments.timeout is None:
        arguments.timeout = _longest_seconds(arguments.profile or "full")
    catalog = discover([])
    config = options.config_of(arguments, catalog)
    # The checks try what is kept, not how fast it is, so several of them may run at the same time.
    runner = BenchmarkRunner(config, catalog=catalog, workers=available_cores())
    runner.command = command_to_repeat(arguments.command_line)
    cases = runner.plan([CATEGORY], _benchmarks_with(arguments.only), options.params_of(arguments.params))
    if arguments.only:
        for case in cases:
            case.params["checks"] = list(arguments.only)
    listener = Listener()
    if not arguments.json:
        listener = make_progress(Estimator(Path(config.output_dir), config.profile))
    runner.listener = listener
    try:
        finished = runner.run_cases(cases)
    finally:
        listener.close()
    outcomes = _outcomes(finished)
    if arguments.json:
        print(json.dumps(outcomes, indent=1, ensure_ascii=False))
    else:
        for target, found in outcomes.items():
            _print(target, found)
    for failure in finished.run.failures:
        print(f"membench: {failure.case}: {failure.message}", file=sys.stderr)
    if finished.interrupted:
        return EXIT_INTERRUPTED
    if not finished.succeeded:
        return EXIT_FAILED
    broken = any(one["status"] == "broken" for found in outcomes.values() for one in found)
    return EXIT_BROKEN if broken else EXIT_FINE


def _longest_seconds(profile: str) -> str:
    """Return the time limit of a round: every check of a promise may reach its own limit.

    Those are CPU seconds, and a busy machine takes longer for them.
    """
    from memory.benchmarking.promises.suite import PROMISES, checks_of

    limits = [sum(check.seconds[profile] for check in checks_of(promise)) for promise in PROMISES]
    return str(60 + _BUSY * max(limits))


def _benchmarks_with(checks: list[str]) -> list[str]:
    """Return the benchmarks that have these checks; all for none."""
    from memory.benchmarking.benchmarks import promises
    from memory.benchmarking.promises.suite import all_checks

    known = all_checks()
    names = []
    for name in checks:
        if name not in known:
            raise UnknownName(f"there is no check {name!r}: {nearest(name, known)}")
        names.append(f"{CATEGORY}.{promises.BENCHMARKS[known[name].promise]}")
    return list(dict.fromkeys(names))


def _outcomes(finished: FinishedRun) -> dict[str, list[dict[str, Any]]]:
    """Return the outcomes by target, in the order of the promises."""
    from memory.benchmarking.model.files import read_result_of
    from memory.benchmarking.promises.suite import PROMISES, all_checks

    known = all_checks()
    found: dict[str, list[dict[str, Any]]] = {}
    for ref in finished.run.results:
        tree = read_result_of(finished.folder, ref).results
        for name, group in tree.items():
            if isinstance(group, dict) and name in known:
                check = known[name]
                one = {"promise": check.promise, "check": name, "question": check.question}
                one |= {key: group[key] for key in ("status", "evidence", "code") if group.get(key)}
                found.setdefault(ref.target, []).append(one)
    order = list(known)
    for outcomes in found.values():
        outcomes.sort(key=lambda one: (PROMISES.index(one["promise"]), order.index(one["check"])))
    return found


def _print(target: str, outcomes: list[dict[str, Any]]) -> None:
    from memory.benchmarking.text.display import paragraph
    from memory.benchmarking.text.terminal import terminal_width

    width = terminal_width(sys.stdout) or 100
    print(f"\n{target}")
    promise = ""
    for one in outcomes:
        if one["promise"] != promise:
            promise = one["promise"]
            print(f"\n  {promise}")
        words = one["check"].replace("_", " ")
        print(f"    {_MARKS[one['status']]:<13} {words}")
        print(paragraph(one["evidence"], width, " " * 18, " " * 18))
        if one["status"] == "broken" and one.get("code"):
            print("\n".join(f"{' ' * 20}{line}" for line in one["code"].splitlines()))
    counts = {status: sum(one["status"] == status for one in outcomes) for status in _MARKS}
    print(f"\n{target}: " + ", ".join(f"{count} {status}" for status, count in counts.items() if count))
