"""Figures with their intervals. One observation is one round (a separate process), not one sample.

The distributions come from `scipy.special`. Importing it takes 0.3 s, so it is imported only when needed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.student import t_quantile

CONFIDENCE = 0.95
"""The confidence level of every interval that is shown."""
PERCENTILES = {"p50": 0.50, "p95": 0.95, "p99": 0.99}


@dataclass(frozen=True)
class Estimate:
    """A figure over the rounds of a case. With fewer than two rounds it has no interval."""

    value: float
    low: float | None = None
    high: float | None = None
    rounds: tuple[float, ...] = ()


@dataclass(frozen=True)
class Effect:
    """A difference of means (or a mean of differences) with its standard error.

    `error` is None if there is only one observation, and 0 if all observations are the same.
    """

    value: float
    error: float | None
    freedom: float
    """Degrees of freedom of the t distribution."""


def percentiles(values: Sequence[float], quantiles: Iterable[float]) -> list[float]:
    """Return the quantiles, with linear interpolation (Hyndman and Fan's type 7, the default of NumPy)."""
    _check_finite(values, "a percentile")
    ordered = sorted(values)
    found = []
    for quantile in quantiles:
        _check_quantile(quantile)
        place = quantile * (len(ordered) - 1)
        below = math.floor(place)
        low, high = ordered[below], ordered[min(below + 1, len(ordered) - 1)]
        fraction = place - below
        # Compute the value from the nearer end, so that rounding can't move it past the other end.
        found.append(
            low + (high - low) * fraction if fraction < 0.5 else high - (high - low) * (1 - fraction)
        )
    return found


def over_rounds(
    values: Sequence[float], confidence: float = CONFIDENCE, *, signed: bool = False
) -> Estimate:
    """Return the centre of the rounds' figures, with Student's interval.

    Times and rates vary by factors, so the interval of positive figures is computed on logarithms, and
    their centre is the geometric mean. `signed` marks a kind of figure that can be zero or negative, even
    if these values are all positive: then the centre is the arithmetic mean.
    """
    rounds = tuple(float(value) for value in values)
    _check_finite(rounds, "a figure over rounds")
    in_logs = not signed and all(value > 0 for value in rounds)
    points = [math.log(value) for value in rounds] if in_logs else list(rounds)
    if len(set(rounds)) == 1:
        # Do not use logarithms: exp(log(x)) is not exactly x, and a count must stay a whole number.
        bound = rounds[0] if len(rounds) > 1 else None
        return Estimate(rounds[0], bound, bound, rounds)
    mean, error, freedom = _mean_and_error(points)
    from_point = exp_or_infinity if in_logs else float
    half_width = t_critical(freedom, confidence) * error
    return Estimate(from_point(mean), from_point(mean - half_width), from_point(mean + half_width), rounds)


def welch(now: Sequence[float], before: Sequence[float]) -> Effect:
    """Return the difference of two means whose variances may differ (Welch 1947, Satterthwaite 1946)."""
    _check_finite((*now, *before), "a difference")
    if len(set(now)) == 1 and len(set(before)) == 1:
        # Do not compute means: their rounding errors could look like a difference.
        known = len(now) > 1 and len(before) > 1
        return Effect(now[0] - before[0], 0.0 if known else None, math.inf)
    mean_now, error_now, freedom_now = _mean_and_error(now)
    mean_before, error_before, freedom_before = _mean_and_error(before)
    difference = mean_now - mean_before
    if not freedom_now or not freedom_before:
        return Effect(difference, None, 0.0)
    error = math.hypot(error_now, error_before)
    if error == 0:  # different numbers whose logarithms are the same float
        return Effect(difference, 0.0, math.inf)
    share_now, share_before = (error_now / error) ** 4, (error_before / error) ** 4
    return Effect(difference, error, 1 / (share_now / freedom_now + share_before / freedom_before))


def one_sample(differences: Sequence[float]) -> Effect:
    """Return the mean of paired differences."""
    _check_finite(differences, "a difference")
    if len(set(differences)) == 1:
        return Effect(differences[0], 0.0 if len(differences) > 1 else None, math.inf)
    return Effect(*_mean_and_error(differences))


def t_upper_tail(distance: float, freedom: float) -> float:
    """Return the chance that Student's t is larger than `distance`."""
    from scipy.special import stdtr

    return float(stdtr(freedom, -distance))


def variance(points: Sequence[float]) -> float:
    """Return the sample variance, ten times as fast as the exact `statistics.variance`."""
    if len(set(points)) == 1:
        return 0.0
    _, error, freedom = _mean_and_error(points)
    return error * error * (freedom + 1)


def _mean_and_error(points: Sequence[float]) -> tuple[float, float, int]:
    """Return mean, standard error and degrees of freedom (0 for a single point: the error is unknown)."""
    count = len(points)
    mean = math.fsum(point / count for point in points)
    if count == 1:
        return mean, 0.0, 0
    # hypot, because the squares of large figures would overflow a float.
    spread = math.hypot(*(point - mean for point in points))
    return mean, spread / math.sqrt(count * (count - 1)), count - 1


def t_critical(freedom: float, confidence: float) -> float:
    """Return the half width of an interval of this confidence, in standard errors."""
    return t_quantile(freedom, (1 + confidence) / 2)


def exp_or_infinity(value: float) -> float:
    """Return e to this power; infinity where that would overflow a float."""
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf


def _check_finite(values: Sequence[float], what: str) -> None:
    if not len(values):
        raise InvalidResult(f"{what} of no values: give at least one")
    for value in values:
        if not math.isfinite(value):
            raise InvalidResult(f"{what} of a value that is {value}: give finite numbers")


def _check_quantile(quantile: float) -> None:
    if not 0 <= quantile <= 1:
        raise InvalidResult(f"quantile is {quantile!r}: use a number from 0 to 1")
