"""Decides how many pairs to measure, and when a comparison is decided.

    first pairs of every case ─▶ test ─▶ unchanged: done
                                  │  └─▶ undecided: more pairs, up to `most_pairs` ─▶ test again …
                                  └────▶ suspected: fresh pairs ─▶ decided by the fresh pairs alone

Testing repeatedly and stopping at the first change would give too many false alarms. So these tests never
call a metric regressed or improved: they only send it to be measured again. The number of fresh pairs is
fixed in advance. They are tested once, corrected for the number of suspected metrics (Holm). So the
chance that identical code is called regressed anywhere stays below alpha, however often it was tested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from memory.benchmarking.lockstep.evidence import evidence_of
from memory.benchmarking.lockstep.pair import Pair
from memory.benchmarking.metrics import Declaration
from memory.benchmarking.model.records import Case
from memory.benchmarking.verdicts.decide import ALPHA, Evidence, decide
from memory.benchmarking.verdicts.noise import NoiseFloor
from memory.benchmarking.verdicts.records import MetricVerdict
from memory.benchmarking.verdicts.thresholds import Thresholds

FIRST_PAIRS = 6
"""The first number of pairs of every case: with fewer, a t-interval is too wide to decide anything."""
FRESH_PAIRS = 6
"""The number of pairs that confirm a suspected change."""
SUSPICION = 0.05
"""A metric is measured again if its p-value, not corrected for other metrics, is below this."""


@dataclass(frozen=True)
class Subject:
    """What is compared: a case of each side."""

    case: Case
    """Names the comparison in the results."""
    sides: tuple[Case, Case]
    """The cases of base and current."""
    declaration: Declaration = field(default_factory=Declaration)


@dataclass(frozen=True)
class Rules:
    """How a comparison is decided, and how much it may measure."""

    thresholds: Thresholds
    noise: NoiseFloor
    most_pairs: int = FIRST_PAIRS
    """The most pairs of a case, not counting the fresh pairs."""
    alpha: float = ALPHA
    """The chance of any false "regressed" in the whole comparison."""


@dataclass
class Measured:
    """The pairs of one subject."""

    first: list[Pair] = field(default_factory=list)
    fresh: list[Pair] = field(default_factory=list)
    """The pairs that confirm the changes that the first pairs suggest."""


Measure = Callable[[Subject, int], Pair | None]
"""Measures one pair of a subject, given the pair's number; returns None if it can't be measured."""


def compare(
    subjects: Sequence[Subject], measure: Measure, rules: Rules, measured: dict[str, Measured]
) -> list[MetricVerdict]:
    """Measure until everything is decided or `rules.most_pairs` is reached; fill `measured`."""
    subjects = list(subjects)
    measured.update({subject.case.key: Measured() for subject in subjects})

    def add(subject: Subject, pairs: list[Pair], number: int) -> None:
        pair = measure(subject, number)
        if pair is None:
            subjects.remove(subject)
            del measured[subject.case.key]
        else:
            pairs.append(pair)

    most = max(rules.most_pairs, FIRST_PAIRS)
    for number in range(most):
        for subject in list(subjects):
            pairs = measured[subject.case.key].first
            if number < _least_pairs(subject) or (
                len(pairs) == number and _is_undecided(subject, pairs, rules)
            ):
                add(subject, pairs, number)
    for subject in list(subjects):
        pairs_of = measured[subject.case.key]
        suspected = _suspected(subject, pairs_of.first, rules)
        # Fresh pairs have higher numbers than all first pairs, so that no seed is used twice.
        for number in range(most, most + _fresh_pairs(suspected.values())):
            if subject in subjects:
                add(subject, pairs_of.fresh, number)
    return conclude(subjects, measured, rules)


def _least_pairs(subject: Subject) -> int:
    """Return the fewest pairs: 2 for figures that depend on the data alone, such as sizes."""
    return max(2, min(subject.case.most_rounds or FIRST_PAIRS, FIRST_PAIRS))


def _fresh_pairs(suspected: Collection[Evidence]) -> int:
    if not suspected:
        return 0
    return 2 if all(evidence.is_exact for evidence in suspected) else FRESH_PAIRS


def conclude(
    subjects: Sequence[Subject], measured: Mapping[str, Measured], rules: Rules
) -> list[MetricVerdict]:
    """Return the verdicts that follow from the measured pairs."""
    suspected: dict[tuple[str, str], Evidence] = {}
    of_fresh_pairs: dict[tuple[str, str], Evidence] = {}
    of_all_pairs: dict[tuple[str, str], Evidence] = {}
    for subject in subjects:
        key, pairs = subject.case.key, measured[subject.case.key]
        of_all_pairs |= _keyed(key, _evidence(subject, [*pairs.first, *pairs.fresh], rules))
        if pairs.fresh:
            suspected |= _keyed(key, _suspected(subject, pairs.first, rules).values())
            of_fresh_pairs |= _keyed(key, _evidence(subject, pairs.fresh, rules))
    tested = {key: of_fresh_pairs[key] for key in suspected if key in of_fresh_pairs}
    verdicts = decide(
        list(tested.values()), threshold=rules.thresholds, noise=rules.noise, alpha=rules.alpha
    )
    confirmed = {
        key: verdict
        for key, verdict in zip(tested, verdicts, strict=True)
        if verdict.verdict in ("regressed", "improved") and tested[key].worse * suspected[key].worse > 0
    }
    return [_final(key, evidence, suspected, confirmed, rules) for key, evidence in of_all_pairs.items()]


def _final(
    key: tuple[str, str],
    evidence: Evidence,
    suspected: Collection[tuple[str, str]],
    confirmed: Mapping[tuple[str, str], MetricVerdict],
    rules: Rules,
) -> MetricVerdict:
    """Return the verdict of the fresh pairs if they confirm the change, else that of all pairs.

    All pairs together never give "regressed" or "improved": these verdicts become "inconclusive".
    """
    if key in confirmed:
        return msgspec.structs.replace(confirmed[key], confirmed=True)
    verdict = _verdict_alone(evidence, rules)
    if verdict.verdict in ("regressed", "improved"):
        reason = "not found again in fresh pairs" if key in suspected else "seen too late to measure again"
        verdict = msgspec.structs.replace(verdict, verdict="inconclusive", reason=reason)
    return msgspec.structs.replace(verdict, confirmed=False if key in suspected else None)


def _is_undecided(subject: Subject, pairs: Sequence[Pair], rules: Rules) -> bool:
    """Return whether some metric is neither unchanged nor suspected."""
    return any(
        _verdict_alone(evidence, rules).verdict == "inconclusive"
        for evidence in _evidence(subject, pairs, rules)
    )


def _suspected(subject: Subject, pairs: Sequence[Pair], rules: Rules) -> dict[str, Evidence]:
    return {
        evidence.path: evidence
        for evidence in _evidence(subject, pairs, rules)
        if _verdict_alone(evidence, rules).verdict in ("regressed", "improved")
    }


def _verdict_alone(evidence: Evidence, rules: Rules) -> MetricVerdict:
    """Return the verdict as if this were the only metric."""
    (verdict,) = decide([evidence], threshold=rules.thresholds, noise=rules.noise, alpha=SUSPICION)
    return verdict


def _evidence(subject: Subject, pairs: Sequence[Pair], rules: Rules) -> list[Evidence]:
    return evidence_of(subject.case, subject.declaration, pairs, rules.thresholds)


def _keyed(key: str, evidence: Iterable[Evidence]) -> dict[tuple[str, str], Evidence]:
    return {(key, one.path): one for one in evidence}
