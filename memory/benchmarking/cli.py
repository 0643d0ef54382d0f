"""The command line: `membench`, `python -m memory.benchmarking.cli`, `python scripts/benchmark.py`.

Only what a command needs is loaded, and only when it runs: `--help` answers at once.
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
    compare,
    data,
    history,
    listing,
    results,
    run,
    selftest,
    view,
)
from memory.benchmarking.errors import EXIT_FAILED, EXIT_INTERRUPTED
from memory.benchmarking.text.terminal import replace_unencodable
from memory.errors import AgentMemoryError

_COMMANDS = (run, ab, compare, baseline, history, calibrate, selftest, listing, results, view, data)


class _Parser(argparse.ArgumentParser):
    """argparse ends with 2 on bad input, which is the exit code of a regression here."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_FAILED, f"{self.prog}: {message}; see {self.prog} --help\n")


def make_parser() -> argparse.ArgumentParser:
    from memory import __version__

    parser = _Parser(
        prog="membench",
        description="Measure agent memories: quality, latency, throughput, footprint, durability.",
        epilog="`membench run --profile quick` is a good start; `membench COMMAND --help` says more.",
    )
    parser.add_argument("--version", action="version", version=f"membench {__version__}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for command in _COMMANDS:
        command.add_parser(subparsers)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code."""
    replace_unencodable(sys.stdout, sys.stderr)
    arguments = make_parser().parse_args(argv)
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
        # Whoever read our output has enough; what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_FAILED
    return code


if __name__ == "__main__":
    sys.exit(main())
