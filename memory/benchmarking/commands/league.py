"""`membench league`: measure many systems with one suite, and write the page that compares them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import (
    EXIT_FAILED,
    EXIT_FINE,
    EXIT_INTERRUPTED,
    InvalidBenchmarkConfig,
    UnknownName,
)

if TYPE_CHECKING:
    from memory.benchmarking.league.model import League
    from memory.benchmarking.model.records import Case
    from memory.benchmarking.runner import BenchmarkRunner, FinishedRun

_EPILOG = """examples:
  membench league --profile quick                    all targets that are installed, minutes for each
  membench league --target agentmemory --target chroma --target mem0
  membench league --data locomo --data my_data.json  also on these data sets
  membench league --resume                           continue a league that was stopped or killed
  membench league --show latest --output league.html the page again, without measuring
  membench league --show run.zip                     ... of a bundle

Targets take turns, so that a slow hour of the machine hits all of them. A target that fails costs only
itself, and is shown with the reason.

exit codes: 0 the league is complete, also if some targets failed at something, 1 nothing was measured or
bad input, 130 stopped by Ctrl-C"""

_NOT_WITH_OTHERS = ("target", "data", "profile", "rounds", "seed", "embedder", "dry_run")
"""Options that can't change where a run exists already."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "league",
        help="measure many memory systems with one suite, and find out which fits whom",
        description="Measure many memory systems with one suite; print a table and write a page.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    what = parser.add_argument_group("what to measure")
    text = "memory system (default: all that are installed); may be repeated"
    what.add_argument("--target", action="append", default=None, metavar="NAME", help=text)
    text = "data set for the quality: a name, a file or a folder (default: synthetic and those downloaded)"
    what.add_argument("--data", action="append", default=None, metavar="NAME", help=text)
    text = "continue a league that was stopped (default: the latest)"
    what.add_argument("--resume", nargs="?", const="latest", metavar="RUN", help=text)
    text = "measure nothing; show a run or a bundle (may be repeated, for runs of one machine)"
    what.add_argument("--show", action="append", default=None, metavar="RUN|FILE", help=text)
    how = parser.add_argument_group("settings")
    how.add_argument("--profile", metavar="NAME", help="quick, standard (default) or full")
    how.add_argument("--rounds", metavar="N", help="run each benchmark in N fresh processes")
    how.add_argument("--seed", metavar="N", help="seed for the data and the order of rounds (default 0)")
    text = "of all targets: a name, file.py:Class, or a server as http://…/v1#MODEL (default: wordllama)"
    how.add_argument("--embedder", metavar="EMBEDDER", help=text)
    how.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="as in `membench run`")
    out = parser.add_argument_group("output")
    options.add_output_dir(out, default=None)
    out.add_argument("--output", metavar="FILE", help="the page (default: league.html in the run's folder)")
    out.add_argument("--csv", metavar="FILE", help="also write the table as CSV")
    out.add_argument("--json", metavar="FILE", help="also write everything as JSON")
    out.add_argument("--markdown", metavar="FILE", help="also write it as Markdown, for a document")
    out.add_argument("--dry-run", action="store_true", help="list what would run; run nothing")
    parser.set_defaults(execute=execute, config=None, path=[], params=None, timeout=None)


def execute(arguments: argparse.Namespace) -> int:
    _check(arguments)
    if arguments.show is not None:
        return _show(arguments)
    runner = _runner(arguments)
    if arguments.resume is not None:
        return _finish(arguments, _measure(arguments, runner, None))
    cases = _cases(arguments, runner)
    if arguments.dry_run:
        for case in cases:
            print(f"{case.name} on {case.target}")
        print(f"{len(cases)} cases, {len(runner.config.targets)} targets; nothing was run")
        return EXIT_FINE
    return _finish(arguments, _measure(arguments, runner, cases))


def _check(arguments: argparse.Namespace) -> None:
    for option in ("resume", "show"):
        if getattr(arguments, option) is None:
            continue
        given = [name for name in _NOT_WITH_OTHERS if getattr(arguments, name)]
        if given:
            raise InvalidBenchmarkConfig(
                f"--{given[0].replace('_', '-')} can't be used with --{option}: the run has its options"
            )
    if arguments.resume is not None and arguments.show is not None:
        raise InvalidBenchmarkConfig("--resume measures and --show does not: use one of them")


def _runner(arguments: argparse.Namespace) -> BenchmarkRunner:
    from memory.benchmarking.league.suite import (
        ROUNDS,
        SUITE,
        TIMEOUTS,
        data_sets_at_hand,
        installed_targets,
    )
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.run.origins import command_to_repeat
    from memory.benchmarking.runner import BenchmarkRunner

    catalog = discover([])
    if arguments.target is None and arguments.resume is None:
        arguments.target = list(installed_targets())
    config = options.config_of(arguments, catalog)
    if arguments.rounds is None:
        config.rounds = ROUNDS[config.profile]
    config.timeout_seconds = TIMEOUTS[config.profile]
    config.category("quality").set("data_sets", arguments.data or data_sets_at_hand(), "retrieval_quality")
    runner = BenchmarkRunner(config, catalog=catalog)
    runner.command = command_to_repeat(arguments.command_line)
    runner.suite = SUITE
    return runner


def _cases(arguments: argparse.Namespace, runner: BenchmarkRunner) -> list[Case]:
    from memory.benchmarking.league.suite import parts_of

    config = runner.config
    known = [benchmark.full_name for benchmark in runner.found.benchmarks]
    given = {assignment.partition("=")[0].strip() for assignment in arguments.set}
    cases: list[Case] = []
    for part in parts_of(config.profile, known):
        category, name = part.benchmark.split(".")
        params = {
            key: value
            for key, value in part.params.get(config.profile, {}).items()
            if not given & {f"{category}.{key}", f"{category}.{name}.{key}"}
        }
        cases += runner.plan([], [part.benchmark], params)
    return cases


def _measure(
    arguments: argparse.Namespace, runner: BenchmarkRunner, cases: list[Case] | None
) -> FinishedRun:
    from memory.benchmarking.run.previous_runs import Estimator
    from memory.benchmarking.run.progress import make_progress

    config = runner.config
    listener = make_progress(Estimator(Path(config.output_dir), config.profile))
    runner.listener = listener
    try:
        if cases is not None:
            return runner.run_cases(cases)
        return runner.resume(_run_to_resume(Path(config.output_dir), arguments.resume))
    finally:
        listener.close()


def _run_to_resume(output_dir: Path, name: str) -> str:
    """Return the id of the league to continue: `latest` is the latest league that is not complete."""
    from memory.benchmarking.league.suite import SUITE
    from memory.benchmarking.model.files import find_run, read_run, run_folders

    if name != "latest":
        folder = find_run(output_dir, name)
        if read_run(folder).suite != SUITE:
            raise InvalidBenchmarkConfig(f"run {folder.name} is not a league: use `membench run --resume`")
        return folder.name
    for folder in reversed(run_folders(output_dir)):
        run = read_run(folder)
        if run.suite == SUITE and run.status != "complete":
            return run.id
    raise UnknownName(f"there is no league to continue in {output_dir}: start one with `membench league`")


def _finish(arguments: argparse.Namespace, finished: FinishedRun) -> int:
    page = Path(arguments.output) if arguments.output else finished.folder / "league.html"
    _write(arguments, [(finished.folder, finished.run)], page)
    place = f" --output-dir {finished.folder.parent}" if arguments.output_dir else ""
    if finished.interrupted and finished.run.status == "interrupted":
        again = f"membench league --resume {finished.run.id}{place}"
        print(f"interrupted: what was measured is saved; continue with: {again}", file=sys.stderr)
        return EXIT_INTERRUPTED
    if finished.run.failures:
        failed = {failure.case for failure in finished.run.failures}
        again = f"membench league --resume {finished.run.id}{place}"
        print(
            f"{len(failed)} cases failed (the page says why); try them again with: {again}", file=sys.stderr
        )
    print(f"publish it: membench results bundle {finished.run.id}{place} -o league.zip", file=sys.stderr)
    return EXIT_FINE


def _show(arguments: argparse.Namespace) -> int:
    import tempfile

    from memory.benchmarking.league.sources import sources_of

    with tempfile.TemporaryDirectory(prefix="membench-league-") as scratch:
        sources = sources_of(
            arguments.show, Path(arguments.output_dir or "benchmark_results"), Path(scratch)
        )
        _write(arguments, sources, Path(arguments.output or "league.html"))
    return EXIT_FINE if sources else EXIT_FAILED


def _markdown(league: League) -> bytes:
    from memory.benchmarking.league.markdown import as_markdown

    return as_markdown(league).encode()


def _write(arguments: argparse.Namespace, sources: Any, page: Path) -> None:
    from memory.benchmarking.league.export import as_csv, as_json
    from memory.benchmarking.league.gather import league_of
    from memory.benchmarking.league.page import league_page
    from memory.benchmarking.league.text import league_text
    from memory.benchmarking.model.files import write_whole
    from memory.benchmarking.text.terminal import terminal_width

    league = league_of(sources)
    print(league_text(league, terminal_width(sys.stdout)))
    write_whole(page, league_page(league).encode("utf-8", "replace"))
    for path, data in ((arguments.csv, as_csv), (arguments.json, as_json), (arguments.markdown, _markdown)):
        if path:
            write_whole(Path(path), data(league))
    print(f"\npage: {page}")
