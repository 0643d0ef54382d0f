"""How many pairs are measured, and when enough is known.

    first pairs of every case ─▶ look ─▶ unchanged: done
                                  │  └─▶ open: more pairs, up to the most ─▶ look again …
                                  └────▶ suspected: as many fresh pairs ─▶ judged by these alone

Looking several times and stopping when something turns up would find something too often. So a look
never calls anything regressed or improved: it only sends it to be measured again. Those fresh pairs are
as many as was laid down before, are looked at once, and are corrected for how many metrics were sent
(Holm), so the chance that identical code is called regressed anywhere stays below alpha however often
and however freely it was suspected before.
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
"""Of every case; fewer would leave a t-interval nothing to stand on."""
FRESH_PAIRS = 6
"""For what is suspected."""
SUSPICION = 0.05
"""The chance, of each metric by itself, below which it is measured again."""


@dataclass(frozen=True)
class Subject:
    """What is compared: a case of each side, under the name that both go by."""

    case: Case
    sides: tuple[Case, Case]
    declaration: Declaration = field(default_factory=Declaration)


@dataclass(frozen=True)
class Rules:
    """What decides, and how much is spent on it."""

    thresholds: Thresholds
    noise: NoiseFloor
    most_pairs: int = FIRST_PAIRS
    """Before anything is measured again."""
    alpha: float = ALPHA


@dataclass
class Measured:
    """The pairs of one subject."""

    first: list[Pair] = field(default_factory=list)
    fresh: list[Pair] = field(default_factory=list)


Measure = Callable[[Subject, int], Pair | None]
"""Measures one more pair of a subject, with another number each time; None where it can't be measured."""


def compare(
    subjects: Sequence[Subject], measure: Measure, rules: Rules, measured: dict[str, Measured]
) -> list[MetricVerdict]:
    """Measure until everything is decided or enough was spent. `measured` is filled on the way."""
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
            if number < _least_pairs(subject) or (len(pairs) == number and _is_open(subject, pairs, rules)):
                add(subject, pairs, number)
    for subject in list(subjects):
        found = measured[subject.case.key]
        # Their numbers go on where the first pairs can end at most, so that no seed is met again.
        for number in range(most, most + _fresh_pairs(_suspected(subject, found.first, rules).values())):
            if subject in subjects:
                add(subject, found.fresh, number)
    return conclude(subjects, measured, rules)


def _least_pairs(subject: Subject) -> int:
    """Of figures that follow from the data alone a few are enough, if they say the same."""
    return max(2, min(subject.case.most_rounds or FIRST_PAIRS, FIRST_PAIRS))


def _fresh_pairs(suspected: Collection[Evidence]) -> int:
    if not suspected:
        return 0
    return 2 if all(each.is_exact for each in suspected) else FRESH_PAIRS


def conclude(
    subjects: Sequence[Subject], measured: Mapping[str, Measured], rules: Rules
) -> list[MetricVerdict]:
    """The verdicts that follow from what was measured."""
    suspected: dict[tuple[str, str], Evidence] = {}
    again: dict[tuple[str, str], Evidence] = {}
    everything: dict[tuple[str, str], Evidence] = {}
    for subject in subjects:
        key, pairs = subject.case.key, measured[subject.case.key]
        everything |= _keyed(key, _evidence(subject, [*pairs.first, *pairs.fresh], rules))
        if pairs.fresh:
            suspected |= _keyed(key, _suspected(subject, pairs.first, rules).values())
            again |= _keyed(key, _evidence(subject, pairs.fresh, rules))
    fresh = {key: again[key] for key in suspected if key in again}
    verdicts = decide(
        list(fresh.values()), threshold=rules.thresholds, noise=rules.noise, alpha=rules.alpha
    )
    found_again = {
        key: verdict
        for key, verdict in zip(fresh, verdicts, strict=True)
        if verdict.verdict in ("regressed", "improved") and fresh[key].worse * suspected[key].worse > 0
    }
    return [_final(key, each, suspected, found_again, rules) for key, each in everything.items()]


def _final(
    key: tuple[str, str],
    evidence: Evidence,
    suspected: Collection[tuple[str, str]],
    found_again: Mapping[tuple[str, str], MetricVerdict],
    rules: Rules,
) -> MetricVerdict:
    """What the fresh pairs say where they say it again; otherwise all pairs, which raise no alarm."""
    if key in found_again:
        return msgspec.structs.replace(found_again[key], confirmed=True)
    found = _by_itself(evidence, rules)
    if found.verdict in ("regressed", "improved"):
        reason = "not found again in fresh pairs" if key in suspected else "seen too late to measure again"
        found = msgspec.structs.replace(found, verdict="inconclusive", reason=reason)
    return msgspec.structs.replace(found, confirmed=False if key in suspected else None)


def _is_open(subject: Subject, pairs: Sequence[Pair], rules: Rules) -> bool:
    """Whether some metric is neither unchanged nor suspected yet."""
    return any(
        _by_itself(each, rules).verdict == "inconclusive" for each in _evidence(subject, pairs, rules)
    )


def _suspected(subject: Subject, pairs: Sequence[Pair], rules: Rules) -> dict[str, Evidence]:
    return {
        each.path: each
        for each in _evidence(subject, pairs, rules)
        if _by_itself(each, rules).verdict in ("regressed", "improved")
    }


def _by_itself(evidence: Evidence, rules: Rules) -> MetricVerdict:
    """What would be said if it were the only metric."""
    (found,) = decide([evidence], threshold=rules.thresholds, noise=rules.noise, alpha=SUSPICION)
    return found


def _evidence(subject: Subject, pairs: Sequence[Pair], rules: Rules) -> list[Evidence]:
    return evidence_of(subject.case, subject.declaration, pairs, rules.thresholds)


def _keyed(key: str, evidence: Iterable[Evidence]) -> dict[tuple[str, str], Evidence]:
    return {(key, each.path): each for each in evidence}
