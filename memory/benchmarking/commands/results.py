"""`membench results`: what is on disk, as text, as a page, as files for other tools; and away with it."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import (
    EXIT_FAILED,
    EXIT_FINE,
    DamagedResult,
    InvalidBenchmarkConfig,
    UnknownName,
    nearest,
)
from memory.benchmarking.model.files import DEFAULT_FOLDER

if TYPE_CHECKING:
    from pathlib import Path

    from memory.benchmarking.model.files import ResultFile
    from memory.benchmarking.model.records import Run

FORMATS = ("csv", "parquet", "json", "pytest-benchmark", "bmf")
SHOWN_RUNS = 20
MOST_WARNINGS = 10


def add_parser(subparsers: Any) -> None:
    """Add `results` and its own commands."""
    results = subparsers.add_parser("results", help="list, show, compare, export, report or remove results")
    results.set_defaults(execute=execute)
    commands = results.add_subparsers(dest="results_command", required=True, metavar="COMMAND")

    def command(name: str, text: str, *, runs: str | None = None) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
        if runs:
            parser.add_argument(
                "refs",
                nargs="+" if name == "rm" else "*",
                metavar=runs,
                help="a run's id, a part of it, or 'latest'" + (", or a file" if "FILE" in runs else ""),
            )
        parser.add_argument(
            "--output-dir",
            default=DEFAULT_FOLDER,
            help=f"where the results are (default: {DEFAULT_FOLDER})",
        )
        return parser

    parser = command("list", "List the runs, the newest first. Files that are cut short are named.")
    parser.add_argument("--category", help="only results of this category")
    parser.add_argument("--benchmark", help="only results of this benchmark")
    parser.add_argument("--all", action="store_true", help=f"all runs, not only the newest {SHOWN_RUNS}")
    parser.add_argument("--json", action="store_true", help="all runs, for machines")

    parser = command(
        "show", "Show the figures of runs or files (default: the latest run).", runs="RUN|FILE"
    )
    parser.add_argument("--all-metrics", action="store_true", help="every figure with its interval")
    parser.add_argument("--metric", metavar="GLOB", help="figures whose name or path fits, as in 'p9*_ms'")
    parser.add_argument("--json", action="store_true", help="the records themselves, for machines")

    parser = command("export", "Write results for other tools (default: the latest run).", runs="RUN|FILE")
    parser.add_argument("--format", required=True, choices=FORMATS, help="pytest-benchmark has times only")
    parser.add_argument("--output", metavar="FILE", help="default: standard output; parquet needs a file")

    parser = command("report", "Write a page of results and print where it is.", runs="RUN")
    parser.add_argument("--category", help="only results of this category")
    parser.add_argument(
        "--baseline", metavar="NAME|RUN", help="a baseline or a run to show beside it, with verdicts"
    )
    parser.add_argument("--output", metavar="FILE", help="default: in the folder 'reports' of the results")

    parser = command(
        "compare-report",
        "Write a page with runs or targets side by side, differences first, and print where it is.",
    )
    parser.add_argument(
        "refs",
        nargs="+",
        metavar="RUN|BASELINE|TARGET",
        help="at least two; the first is compared with. RUN@TARGET is one target of a run",
    )
    parser.add_argument("--category", help="only results of this category")
    parser.add_argument("--output", metavar="FILE", help="default: in the folder 'reports' of the results")

    parser = command("rm", "Remove runs for good. Takes whole ids only.", runs="RUN")
    parser.add_argument("--yes", action="store_true", help="do not ask")


def execute(arguments: argparse.Namespace) -> int:
    """Run the command; the exit code."""
    command = {
        "list": _list,
        "show": _show,
        "export": _export,
        "report": _report,
        "compare-report": _compare_report,
        "rm": _remove,
    }
    return command[arguments.results_command](arguments)


def warn(problems: Sequence[object]) -> None:
    """Name damaged files where they don't disturb what is read by machines."""
    for problem in problems[:MOST_WARNINGS]:
        print(f"warning: left out: {problem}", file=sys.stderr)
    if len(problems) > MOST_WARNINGS:
        print(f"warning: and {len(problems) - MOST_WARNINGS} more damaged files", file=sys.stderr)


# -- list -------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    """Exit code 1 only if there are results and none of them can be read."""
    from memory.benchmarking.model.files import read_run, run_folders
    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.text.display import table

    manager = BenchmarkResults(arguments.output_dir)
    folder = manager.output_dir
    chosen = manager.list_results(arguments.category, arguments.benchmark)
    by_run: dict[str, list[ResultFile]] = {}
    for file in chosen:
        by_run.setdefault(file.run_id, []).append(file)
    by_hand = by_run.get("", [])
    filtered = arguments.category is not None or arguments.benchmark is not None
    folders = [each for each in run_folders(folder) if each.name in by_run or not filtered][::-1]
    if not folders and not by_hand:
        if filtered and manager.list_results():
            raise manager.nothing_of(arguments.category, arguments.benchmark)
        if arguments.json:
            _print_json({"runs": [], "by_hand": []})
        else:
            print(f"There are no results in {folder} yet. Make some: membench run --profile quick")
        return EXIT_FINE

    problems: list[DamagedResult] = [problem for file in chosen if (problem := cut_short(file)) is not None]
    shown = folders if arguments.all or arguments.json else folders[:SHOWN_RUNS]
    runs: list[tuple[Path, Run | None]] = []
    for each in shown:
        try:
            runs.append((each, read_run(each)))
        except (DamagedResult, UnknownName) as problem:
            problems.append(DamagedResult(str(problem)))
            runs.append((each, None))
    if arguments.json:
        _print_json(
            {
                "runs": [_run_json(path, run, by_run.get(path.name, [])) for path, run in runs],
                "by_hand": [_file_json(file) for file in by_hand],
            }
        )
    else:
        if runs:
            headers = ["run", "age", "status", "profile", "results", "targets", "revision"]
            lines = [_run_line(path, run, by_run.get(path.name, [])) for path, run in runs]
            print(table(lines, headers, width=_terminal_width()))
        if len(folders) > len(shown):
            print(f"… and {len(folders) - len(shown)} older runs (--all shows them)")
        if by_hand:
            print(f"saved by hand: {_by_category(by_hand)}, the last in {by_hand[-1]}")
    warn(problems)
    readable = len(chosen) > len(problems) or any(run is not None for _, run in runs)
    return EXIT_FINE if readable else EXIT_FAILED


def cut_short(file: ResultFile) -> DamagedResult | None:
    """Whether a file has no end, by its last bytes: quick enough for ten thousand of them.

    Other damage is found, and reported, when the file is read.
    """
    import os

    try:
        with open(file.path, "rb", buffering=0) as opened:
            opened.seek(-min(4, os.fstat(opened.fileno()).st_size), os.SEEK_END)
            if opened.read().rstrip().endswith(b"}"):
                return None
    except OSError as problem:
        return DamagedResult(f"{file.path} can't be read: {problem.strerror or problem}")
    return DamagedResult(f"{file.path} is cut short")


def _run_line(path: Path, run: Run | None, files: Sequence[ResultFile]) -> list[str]:
    from memory.benchmarking.text.display import NOTHING

    results = _by_category(files) or NOTHING
    if run is None:
        return [path.name, NOTHING, "damaged", NOTHING, results, NOTHING, NOTHING]
    status = f"{run.status}, {len(run.failures)} failed" if run.failures else run.status
    where = run.environment
    revision = where.git_revision[:7] + ("+" if where.git_dirty else "") if where.git_revision else NOTHING
    return [path.name, _age(run), status, run.profile, results, ", ".join(run.targets) or NOTHING, revision]


def _by_category(files: Iterable[ResultFile]) -> str:
    """`storage 3, retrieval 2`"""
    return ", ".join(f"{name} {count}" for name, count in Counter(file.category for file in files).items())


def _age(run: Run) -> str:
    from datetime import datetime

    from memory.benchmarking.report.run_facts import parse_time
    from memory.benchmarking.text.display import NOTHING

    start = parse_time(run.started_at)
    if start is None:
        return NOTHING
    seconds = (datetime.now(start.tzinfo) - start).total_seconds()
    for name, size in (("days", 2 * 86400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{int(seconds // (86400 if name == 'days' else size))} {name}"
    return "now"


def _run_json(path: Path, run: Run | None, files: Sequence[ResultFile]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "id": path.name,
        "folder": str(path),
        "results": [_file_json(file) for file in files],
    }
    if run is None:
        return found | {"status": "damaged"}
    return found | {
        "status": run.status,
        "started_at": run.started_at,
        "finished_at": run.finished_at,
        "profile": run.profile,
        "targets": run.targets,
        "failures": run.failures,
        "git_revision": run.environment.git_revision,
        "git_dirty": run.environment.git_dirty,
        "fingerprint": run.environment.fingerprint,
    }


def _file_json(file: ResultFile) -> dict[str, str]:
    return {
        "category": file.category,
        "benchmark": file.benchmark,
        "timestamp": file.timestamp,
        "file": str(file.path),
    }


def _print_json(record: object) -> None:
    from memory.benchmarking.model.files import encode_json
    from memory.benchmarking.text.terminal import print_for_machines

    print_for_machines(encode_json(record).decode())


def _terminal_width() -> int | None:
    """None where nobody looks: a pipe gets whole lines."""
    import shutil

    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


# -- the others -------------------------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.show import show

    return show(arguments)


def _export(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from memory.benchmarking.model.files import write_whole
    from memory.benchmarking.report.export import export
    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.text.terminal import print_for_machines

    if arguments.format == "parquet" and not arguments.output:
        raise InvalidBenchmarkConfig("parquet is no text: say where it goes with --output FILE")
    manager = BenchmarkResults(arguments.output_dir)
    loaded = manager.load_results(arguments.refs or ["latest"])
    runs = manager.runs_of(loaded)
    warn(manager.problems)
    data = export(loaded, arguments.format, runs)
    if arguments.output:
        write_whole(Path(arguments.output), data)
        print(arguments.output)
    else:
        print_for_machines(data.decode())
    return EXIT_FINE


def _report(arguments: argparse.Namespace) -> int:
    import warnings

    from memory.benchmarking.results import BenchmarkResults

    manager = BenchmarkResults(arguments.output_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the same problems are told below, without Python's own words
        path = manager.generate_report(
            arguments.category, arguments.refs or None, arguments.output, arguments.baseline
        )
    warn(manager.problems)
    print(path)
    return EXIT_FINE


def _compare_report(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.results import BenchmarkResults

    manager = BenchmarkResults(arguments.output_dir)
    path = manager.compare_report(arguments.refs, arguments.category, arguments.output)
    warn(manager.problems)
    print(path)
    return EXIT_FINE


def _remove(arguments: argparse.Namespace) -> int:
    from pathlib import Path

    from memory.benchmarking.model.files import RUN_FILE, remove_run, run_folders
    from memory.benchmarking.results import BenchmarkResults

    known = {
        folder.name: folder for folder in run_folders(BenchmarkResults(arguments.output_dir).output_dir)
    }
    folders: dict[str, Path] = {}
    for ref in arguments.refs:
        # A part of an id, good enough to look at a run, is not good enough to remove one.
        if ref in known:
            folders[ref] = known[ref]
        elif (Path(ref) / RUN_FILE).is_file():
            folders[ref] = Path(ref)
        else:
            hint = nearest(ref, known) if len(known) <= 10 else "`membench results list` shows the ids"
            raise UnknownName(f"there is no run {ref!r} in {arguments.output_dir}: {hint}")
    if not arguments.yes and not _agreed(folders):
        return EXIT_FAILED
    for ref, folder in folders.items():
        remove_run(folder)
        print(f"removed {ref}")
    return EXIT_FINE


def _agreed(folders: Iterable[str]) -> bool:
    names = ", ".join(folders)
    if not sys.stdin.isatty():
        raise InvalidBenchmarkConfig(f"nobody is here to ask whether to remove {names}: add --yes")
    if input(f"Remove {names} for good? [y/N] ").strip().lower() in ("y", "yes"):
        return True
    print("Nothing was removed.")
    return False
