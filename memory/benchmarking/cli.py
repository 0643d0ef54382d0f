"""The command line: `membench`, `python -m memory.benchmarking.cli`, `python scripts/benchmark.py`.

A command imports what it needs when it runs, so that `--help` is fast.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from memory.benchmarking.commands import (
    ab,
    baseline,
    calibrate,
    check,
    compare,
    data,
    history,
    league,
    listing,
    results,
    run,
    selftest,
    site,
    targets,
    view,
)
from memory.benchmarking.errors import EXIT_FAILED, EXIT_INTERRUPTED
from memory.benchmarking.text.terminal import replace_unencodable
from memory.errors import AgentMemoryError

_COMMANDS = (
    run, league, check, ab, compare, baseline, history, calibrate, selftest, listing, targets, results,
    view, site, data,
)  # fmt: skip


class _Parser(argparse.ArgumentParser):
    """A parser that exits with 1 on bad input: argparse's 2 is the exit code of a regression here."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    """Return the parser of `membench` with all its commands."""
    from memory import __version__

    parser = _Parser(
        prog="membench",
        description="Measure agent memories: quality, latency, throughput, space, and what they promise.",
        epilog="Start with `membench run --profile quick`. `membench COMMAND --help` explains a command.",
    )
    parser.add_argument("--version", action="version", version=f"membench {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code. `argv` replaces the command line."""
    replace_unencodable(sys.stdout, sys.stderr)
    arguments = make_parser().parse_args(argv)
    arguments.command_line = list(sys.argv[1:] if argv is None else argv)
    try:
        code: int = arguments.execute(arguments)
        sys.stdout.flush()
    except AgentMemoryError as problem:
        print(f"membench: {problem}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        print("membench: stopped", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe. Redirect the rest, so that the flush at exit does not fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
