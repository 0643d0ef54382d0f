"""Percentiles, intervals and differences, compared with those of NumPy and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.special
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import (
    Effect,
    exp_or_infinity,
    over_rounds,
    percentiles,
    t_critical,
    t_upper_tail,
    variance,
    welch,
)
from memory.benchmarking.measure.student import t_quantile

numbers = st.floats(-1e12, 1e12)
times = st.floats(1e-6, 1e6)
quantiles = st.floats(0, 1)

# -- percentiles --------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=60), st.lists(quantiles, max_size=5))
def test_percentiles_are_those_of_numpy(values: list[float], wanted: list[float]) -> None:
    expected = [float(np.percentile(values, 100 * quantile)) for quantile in wanted]
    assert percentiles(values, wanted) == pytest.approx(expected, rel=1e-9, abs=1e-3)


@settings(deadline=None)
@given(st.lists(numbers, min_size=1, max_size=60), quantiles)
def test_a_percentile_lies_between_the_smallest_and_the_largest(
    values: list[float], quantile: float
) -> None:
    (found,) = percentiles(values, [quantile])
    assert min(values) <= found <= max(values)


@settings(deadline=None)
@given(numbers, quantiles)
def test_every_percentile_of_one_value_is_that_value(value: float, quantile: float) -> None:
    assert percentiles([value], [quantile]) == [value]


def test_the_order_of_the_values_is_not_changed() -> None:
    values = [3.0, 1.0, 2.0]
    assert percentiles(values, [0.5]) == [2.0]
    assert values == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.nan], [math.inf]])
def test_no_values_and_values_that_are_not_finite_are_refused(values: list[float]) -> None:
    with pytest.raises(InvalidResult, match=r"of no values|of a value that is"):
        percentiles(values, [0.5])
    with pytest.raises(InvalidResult, match=r"of no values|of a value that is"):
        over_rounds(values)


@pytest.mark.parametrize("quantile", [-0.01, 1.01, 95, math.nan])
def test_a_quantile_outside_0_to_1_is_refused(quantile: float) -> None:
    with pytest.raises(InvalidResult, match="from 0 to 1"):
        percentiles([1.0, 2.0], [quantile])


# -- over rounds --------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(times, min_size=2, max_size=12))
def test_times_over_rounds_have_students_interval_of_their_logarithms(values: list[float]) -> None:
    assume(len(set(values)) > 1)
    logs = np.log(values)
    error = scipy.stats.sem(logs)
    assume(error > 1e-6)
    low, high = np.exp(scipy.stats.t.interval(0.95, len(values) - 1, logs.mean(), error))
    assume(np.isfinite(high))
    found = over_rounds(values)
    assert found.rounds == tuple(values)
    assert found.value == pytest.approx(scipy.stats.gmean(values), rel=1e-9)
    assert found.low == pytest.approx(low, rel=1e-6)
    assert found.high == pytest.approx(high, rel=1e-6)


@settings(deadline=None)
@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=12))
def test_figures_that_can_be_zero_have_the_interval_of_their_mean(values: list[float]) -> None:
    values = [*values, 0.0]
    error = scipy.stats.sem(values)
    assume(error > 1e-6)
    low, high = scipy.stats.t.interval(0.95, len(values) - 1, np.mean(values), error)
    found = over_rounds(values)
    assert found.value == pytest.approx(np.mean(values), abs=1e-6)
    assert (found.low, found.high) == pytest.approx((low, high), rel=1e-6, abs=1e-6)


@settings(deadline=None)
@given(numbers)
def test_one_round_has_no_interval(value: float) -> None:
    found = over_rounds([value])
    assert (found.value, found.low, found.high) == (value, None, None)


@settings(deadline=None)
@given(numbers, st.integers(2, 40))
def test_a_figure_that_is_the_same_in_every_round_is_that_figure(value: float, count: int) -> None:
    found = over_rounds([value] * count)
    assert (found.value, found.low, found.high) == (value, value, value)


def test_two_rounds_that_differ_by_many_orders_have_an_infinite_interval() -> None:
    found = over_rounds([1e-200, 1e200])
    assert found.value == pytest.approx(1)
    assert (found.low, found.high) == (0, math.inf)


def test_the_interval_over_rounds_contains_the_true_value_where_rounds_vary() -> None:
    """All samples of a round share its level, so only several rounds show how much the level varies."""
    rng = np.random.default_rng(7)
    repetitions, by_rounds, by_samples = 400, 0, 0
    for _ in range(repetitions):
        levels = rng.normal(0, 0.1, 6)
        samples = np.exp(levels[:, None] + rng.normal(0, 0.1, (6, 50)))
        estimate = over_rounds(np.exp(np.log(samples).mean(axis=1)).tolist())
        assert estimate.low is not None
        assert estimate.high is not None
        by_rounds += estimate.low <= 1 <= estimate.high
        pooled = over_rounds(samples.ravel().tolist())
        assert pooled.low is not None
        assert pooled.high is not None
        by_samples += pooled.low <= 1 <= pooled.high
    assert 0.91 <= by_rounds / repetitions <= 0.99
    assert by_samples / repetitions < 0.5


# -- Welch's difference -------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(numbers, min_size=2, max_size=9), st.lists(numbers, min_size=2, max_size=9))
def test_the_difference_and_its_interval_are_those_of_scipy(now: list[float], before: list[float]) -> None:
    assume(np.std(now) > 1e-3)
    assume(np.std(before) > 1e-3)
    expected = scipy.stats.ttest_ind(now, before, equal_var=False)
    bounds = expected.confidence_interval(0.95)
    found = welch(now, before)
    assert found.error is not None
    half_width = t_critical(found.freedom, 0.95) * found.error
    assert found.value == pytest.approx(np.mean(now) - np.mean(before), rel=1e-6, abs=1e-3)
    assert found.value - half_width == pytest.approx(bounds.low, rel=1e-6, abs=1e-3)
    assert found.value + half_width == pytest.approx(bounds.high, rel=1e-6, abs=1e-3)
    assert found.freedom == pytest.approx(expected.df, rel=1e-6)


@pytest.mark.parametrize("freedom", [1, 2.5, 7, 30, math.inf])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.9999])
def test_quantiles_of_students_t_are_those_of_scipy(freedom: float, confidence: float) -> None:
    assert t_critical(freedom, confidence) == pytest.approx(
        scipy.stats.t.ppf((1 + confidence) / 2, freedom)
    )
    assert t_upper_tail(1.7, freedom) == pytest.approx(scipy.stats.t.sf(1.7, freedom))


@settings(deadline=None)
@given(numbers, st.integers(2, 30), st.integers(2, 30))
def test_the_same_constant_on_both_sides_is_exactly_no_difference(
    value: float, count: int, other: int
) -> None:
    assert welch([value] * count, [value] * other) == Effect(0.0, 0.0, math.inf)


def test_two_constants_that_differ_have_no_error() -> None:
    assert welch([110, 110], [100, 100, 100]) == Effect(10.0, 0.0, math.inf)


def test_a_constant_beside_figures_that_vary_has_an_error() -> None:
    found = welch([1.0, 1.0, 1.0], [0.9, 1.0, 1.1])
    assert found.error is not None
    assert found.error > abs(found.value)


@pytest.mark.parametrize(("now", "before"), [([2.0], [1.0]), ([2.0, 2.0], [1.0]), ([2.0], [1.0, 1.5])])
def test_a_single_round_leaves_the_error_unknown(now: list[float], before: list[float]) -> None:
    found = welch(now, before)
    assert found.value == pytest.approx(2.0 - sum(before) / len(before))
    assert found.error is None


@settings(deadline=None)
@given(st.lists(numbers, min_size=2, max_size=6), st.lists(numbers, min_size=2, max_size=6))
def test_swapping_the_sides_changes_the_sign_of_the_difference(
    now: list[float], before: list[float]
) -> None:
    forth, back = welch(now, before), welch(before, now)
    assert forth.value == -back.value
    assert forth.error == back.error
    assert forth.freedom == pytest.approx(back.freedom)


@settings(deadline=None)
@given(st.lists(numbers, min_size=2, max_size=12))
def test_the_variance_is_that_of_numpy(values: list[float]) -> None:
    assert variance(values) == pytest.approx(np.var(values, ddof=1), rel=1e-9, abs=1e-6)
    assert variance(values[:1] * 3) == 0.0


def test_a_power_too_large_for_a_float_is_infinite() -> None:
    assert exp_or_infinity(0.0) == 1.0
    assert exp_or_infinity(1000.0) == math.inf


@given(st.floats(1, 1e9), st.floats(0.5, 0.99999))
def test_all_quantiles_of_students_t_are_those_of_scipy(freedom: float, probability: float) -> None:
    exact = scipy.special.stdtrit(freedom, probability)
    assert t_quantile(freedom, probability) == pytest.approx(exact, rel=1e-6, abs=1e-9)
