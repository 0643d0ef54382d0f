"""`membench ab`: two versions measured in lockstep. Is the one slower than the other?"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import EXIT_FAILED, EXIT_REGRESSED, InvalidBenchmarkConfig

if TYPE_CHECKING:
    from memory.benchmarking.config import BenchmarkConfig
    from memory.benchmarking.lockstep.pair import Side
    from memory.benchmarking.lockstep.sequence import Subject
    from memory.benchmarking.lockstep.store import SavedComparison
    from memory.benchmarking.run.discovery import Found

_EXAMPLES = """examples:
  membench ab --base main                              that revision against the working tree
  membench ab --base HEAD~1 --category storage         the storage benchmarks only
  membench ab --base-target sqlite-baseline --current-target agentmemory
  membench ab --base-config old.json --current-config new.json
  membench ab --base-python venv-a/bin/python --current-python venv-b/bin/python
  membench ab --show latest --format markdown          the last comparison once more

exit codes: 0 nothing regressed, 2 something did, 4 not all is decided (--strict), 1 a side failed"""

FORMATS = ("table", "json", "markdown", "junit", "github")
DEFAULT_PROFILE = "quick"
"""A comparison of small sizes in pairs tells more than one of large sizes once."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ab",
        help="compare two versions in lockstep: is one slower?",
        description="Compare two versions in lockstep: fresh pairs of processes that take turns of a few "
        "milliseconds, so that what disturbs the machine disturbs both alike.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sides = parser.add_argument_group("the two sides (one of these ways)")
    sides.add_argument("--base", metavar="REVISION", help="of git; the current side is the working tree")
    for what, meta in (("target", "NAME"), ("config", "FILE"), ("python", "PATH")):
        for side in ("base", "current"):
            sides.add_argument(f"--{side}-{what}", metavar=meta)
    sides.add_argument(
        "--show", metavar="ID", help="a comparison made before, or 'latest'; measures nothing"
    )
    what = parser.add_argument_group("what to compare (default: everything)")
    what.add_argument("--category", action="append", default=[], metavar="NAME", help="may be repeated")
    what.add_argument("--benchmark", action="append", default=[], metavar="NAME", help="may be repeated")
    what.add_argument("--target", action="append", metavar="NAME", help="memory system; may be repeated")
    what.add_argument("--path", action="append", default=[], metavar="FILE", help="your own benchmarks")
    add_sizes(parser.add_argument_group("how"))
    judge = parser.add_argument_group("how to judge")
    judge.add_argument("--pairs", type=int, metavar="N", help="most pairs of a benchmark before confirming")
    judge.add_argument("--threshold", type=float, metavar="X", help="smallest change that matters (0.03)")
    judge.add_argument("--strict", action="store_true", help="exit with 4 where something is not decided")
    out = parser.add_argument_group("output")
    out.add_argument("--format", choices=FORMATS, default="table")
    out.add_argument("--json", action="store_true", help="the same as --format json")
    out.add_argument("--all", action="store_true", help="also what did not change or is not judged")
    out.add_argument(
        "--output",
        action="append",
        default=[],
        metavar="FILE",
        help="write it too, in the form of its ending: .md, .xml (JUnit), .json, .txt; may be repeated",
    )
    out.add_argument("--output-dir", metavar="DIR", help="where it is kept (default benchmark_results)")
    parser.set_defaults(execute=execute, rounds=None)


def add_sizes(how: Any) -> None:
    how.add_argument("--profile", metavar="NAME", help="quick (default), standard or full")
    how.add_argument("--config", metavar="FILE", help="JSON or TOML (default: $MEMBENCH_CONFIG)")
    how.add_argument("--params", metavar="JSON", help="parameters as JSON, or a file that holds it")
    how.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="storage.batch_sizes=10,100"
    )
    how.add_argument("--seed", metavar="N", help="of all data and orders (default 0)")
    how.add_argument("--timeout", metavar="SECONDS", help="after which a process is taken for hung")


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.compare import format_of
    from memory.benchmarking.lockstep.store import load

    for file in arguments.output:
        format_of(file)
    way = _way(arguments)
    if way == "show":
        return _report(arguments, load(_output_dir(arguments), arguments.show))
    return _report(arguments, _compare(arguments, way))


def _way(arguments: argparse.Namespace) -> str:
    """How the sides are given: show, base, target, config or python."""
    chosen = [name for name in ("show", "base") if getattr(arguments, name) is not None]
    for what in ("target", "config", "python"):
        given = [side for side in ("base", "current") if getattr(arguments, f"{side}_{what}") is not None]
        if len(given) == 1:
            other = "current" if given == ["base"] else "base"
            raise InvalidBenchmarkConfig(f"--{given[0]}-{what} needs a --{other}-{what} to compare it with")
        chosen += [what] if given else []
    if len(chosen) != 1:
        what = "nothing to compare is given" if not chosen else f"{' and '.join(chosen)} are both given"
        raise InvalidBenchmarkConfig(
            f"{what}: use --base REVISION, or two targets, two configurations or two Pythons"
        )
    return chosen[0]


def _compare(arguments: argparse.Namespace, way: str) -> SavedComparison:
    from memory.benchmarking.lockstep.engine import Engine
    from memory.benchmarking.lockstep.pair import Limits
    from memory.benchmarking.lockstep.scratch import scratch_below
    from memory.benchmarking.lockstep.sequence import FIRST_PAIRS, Measured, Rules
    from memory.benchmarking.lockstep.store import AB, SavedComparison, figures_of, new_id, save
    from memory.benchmarking.model.environment import describe
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.verdicts.noise import load_noise
    from memory.benchmarking.verdicts.records import Comparison
    from memory.benchmarking.verdicts.thresholds import LOCKSTEP_THRESHOLD, thresholds_from

    if arguments.pairs is not None and arguments.pairs < FIRST_PAIRS:
        raise InvalidBenchmarkConfig(f"--pairs is {arguments.pairs}: use at least {FIRST_PAIRS}")
    found = discover(arguments.path)
    config, sides, subjects, notes = _sides(arguments, way, found)
    output_dir = Path(config.output_dir)
    environment = describe(output_dir)
    rules = Rules(
        thresholds_from(config.compare, arguments.threshold, LOCKSTEP_THRESHOLD),
        load_noise(output_dir, environment.fingerprint, "lockstep"),
        arguments.pairs or FIRST_PAIRS,
    )
    started_at = datetime.now().astimezone().isoformat(timespec="seconds")
    start = time.perf_counter()
    measured: dict[str, Measured] = {}
    progress = PairProgress(len(subjects), rules.most_pairs)
    with scratch_below(output_dir / AB / ".scratch") as scratch:
        engine = Engine(
            sides,
            config.seed,
            timing_seconds(config),
            scratch,
            Limits(2 * config.timeout_seconds),  # each waits for the other half of the time
            on_pair=progress.pair,
        )
        try:
            metrics = engine.compare(subjects, rules, measured)
        finally:
            progress.close()
    record = SavedComparison(
        id=new_id(),
        command=shlex.join([Path(sys.argv[0]).name, *sys.argv[1:]]),
        started_at=started_at,
        seconds=round(time.perf_counter() - start, 3),
        profile=config.profile,
        seed=config.seed,
        timing_seconds=engine.seconds,
        environment=environment,
        comparison=Comparison(
            kind="lockstep", base=sides[0].name, current=sides[1].name, metrics=metrics, notes=notes
        ),
        failures=engine.failures,
        pairs=figures_of(measured),
    )
    path = save(output_dir, record, measured)
    print(f"saved: {path}", file=sys.stderr)
    return record


def default_to_quick(arguments: argparse.Namespace) -> None:
    """The profile, where neither an option nor a configuration names one."""
    if arguments.profile is None and not (arguments.config or os.environ.get("MEMBENCH_CONFIG")):
        arguments.profile = DEFAULT_PROFILE


def timing_seconds(config: BenchmarkConfig) -> float:
    """Of one timing in each process: what was asked for, else what a pair needs."""
    from memory.benchmarking.lockstep.engine import TIMING_SECONDS
    from memory.benchmarking.model.profiles import PROFILES

    asked_for = config.seconds != PROFILES[config.profile].seconds
    return config.seconds if asked_for else TIMING_SECONDS


def _sides(
    arguments: argparse.Namespace, way: str, found: Found
) -> tuple[BenchmarkConfig, tuple[Side, Side], list[Subject], list[str]]:
    """The settings, the two sides, what both run, and what there is to say about them."""
    from memory.benchmarking.commands.run import config_of
    from memory.benchmarking.lockstep.pair import Side
    from memory.benchmarking.lockstep.subjects import same_cases, two_configurations, two_targets

    default_to_quick(arguments)
    if way == "config":
        both = []
        for file in (arguments.base_config, arguments.current_config):
            arguments.config = file
            both.append(config_of(arguments, found))
        base, current = (cases_of(arguments, found, config) for config in both)
        names = (Path(arguments.base_config).name, Path(arguments.current_config).name)
        subjects = two_configurations(base, current)
        return both[1], (Side(names[0]), Side(names[1])), subjects, []
    config = config_of(arguments, found)
    if way == "base":
        return config, *_revision(arguments, cases_of(arguments, found, config))
    if way == "target":
        both_targets = (arguments.base_target, arguments.current_target)
        cases = []
        for target in both_targets:
            config.targets = [target]
            cases.append(cases_of(arguments, found, config))
        sides = (Side(both_targets[0]), Side(both_targets[1]))
        return config, sides, two_targets(*cases), []
    pythons = [_python(each) for each in (arguments.base_python, arguments.current_python)]
    sides = (Side(pythons[0], pythons[0], ()), Side(pythons[1], pythons[1], ()))
    return config, sides, same_cases(cases_of(arguments, found, config)), []


def cases_of(arguments: argparse.Namespace, found: Found, config: BenchmarkConfig) -> Any:
    """What the options choose."""
    from memory.benchmarking.commands.run import params_of
    from memory.benchmarking.run.plan import make_cases

    chosen = found.select(arguments.category, arguments.benchmark)
    return make_cases(chosen, config, params_of(arguments.params))


def _revision(
    arguments: argparse.Namespace, cases: Any
) -> tuple[tuple[Side, Side], list[Subject], list[str]]:
    from memory.benchmarking.lockstep.checkout import cache_folder, checkout
    from memory.benchmarking.lockstep.environments import interpreter_of
    from memory.benchmarking.lockstep.pair import Side
    from memory.benchmarking.lockstep.subjects import revision_side, revision_subjects

    cache = cache_folder()
    revision = checkout(arguments.base, Path.cwd(), cache)
    python = interpreter_of(revision, cache, lambda line: print(line, file=sys.stderr))
    subjects, notes = revision_subjects(cases, revision)
    base = revision_side(revision, python)
    named = Side(f"{arguments.base} ({base.name})", base.python, base.paths)
    return (named, Side("working tree")), subjects, notes


def _python(name: str) -> str:
    """The interpreter by its path, or by that of its environment."""
    import shutil

    inside = Path(name) / "bin" / "python"
    found = str(inside) if inside.exists() else shutil.which(name)
    if found is None:
        raise InvalidBenchmarkConfig(f"{name} is no Python: give the path of an interpreter or environment")
    return os.path.abspath(found)


def _output_dir(arguments: argparse.Namespace) -> Path:
    from memory.benchmarking.model.files import DEFAULT_FOLDER

    return Path(arguments.output_dir or DEFAULT_FOLDER)


def _report(arguments: argparse.Namespace, record: SavedComparison) -> int:
    from memory.benchmarking.commands.compare import deliver

    code = deliver(record.comparison, arguments)
    for message in record.failures.values():
        print(f"membench: not compared: {message}", file=sys.stderr)
    if record.failures and code != EXIT_REGRESSED:
        return EXIT_FAILED
    return code


class PairProgress:
    """One line on a terminal: which pair of which benchmark; nothing elsewhere."""

    def __init__(self, subjects: int, pairs: int) -> None:
        self._subjects = subjects
        self._pairs = pairs
        self._shown = False

    def pair(self, subject: Subject, number: int) -> None:
        if sys.stderr.isatty():
            what = f"pair {number + 1}" if number < self._pairs else "measuring again"
            print(f"\r\x1b[K{what}: {subject.case.name}", end="", file=sys.stderr, flush=True)
            self._shown = True

    def close(self) -> None:
        if self._shown:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
