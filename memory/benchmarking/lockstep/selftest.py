"""The gate against itself: comparisons whose right answer is known, and how often it was given.

One side is the untouched target, the other the same target with real extra work in its read path (or
none: identical code). What the gate says is put beside what the usual rule says on the same processes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory.benchmarking.lockstep.pair import Pair, Side
from memory.benchmarking.lockstep.sequence import Measured, Subject
from memory.benchmarking.measure.statistics import CONFIDENCE
from memory.benchmarking.model.paths import join
from memory.benchmarking.verdicts.records import MetricVerdict

USUAL_THRESHOLD = 0.10


def slowed_sides(target: str, share: float) -> tuple[Side, Side]:
    """The target as it is, and with so much more work in every read."""
    return (
        Side("as it is", options={"target": target, "extra_work": 0.0}),
        Side(f"{100 * share:.0f} % more work", options={"target": target, "extra_work": share}),
    )


@dataclass(frozen=True)
class Share:
    """How often something happened, with the interval of Clopper and Pearson."""

    times: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import binomtest

        found = binomtest(self.times, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(found.low), float(found.high)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        low, high = self.interval
        return f"{self.times} of {self.of} ({100 * low:.0f} to {100 * high:.0f} %)"


def found_by_gate(verdicts: Iterable[MetricVerdict]) -> bool:
    """Whether anything was called regressed."""
    return any(each.verdict == "regressed" for each in verdicts)


def found_by_usual_rule(subjects: Sequence[Subject], measured: dict[str, Measured]) -> bool:
    """Whether some timing's mean is more than 10 % above that of the base: one process before, one after.

    The two come from neighbouring pairs, because whoever uses that rule does not measure in turns.
    """
    for subject in subjects:
        pairs = measured[subject.case.key].first
        if len(pairs) > 1 and any(
            ratio > 1 + USUAL_THRESHOLD for ratio in _mean_ratios(pairs[0], pairs[1])
        ):
            return True
    return False


def _mean_ratios(earlier: Pair, later: Pair) -> Iterable[float]:
    for path in earlier.base.samples:
        mean = join(path, "mean_ms")
        before, now = earlier.base.figures.get(mean), later.current.figures.get(mean)
        if before and now:
            yield now / before
