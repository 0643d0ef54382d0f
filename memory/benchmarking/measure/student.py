"""Quantiles of Student's t, without SciPy: workers run in environments that do not have it."""

from __future__ import annotations

import math
import statistics
from functools import lru_cache

_NORMAL_FREEDOM = 1e7
"""From here on t and the normal distribution differ by less than one part in ten million."""
_SMALLEST = 1e-300
_MOST_TERMS = 100_000


@lru_cache(maxsize=1000)
def t_quantile(freedom: float, probability: float) -> float:
    """Return the value that Student's t stays below with this probability, which is from 0.5 to 1."""
    if freedom >= _NORMAL_FREEDOM:
        return statistics.NormalDist().inv_cdf(probability)
    tail = 1 - probability
    low, high = 0.0, 1.0
    while _upper_tail(high, freedom) > tail:
        low, high = high, 2 * high
    for _ in range(200):
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if _upper_tail(middle, freedom) > tail:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def _upper_tail(distance: float, freedom: float) -> float:
    """Return the chance that t is larger: half of the regularised incomplete beta function."""
    square = distance * distance
    a, b, x = freedom / 2, 0.5, freedom / (freedom + square)
    front = math.exp(
        math.lgamma(a + b)
        - math.lgamma(a)
        - math.lgamma(b)
        + a * math.log(x)
        + b * math.log(square / (freedom + square) or _SMALLEST)
    )
    if x < (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a / 2
    return (1 - front * _fraction(b, a, 1 - x) / b) / 2


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz (Numerical Recipes, 6.4)."""
    c, d = 1.0, 1 / _not_zero(1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _not_zero(1 + term * d)
            c = _not_zero(1 + term / c)
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value


def _not_zero(value: float) -> float:
    return value if abs(value) > _SMALLEST else _SMALLEST
