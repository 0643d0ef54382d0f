"""Moderated variances: the estimated prior, and the rates of intervals and false alarms."""

from __future__ import annotations

import math
import random
import statistics

import pytest

from memory.benchmarking.measure.statistics import t_critical, t_upper_tail, welch
from memory.benchmarking.verdicts.moderation import Prior, moderated_welch, prior_of


def rounds(source: random.Random, spread: float, count: int) -> list[float]:
    return [source.gauss(0, spread) for _ in range(count)]


def test_the_prior_of_metrics_with_equal_noise_has_their_variance() -> None:
    source = random.Random(1)
    prior = prior_of([(statistics.variance(rounds(source, 0.05, 5)), 4) for _ in range(300)])
    assert math.sqrt(prior.variance) == pytest.approx(0.05, rel=0.1)
    assert prior.freedom > 15


def test_the_freedom_of_a_known_prior_is_estimated() -> None:
    """Variances drawn from a scaled inverse chi-squared distribution of 4 degrees of freedom."""
    source = random.Random(2)
    found = []
    for _ in range(2000):
        chi_squared = math.fsum(source.gauss(0, 1) ** 2 for _ in range(4))
        spread = math.sqrt(4 * 0.05**2 / chi_squared)
        found.append((statistics.variance(rounds(source, spread, 5)), 4))
    prior = prior_of(found)
    assert prior.freedom == pytest.approx(4, rel=0.25)
    assert math.sqrt(prior.variance) == pytest.approx(0.05, rel=0.1)


def test_too_few_metrics_give_an_empty_prior() -> None:
    assert prior_of([(0.1, 4)] * 9) == Prior()
    assert prior_of([]) == Prior()
    assert prior_of([(0.0, 4)] * 50) == Prior()


def test_without_a_prior_the_test_is_welchs() -> None:
    now, before = [3.1, 2.9, 3.4, 3.3], [2.5, 2.7, 2.2, 2.6, 2.4]
    plain, moderated = welch(now, before), moderated_welch(now, before, Prior())
    assert moderated.value == pytest.approx(plain.value)
    assert moderated.error == pytest.approx(plain.error)
    assert moderated.freedom == pytest.approx(plain.freedom)


def test_rounds_that_agree_by_chance_are_not_a_regression() -> None:
    lucky = ([0.500, 0.501], [0.0, 0.001])
    plain, moderated = welch(*lucky), moderated_welch(*lucky, Prior(0.2**2, 2.0))
    assert plain.error is not None
    assert moderated.error is not None
    assert 2 * t_upper_tail(plain.value / plain.error, plain.freedom) < 0.001
    assert 2 * t_upper_tail(moderated.value / moderated.error, moderated.freedom) > 0.05


def test_equal_rounds_of_a_coarse_clock_are_not_taken_for_exact() -> None:
    effect = moderated_welch([1.0, 1.0], [1.0, 1.0], Prior(0.01, 2.0))
    assert effect.value == 0
    assert effect.error
    assert moderated_welch([1.0, 1.0], [1.0, 1.0], Prior()).error == 0


@pytest.mark.parametrize("count", [3, 5])
def test_intervals_and_false_alarms_keep_their_rate_where_noise_differs(count: int) -> None:
    source = random.Random(count)
    metrics, repeats = 60, 60
    held = alarms = 0
    for _ in range(repeats):
        spreads = [0.05 * math.exp(source.gauss(0, 0.6)) for _ in range(metrics)]
        sides = [(rounds(source, spread, count), rounds(source, spread, count)) for spread in spreads]
        prior = prior_of([(statistics.variance(side), count - 1) for both in sides for side in both])
        smallest = 1.0
        for now, before in sides:
            effect = moderated_welch(now, before, prior)
            assert effect.error is not None
            held += abs(effect.value) <= t_critical(effect.freedom, 0.95) * effect.error
            smallest = min(smallest, 2 * t_upper_tail(abs(effect.value) / effect.error, effect.freedom))
        alarms += smallest < 0.05 / metrics
    assert 0.93 <= held / (metrics * repeats) <= 0.98
    assert alarms / repeats <= 0.14  # 5 % and three standard errors
