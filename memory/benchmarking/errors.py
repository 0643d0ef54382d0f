"""Every error the benchmark raises on purpose, and the exit codes of its commands.

An error is one line for the user: what was wrong, with its value, and what to do about it.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from memory.errors import AgentMemoryError

EXIT_FINE = 0
EXIT_FAILED = 1
"""Bad input, a round that failed, or nothing that was measured."""
EXIT_REGRESSED = 2
EXIT_INCOMPARABLE = 3
EXIT_INCONCLUSIVE = 4
EXIT_INTERRUPTED = 130


class BenchmarkError(AgentMemoryError):
    """Base of all errors of the benchmark."""


class InvalidBenchmarkConfig(BenchmarkError, ValueError):
    """A key, a value or a parameter that can't work; nothing was run."""


class UnknownName(BenchmarkError, LookupError):
    """A category, benchmark, target, profile or run that does not exist."""


class BrokenBenchmark(BenchmarkError):
    """A module of benchmarks that can't be loaded, or a function that is not a benchmark."""


class InvalidResult(BenchmarkError, ValueError):
    """What a benchmark returned can't be recorded."""


class NothingMeasured(BenchmarkError):
    """There is no figure to report: never a success."""


class DamagedResult(BenchmarkError, ValueError):
    """A file of results that is cut short, changed or not one of ours; it was not touched."""


class ResultNotSaved(BenchmarkError, OSError):
    """The results can't be written where they should go."""


class MissingDependency(BenchmarkError, ImportError):
    """A library of an optional part is not installed."""


class NotSupported(BenchmarkError):
    """What the target can't do; the benchmark reports it as `n/a` with this text."""


def nearest(name: str, known: Iterable[str]) -> str:
    """The end of an error line: the likeliest name, or all of them."""
    names = sorted(set(known))
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(names)}" if names else "there are none"


def needs(package: str, extra: str, what: str) -> MissingDependency:
    return MissingDependency(f"{what} needs {package}: pip install 'agentmemory-tiers[{extra}]'")
