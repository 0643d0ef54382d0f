"""Figures with their intervals. The process is the unit: rounds are observations, samples are not.

Distributions come from SciPy (imported when needed: it is slow to load).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def percentiles(values: Sequence[float], quantiles: Iterable[float]) -> list[float]:
    """Linear between the two nearest values (Hyndman and Fan's type 7, as NumPy does)."""
    ordered = sorted(values)
    found = []
    for quantile in quantiles:
        place = quantile * (len(ordered) - 1)
        below = math.floor(place)
        above = min(below + 1, len(ordered) - 1)
        found.append(ordered[below] + (ordered[above] - ordered[below]) * (place - below))
    return found


def percentile_interval(
    values: Sequence[float], quantile: float, confidence: float = CONFIDENCE
) -> tuple[float, float] | None:
    """Between two order statistics, from the binomial distribution (David and Nagaraja, section 7.1).

    It takes the values as independent, so it tells how well one process's own samples know their
    percentile, not what another process would measure. None where so few values can't bound it.
    """
    from scipy.special import bdtr

    count = len(values)
    tail = (1 - confidence) / 2
    ranks = range(count + 1)
    # P(the percentile lies below the r-th smallest) is the chance of fewer than r values below it.
    below = [float(bdtr(rank - 1, count, quantile)) if rank else 0.0 for rank in ranks]
    low = max((rank for rank in ranks if rank and below[rank] <= tail), default=0)
    high = min((rank for rank in ranks if rank and below[rank] >= 1 - tail), default=0)
    if not low or not high:
        return None
    ordered = sorted(values)
    return ordered[low - 1], ordered[high - 1]


def over_rounds(values: Sequence[float], confidence: float = CONFIDENCE) -> Estimate:
    """The centre of the rounds' figures with Student's interval.

    Times and rates vary by factors, so positive figures are taken as logarithms (the centre is then the
    geometric mean); figures that can be zero or negative as they are.
    """
    rounds = tuple(float(value) for value in values)
    in_logs = all(value > 0 for value in rounds)
    points = [math.log(value) for value in rounds] if in_logs else list(rounds)
    mean, error, freedom = _mean_and_error(points)
    back = math.exp if in_logs else float
    if len(set(rounds)) == 1:
        # exp(log(x)) is not quite x; a count that is the same in every round is that count.
        bound = rounds[0] if len(rounds) > 1 else None
        return Estimate(rounds[0], bound, bound, rounds)
    reach = _student(freedom, confidence) * error
    return Estimate(back(mean), back(mean - reach), back(mean + reach), rounds)


def change(now: Sequence[float], before: Sequence[float], confidence: float = CONFIDENCE) -> Change | None:
    """Welch's interval for the ratio of two sets of rounds, on logarithms; None where there is no ratio."""
    if not now or not before or any(value <= 0 for value in (*now, *before)):
        return None
    mean_now, error_now, freedom_now = _mean_and_error([math.log(value) for value in now])
    mean_before, error_before, freedom_before = _mean_and_error([math.log(value) for value in before])
    difference = mean_now - mean_before
    if not freedom_now or not freedom_before:
        return Change(math.exp(difference))
    error = math.hypot(error_now, error_before)
    if error == 0:
        return Change(*(math.exp(difference),) * 3)
    freedom = error**4 / (error_now**4 / freedom_now + error_before**4 / freedom_before)
    reach = _student(freedom, confidence) * error
    return Change(math.exp(difference), math.exp(difference - reach), math.exp(difference + reach))


def _mean_and_error(points: Sequence[float]) -> tuple[float, float, int]:
    """Mean, its standard error, degrees of freedom (0 for a single point: the error is unknown)."""
    count = len(points)
    mean = math.fsum(points) / count
    if count == 1:
        return mean, 0.0, 0
    variance = math.fsum((point - mean) ** 2 for point in points) / (count - 1)
    return mean, math.sqrt(variance / count), count - 1


def _student(freedom: float, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))
