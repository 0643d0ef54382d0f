"""What the spread of all metrics says about the spread of one (Smyth 2004, as in limma).

Two to five rounds know their own variance badly. Now and then they agree by luck, and a test that believes
them takes the next slow hour for a regression: among a hundred metrics there is always one. So each
variance is drawn towards that of all timings of the comparison,

    s̃² = (d₀·s₀² + d·s²) ÷ (d₀ + d)

as strongly as the metrics are alike: d₀ is how many degrees of freedom the common value s₀² is worth, and
comes out of how much the variances differ beyond what chance explains. The test gains these degrees of
freedom too, so that it sees more where the metrics are alike.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from memory.benchmarking.measure.statistics import Effect

LEAST = 10
"""Variances that are needed to know how they spread."""
_MOST_FREEDOM = 20.0


@dataclass(frozen=True)
class Prior:
    """The common variance, and how much it counts."""

    variance: float = 0.0
    freedom: float = 0.0


def prior_of(variances: Sequence[tuple[float, int]]) -> Prior:
    """From the variances of many metrics with their degrees of freedom; none where they are too few."""
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
    """The freedom whose log-variances vary by this much: the inverse of the trigamma function."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    def too_much(half: float) -> float:
        return float(polygamma(1, half)) - excess

    if too_much(_MOST_FREEDOM / 2) >= 0:
        return _MOST_FREEDOM
    return 2 * float(brentq(too_much, 1e-6, _MOST_FREEDOM / 2))


def moderated_welch(now: Sequence[float], before: Sequence[float], prior: Prior) -> Effect:
    """Welch's difference of means, with variances that know of the others."""
    sides = [_moderated(values, prior) for values in (now, before)]
    difference = statistics.fmean(now) - statistics.fmean(before)
    if len(set(now)) == 1 and set(now) == set(before):
        difference = 0.0
    error = math.sqrt(math.fsum(variance for variance, _ in sides))
    if error == 0:
        return Effect(difference, 0.0, math.inf)
    freedom = error**4 / math.fsum(v**2 / d for v, d in sides if v)
    # What both sides know from the others is one piece of knowledge, not two.
    return Effect(difference, error, min(freedom, prior.freedom / 2 + len(now) + len(before) - 2))


def _moderated(values: Sequence[float], prior: Prior) -> tuple[float, float]:
    """The variance of the mean, and its degrees of freedom."""
    own = len(values) - 1
    freedom = own + prior.freedom
    variance = (own * statistics.variance(values) + prior.freedom * prior.variance) / freedom
    return variance / len(values), freedom
