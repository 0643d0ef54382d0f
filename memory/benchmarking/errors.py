"""Every error that the benchmark raises on purpose, and the exit codes of its commands.

An error is one line for the user: what is wrong, with its value, and what to do about it.

    AgentMemoryError
    └── BenchmarkError
        ├── InvalidBenchmarkConfig, InvalidResult, DamagedResult    also a ValueError
        ├── UnknownName                                             also a LookupError
        ├── ResultNotSaved                                          also an OSError
        ├── MissingDependency                                       also an ImportError
        └── BrokenBenchmark, NothingMeasured, NotSupported, LostWrites, SideFailed (lockstep/pair.py)
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from memory.errors import AgentMemoryError

EXIT_FINE = 0
EXIT_FAILED = 1
"""Bad input, a round that failed, or nothing measured."""
EXIT_REGRESSED = 2
EXIT_BROKEN = 2
"""A target breaks a promise (`membench targets check`)."""
EXIT_INCOMPARABLE = 3
EXIT_INCONCLUSIVE = 4
EXIT_INTERRUPTED = 130


class BenchmarkError(AgentMemoryError):
    """Base class of all errors of the benchmark. Its text is one line that a terminal can show."""

    def __str__(self) -> str:
        # A message may quote any file name; its control characters must not move the cursor or set colours.
        return "".join(letter if letter.isprintable() else "�" for letter in super().__str__())


class InvalidBenchmarkConfig(BenchmarkError, ValueError):
    """A setting or parameter is invalid; nothing was run."""


class UnknownName(BenchmarkError, LookupError):
    """There is no category, benchmark, target, profile or run of this name."""


class BrokenBenchmark(BenchmarkError):
    """A benchmark or target can't be loaded, or is not one."""


class InvalidResult(BenchmarkError, ValueError):
    """A value that a benchmark returned can't be recorded."""


class NothingMeasured(BenchmarkError):
    """No figure was measured; this never counts as success."""


class DamagedResult(BenchmarkError, ValueError):
    """A result file is truncated, damaged or of another kind; it was not changed."""


class ResultNotSaved(BenchmarkError, OSError):
    """The results can't be written."""


class MissingDependency(BenchmarkError, ImportError):
    """An optional library is not installed."""


class LostWrites(BenchmarkError):
    """A target acknowledged memories that it can't return; its figures would mean nothing."""


class NotSupported(BenchmarkError):
    """The target can't do this; the benchmark reports `n/a` with this text."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of an error line: the most similar known name, or all known names."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def needs(package: str, extra: str, what: str) -> MissingDependency:
    """Return the error for a package that is not installed; `what` needs it, `extra` installs it."""
    return MissingDependency(f"{what} needs {package}: pip install 'agentmemory-tiers[{extra}]'")
