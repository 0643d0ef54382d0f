"""The command `agentmemory`: work on a whole memory from the terminal.

Exit codes: 0 done, 1 failed with one line that says why, 2 wrong arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

_PLACE = "a file, or a URL postgresql://user@host/database?schema=name"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the exit code."""
    parser = argparse.ArgumentParser(prog="agentmemory", description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    move = commands.add_parser(
        "move",
        help="copy a memory from a file to a PostgreSQL server, or back",
        description="Copy all memories of SRC to DST, count them, and compare the copy with the source. "
        "SRC is not changed. DST must be empty; an interrupted move continues. Set the password in "
        "PGPASSWORD or in ~/.pgpass, not in the URL: other users of the machine can see arguments.",
    )
    move.add_argument("source", metavar="SRC", help=_PLACE)
    move.add_argument("target", metavar="DST", help=_PLACE)
    move.add_argument("--quiet", action="store_true", help="show no progress")
    options = parser.parse_args(arguments)
    return _move(options.source, options.target, quiet=options.quiet)


def _move(source: str, target: str, *, quiet: bool) -> int:
    from memory._transfer.moving import move_memory
    from memory.config import MemoryConfig
    from memory.errors import AgentMemoryError
    from memory.storage import open_store

    def progress(done: int, total: int) -> None:
        if not quiet:
            print(f"\r{done:,} of {max(done, total):,} memories", end="", file=sys.stderr, flush=True)

    try:
        reading = MemoryConfig(url=source, read_only=True)
        writing = MemoryConfig(url=target)
        for config in (reading, writing):
            config.validate()
        original = open_store(reading)
        try:
            copy = open_store(writing)
            try:
                report = move_memory(original, copy, progress)
            finally:
                copy.close()
        finally:
            original.close()
    except AgentMemoryError as problem:
        print(f"\nagentmemory: {problem}" if not quiet else f"agentmemory: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nagentmemory: interrupted; the same command continues the move", file=sys.stderr)
        return 130
    if not quiet:
        print(file=sys.stderr)
    print(
        f"{report.memories:,} memories of {report.agents:,} agents are in {writing.shown_place}, compared "
        f"with {reading.shown_place}; {report.new:,} were new, {report.read_counts:,} read counts copied. "
        "The source is unchanged."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
