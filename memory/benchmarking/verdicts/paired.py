"""Quality compared question by question.

Both runs asked the same questions, so most of the difference between questions cancels out. What remains is
the difference of each question. Identical code gives 0 for every question, and then nothing is tested.

Questions of one conversation are alike, so the unit of the test is the conversation. The test is a
sign-flip test: if the change of the code had no effect, both signs of each conversation's difference
would be equally likely. With fewer than eight conversations, the question is the unit.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from memory.benchmarking.measure.ranking import ranking_figures
from memory.benchmarking.model.answers import Answers
from memory.benchmarking.model.paths import join
from memory.benchmarking.model.records import AnsweredQuestion
from memory.benchmarking.verdicts.records import QuestionChange

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

ALL_QUESTIONS = "all_questions"
"""The group of all questions that have an answer and are not apart; the other groups are the categories."""
JUDGED = ("recall_at_5", "ndcg_at_10")
"""Only these figures over all questions get a verdict. The other figures rise and fall with them."""
SIDES = "recall_at_5"
"""A question "changed sides" if the value of this figure changed."""
_LEAST_CLUSTERS = 8
"""The fewest conversations for a test over conversations: seven can't give a p-value below 0.016."""
_RESAMPLES = 20_000
"""The number of random sign flips, if there are too many units to try all combinations."""
_DEPTH = 10


@dataclass(frozen=True)
class PairedFigure:
    """The differences of one figure between two runs."""

    differences: tuple[float, ...]
    """Current − base, one for each question."""
    clusters: tuple[str, ...]
    """The conversation of each question."""

    @property
    def value(self) -> float:
        """The mean difference."""
        return math.fsum(self.differences) / len(self.differences)

    @cached_property
    def _sums(self) -> tuple[Floats, Floats]:
        """The sum of the differences of each unit, and the unit's number of questions."""
        import numpy as np

        _, unit = np.unique(self.clusters, return_inverse=True)
        if len(set(self.clusters)) < _LEAST_CLUSTERS:
            unit = np.arange(len(self.differences))
        sums = np.bincount(unit, weights=np.asarray(self.differences, dtype=float)).astype(float)
        return sums, np.bincount(unit).astype(float)

    @property
    def error(self) -> float | None:
        """The standard error of the mean difference, from units; None for a single unit.

        This is the linearised standard error of the ratio estimator (Cochran, Sampling Techniques, 2.11).
        """
        import numpy as np

        sums, counts = self._sums
        if not np.any(sums):
            return 0.0
        if len(sums) < 2:
            return None
        spread = float(np.sum((sums - self.value * counts) ** 2))
        return math.sqrt(spread * len(sums) / (len(sums) - 1)) / len(self.differences)

    @property
    def freedom(self) -> float:
        return len(self._sums[0]) - 1

    @cached_property
    def chance(self) -> float:
        """The p-value of the sign-flip test; exact where there are few units that differ."""
        import numpy as np

        sums = self._sums[0]
        # A unit without a difference adds 0, so its sign does not matter.
        changed = sums[np.abs(sums) > 1e-12]
        if len(changed) < 2:
            return 1.0
        from scipy.stats import permutation_test

        def total(values: Floats, axis: int) -> Floats:
            # Round the sums: equal sums, added in another order, differ in the last digits.
            rounded: Floats = np.round(np.sum(values, axis=axis), 9)
            return rounded

        found = permutation_test(
            (changed,),
            total,
            permutation_type="samples",
            vectorized=True,
            n_resamples=_RESAMPLES,
            batch=2_000,
            random_state=np.random.default_rng(0),
        )
        return float(found.pvalue)


def paired_figures(base: Answers | None, current: Answers | None) -> dict[str, PairedFigure]:
    """Return the paired differences of each figure by its path; empty if the questions differ."""
    found: dict[str, PairedFigure] = {}
    for place, before, now in _same_questions(base, current):
        asked = [question for question in now[0] if question.ranks]
        old, new = _by_question(before), _by_question(now)
        # An older side may have no questions apart. Both sides are grouped as the current one is.
        for group, chosen in by_group(asked).items():
            clusters = tuple(asked[number].collection for number in chosen)
            for name in new[0] if new else ():
                differences = tuple(new[number][name] - old[number][name] for number in chosen)
                found[join(join(place, group), name)] = PairedFigure(differences, clusters)
    return found


def by_group(asked: Sequence[AnsweredQuestion]) -> dict[str, list[int]]:
    """Return the places of the questions that count for each group."""
    groups: dict[str, list[int]] = {}
    for number, question in enumerate(asked):
        if not question.apart:
            groups.setdefault(ALL_QUESTIONS, []).append(number)
        if question.apart or question.category != ALL_QUESTIONS:
            groups.setdefault(question.category, []).append(number)
    return groups


def question_changes(
    base: Answers | None, current: Answers | None, case: tuple[str, str, str]
) -> list[QuestionChange]:
    """Return the questions that changed sides, the worst first. `case` is the benchmark and its target."""
    category, benchmark, target = case
    found = []
    for place, before, now in _same_questions(base, current):
        old, new = _by_question(before), _by_question(now)
        asked = [pair for pair in zip(before[0], now[0], strict=True) if pair[1].ranks]
        for (earlier, later), old_figures, new_figures in zip(asked, old, new, strict=True):
            change = new_figures[SIDES] - old_figures[SIDES]
            if change:
                found.append(
                    QuestionChange(
                        category=category,
                        benchmark=benchmark,
                        target=target,
                        place=place,
                        collection=later.collection,
                        kind=later.category,
                        text=later.text,
                        before=earlier.ranks,
                        now=later.ranks,
                        change=change,
                    )
                )
    # The largest loss first; among equal losses, the question with the best rank before.
    return sorted(found, key=lambda each: (each.change, min(filter(None, each.before), default=0)))


Rounds = Sequence[Sequence[AnsweredQuestion]]


def _same_questions(base: Answers | None, current: Answers | None) -> Iterator[tuple[str, Rounds, Rounds]]:
    """Yield the rounds of both sides for each place where both asked the same questions."""
    if not base or not current:
        return
    for place in current[0]:
        before = [answers[place] for answers in base if place in answers]
        now = [answers[place] for answers in current if place in answers]
        keys = {tuple(map(_identity, questions)) for questions in (*before, *now)}
        if before and len(keys) == 1:
            yield place, before, now


def _identity(question: AnsweredQuestion) -> tuple[str, str, str, tuple[int, ...]]:
    return question.collection, question.text, question.category, tuple(question.grades)


def _by_question(rounds: Rounds) -> list[Mapping[str, float]]:
    """Return the figures of each question that has an answer: the means over the rounds."""
    each_round = [[figures_of(one) for one in questions if one.ranks] for questions in rounds]
    if len(each_round) == 1:
        return list(each_round[0])
    return [
        {name: math.fsum(one[name] for one in same) / len(same) for name in same[0]}
        for same in zip(*each_round, strict=True)
    ]


def figures_of(question: AnsweredQuestion) -> dict[str, float]:
    """Return the figures of one question from the ranks of its relevant passages."""
    ranked = [f"other {rank}" for rank in range(1, _DEPTH + 1)]
    for number, rank in enumerate(question.ranks):
        if 0 < rank <= _DEPTH:
            ranked[rank - 1] = str(number)
    return ranking_figures(ranked, {str(number): grade for number, grade in enumerate(question.grades)})
