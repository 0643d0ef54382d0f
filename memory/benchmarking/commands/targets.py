"""`membench targets`: list the memory systems, install them, check what they promise."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import (
    EXIT_BROKEN,
    EXIT_FAILED,
    EXIT_FINE,
    BenchmarkError,
    UnknownName,
    nearest,
)

if TYPE_CHECKING:
    from memory.benchmarking.conformance.records import Outcome, Report
    from memory.benchmarking.targets.base import Capabilities, Target

_EXAMPLES = """examples:
  membench targets                                     all systems: state, version, what they can't do
  membench targets install chroma mem0@1.0.0           an environment for each
  membench targets check my_target.py:MyTarget         does it keep what a target promises?
  membench targets remove mem0@1.0.0

exit codes: 0 done
            1 bad input, or a target that can't be installed, checked or removed
            2 check: a promise is broken
            130 stopped by Ctrl-C

MEMBENCH_TARGETS sets the folder of the environments (default: your cache folder)."""

_CAN_NOT = {
    "search": "search",
    "get": "get by id",
    "exact": "return contents unchanged",
    "update": "update",
    "persistence": "keep memories after close",
    "threads": "be used by several threads",
    "processes": "be opened by several processes",
    "vector_queries": "search by a vector",
}
"""By capability: what a system without it can't do. Tiers, transitions and codecs are rare, so not here."""


def add_parser(subparsers: Any) -> None:
    parser = subparsers.add_parser(
        "targets",
        help="list, install, check or remove the memory systems to measure",
        description="List the memory systems that can be measured, install them, and check them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(execute=_list)
    commands = parser.add_subparsers(dest="targets_command", metavar="COMMAND")
    names = "a name, NAME@VERSION or file.py:Class"
    text = "build an environment for each target"
    installing = commands.add_parser("install", help=text, description=f"{text.capitalize()}.")
    installing.add_argument("targets", nargs="+", metavar="TARGET", help=names)
    text = "build it again, with the newest versions that fit"
    installing.add_argument("--upgrade", action="store_true", help=text)
    installing.set_defaults(execute=_install)
    text = "delete the environments of targets"
    removing = commands.add_parser("remove", help=text, description=f"{text.capitalize()}.")
    removing.add_argument("targets", nargs="+", metavar="TARGET", help=names)
    removing.set_defaults(execute=_remove)
    text = "test whether targets keep what targets/base.py promises"
    checking = commands.add_parser("check", help=text, description=f"{text.capitalize()}.")
    checking.add_argument("targets", nargs="+", metavar="TARGET", help=names)
    # Without SUPPRESS, the default here would overwrite `membench targets --json check`.
    checking.add_argument("--json", action="store_true", default=argparse.SUPPRESS, help="print JSON")
    checking.set_defaults(execute=_check)


# -- list -------------------------------------------------------------------------------------


@dataclass
class _Row:
    """One line of the list."""

    target: str
    state: str
    """installed, here, built in, not installed, can't run, or broken."""
    version: str = ""
    reason: str = ""
    """Why it can't run or be loaded."""
    durability: str = ""
    search_by: str | None = None
    can_not: list[str] = field(default_factory=list)
    limits: str = ""
    conformance: str = ""
    install: str = ""
    """The command that installs it, if it is not installed."""
    environment: dict[str, Any] | None = None
    capabilities: dict[str, Any] = field(default_factory=dict)


def _list(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.targets.environments import delete_all_leftovers, targets_folder

    delete_all_leftovers()
    rows = list(_rows())
    if arguments.json:
        document = {"folder": str(targets_folder()), "targets": [asdict(row) for row in rows]}
        print(json.dumps(document, indent=1))
    else:
        _print(rows)
        print(f"\nenvironments: {targets_folder()}\ninstall one: membench targets install NAME")
    return EXIT_FINE


def _rows() -> Iterator[_Row]:
    from memory.benchmarking.targets import target_names
    from memory.benchmarking.targets.environments import environments
    from memory.benchmarking.targets.not_runnable import NOT_RUNNABLE

    names = target_names()
    built = [lock.target for lock in environments() if lock.target not in names]
    for name in [*sorted({*names, *(each for each in built if ":" not in each)}), *filter(_is_file, built)]:
        yield _row(name)
    for name, reason in sorted(NOT_RUNNABLE.items()):
        if name not in names:
            yield _Row(name, "can't run", reason=reason)


def _is_file(text: str) -> bool:
    return ":" in text


def _row(name: str) -> _Row:
    from memory.benchmarking.run.origins import target_info
    from memory.benchmarking.targets import load_target
    from memory.benchmarking.targets.building import as_document
    from memory.benchmarking.targets.environments import find_environment
    from memory.benchmarking.targets.interpreters import version_here

    try:
        kind = load_target(name)
    except BenchmarkError as problem:
        return _Row(name, "broken", reason=str(problem))
    row = _Row(
        name,
        "not installed",
        durability=str(kind.capabilities.durability),
        search_by=kind.capabilities.search_by,
        can_not=list(_can_not(kind.capabilities)),
        limits=kind.limits,
        capabilities=asdict(kind.capabilities),
    )
    lock, here = find_environment(name), version_here(kind)
    if lock is not None:
        row.state, row.version, row.environment = "installed", lock.version, as_document(lock)
    elif here is not None:
        row.state, row.version = ("here" if here else "built in" if _is_ours(kind) else "here"), here
    else:
        row.install = f"membench targets install {name}"
        return row
    row.conformance = target_info(name).conformance
    return row


def _is_ours(kind: type[Target]) -> bool:
    return kind.__module__.startswith("memory.")


def _can_not(capabilities: Capabilities) -> Iterator[str]:
    for name, words in _CAN_NOT.items():
        if not getattr(capabilities, name) and (name != "vector_queries" or capabilities.search):
            yield words
    if capabilities.max_k is not None:
        yield f"return more than {capabilities.max_k:,} hits"
    if capabilities.delayed_search:
        yield "find a new memory before flush"


def _print(rows: list[_Row]) -> None:
    from memory.benchmarking.run.summary import Style
    from memory.benchmarking.text.display import NOTHING, clean, paragraph, table_rows
    from memory.benchmarking.text.terminal import terminal_width

    style, width = Style(sys.stdout), terminal_width(sys.stdout)
    cells = [
        (
            row.target,
            f"{row.state} {row.version}".strip(),
            row.durability or NOTHING,
            row.search_by or NOTHING,
            row.conformance or NOTHING,
        )
        for row in rows
    ]
    headers = ("target", "state", "durability", "searches by", "conformance")
    head, *lines = table_rows(cells, headers, width=width, wrap=True)
    print(style.bold(head))
    for row, line in zip(rows, lines, strict=True):
        print(line)
        about = [row.reason] if row.reason else []
        about += [f"can't {', '.join(row.can_not)}"] if row.can_not else []
        about += [row.limits.rstrip(".")] if row.limits else []
        if about:
            print(style.dim(paragraph(clean("; ".join(about)), width, "    ")))


# -- install and remove -----------------------------------------------------------------------


def _install(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.targets.building import install
    from memory.benchmarking.text.display import clean

    def report(line: str) -> None:
        print(clean(line), file=sys.stderr, flush=True)

    code = EXIT_FINE
    for text in dict.fromkeys(arguments.targets):
        try:
            lock, is_new = install(text, upgrade=arguments.upgrade, report=report)
        except BenchmarkError as problem:
            print(f"membench: {problem}", file=sys.stderr)
            code = EXIT_FAILED
            continue
        what = "installed" if is_new else "already installed (--upgrade builds it again)"
        name = lock.system or next(iter(lock.npm_packages), "")
        packages = len(lock.packages) + len(lock.npm_packages)
        print(clean(f"{lock.target}: {name} {lock.version} {what}, {packages} packages in {lock.path}"))
    return code


def _remove(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.targets.environments import environments, remove_environment
    from memory.benchmarking.text.display import clean

    code = EXIT_FINE
    for text in dict.fromkeys(arguments.targets):

        def waits(text: str = text) -> None:
            line = f"{text}: waiting for another membench that installs or uses it"
            print(clean(line), file=sys.stderr, flush=True)

        try:
            if remove_environment(text, waits) is None:
                known = nearest(text, [lock.target for lock in environments()])
                raise UnknownName(f"{text} has no environment: {known}")
        except BenchmarkError as problem:
            print(f"membench: {problem}", file=sys.stderr)
            code = EXIT_FAILED
            continue
        print(clean(f"{text}: removed"))
    return code


# -- check ------------------------------------------------------------------------------------


def _check(arguments: argparse.Namespace) -> int:
    from memory.benchmarking.run.checking import check_target

    code = EXIT_FINE
    reports: list[Report] = []
    for text in dict.fromkeys(arguments.targets):
        if not arguments.json:
            print(("\n" if reports else "") + text)
        try:
            report = check_target(text, (lambda outcome: None) if arguments.json else _Printer().print)
        except BenchmarkError as problem:
            print(f"membench: {problem}", file=sys.stderr)
            code = EXIT_FAILED
            continue
        reports.append(report)
        if not arguments.json:
            _print_count(report)
        if report.count("broken") and code != EXIT_FAILED:
            code = EXIT_BROKEN
    if arguments.json:
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(reports), indent=1).decode())
    return code


class _Printer:
    """Prints the outcomes of one target; a fault that breaks several promises is described once."""

    def __init__(self) -> None:
        self._described: set[tuple[str, str, str]] = set()
        """Method, place and what came."""

    def print(self, outcome: Outcome) -> None:
        from memory.benchmarking.run.summary import Style
        from memory.benchmarking.text.display import clean

        style = Style(sys.stdout)
        words = {"kept": "kept", "broken": style.red("BROKEN"), "does not apply": style.dim("n/a   ")}
        line = f"  {words[outcome.state]:6}  {clean(outcome.promise)}"
        fault = (outcome.method, outcome.place, outcome.came)
        is_known = outcome.state == "broken" and fault in self._described
        if outcome.state == "does not apply":
            line += style.dim(clean(f": {outcome.reason}"))
        elif is_known:
            line += style.dim(clean(f": as above, {outcome.method or 'the process'}"))
        print(line, flush=True)
        if outcome.state == "broken" and not is_known:
            self._described.add(fault)
            if outcome.method:
                print(clean(f"            method    {outcome.method} ({outcome.place})"))
            print(clean(f"            expected  {outcome.expected}"))
            print(clean(f"            came      {outcome.came}"), flush=True)


def _print_count(report: Report) -> None:
    kept, broken, other = (report.count(state) for state in ("kept", "broken", "does not apply"))
    print(f"{kept} kept, {broken} broken, {other} do not apply")
