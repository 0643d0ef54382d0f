"""Carrying out a comparison: pair after pair, what fails named and left out, what was measured kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from memory.benchmarking.lockstep.evidence import has_other_clocks
from memory.benchmarking.lockstep.pair import Limits, Pair, Side, SideFailed, run_pair
from memory.benchmarking.lockstep.sequence import Measured, Rules, Subject, compare
from memory.benchmarking.run.plan import round_seed
from memory.benchmarking.verdicts.records import MetricVerdict

TIMING_SECONDS = 0.04
"""Of one timing in each process: some sixty turns, and about as long as starting and setting up takes."""


@dataclass
class Engine:
    """Measures pairs of two sides."""

    sides: tuple[Side, Side]
    seed: int
    seconds: float
    scratch: Path
    limits: Limits
    on_pair: Callable[[Subject, int], None] = lambda subject, number: None
    failures: dict[str, str] = field(default_factory=dict)
    """By the key of the case: which side of it gave no figures, and why."""
    _together: dict[str, bool] = field(default_factory=dict)

    def measure(self, subject: Subject, number: int) -> Pair:
        """One pair. Both processes share seed and data; another pair has others.

        A subject's first pair shows whether anything is timed outside of turns; if not, both sides of the
        others set up at the same time.
        """
        self.on_pair(subject, number)
        pair = run_pair(
            self.sides,
            subject.sides,
            number=number,
            seed=round_seed(self.seed, number),
            seconds=self.seconds,
            scratch=self.scratch,
            limits=self.limits,
            together=self._together.get(subject.case.key, False),
        )
        self._together.setdefault(subject.case.key, not has_other_clocks(pair, subject.declaration))
        return pair

    def compare(
        self, subjects: Sequence[Subject], rules: Rules, measured: dict[str, Measured]
    ) -> list[MetricVerdict]:
        """The verdicts of all subjects that both sides can run."""

        def measure(subject: Subject, number: int) -> Pair | None:
            try:
                return self.measure(subject, number)
            except SideFailed as problem:
                self.failures[subject.case.key] = str(problem)
                return None

        return compare(subjects, measure, rules, measured)
