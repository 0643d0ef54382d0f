"""More rounds for what a comparison with a baseline leaves undecided, until it is decided or time is up.

Each look doubles the rounds of the benchmarks that have an undecided metric. The added rounds repeat the
data of the baseline's rounds, because only rounds with the same data are compared
(`verdicts/blocks.py`). To look several times and stop at the first finding causes too many false alarms. So
the run stores how often it was compared (`Run.looks`), and every comparison of it divides the chance of a
false alarm by that number.
"""

from __future__ import annotations

import time
from pathlib import Path

from memory.benchmarking.model.files import read_run
from memory.benchmarking.model.records import Case, Run
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.thresholds import Thresholds

MOST_ROUNDS = 64
"""The most rounds of a benchmark whose baseline has other data. More would change an interval by less than
a tenth."""
REPEATS = 4
"""The most rounds with the same data. The baseline has one of each, and more rounds here do not make its
noise smaller."""


class UntilDecided:
    """Chooses the cases that get more rounds; called by `Execution` after all planned rounds.

    Args:
        baseline: folder of the run to compare with
        budget_seconds: no round starts later than this many seconds after the first look
        thresholds: those of the comparison
        allow_missing: patterns of what the run may lack
    """

    def __init__(
        self,
        baseline: Path,
        budget_seconds: float,
        thresholds: Thresholds | None = None,
        allow_missing: tuple[str, ...] = (),
    ) -> None:
        self._baseline = baseline
        self._budget = budget_seconds
        self._thresholds = thresholds
        self._allow_missing = allow_missing
        self._deadline: float | None = None
        self.undecided = 0
        """How many metrics the last look left undecided."""
        self.judged = 0

    def __call__(self, folder: Path, run: Run) -> list[Case]:
        """Return the cases whose rounds to double; empty if no more rounds are needed."""
        if self._deadline is None:
            self._deadline = time.monotonic() + self._budget
        found = compare_runs(
            self._baseline, folder, thresholds=self._thresholds, allow_missing=self._allow_missing
        )
        undecided = found.of("inconclusive")
        self.undecided = len(undecided)
        self.judged = len(undecided) + len(found.of("regressed", "improved", "unchanged"))
        left = self._deadline - time.monotonic()
        base = read_run(self._baseline)
        base_rounds = {(ref.category, ref.benchmark, ref.target): ref.rounds for ref in base.results}
        wanted = {(each.category, each.benchmark, each.target) for each in undecided}
        seconds = {(ref.category, ref.benchmark, ref.target): ref.seconds for ref in run.results}
        chosen = []
        for case in run.cases:
            key = (case.category, case.benchmark, case.target)
            rounds = run.rounds_of(case)
            cost = seconds.get(key, 0.0) * rounds
            different = max(rounds, base_rounds.get(key, 0)) if run.seed == base.seed else 0
            different = run.different_rounds.get(case.key, different)
            most = REPEATS * different or MOST_ROUNDS
            # One round of the baseline has no interval, however many rounds this run has.
            can_decide = base_rounds.get(key, 0) > 1 and rounds < most
            if key in wanted and can_decide and cost < left:
                if different:
                    run.different_rounds[case.key] = different
                chosen.append(case)
                left -= cost
        return chosen

    @property
    def text(self) -> str:
        """The outcome in one line."""
        if not self.undecided:
            return f"all {self.judged:,} metrics are decided"
        return (
            f"{self.undecided:,} of {self.judged:,} metrics are still undecided: a larger --budget, or a "
            "baseline with more rounds, decides more"
        )
