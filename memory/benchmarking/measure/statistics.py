"""Figures with their intervals. The process is the unit: rounds are observations, samples are not.

Distributions come from SciPy (imported when needed: it is slow to load).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory.benchmarking.errors import InvalidResult

CONFIDENCE = 0.95
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Estimate:
    """One figure over the rounds of a case. Without at least two rounds there is no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    rounds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Change:
    """The ratio of two figures (now ÷ before) with its interval; 1 is no change."""

    ratio: float
    low: float | None = None
    high: float | None = None

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves out "no change"."""
        return self.low is not None and self.high is not None and not self.low <= 1 <= self.high


@dataclass(frozen=True)
class Effect:
    """A difference of means (or a mean of differences) with its standard error.

    `error` is None where a single observation leaves it unknown, and 0 where all are the same.
    """

    value: float
    error: float | None
    freedom: float


def percentiles(values: Sequence[float], quantiles: Iterable[float]) -> list[float]:
    """Linear between the two nearest values (Hyndman and Fan's type 7, as NumPy does)."""
    _check_finite(values, "a percentile")
    ordered = sorted(values)
    found = []
    for quantile in quantiles:
        _check_quantile(quantile)
        place = quantile * (len(ordered) - 1)
        below = math.floor(place)
        low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
        part = place - below
        # From the nearer end, so that rounding can't carry it past the other one.
        found.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
    return found


def percentile_interval(
    values: Sequence[float], quantile: float, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Between two order statistics, from the binomial distribution (David and Nagaraja, section 7.1).

    It takes the values as independent, so it tells how well one process's own samples know their
    percentile, not what another process would measure. None where so few values can't bound it.
    """
    from scipy.special import bdtr

    _check_finite(values, "an interval")
    _check_quantile(quantile)
    count = len(values)
    tail = (1 - confidence) / 2

    def below(index: int) -> float:
        """The chance that the percentile lies below the value at this index of the sorted ones."""
        return float(bdtr(index, count, quantile))

    low = bisect_right(range(count), tail, key=below) - 1
    high = bisect_left(range(count), 1 - tail, key=below)
    if low < 0 or high >= count:
        return None
    ordered = sorted(values)
    return ordered[low], ordered[high]


def over_rounds(
    values: Sequence[float], confidence: float = CONFIDENCE, *, signed: bool = False
) -> Estimate:
    """The centre of the rounds' figures with Student's interval.

    Times and rates vary by factors, so positive figures are taken as logarithms (the centre is then the
    geometric mean); figures that can be zero or negative (`signed`, even if these happen not to be) as
    they are.
    """
    rounds = tuple(float(value) for value in values)
    _check_finite(rounds, "a figure over rounds")
    in_logs = not signed and all(value > 0 for value in rounds)
    points = [math.log(value) for value in rounds] if in_logs else list(rounds)
    if len(set(rounds)) == 1:
        # exp(log(x)) is not quite x; a count that is the same in every round is that count.
        bound = rounds[0] if len(rounds) > 1 else None
        return Estimate(rounds[0], bound, bound, rounds)
    mean, error, freedom = _mean_and_error(points)
    back = _exp if in_logs else float
    reach = student(freedom, confidence) * error
    return Estimate(back(mean), back(mean - reach), back(mean + reach), rounds)


def change(now: Sequence[float], before: Sequence[float], confidence: float = CONFIDENCE) -> Change | None:
    """Welch's interval for the ratio of two sets of rounds, on logarithms; None where there is no ratio."""
    if not now or not before or not all(0 < value < math.inf for value in (*now, *before)):
        return None
    has_interval = len(now) > 1 and len(before) > 1
    if len(set(now)) == 1 and len(set(before)) == 1:
        # Divided as they are: rounding in the logarithms must not make a change out of none.
        ratio = now[0] / before[0]
        return Change(ratio, ratio, ratio) if has_interval else Change(ratio)
    effect = welch([math.log(value) for value in now], [math.log(value) for value in before])
    if effect.error is None:
        return Change(_exp(effect.value))
    reach = student(effect.freedom, confidence) * effect.error
    return Change(_exp(effect.value), _exp(effect.value - reach), _exp(effect.value + reach))


def welch(now: Sequence[float], before: Sequence[float]) -> Effect:
    """The difference of two means whose variances may differ (Welch 1947, Satterthwaite's freedom)."""
    _check_finite((*now, *before), "a difference")
    if len(set(now)) == 1 and len(set(before)) == 1:
        # As they are: rounding in the means must not make a change out of none.
        known = len(now) > 1 and len(before) > 1
        return Effect(now[0] - before[0], 0.0 if known else None, math.inf)
    mean_now, error_now, freedom_now = _mean_and_error(now)
    mean_before, error_before, freedom_before = _mean_and_error(before)
    difference = mean_now - mean_before
    if not freedom_now or not freedom_before:
        return Effect(difference, None, 0.0)
    error = math.hypot(error_now, error_before)
    if error == 0:  # neighbouring numbers with one logarithm
        return Effect(difference, 0.0, math.inf)
    share_now, share_before = (error_now / error) ** 4, (error_before / error) ** 4
    return Effect(difference, error, 1 / (share_now / freedom_now + share_before / freedom_before))


def one_sample(differences: Sequence[float]) -> Effect:
    """The mean of paired differences."""
    _check_finite(differences, "a difference")
    if len(set(differences)) == 1:
        return Effect(differences[0], 0.0 if len(differences) > 1 else None, math.inf)
    return Effect(*_mean_and_error(differences))


def beyond(distance: float, freedom: float) -> float:
    """The chance that Student's t is larger than this."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -distance))


def _mean_and_error(points: Sequence[float]) -> tuple[float, float, int]:
    """Mean, its standard error, degrees of freedom (0 for a single point: the error is unknown)."""
    count = len(points)
    mean = math.fsum(point / count for point in points)
    if count == 1:
        return mean, 0.0, 0
    # Not by squares: those of figures that are no more than huge are beyond the numbers.
    spread = math.hypot(*(point - mean for point in points))
    return mean, spread / math.sqrt(count * (count - 1)), count - 1


def student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _exp(value: float) -> float:
    """Infinite where it is beyond the numbers: two rounds that differ wildly bound nothing."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _check_finite(values: Sequence[float], what: str) -> None:
    if not len(values):
        raise InvalidResult(f"{what} of no values: give at least one")
    for value in values:
        if not math.isfinite(value):
            raise InvalidResult(f"{what} of a value that is {value}: give numbers")


def _check_quantile(quantile: float) -> None:
    if not 0 <= quantile <= 1:
        raise InvalidResult(f"quantile is {quantile!r}: use a number from 0 to 1")
