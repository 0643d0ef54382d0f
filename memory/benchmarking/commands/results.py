"""`membench results`: list, show, report, export, bundle, verify and delete the results on disk."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import bundles
from memory.benchmarking.commands.options import add_output_dir
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
    from memory.benchmarking.model.files import ResultFile
    from memory.benchmarking.model.records import Run

EXPORT_FORMATS = ("csv", "parquet", "json", "pytest-benchmark", "bmf")
"""The keys of `export.WRITERS`, repeated here because `--help` must not import that module."""
SHOWN_RUNS = 20
"""The most runs that `results list` shows without `--all`."""
MOST_WARNINGS = 10
"""The most damaged files that are named; the others are only counted."""


def add_parser(subparsers: Any) -> None:
    """Add `results` and its subcommands."""
    results = subparsers.add_parser(
        "results", help="list, show, report, compare, export, bundle, verify or delete results"
    )
    results.set_defaults(execute=execute)
    commands = results.add_subparsers(dest="results_command", required=True, metavar="COMMAND")

    def command(
        name: str, text: str, *, runs: str | None = None, folder: bool = True
    ) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
        if runs:
            also = ", or a file" if "FILE" in runs else ""
            parser.add_argument(
                "refs", nargs="*", metavar=runs, help=f"a run's id, a part of it, or 'latest'{also}"
            )
        if folder:
            add_output_dir(parser)
        return parser

    parser = command("list", "List the runs, newest first. Warns about files that are cut short.")
    parser.add_argument("--category", metavar="NAME", help="only results of this category")
    parser.add_argument("--benchmark", metavar="NAME", help="only results of this benchmark")
    parser.add_argument("--all", action="store_true", help=f"all runs, not only the last {SHOWN_RUNS}")
    parser.add_argument("--json", action="store_true", help="print all runs as JSON")

    parser = command(
        "show", "Show the figures of runs or files (default: the latest run).", runs="RUN|FILE"
    )
    parser.add_argument("--all-metrics", action="store_true", help="list every figure with its interval")
    parser.add_argument("--metric", metavar="GLOB", help="only figures that match, as in 'p9*_ms'")
    parser.add_argument("--json", action="store_true", help="print the stored records as JSON")

    parser = command("export", "Export results for other tools (default: the latest run).", runs="RUN|FILE")
    parser.add_argument("--format", required=True, choices=EXPORT_FORMATS)
    parser.add_argument("--output", metavar="FILE", help="default: standard output; parquet needs FILE")

    parser = command(
        "report",
        "Write a report as an HTML page and print its path (default: the latest run).",
        runs="RUN",
        folder=False,
    )
    add_report_folders(parser)
    parser.add_argument("--category", metavar="NAME", help="only results of this category")
    parser.add_argument("--benchmark", metavar="NAME", help="only results of this benchmark")
    parser.add_argument(
        "--baseline",
        metavar="NAME|RUN",
        help="compare with this baseline or run, figure by figure",
    )
    parser.add_argument("--output", metavar="FILE", help="default: in the folder 'reports' of the results")

    parser = command(
        "compare-report",
        "Write an HTML page that compares runs or targets, and print its path.",
    )
    parser.add_argument(
        "refs",
        nargs="+",
        metavar="RUN|BASELINE|TARGET",
        help="at least two; all others are compared with the first. RUN@TARGET is one target of a run",
    )
    parser.add_argument("--category", metavar="NAME", help="only results of this category")
    parser.add_argument("--output", metavar="FILE", help="default: in the folder 'reports' of the results")

    bundles.add_parsers(command)

    parser = command("rm", "Delete runs.")
    parser.add_argument("refs", nargs="+", metavar="RUN", help="a run's whole id, or its folder")
    parser.add_argument("--yes", action="store_true", help="do not ask for confirmation")


def add_report_folders(parser: argparse.ArgumentParser) -> None:
    """Add `--output-dir` and `--results-dir`.

    If both are given, the results are in `--results-dir`, and the page is written to `--output-dir`.
    """
    parser.add_argument(
        "--output-dir",
        metavar="DIR",
        help=f"folder with the results (default: {DEFAULT_FOLDER}); with --results-dir, that of the page",
    )
    parser.add_argument("--results-dir", metavar="DIR", help="folder with the results")


def execute(arguments: argparse.Namespace) -> int:
    """Run the subcommand and return its exit code."""
    command = {
        "list": _list,
        "show": _show,
        "export": _export,
        "report": _report,
        "compare-report": _compare_report,
        "bundle": bundles.bundle,
        "verify": bundles.verify,
        "schema": bundles.schema,
        "rm": _delete,
    }
    return command[arguments.results_command](arguments)


def warn(problems: Sequence[object]) -> None:
    """Print warnings about damaged files to standard error."""
    for problem in problems[:MOST_WARNINGS]:
        print(f"warning: left out: {problem}", file=sys.stderr)
    if len(problems) > MOST_WARNINGS:
        print(f"warning: and {len(problems) - MOST_WARNINGS} more damaged files", file=sys.stderr)


# -- list -------------------------------------------------------------------------------------


def _list(arguments: argparse.Namespace) -> int:
    """List the runs. The exit code is 1 only if there are results and none can be read."""
    from memory.benchmarking.model.files import read_run, run_folders
    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.text.display import clean
    from memory.benchmarking.text.terminal import terminal_width

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
            print(
                clean(f"There are no results in {folder} yet. Measure some: membench run --profile quick")
            )
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
            lines = [_run_line(path, run, by_run.get(path.name, [])) for path, run in runs]
            print(_table_of_runs(lines, terminal_width(sys.stdout)))
        if len(folders) > len(shown):
            print(f"… and {len(folders) - len(shown)} older runs (--all shows them)")
        if by_hand:
            print(clean(f"saved by hand: {_by_category(by_hand)}, the last in {by_hand[-1]}"))
    warn(problems)
    readable = len(chosen) > len(problems) or any(run is not None for _, run in runs)
    return EXIT_FINE if readable else EXIT_FAILED


def cut_short(file: ResultFile) -> DamagedResult | None:
    """Return an error if a file does not end like JSON.

    This function reads only the last bytes, so that thousands of files take little time. Other damage is
    reported when the whole file is read.
    """
    import os

    from memory.benchmarking.model.regular_files import open_regular

    try:
        with open(open_regular(file.path), "rb", buffering=0) as opened:
            opened.seek(-min(4, os.fstat(opened.fileno()).st_size), os.SEEK_END)
            if opened.read().rstrip().endswith(b"}"):
                return None
    except OSError as problem:
        return DamagedResult(f"{file.path} can't be read: {problem.strerror or problem}")
    return DamagedResult(f"{file.path} is cut short")


def _table_of_runs(lines: Sequence[Sequence[str]], width: int | None) -> str:
    """Return a line for each run, or several where one would be too wide: words are never cut."""
    from memory.benchmarking.text.display import clean, paragraph, table, table_rows, text_width

    headers = ("run", "age", "status", "profile", "results", "targets", "revision")
    whole = table(lines, headers)
    if width is None or max(map(text_width, whole.splitlines())) <= width:
        return whole
    short = [(*line[:4], line[6]) for line in lines]
    head, *rows = table_rows(short, (*headers[:4], headers[6]), width=width, wrap=True)
    details = [paragraph(clean(f"{line[4]} on {line[5]}"), width, "    ") for line in lines]
    return "\n".join([head, *(f"{row}\n{more}" for row, more in zip(rows, details, strict=True))])


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
    """Return the number of results in each category: `storage 3, retrieval 2`."""
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


# -- show, export, report, rm -----------------------------------------------------------------


def _show(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.show import show

    return show(arguments)


def _export(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.files import write_whole
    from memory.benchmarking.report.export import export
    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.text.terminal import print_for_machines

    if arguments.format == "parquet" and not arguments.output:
        raise InvalidBenchmarkConfig("parquet can't be printed: add --output FILE")
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

    manager = BenchmarkResults(arguments.results_dir or arguments.output_dir)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # `warn` prints the same problems below
        path = manager.generate_report(
            arguments.category,
            arguments.refs or None,
            arguments.output,
            arguments.baseline,
            benchmark_name=arguments.benchmark,
            output_dir=arguments.output_dir if arguments.results_dir else None,
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


def _delete(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.model.files import RUN_FILE, delete_run, run_folders
    from memory.benchmarking.results import BenchmarkResults
    from memory.benchmarking.text.display import clean

    known = {
        folder.name: folder for folder in run_folders(BenchmarkResults(arguments.output_dir).output_dir)
    }
    folders: dict[str, Path] = {}
    for ref in arguments.refs:
        # Deleting needs the whole id: a part of one may match another run than the user meant.
        if ref in known:
            folders[ref] = known[ref]
        elif (Path(ref) / RUN_FILE).is_file():
            folders[ref] = Path(ref)
        else:
            hint = nearest(ref, known) if len(known) <= 10 else "`membench results list` shows the ids"
            raise UnknownName(f"there is no run {ref!r} in {arguments.output_dir}: {hint}")
    if not arguments.yes and not _confirmed(folders):
        return EXIT_FAILED
    for ref, folder in folders.items():
        delete_run(folder)
        print(clean(f"deleted {ref}"))
    return EXIT_FINE


def _confirmed(folders: Iterable[str]) -> bool:
    from memory.benchmarking.text.display import clean

    names = ", ".join(folders)
    if not sys.stdin.isatty():
        raise InvalidBenchmarkConfig(f"no terminal to ask on: add --yes to delete {names}")
    if input(f"Delete {clean(names)}? This can't be undone. [y/N] ").strip().lower() in ("y", "yes"):
        return True
    print("Nothing was deleted.")
    return False
