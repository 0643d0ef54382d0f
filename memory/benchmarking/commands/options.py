"""The command-line options that several commands share, and the settings that follow from them."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.files import DEFAULT_FOLDER

if TYPE_CHECKING:
    from memory.benchmarking.config import BenchmarkConfig
    from memory.benchmarking.lockstep.engine import Engine
    from memory.benchmarking.lockstep.pair import Side
    from memory.benchmarking.model.records import Case
    from memory.benchmarking.run.discovery import BenchmarkCatalog

COMPARISON_FORMATS = ("table", "json", "markdown", "junit", "github")
"""The formats that `compare` and `ab` print."""


def add_selection(parser: argparse.ArgumentParser, title: str = "what to run (default: everything)") -> Any:
    """Add the options that choose benchmarks and targets; return their group."""
    group = parser.add_argument_group(title)
    for option, what in (
        ("--category", "run only this category of benchmarks"),
        ("--benchmark", "run only this benchmark: read_latency, or storage.read_latency"),
        ("--target", "memory system to measure (see `membench list`)"),
    ):
        default: list[str] | None = None if option == "--target" else []
        group.add_argument(
            option, action="append", default=default, metavar="NAME", help=f"{what}; may be repeated"
        )
    add_path(group)
    return group


def add_path(group: Any) -> None:
    """Add `--path`, for a user's own benchmarks."""
    group.add_argument(
        "--path", action="append", default=[], metavar="FILE", help="also load your benchmarks from FILE"
    )


def add_settings(group: Any, profiles: str) -> None:
    """Add the options for sizes, seed and time limit. `profiles` lists the profiles for the help text."""
    group.add_argument("--profile", metavar="NAME", help=f"sizes to measure: {profiles}")
    group.add_argument("--config", metavar="FILE", help="JSON or TOML settings (default: $MEMBENCH_CONFIG)")
    group.add_argument("--params", metavar="JSON", help="parameters, as JSON text or a JSON or TOML file")
    example = "one setting, as in storage.batch_sizes=10,100; may be repeated"
    group.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help=example)
    group.add_argument("--seed", metavar="N", help="seed for the data and the order of rounds (default 0)")
    group.add_argument("--timeout", metavar="SECONDS", help="stop a process that takes longer")
    text = "of all targets: a name, file.py:Class, or a server as http://…/v1#MODEL (default: wordllama)"
    group.add_argument("--embedder", metavar="EMBEDDER", help=text)


def add_output_dir(parser: Any, default: str | None = DEFAULT_FOLDER) -> None:
    """Add `--output-dir`, also called `--results-dir`. A default of None lets the configuration decide."""
    text = f"folder with the results (default: {DEFAULT_FOLDER})"
    parser.add_argument("--output-dir", "--results-dir", default=default, metavar="DIR", help=text)


def add_allow_missing(group: Any) -> None:
    """Add `--allow-missing`: what the current side may lack."""
    group.add_argument(
        "--allow-missing",
        action="append",
        default=[],
        metavar="PATTERN",
        help="benchmark or metric that was removed on purpose (storage.*, '*/p50_ms'); may be repeated",
    )


def add_comparison_output(group: Any) -> None:
    """Add the options that say how a comparison is printed and where else it is written."""
    group.add_argument("--format", choices=COMPARISON_FORMATS, default="table", help="default: table")
    group.add_argument("--json", action="store_true", help="short for --format json")
    group.add_argument("--all", action="store_true", help="also list unchanged and unjudged figures")
    text = "also write FILE, as .md, .xml (JUnit), .json or .txt, by its ending; may be repeated"
    group.add_argument("--output", action="append", default=[], metavar="FILE", help=text)


def default_to_quick(arguments: argparse.Namespace) -> None:
    """Choose the quick profile, unless an option or a configuration file names one.

    For comparisons: many pairs of small runs show more than one pair of large ones.
    """
    if arguments.profile is None and not config_file(arguments):
        arguments.profile = "quick"


def config_file(arguments: argparse.Namespace) -> str | None:
    """Return the configuration file: `--config`, else `MEMBENCH_CONFIG`, else None."""
    return arguments.config or os.environ.get("MEMBENCH_CONFIG")


def config_of(arguments: argparse.Namespace, found: BenchmarkCatalog) -> BenchmarkConfig:
    """Return the settings: the configuration file's or the profile's, changed by the options."""
    from memory.benchmarking.config import BenchmarkConfig, read_table
    from memory.benchmarking.model.profiles import DEFAULT_PROFILE

    file = config_file(arguments)
    named = {assignment.partition("=")[0].partition(".")[0].strip() for assignment in arguments.set}
    if file and found.problems:
        named.update(read_table(Path(file)))
    for category, problem in found.problems.items():
        if category in named:
            raise problem  # otherwise the error would be "unknown setting", which hides the cause
    if file:
        config = BenchmarkConfig.load(file, profile=arguments.profile, benchmarks=found.benchmarks)
    else:
        config = BenchmarkConfig(arguments.profile or DEFAULT_PROFILE)
        for benchmark in found.benchmarks:
            config.add_benchmark(benchmark)
    for assignment in arguments.set:
        config.set_text(assignment)
    for name, value in (
        ("rounds", arguments.rounds),
        ("seed", arguments.seed),
        ("timeout_seconds", arguments.timeout),
    ):
        if value is not None:
            config.set_text(f"{name}={value}")
    if arguments.output_dir:
        config.output_dir = arguments.output_dir
    if arguments.target:
        config.targets = arguments.target
    if arguments.embedder is not None:
        config.embedder = arguments.embedder
    return config


def params_of(text: str | None) -> dict[str, Any]:
    """Parse `--params`: JSON text, or the name of a JSON or TOML file."""
    if text is None:
        return {}
    if not text.lstrip().startswith("{"):
        from memory.benchmarking.config import read_table

        return read_table(Path(text))
    try:
        values: dict[str, Any] = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise InvalidBenchmarkConfig(f"--params is not JSON: {problem}") from None
    return values


def cases_of(
    arguments: argparse.Namespace,
    found: BenchmarkCatalog,
    config: BenchmarkConfig,
    *,
    installed: bool = True,
) -> list[Case]:
    """Return the cases that the options choose. `installed`: whether the targets have to be installed."""
    from memory.benchmarking.run.plan import make_cases

    chosen = found.select(arguments.category, arguments.benchmark)
    return make_cases(chosen, config, params_of(arguments.params), installed=installed)


def make_engine(
    config: BenchmarkConfig, sides: tuple[Side, Side], scratch: Path, seed: int | None = None
) -> Engine:
    """Return an engine that measures pairs of processes with these settings. `seed` replaces the config's.

    A process measures for `config.seconds` if that was set, else for as long as a pair needs.
    """
    from memory.benchmarking.lockstep.engine import TIMING_SECONDS, Engine
    from memory.benchmarking.lockstep.pair import Limits
    from memory.benchmarking.model.profiles import PROFILES

    was_set = config.seconds != PROFILES[config.profile].seconds
    seconds = config.seconds if was_set else TIMING_SECONDS
    limits = Limits(2 * config.timeout_seconds)  # a process waits half of its time for the other one
    chosen = config.seed if seed is None else seed
    return Engine(sides, chosen, seconds, scratch, limits, embedder=config.embedder)


def show_status(text: str = "") -> None:
    """Replace the status line on standard error; do nothing if it is not a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)


def check_minutes(minutes: float | None) -> None:
    """Raise InvalidBenchmarkConfig unless `--minutes` is positive and finite."""
    if minutes is not None and not 0 < minutes < float("inf"):
        raise InvalidBenchmarkConfig(f"--minutes is {minutes}: use a number > 0")
