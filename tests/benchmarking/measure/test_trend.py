"""Slopes of series with correlated readings."""

from __future__ import annotations

import random

import pytest

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import Estimate
from memory.benchmarking.measure.trend import trend


def slope_of(ys: list[float], xs: list[float] | None = None) -> Estimate:
    found = trend(xs if xs is not None else list(range(len(ys))), ys)
    assert found is not None
    return found


def holds(estimate: Estimate, value: float) -> bool:
    assert estimate.low is not None
    assert estimate.high is not None
    return estimate.low <= value <= estimate.high


def test_the_slope_of_a_straight_line_is_exact() -> None:
    found = slope_of([3.0 * x + 5 for x in range(200)])
    assert (found.value, found.low, found.high) == pytest.approx((3.0, 3.0, 3.0))


def test_a_constant_series_has_slope_zero() -> None:
    found = slope_of([42.0] * 100)
    assert (found.value, found.low, found.high) == (0.0, 0.0, 0.0)


def test_filling_a_cache_at_the_beginning_is_no_leak() -> None:
    assert holds(slope_of([min(x, 200) * 1000.0 for x in range(1000)]), 0)


def test_a_single_later_step_is_no_leak() -> None:
    assert holds(slope_of([0.0 if x < 600 else 5e6 for x in range(1000)]), 0)


def test_a_small_leak_is_found_in_noise() -> None:
    rng = random.Random(1)
    found = slope_of([2.0 * x + rng.gauss(0, 20) for x in range(2000)])
    assert found.value == pytest.approx(2.0, abs=0.1)
    assert not holds(found, 0)


@pytest.mark.parametrize("step", [0.0, 1.0], ids=["readings by themselves", "a walk"])
def test_the_interval_contains_the_true_slope_in_95_percent(step: float) -> None:
    """This includes a random walk, for which the usual interval of a fitted line almost never does."""
    held = 0
    for seed in range(300):
        rng = random.Random(seed)
        ys, level = [], 0.0
        for _ in range(320):
            level += rng.gauss(0, step)
            ys.append(level + rng.gauss(0, 1))
        held += holds(slope_of(ys), 0)
    assert held >= 300 * 0.95 - 4 * (300 * 0.95 * 0.05) ** 0.5


def test_too_few_readings_give_no_slope() -> None:
    assert trend([], []) is None
    assert trend(list(range(20)), [1.0] * 20) is None
    assert trend([5.0] * 1000, [1.0] * 1000) is None


def test_readings_need_one_ascending_x_each() -> None:
    with pytest.raises(InvalidResult, match="pass one for each"):
        trend([1.0, 2.0], [1.0])
    with pytest.raises(InvalidResult, match="in ascending order"):
        trend([2.0, 1.0], [1.0, 1.0])
