"""`membench compare`: compare two stored runs and report whether the second is slower."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.files import DEFAULT_FOLDER

if TYPE_CHECKING:
    from memory.benchmarking.verdicts.records import Comparison
    from memory.benchmarking.verdicts.thresholds import Thresholds

_FORMAT_OF_ENDING = {".json": "json", ".md": "markdown", ".xml": "junit", ".txt": "table"}
_EXAMPLES = """examples:
  membench compare --last                              the newest run against the one before
  membench compare 1af3 0749                           two runs by their ids: base, then current
  membench compare --baseline main                     the newest run against a named baseline
  membench compare --current-dir results/current --baseline-dir results/baseline --threshold 0.1
  membench compare --last --output report.md --output report.xml

A DIR may be one run or a folder of runs; its newest run is used. If that run failed or is not
complete, nothing is compared: name the run to use.

exit codes: 0 nothing regressed
            1 bad input, nothing to compare, a damaged result, or a run that is not complete
            2 something regressed, or a metric of the base is missing (see --allow-missing)
            3 the environments or parameters differ
            4 something is undecided (only with --strict)"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "compare",
        help="compare two stored runs: did it get slower?",
        description="Compare two stored runs: did it get slower?",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    which = parser.add_argument_group("which runs")
    which.add_argument("runs", nargs="*", metavar="RUN", help="base, then current: run ids or folders")
    which.add_argument("--current-dir", metavar="DIR", help="folder of the current run")
    which.add_argument("--baseline-dir", metavar="DIR", help="folder of the base run")
    which.add_argument("--baseline", metavar="NAME", help="base: a baseline (see `membench baseline`)")
    which.add_argument("--last", action="store_true", help="compare the newest run with the one before")
    options.add_output_dir(which, default=None)
    judge = parser.add_argument_group("verdicts")
    judge.add_argument(
        "--threshold", type=float, metavar="X", help="smallest change that counts (default 0.1: 10 %%)"
    )
    judge.add_argument(
        "--config", metavar="FILE", help="take thresholds from its [compare] (default: $MEMBENCH_CONFIG)"
    )
    options.add_allow_missing(judge)
    judge.add_argument("--force", action="store_true", help="compare even if the environments differ")
    judge.add_argument("--strict", action="store_true", help="exit with 4 if a figure is undecided")
    options.add_comparison_output(parser.add_argument_group("output"))
    parser.set_defaults(execute=execute)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.verdicts.compare import compare_runs

    for file in arguments.output:
        format_of_file(file)
    base, current, notes = _runs(arguments)
    if base.resolve() == current.resolve():
        raise InvalidBenchmarkConfig(f"{base} is named for both sides: name two different runs")
    comparison = compare_runs(
        base,
        current,
        thresholds=_thresholds(arguments),
        noise=_noise(arguments, current),
        force=arguments.force,
        allow_missing=arguments.allow_missing,
    )
    comparison.notes[:0] = notes
    return deliver(comparison, arguments)


def deliver(comparison: Comparison, arguments: argparse.Namespace) -> int:
    """Print a comparison, write it to files, and give its exit code."""
    from memory.benchmarking.model.files import write_whole
    from memory.benchmarking.text.terminal import print_for_machines
    from memory.benchmarking.verdicts.formats import render

    def rendered(format: str, **screen: Any) -> str:
        return render(comparison, format, show_all=arguments.all, strict=arguments.strict, **screen)

    for file in arguments.output:
        write_whole(Path(file), rendered(format_of_file(file)).encode())
    format = "json" if arguments.json else arguments.format
    if format == "table":
        print(rendered(format, **_screen()), end="")
    else:
        print_for_machines(rendered(format))
    return comparison.exit_code(arguments.strict)


def format_of_file(file: str) -> str:
    """Return the format for the ending of a file's name."""

    ending = Path(file).suffix
    if ending not in _FORMAT_OF_ENDING:
        raise InvalidBenchmarkConfig(
            f"--output {file} has an unknown ending: use one of {', '.join(_FORMAT_OF_ENDING)}"
        )
    return _FORMAT_OF_ENDING[ending]


def _screen() -> dict[str, Any]:
    """Return the width and style of the terminal; nothing for a pipe: its lines stay whole and plain."""
    import shutil

    from memory.benchmarking.run.summary import Style

    if not sys.stdout.isatty():
        return {}
    return {"width": shutil.get_terminal_size().columns, "heading": Style(sys.stdout).bold}


def _runs(arguments: argparse.Namespace) -> tuple[Path, Path, list[str]]:
    """Return the folders of the base and current run, and notes on how they were chosen."""
    from memory.benchmarking.model.files import find_run
    from memory.benchmarking.verdicts.baselines import baseline_folder
    from memory.benchmarking.verdicts.runs import newest_run, two_newest

    output_dir = Path(arguments.output_dir or DEFAULT_FOLDER)
    runs: list[str] = list(arguments.runs)
    _check(arguments, runs)
    if arguments.last:
        return two_newest(output_dir)
    if arguments.baseline_dir is not None:
        base = newest_run(Path(arguments.baseline_dir))
    elif arguments.baseline is not None:
        base = baseline_folder(output_dir, arguments.baseline)
    else:
        base = find_run(output_dir, runs.pop(0))
    if runs:
        return base, find_run(output_dir, runs[0]), []
    return base, newest_run(Path(arguments.current_dir or output_dir)), []


def _check(arguments: argparse.Namespace, runs: list[str]) -> None:
    """Raise InvalidBenchmarkConfig unless each side is named in exactly one way."""
    named = {
        "--last": arguments.last,
        "--baseline-dir": arguments.baseline_dir is not None,
        "--baseline": arguments.baseline is not None,
    }
    ways = [way for way, given in named.items() if given]
    currents = len(runs) + (arguments.current_dir is not None)
    if len(ways) > 1:
        raise InvalidBenchmarkConfig(f"{' and '.join(ways)} both name the base: use one of them")
    if arguments.last and currents:
        raise InvalidBenchmarkConfig("--last compares the two newest runs: leave out the other runs")
    if ways and currents > 1:
        raise InvalidBenchmarkConfig(f"{ways[0]} names the base: name at most one other run")
    if not ways and (len(runs) != 2 if arguments.current_dir is None else len(runs) != 1):
        raise InvalidBenchmarkConfig(
            "name what to compare: two runs, --last, --baseline NAME, or --current-dir and --baseline-dir"
        )


def _thresholds(arguments: argparse.Namespace) -> Thresholds:
    from memory.benchmarking.config import BenchmarkConfig, read_table
    from memory.benchmarking.verdicts.thresholds import STORED_THRESHOLD, thresholds_from

    config = BenchmarkConfig()
    file = options.config_file(arguments)
    if file:
        # Read only the [compare] table of the file: the rest may name benchmarks that are not loaded here.
        config.compare = read_table(Path(file)).get("compare", {})
    return thresholds_from(config.compare, arguments.threshold, STORED_THRESHOLD)


def _noise(arguments: argparse.Namespace, current: Path) -> Any:
    """Return the noise that `calibrate` stored beside the current run, else in the output folder."""
    from memory.benchmarking.model.files import read_run
    from memory.benchmarking.verdicts.noise import load_noise

    fingerprint = read_run(current).environment.fingerprint
    noise = load_noise(current.parent, fingerprint, "stored")
    if noise.calibrated:
        return noise
    return load_noise(Path(arguments.output_dir or DEFAULT_FOLDER), fingerprint, "stored")
