"""`membench compare`: two stored runs. Is the second slower?"""

from __future__ import annotations

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.files import DEFAULT_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from memory.benchmarking.verdicts.records import Comparison
    from memory.benchmarking.verdicts.thresholds import Thresholds

FORMATS = ("table", "json", "markdown", "junit", "github")
_ENDINGS = {".json": "json", ".md": "markdown", ".xml": "junit", ".txt": "table"}
_EXAMPLES = """examples:
  membench compare --last                              the newest run against the one before
  membench compare 1af3 0749                           two runs by their ids: base, then current
  membench compare --baseline main                     the newest run against a named baseline
  membench compare --current-dir results/current --baseline-dir results/baseline --threshold 0.1
  membench compare --last --output report.md --output report.xml

A folder may be one run, or hold runs: then its newest complete one counts.

exit codes: 0 nothing regressed, 2 something did, 3 the environments or parameters differ,
            4 something is not decided (only with --strict), 1 bad input or nothing to compare"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="compare two stored runs: did it get slower?",
        description="Compare two stored runs: did it get slower?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_argument_group("which runs")
    which.add_argument("runs", nargs="*", metavar="RUN", help="base and current, by id or folder")
    which.add_argument("--current-dir", metavar="DIR")
    which.add_argument("--baseline-dir", metavar="DIR")
    which.add_argument("--baseline", metavar="NAME", help="see `membench baseline`")
    which.add_argument("--last", action="store_true", help="the newest run against the one before")
    which.add_argument(
        "--output-dir", metavar="DIR", help=f"where runs are kept (default {DEFAULT_FOLDER})"
    )
    judge = parser.add_argument_group("how to judge")
    judge.add_argument("--threshold", type=float, metavar="X", help="smallest change that matters (0.1)")
    judge.add_argument("--config", metavar="FILE", help="with [compare] in it (default: $MEMBENCH_CONFIG)")
    judge.add_argument("--force", action="store_true", help="compare although the environments differ")
    judge.add_argument("--strict", action="store_true", help="exit with 4 where something is not decided")
    out = parser.add_argument_group("output")
    out.add_argument("--format", choices=FORMATS, default="table", help="of what is printed")
    out.add_argument("--json", action="store_true", help="the same as --format json")
    out.add_argument("--all", action="store_true", help="also what did not change or is not judged")
    out.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="FILE",
        help="write it too, in the form of its ending: .md, .xml (JUnit), .json, .txt; may be repeated",
    )
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.verdicts.compare import compare_runs

    for file in arguments.output:
        format_of(file)
    base, current, notes = _runs(arguments)
    if base.resolve() == current.resolve():
        raise InvalidBenchmarkConfig(f"{base} is both sides: a run can't be compared with itself")
    comparison = compare_runs(
        base,
        current,
        thresholds=_thresholds(arguments),
        noise=_noise(arguments, current),
        force=arguments.force,
    )
    comparison.notes[:0] = notes
    return deliver(comparison, arguments)


def deliver(comparison: Comparison, arguments: argparse.Namespace) -> int:
    """Print a comparison, write it to files, and give its exit code."""
    from pathlib import Path

    from memory.benchmarking.model.files import write_whole
    from memory.benchmarking.text.terminal import print_for_machines
    from memory.benchmarking.verdicts.formats import render

    def rendered(format: str, **screen: Any) -> str:
        return render(comparison, format, show_all=arguments.all, strict=arguments.strict, **screen)

    for file in arguments.output:
        write_whole(Path(file), rendered(format_of(file)).encode())
    format = "json" if arguments.json else arguments.format
    if format == "table":
        print(rendered(format, **_screen()), end="")
    else:
        print_for_machines(rendered(format))
    return comparison.exit_code(arguments.strict)


def format_of(file: str) -> str:
    """The form that a file's name asks for."""
    from pathlib import Path

    ending = Path(file).suffix
    if ending not in _ENDINGS:
        raise InvalidBenchmarkConfig(
            f"--output {file}: its name must end with one of {', '.join(_ENDINGS)}"
        )
    return _ENDINGS[ending]


def _screen() -> dict[str, Any]:
    """What a terminal bears; a pipe gets whole lines without colours."""
    import shutil

    from memory.benchmarking.run.summary import Style

    if not sys.stdout.isatty():
        return {}
    return {"width": shutil.get_terminal_size().columns, "heading": Style(sys.stdout).bold}


def _runs(arguments: argparse.Namespace) -> tuple[Path, Path, list[str]]:
    """Base and current, and what has to be said about the choice."""
    from pathlib import Path

    from memory.benchmarking.model.files import find_run
    from memory.benchmarking.verdicts.baselines import baseline_folder
    from memory.benchmarking.verdicts.runs import newest_complete, two_newest

    output_dir = Path(arguments.output_dir or DEFAULT_FOLDER)
    runs: list[str] = list(arguments.runs)
    _check(arguments, runs)
    if arguments.last:
        return two_newest(output_dir)
    notes: list[str] = []
    if arguments.baseline_dir is not None:
        base, passed = newest_complete(Path(arguments.baseline_dir))
        notes += passed
    elif arguments.baseline is not None:
        base = baseline_folder(output_dir, arguments.baseline)
    else:
        base = find_run(output_dir, runs.pop(0))
    if runs:
        return base, find_run(output_dir, runs[0]), notes
    current, passed = newest_complete(Path(arguments.current_dir or output_dir))
    return base, current, notes + passed


def _check(arguments: argparse.Namespace, runs: list[str]) -> None:
    """One way to name each side."""
    named = {
        "--last": arguments.last,
        "--baseline-dir": arguments.baseline_dir is not None,
        "--baseline": arguments.baseline is not None,
    }
    ways = [way for way, given in named.items() if given]
    currents = len(runs) + (arguments.current_dir is not None)
    if len(ways) > 1:
        raise InvalidBenchmarkConfig(f"{' and '.join(ways)} both say what to compare with: use one")
    if arguments.last and currents:
        raise InvalidBenchmarkConfig("--last takes the two newest runs: name no other")
    if ways and currents > 1:
        raise InvalidBenchmarkConfig(f"{ways[0]} is the base already: name one current run at most")
    if not ways and (len(runs) != 2 if arguments.current_dir is None else len(runs) != 1):
        raise InvalidBenchmarkConfig(
            "name what to compare: two runs, --last, --baseline NAME, or --current-dir and --baseline-dir"
        )


def _thresholds(arguments: argparse.Namespace) -> Thresholds:
    from memory.benchmarking.config import BenchmarkConfig, read_table
    from memory.benchmarking.verdicts.thresholds import STORED_THRESHOLD, thresholds_from

    config = BenchmarkConfig()
    file = arguments.config or os.environ.get("MEMBENCH_CONFIG")
    if file:
        from pathlib import Path

        # Only its [compare]: the rest may speak of benchmarks that are not here.
        config.compare = read_table(Path(file)).get("compare", {})
    return thresholds_from(config.compare, arguments.threshold, STORED_THRESHOLD)


def _noise(arguments: argparse.Namespace, current: Path) -> Any:
    """What `calibrate` stored beside the current run, or else where runs are usually kept."""
    from pathlib import Path

    from memory.benchmarking.model.files import read_run
    from memory.benchmarking.verdicts.noise import load_noise

    fingerprint = read_run(current).environment.fingerprint
    noise = load_noise(current.parent, fingerprint, "stored")
    if noise.calibrated:
        return noise
    return load_noise(Path(arguments.output_dir or DEFAULT_FOLDER), fingerprint, "stored")
