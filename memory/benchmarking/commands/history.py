"""`membench history`: show one metric over many runs, and where its level changed."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from memory.benchmarking.commands.options import add_output_dir
from memory.benchmarking.errors import EXIT_FINE, InvalidBenchmarkConfig

_EXAMPLES = """examples:
  membench history 'stm/batch_100/p50_ms' --benchmark read_latency
  membench history '*/stm/*/p50_ms' --last 200 --png history.png
  membench history 'storage.read_latency:*/cpu_ms'

A change is reported once three runs are on the new level; a single odd run is not a change. Runs with
another environment or other parameters form their own series."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "history",
        help="one metric over many runs, and where it changed",
        description="Show one metric over many runs, and where its level changed.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("metric", metavar="PATTERN", help="name or path of metrics; * matches anything")
    parser.add_argument("--benchmark", metavar="NAME", help="read_latency, or storage.read_latency")
    parser.add_argument("--last", type=int, default=60, metavar="N", help="newest N runs (default 60)")
    parser.add_argument(
        "--magnitude", type=float, metavar="X", help="smallest change to report (0.03: 3 %%; shares 0.01)"
    )
    parser.add_argument("--all", action="store_true", help="plot every series, not only the first ones")
    parser.add_argument("--png", metavar="FILE", help="also draw a picture into FILE")
    parser.add_argument("--json", action="store_true", help="print points and changes as JSON")
    add_output_dir(parser)
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    import shutil

    from memory.benchmarking.model.files import encode_json, write_whole
    from memory.benchmarking.text.terminal import print_for_machines
    from memory.benchmarking.verdicts.history import series_of
    from memory.benchmarking.verdicts.history_text import characters_for, history_text

    if arguments.last < 1:
        raise InvalidBenchmarkConfig(f"--last is {arguments.last}: use a whole number ≥ 1")
    if arguments.magnitude is not None and not 0 < arguments.magnitude < float("inf"):
        raise InvalidBenchmarkConfig(f"--magnitude is {arguments.magnitude}: use a number > 0")
    series = series_of(
        Path(arguments.output_dir),
        arguments.metric,
        benchmark=arguments.benchmark,
        last=arguments.last,
        magnitude=arguments.magnitude,
    )
    if arguments.png:
        from memory.benchmarking.verdicts.history_picture import history_picture

        write_whole(Path(arguments.png), history_picture(series))
    if arguments.json:
        print_for_machines(encode_json({"series": series}).decode())
        return EXIT_FINE
    width = shutil.get_terminal_size().columns
    text = history_text(
        series, characters=characters_for(sys.stdout.encoding), width=width, show_all=arguments.all
    )
    print(text, end="")
    return EXIT_FINE
