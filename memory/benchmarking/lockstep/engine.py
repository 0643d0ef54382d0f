"""Measures the pairs of a comparison; a case that fails is recorded and left out."""

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
"""Seconds that one timing measures in each process: about sixty turns.

Starting and setting up a process takes about as long."""


@dataclass
class Engine:
    """Measures pairs of two sides."""

    sides: tuple[Side, Side]
    seed: int
    seconds: float
    """About how long one timing measures."""
    scratch: Path
    limits: Limits
    embedder: str = ""
    """Of both sides, as after `--embedder`; empty for the default one."""
    on_pair: Callable[[Subject, int], None] = lambda subject, number: None
    """Called before each pair, with its number."""
    failures: dict[str, str] = field(default_factory=dict)
    """Maps the key of a case to a text: which side failed, and why."""
    _together: dict[str, bool] = field(default_factory=dict)
    """Maps the key of a case to whether both sides may run at the same time outside of timings."""

    def measure(self, subject: Subject, number: int) -> Pair:
        """Measure one pair. Both processes use the same seed; every pair has another seed.

        The first pair of a subject shows whether anything is timed outside of turns. If not, both sides
        of later pairs set up at the same time.
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
            embedder=self.embedder,
        )
        self._together.setdefault(subject.case.key, not has_other_clocks(pair, subject.declaration))
        return pair

    def compare(
        self, subjects: Sequence[Subject], rules: Rules, measured: dict[str, Measured]
    ) -> list[MetricVerdict]:
        """Return the verdicts of all subjects that both sides can run; fills `measured`."""

        def measure(subject: Subject, number: int) -> Pair | None:
            try:
                return self.measure(subject, number)
            except SideFailed as problem:
                self.failures[subject.case.key] = str(problem)
                return None

        return compare(subjects, measure, rules, measured)
