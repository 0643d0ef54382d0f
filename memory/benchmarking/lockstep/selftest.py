"""Trials of `membench selftest`: comparisons whose right verdict is known, and how often it was given.

One side is the unchanged target. The other is the same target with real extra work in its read path, or
with none: identical code. The verdicts of `membench ab` are counted beside those of the usual rule, on
the same processes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from memory.benchmarking.lockstep.engine import Engine
from memory.benchmarking.lockstep.pair import Side, SideFailed
from memory.benchmarking.lockstep.sequence import Measured, Rules, Subject
from memory.benchmarking.measure.statistics import CONFIDENCE
from memory.benchmarking.model.paths import join

EXTRA_WORK = (0.0, 0.05, 0.10, 0.20)
"""Extra work in the read path, as a share of its time; 0 is identical code."""
USUAL_THRESHOLD = 0.10


@dataclass(frozen=True)
class Share:
    """How often an event happened in a number of trials, with the interval of Clopper and Pearson."""

    times: int
    of: int

    @property
    def interval(self) -> tuple[float, float]:
        from scipy.stats import binomtest

        bounds = binomtest(self.times, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(bounds.low), float(bounds.high)

    def __str__(self) -> str:
        if not self.of:
            return "–"
        low, high = self.interval
        return f"{self.times} of {self.of} ({100 * low:.0f} to {100 * high:.0f} %)"


@dataclass
class Trials:
    """The trials with the same extra work: in how many of them each rule called the code slower."""

    count: int = 0
    by_ab: int = 0
    by_usual_rule: int = 0


def slowed_sides(target: str, share: float) -> tuple[Side, Side]:
    """Return the unchanged target, and the target with `share` more work in every read."""
    return (
        Side("as it is", options={"target": target, "extra_work": 0.0}),
        Side(f"{100 * share:.0f} % more work", options={"target": target, "extra_work": share}),
    )


def run_trials(
    subjects: Sequence[Subject],
    rules: Rules,
    make_engine: Callable[[tuple[Side, Side], int], Engine],
    goes_on: Callable[[int], bool],
    on_trial: Callable[[int, float], None],
) -> dict[float, Trials]:
    """Run trials with each extra work in turn, at least one, until `goes_on` is false; return their counts.

    `make_engine` gets the sides and the number of the trial, `goes_on` how many trials of each kind are
    done, `on_trial` how many trials are done and the extra work of the last one.
    """
    trials = {share: Trials() for share in EXTRA_WORK}
    number = 0
    while number == 0 or goes_on(number // len(EXTRA_WORK)):
        share = EXTRA_WORK[number % len(EXTRA_WORK)]
        engine = make_engine(slowed_sides(subjects[0].sides[0].target, share), number)
        measured: dict[str, Measured] = {}
        verdicts = engine.compare(subjects, rules, measured)
        if engine.failures:
            raise SideFailed("; ".join(engine.failures.values()))
        trials[share].count += 1
        trials[share].by_ab += any(verdict.verdict == "regressed" for verdict in verdicts)
        trials[share].by_usual_rule += _slower_by_usual_rule(subjects, measured)
        number += 1
        on_trial(number, share)
    return trials


def _slower_by_usual_rule(subjects: Sequence[Subject], measured: dict[str, Measured]) -> bool:
    """Return whether the mean of any timing is more than 10 % above the base, with one process a side.

    The two processes come from different pairs, because users of this rule do not measure in turns.
    """
    for subject in subjects:
        first, second, *_ = measured[subject.case.key].first
        for path in first.base.samples:
            mean = join(path, "mean_ms")
            before, now = first.base.figures.get(mean), second.current.figures.get(mean)
            if before and now and now / before > 1 + USUAL_THRESHOLD:
                return True
    return False
