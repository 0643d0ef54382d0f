"""What a comparison says: a verdict for each metric, and the exit code that follows from all of them."""

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
"""What `--strict` does not let pass."""


class MetricVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """One metric of one case, before and now."""

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
    """The 95 % interval of the ratio; of the difference current − base on the scale of differences."""
    high: float | None = None
    p: float | None = None
    """Of the test against no change, after Holm's correction."""
    threshold: float | None = None
    floor: float | None = None
    """What an effect had to pass, the larger of threshold and noise: a share; points on differences."""
    detectable: float | None = None
    """The smallest effect that this comparison would have found, four times out of five."""
    verdict: Verdict | None = None
    """None for what is shown and never judged."""
    confirmed: bool | None = None
    """Whether it came again when it was measured again; None where it was not measured again."""
    reason: str = ""

    @property
    def name(self) -> str:
        return f"{self.category}.{self.benchmark}"

    @property
    def change(self) -> float | None:
        """How much more, as a share of the base; in points on the scale of differences."""
        if self.scale == "ratio":
            return None if self.ratio is None else self.ratio - 1
        return None if self.base is None or self.current is None else self.current - self.base


class Comparison(msgspec.Struct, kw_only=True):
    """Everything that comparing two sides said."""

    kind: Kind
    base: str
    current: str
    metrics: list[MetricVerdict]
    notes: list[str] = []
    environment_differences: list[str] = []
    comparable: bool = True
    """Whether the two environments may be compared, by themselves or because it was forced."""

    def of(self, *verdicts: Verdict) -> list[MetricVerdict]:
        return [each for each in self.metrics if each.verdict in verdicts]

    def exit_code(self, strict: bool = False) -> int:
        """2 for a regression, 3 where nothing may be compared, 4 (strict) where something is not decided.

        Where no metric stands on both sides, nothing was compared, which is a failure.
        """
        if not self.comparable:
            return EXIT_INCOMPARABLE
        if self.of("regressed"):
            return EXIT_REGRESSED
        if not self.of("improved", "unchanged", "inconclusive"):
            return EXIT_INCOMPARABLE if self.of("incomparable") else EXIT_FAILED
        if strict and self.of(*UNDECIDED):
            return EXIT_INCONCLUSIVE
        return EXIT_FINE

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


def decode(data: bytes) -> Comparison:
    try:
        return msgspec.json.decode(data, type=Comparison)
    except msgspec.MsgspecError as problem:
        raise DamagedResult(f"this is no comparison: {problem}") from problem
