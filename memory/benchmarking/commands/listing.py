"""`membench list`: list the benchmarks, targets and profiles."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands.options import add_path
from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE

if TYPE_CHECKING:
    from memory.benchmarking.model.benchmark import Benchmark


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "list",
        help="list the benchmarks, targets and profiles",
        description="List the benchmarks, targets and profiles.",
    )
    parser.add_argument(
        "--category", action="append", default=[], metavar="NAME", help="only this category; repeatable"
    )
    add_path(parser)
    parser.add_argument("--verbose", action="store_true", help="show descriptions, parameters and defaults")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.profiles import PROFILES
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.targets import target_names

    found = discover(arguments.path)
    benchmarks = [
        each for each in found.benchmarks if not arguments.category or each.category in arguments.category
    ]
    for category in arguments.category:
        found.select([category])  # raises an error for an unknown name
    if arguments.json:
        document = {
            "benchmarks": [
                {
                    "category": each.category,
                    "benchmark": each.name,
                    "summary": each.summary,
                    "parameters": {name: _plain(value) for name, value in each.defaults.items()},
                    "figures": {
                        name: {"unit": metric.unit, "better": metric.better}
                        for name, metric in each.metrics.items()
                    },
                }
                for each in benchmarks
            ],
            "targets": target_names(),
            "profiles": list(PROFILES),
            "problems": {name: str(problem) for name, problem in found.problems.items()},
        }
        print(json.dumps(document, indent=1, default=str))
    else:
        _print(benchmarks, arguments.verbose)
        if not arguments.category:
            print(f"targets:   {', '.join(target_names())}")
            print(f"profiles:  {', '.join(PROFILES)}")
    for problem in found.problems.values():
        print(f"membench: {problem}", file=sys.stderr)
    return EXIT_FAILED if found.problems else EXIT_FINE


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple | set) else value


def _print(benchmarks: list[Benchmark], verbose: bool) -> None:
    from textwrap import indent

    category = None
    for benchmark in benchmarks:
        if benchmark.category != category:
            print(("\n" if category else "") + benchmark.category)
            category = benchmark.category
        if not verbose:
            print(f"  {benchmark.name:24} {benchmark.summary}")
            continue
        print(f"  {benchmark.name}")
        print(indent(benchmark.description or "(no description)", "      "))
        print("      parameters:")
        for name, value in benchmark.defaults.items():
            about = benchmark.about_parameters.get(name, "")
            print(
                f"        {name} = {json.dumps(_plain(value), default=str)}" + (f": {about}" * bool(about))
            )
        if benchmark.metrics:
            print("      figures:")
        for name, metric in benchmark.metrics.items():
            better = {"higher": "higher is better", "lower": "lower is better", "neither": "no direction"}
            print(f"        {name}: {metric.unit or 'number'}, {better[metric.better]}")
        print()
    print()
