"""A check, and how it ended."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from memory.benchmarking.promises.trial import Trial
    from memory.benchmarking.targets.base import Capabilities

Status = Literal["kept", "broken", "not promised", "not tried"]
"""How a check ended.

- kept: the promise held in every trial.
- broken: it did not. So does a check that hangs or crashes.
- not promised: the target does not claim it. What was measured is reported all the same.
- not tried: this machine lacks what the check needs, such as strace.
"""

Figures = Mapping[str, float]


@dataclass(frozen=True)
class Outcome:
    """How a check ended, with what it saw."""

    status: Status
    evidence: str
    """One sentence with the numbers behind the status."""
    figures: Figures = field(default_factory=dict)
    code: str = ""
    """The shortest code that shows the failure; empty if the promise was kept."""


def judge(
    kept: bool,
    evidence: str,
    figures: Figures | None = None,
    code: tuple[str, ...] | list[str] = (),
) -> Outcome:
    """Return "kept" or "broken"; the suite turns both into "not promised" where that is so.

    Args:
        kept: whether every trial went well.
        evidence: one sentence with the numbers.
        figures: the same numbers by name.
        code: the lines that show the failure.
    """
    status: Status = "kept" if kept else "broken"
    return Outcome(status, evidence, figures or {}, "" if kept else "\n".join(code))


def not_promised(reason: str) -> Outcome:
    return Outcome("not promised", reason)


def not_tried(reason: str) -> Outcome:
    return Outcome("not tried", reason)


Run = Callable[["Trial"], Outcome]
Promised = Callable[["Capabilities"], bool]


@dataclass(frozen=True)
class Check:
    """One way to try a promise."""

    promise: str
    """The promise in a user's words, such as "a delete is final"."""
    name: str
    question: str
    """What the check finds out: the first line of the function's docstring."""
    run: Run
    seconds: Mapping[str, float]
    """The limit by profile, in seconds of CPU time. A check that needs more counts as hung."""
    promised: Promised
    """Whether a target with these capabilities claims the promise."""


_DEFAULT_SECONDS = {"quick": 120.0, "standard": 300.0, "full": 1200.0}
"""CPU seconds. More than the slowest targets need (Hindsight, mem0): only an endless loop takes so long."""
CHECKS: dict[str, Check] = {}
"""All checks by name, in the order of their modules."""
_promises: list[str] = []


@contextmanager
def promise(words: str) -> Iterator[None]:
    """Name the promise of the checks that are defined inside the `with` block."""
    _promises.append(words)
    try:
        yield
    finally:
        _promises.pop()


def check(
    seconds: Mapping[str, float] | None = None, *, promised: Promised = lambda capabilities: True
) -> Callable[[Run], Run]:
    """Add a function to the suite; its name is the check's name.

    Args:
        seconds: the limits in CPU seconds that differ from the default ones.
        promised: which targets claim the promise. The check runs for the others too, and what it measured
            is reported as "not promised".
    """

    def add(function: Run) -> Run:
        name = function.__name__
        question = (function.__doc__ or "").strip().splitlines()[0]
        assert name not in CHECKS, f"two checks are called {name}"
        CHECKS[name] = Check(
            _promises[-1], name, question, function, {**_DEFAULT_SECONDS, **(seconds or {})}, promised
        )
        return function

    return add
