"""`membench ab`: measure two versions in lockstep and report whether one is slower."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.commands import options
from memory.benchmarking.errors import EXIT_FAILED, EXIT_REGRESSED, InvalidBenchmarkConfig, LostWrites
from memory.benchmarking.model.files import DEFAULT_FOLDER

if TYPE_CHECKING:
    from memory.benchmarking.config import BenchmarkConfig
    from memory.benchmarking.lockstep.pair import Side
    from memory.benchmarking.lockstep.sequence import Subject
    from memory.benchmarking.lockstep.store import SavedComparison
    from memory.benchmarking.run.discovery import BenchmarkCatalog

_EXAMPLES = """examples:
  membench ab --base main                              the branch main against the working tree
  membench ab --base HEAD~1 --category storage         the storage benchmarks only
  membench ab --base-target sqlite-baseline --current-target agentmemory
  membench ab --base-config old.json --current-config new.json
  membench ab --base-python venv-a/bin/python --current-python venv-b/bin/python
  membench ab --show latest --format markdown          print the last comparison again

exit codes: 0 nothing regressed
            1 bad input, or a side failed
            2 something regressed, or a metric of the base is missing (see --allow-missing)
            4 something is undecided (only with --strict)"""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "ab",
        help="compare two versions of the code in lockstep: is one slower?",
        description="Compare two versions in lockstep. Two fresh processes, one for each version,\n"
        "take turns of a few milliseconds. What disturbs the machine then disturbs both alike.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    sides = parser.add_argument_group("the two sides (choose one of these ways)")
    sides.add_argument("--base", metavar="REVISION", help="git revision to compare the working tree with")
    for what, meta, text in (
        ("target", "NAME", "memory system"),
        ("config", "FILE", "configuration file"),
        ("python", "PATH", "Python interpreter"),
    ):
        for side in ("base", "current"):
            sides.add_argument(f"--{side}-{what}", metavar=meta, help=f"{text} of the {side} side")
    sides.add_argument("--show", metavar="ID", help="print a saved comparison, or 'latest', again")
    options.add_selection(parser, "what to compare (default: everything)")
    options.add_settings(parser.add_argument_group("settings"), "quick (default), standard or full")
    judge = parser.add_argument_group("verdicts")
    judge.add_argument("--pairs", type=int, metavar="N", help="most pairs a benchmark, before confirming")
    judge.add_argument(
        "--threshold", type=float, metavar="X", help="smallest change that counts (default 0.03: 3 %%)"
    )
    options.add_allow_missing(judge)
    judge.add_argument("--strict", action="store_true", help="exit with 4 if a figure is undecided")
    out = parser.add_argument_group("output")
    options.add_comparison_output(out)
    options.add_output_dir(out, default=None)
    parser.set_defaults(execute=execute, rounds=None)


def execute(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.commands.compare import format_of_file
    from memory.benchmarking.lockstep.store import load

    for file in arguments.output:
        format_of_file(file)
    way = _way(arguments)
    if way == "show":
        folder = Path(arguments.output_dir or DEFAULT_FOLDER)
        return _report(arguments, load(folder, arguments.show))
    return _report(arguments, _compare(arguments, way))


def _way(arguments: argparse.Namespace) -> str:
    """Return how the two sides are named: show, base, target, config or python."""
    chosen = [name for name in ("show", "base") if getattr(arguments, name) is not None]
    for what in ("target", "config", "python"):
        given = [side for side in ("base", "current") if getattr(arguments, f"{side}_{what}") is not None]
        if len(given) == 1:
            other = "current" if given == ["base"] else "base"
            raise InvalidBenchmarkConfig(f"--{given[0]}-{what} has no other side: add --{other}-{what}")
        chosen += [what] if given else []
    if len(chosen) != 1:
        what = f"{' and '.join(chosen)} are both given" if chosen else "nothing to compare is given"
        raise InvalidBenchmarkConfig(
            f"{what}: use --base REVISION, or name two targets, two configurations or two Pythons"
        )
    return chosen[0]


def _compare(arguments: argparse.Namespace, way: str) -> SavedComparison:
    from memory.benchmarking.lockstep.scratch import scratch_below
    from memory.benchmarking.lockstep.sequence import FIRST_PAIRS, Measured, Rules
    from memory.benchmarking.lockstep.store import AB, SavedComparison, figures_of, new_id, save
    from memory.benchmarking.model.environment import describe
    from memory.benchmarking.run.checking import lost_writes
    from memory.benchmarking.run.discovery import discover
    from memory.benchmarking.run.origins import target_info
    from memory.benchmarking.targets.embedders import embedder_label
    from memory.benchmarking.verdicts.noise import load_noise
    from memory.benchmarking.verdicts.records import Comparison
    from memory.benchmarking.verdicts.thresholds import LOCKSTEP_THRESHOLD, thresholds_from

    if arguments.pairs is not None and arguments.pairs < FIRST_PAIRS:
        raise InvalidBenchmarkConfig(f"--pairs is {arguments.pairs}: use at least {FIRST_PAIRS}")
    found = discover(arguments.path)
    config, sides, subjects, notes = _sides(arguments, way, found)
    infos = {} if way == "python" else {name: target_info(name) for name in _targets(subjects)}
    for problem in lost_writes(infos).values():
        raise LostWrites(problem)
    output_dir = Path(config.output_dir)
    environment = describe(output_dir, embedder=embedder_label(config.embedder))
    rules = Rules(
        thresholds_from(config.compare, arguments.threshold, LOCKSTEP_THRESHOLD),
        load_noise(output_dir, environment.fingerprint, "lockstep"),
        arguments.pairs or FIRST_PAIRS,
    )
    started_at = datetime.now().astimezone().isoformat(timespec="seconds")
    start = time.perf_counter()
    measured: dict[str, Measured] = {}

    def show_pair(subject: Subject, number: int) -> None:
        what = f"pair {number + 1}" if number < rules.most_pairs else "confirming"
        options.show_status(f"{what}: {subject.case.name}")

    with scratch_below(output_dir / AB / ".scratch") as scratch:
        engine = options.make_engine(config, sides, scratch)
        engine.on_pair = show_pair
        try:
            metrics = engine.compare(subjects, rules, measured)
        finally:
            options.show_status()
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
            kind="lockstep",
            base=sides[0].name,
            current=sides[1].name,
            metrics=metrics,
            problems=[f"not compared: {message}" for message in engine.failures.values()],
            notes=notes,
            between_targets=way == "target",
        ),
        failures=engine.failures,
        pairs=figures_of(measured),
        target_info=infos,
    )
    path = save(output_dir, record, measured)
    print(f"saved: {path}", file=sys.stderr)
    return record


def _sides(
    arguments: argparse.Namespace, way: str, found: BenchmarkCatalog
) -> tuple[BenchmarkConfig, tuple[Side, Side], list[Subject], list[str]]:
    """Return the settings, the two sides, what both sides run, and notes for the report."""
    from memory.benchmarking.lockstep.pair import Side
    from memory.benchmarking.lockstep.subjects import same_cases, two_configurations, two_targets

    options.default_to_quick(arguments)
    if way == "config":
        both = []
        for file in (arguments.base_config, arguments.current_config):
            arguments.config = file
            both.append(options.config_of(arguments, found))
        base, current = (options.cases_of(arguments, found, config) for config in both)
        names = (Path(arguments.base_config).name, Path(arguments.current_config).name)
        subjects = two_configurations(base, current)
        return both[1], (Side(names[0]), Side(names[1])), subjects, []
    config = options.config_of(arguments, found)
    if way == "base":
        _refuse_environments(config.targets)
        return config, *_revision(arguments, options.cases_of(arguments, found, config))
    if way == "target":
        both_targets = (arguments.base_target, arguments.current_target)
        cases = []
        for target in both_targets:
            config.targets = [target]
            cases.append(options.cases_of(arguments, found, config))
        sides = (Side(both_targets[0]), Side(both_targets[1]))
        return config, sides, two_targets(*cases), []
    pythons = [_python(each) for each in (arguments.base_python, arguments.current_python)]
    sides = (Side(pythons[0], pythons[0], ()), Side(pythons[1], pythons[1], ()))
    return config, sides, same_cases(options.cases_of(arguments, found, config, installed=False)), []


def _targets(subjects: Sequence[Subject]) -> list[str]:
    return list(dict.fromkeys(case.target for subject in subjects for case in subject.sides))


def _refuse_environments(targets: Sequence[str]) -> None:
    """Raise an error for a target whose environment has neither of the two revisions."""
    from memory.benchmarking.targets.interpreters import interpreter_of

    for target in targets:
        if interpreter_of(target).lock is not None:
            raise InvalidBenchmarkConfig(
                f"--base can't measure {target}, which has an environment of its own: "
                "compare two versions of it with --base-target and --current-target"
            )


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
    """Return the absolute path of an interpreter, named by its path or by its environment's folder."""
    import shutil

    inside = Path(name) / "bin" / "python"
    found = str(inside) if inside.exists() else shutil.which(name)
    if found is None:
        raise InvalidBenchmarkConfig(
            f"{name} is not a Python interpreter: name one, or the folder of an environment"
        )
    return os.path.abspath(found)


def _report(arguments: argparse.Namespace, record: SavedComparison) -> int:
    from memory.benchmarking.commands.compare import deliver
    from memory.benchmarking.verdicts.missing import allow

    allow(record.comparison, arguments.allow_missing)
    code = deliver(record.comparison, arguments)
    for message in record.failures.values():
        print(f"membench: not compared: {message}", file=sys.stderr)
    if record.failures and code != EXIT_REGRESSED:
        return EXIT_FAILED
    return code
