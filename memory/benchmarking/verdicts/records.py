"""The outcome of a comparison: a verdict for each metric, and the exit code that follows from them."""

from __future__ import annotations

from typing import Literal

import msgspec

from memory.benchmarking.errors import (
    EXIT_FAILED,
    EXIT_FINE,
    EXIT_INCOMPARABLE,
    EXIT_INCONCLUSIVE,
    EXIT_REGRESSED,
    DamagedResult,
)
from memory.benchmarking.metrics import Better

Verdict = Literal["regressed", "improved", "unchanged", "inconclusive", "new", "missing", "incomparable"]
Kind = Literal["stored", "lockstep"]
Scale = Literal["ratio", "difference"]
"""Times, rates and sizes change by a factor; recall, F1 and other shares by points."""

UNDECIDED: tuple[Verdict, ...] = ("inconclusive", "missing", "incomparable")
"""The verdicts that leave open whether a metric regressed."""


class MetricVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case, on both sides."""

    category: str
    benchmark: str
    target: str
    path: str
    unit: str
    better: Better
    base: float | None = None
    current: float | None = None
    scale: Scale = "ratio"
    ratio: float | None = None
    """Current ÷ base."""
    low: float | None = None
    """`low` and `high`: the 95 % interval of the ratio, or of the difference current − base."""
    high: float | None = None
    p: float | None = None
    """The p-value of the test against no change, after Holm's correction."""
    threshold: float | None = None
    floor: float | None = None
    """The effect must exceed this: the larger of threshold and noise, as a share or in points."""
    detectable: float | None = None
    """The smallest effect that this comparison finds with a chance of 80 %."""
    verdict: Verdict | None = None
    """None for a metric that is shown but not judged."""
    confirmed: bool | None = None
    """Whether a second measurement found the change again; None if there was no second measurement."""
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.category}.{self.benchmark}"

    @property
    def change(self) -> float | None:
        """The change as a share of the base; in points on the scale of differences."""
        if self.scale == "ratio":
            return None if self.ratio is None else self.ratio - 1
        return None if self.base is None or self.current is None else self.current - self.base

    @property
    def ratio_interval(self) -> tuple[float, float] | None:
        """The interval of current ÷ base on either scale; None where there is none."""
        if self.low is None or self.high is None or self.scale == "ratio":
            return None if self.low is None or self.high is None else (self.low, self.high)
        if not self.base or self.base < 0:
            return None
        return max(0.0, 1 + self.low / self.base), 1 + self.high / self.base


class QuestionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A question with more, or fewer, relevant passages among its first five than before."""

    category: str
    benchmark: str
    target: str
    place: str
    """The data set and the system: `synthetic/target`."""
    collection: str
    """The conversation or set of documents."""
    kind: str
    """The question's category: fact, update, time."""
    text: str
    before: list[int]
    """The ranks of its relevant passages in the base; 0 for not found."""
    now: list[int]
    change: float
    """The change of the question's recall at 5; negative is worse."""


class Comparison(msgspec.Struct, kw_only=True):
    """All verdicts on two sides, and the notes on them."""

    kind: Kind
    base: str
    current: str
    metrics: list[MetricVerdict]
    problems: list[str] = []
    """Why the comparison can't be trusted: damaged files, sides that failed or are not complete."""
    questions: list[QuestionChange] = []
    """The questions that changed sides, the worst first."""
    notes: list[str] = []
    environment_differences: list[str] = []
    target_differences: list[str] = []
    """Different versions and durability classes of the targets. These are shown and never an error."""
    comparable: bool = True
    """Whether the environments are the same, or the comparison was forced."""

    between_targets: bool = False
    """Whether two systems are compared. Then a metric that only one system has is not a loss."""

    def of(self, *verdicts: Verdict) -> list[MetricVerdict]:
        """Return the metrics with one of these verdicts."""
        return [each for each in self.metrics if each.verdict in verdicts]

    def fails(self, each: MetricVerdict, strict: bool = False) -> bool:
        """Return whether a metric alone makes the comparison fail."""
        if each.verdict == "missing":
            return not self.between_targets
        return each.verdict in ("regressed", "incomparable") or (strict and each.verdict == "inconclusive")

    def exit_code(self, strict: bool = False) -> int:
        """Return the exit code of `compare` and `ab`. docs/compare.md has the table.

        The first that applies: 3 for different environments, 2 for a regression, 1 for a side that can't
        be trusted or has no metric in common, 2 for a metric of the base that is gone, 3 for one that can't
        be compared, 4 (only if `strict`) for one that is undecided.
        """
        if not self.comparable:
            return EXIT_INCOMPARABLE
        if self.of("regressed"):
            return EXIT_REGRESSED
        if self.problems:
            return EXIT_FAILED
        if not self.of("improved", "unchanged", "inconclusive"):
            return EXIT_INCOMPARABLE if self.of("incomparable") else EXIT_FAILED
        if self.of("missing") and not self.between_targets:
            return EXIT_REGRESSED
        if self.of("incomparable"):
            return EXIT_INCOMPARABLE
        if strict and self.of("inconclusive"):
            return EXIT_INCONCLUSIVE
        return EXIT_FINE


def decode(data: bytes) -> Comparison:
    try:
        return msgspec.json.decode(data, type=Comparison)
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"this is not a comparison: {problem}") from problem
