"""Moderated variances: use all metrics to estimate the variance of each (Smyth 2004, as in limma).

Two to five rounds are too few to estimate a variance well. Among a hundred metrics, the rounds of some
agree by chance, and a plain t test then calls the next slow hour a regression. So each variance is moved
towards the common variance of all timings of the comparison:

    s̃² = (d₀·s₀² + d·s²) ÷ (d₀ + d)

d₀ is the number of degrees of freedom that the common variance s₀² is worth. It is large where the
variances differ by no more than chance explains. The test gains these degrees of freedom, and
finds smaller effects.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from memory.benchmarking.measure.statistics import Effect
from memory.benchmarking.measure.statistics import variance as sample_variance

LEAST = 10
"""The fewest variances from which a common variance is estimated."""
_MOST_FREEDOM = 20.0
"""The largest d₀, so that a metric's own rounds always have weight."""


@dataclass(frozen=True)
class Prior:
    """The common variance, and the degrees of freedom that it is worth."""

    variance: float = 0.0
    freedom: float = 0.0


def prior_of(variances: Sequence[tuple[float, int]]) -> Prior:
    """Estimate the prior from variances and their degrees of freedom; an empty prior if these are few."""
    from scipy.special import digamma, polygamma

    known = [(variance, freedom) for variance, freedom in variances if variance > 0 and freedom > 0]
    if len(known) < LEAST:
        return Prior()
    centred = [math.log(variance) - digamma(d / 2) + math.log(d / 2) for variance, d in known]
    excess = statistics.variance(centred) - statistics.fmean(float(polygamma(1, d / 2)) for _, d in known)
    freedom = _freedom_of(excess)
    shift = digamma(freedom / 2) - math.log(freedom / 2)
    return Prior(math.exp(statistics.fmean(centred) + shift), freedom)


def _freedom_of(excess: float) -> float:
    """Return the degrees of freedom at which log-variances vary by `excess`: the inverse trigamma function.

    The search is a bisection, because importing `scipy.optimize` would take 0.2 s at the end of every run.
    """
    from scipy.special import polygamma

    low, high = 1e-6, _MOST_FREEDOM / 2
    if polygamma(1, high) >= excess:
        return _MOST_FREEDOM
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if polygamma(1, middle) > excess else (low, middle)
    return low + high


def moderated_welch(now: Sequence[float], before: Sequence[float], prior: Prior) -> Effect:
    """Return Welch's difference of means, with moderated variances."""
    sides = [_moderated(values, prior) for values in (now, before)]
    difference = statistics.fmean(now) - statistics.fmean(before)
    if len(set(now)) == 1 and set(now) == set(before):
        difference = 0.0
    error = math.sqrt(math.fsum(variance for variance, _ in sides))
    if error == 0:
        return Effect(difference, 0.0, math.inf)
    freedom = error**4 / math.fsum(v**2 / d for v, d in sides if v)
    # Both sides use the same prior, so its degrees of freedom count once and not twice.
    return Effect(difference, error, min(freedom, prior.freedom / 2 + len(now) + len(before) - 2))


def _moderated(values: Sequence[float], prior: Prior) -> tuple[float, float]:
    """Return the moderated variance of the mean, and its degrees of freedom."""
    own = len(values) - 1
    freedom = own + prior.freedom
    variance = (own * sample_variance(values) + prior.freedom * prior.variance) / freedom
    return variance / len(values), freedom
