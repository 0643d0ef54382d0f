"""Percentiles, intervals and changes, held against NumPy and SciPy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.special import bdtr

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.statistics import (
    Change,
    change,
    over_rounds,
    percentile_interval,
    percentiles,
)

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


def test_the_values_are_left_in_their_order() -> None:
    values = [3.0, 1.0, 2.0]
    assert percentiles(values, [0.5]) == [2.0]
    assert values == [3.0, 1.0, 2.0]


@pytest.mark.parametrize("values", [[], [math.nan], [1.0, math.nan], [math.inf]])
def test_there_is_no_statistic_of_nothing_or_of_what_is_no_number(values: list[float]) -> None:
    with pytest.raises(InvalidResult, match=r"of no values|of a value that is"):
        percentiles(values, [0.5])
    with pytest.raises(InvalidResult, match=r"of no values|of a value that is"):
        percentile_interval(values, 0.5)
    with pytest.raises(InvalidResult, match=r"of no values|of a value that is"):
        over_rounds(values)


@pytest.mark.parametrize("quantile", [-0.01, 1.01, 95, math.nan])
def test_a_quantile_is_a_part_of_one(quantile: float) -> None:
    with pytest.raises(InvalidResult, match="from 0 to 1"):
        percentiles([1.0, 2.0], [quantile])
    with pytest.raises(InvalidResult, match="from 0 to 1"):
        percentile_interval([1.0, 2.0], quantile)


# -- the interval of a percentile ---------------------------------------------------------------


@settings(deadline=None)
@given(
    st.lists(numbers, min_size=1, max_size=80),
    st.floats(0.01, 0.99),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_the_bounds_are_the_innermost_ranks_that_the_binomial_allows(
    values: list[float], quantile: float, confidence: float
) -> None:
    count, tail = len(values), (1 - confidence) / 2
    below = [float(bdtr(rank - 1, count, quantile)) for rank in range(1, count + 1)]
    low = max((rank for rank in range(count) if below[rank] <= tail), default=None)
    high = min((rank for rank in range(count) if below[rank] >= 1 - tail), default=None)
    found = percentile_interval(values, quantile, confidence)
    if low is None or high is None:
        assert found is None
    else:
        assert found == (sorted(values)[low], sorted(values)[high])
        (middle,) = percentiles(values, [quantile])
        assert found[0] <= middle <= found[1]


@pytest.mark.parametrize(("quantile", "count"), [(0.5, 25), (0.5, 300), (0.95, 300), (0.99, 2000)])
def test_the_interval_holds_the_true_percentile_about_as_often_as_it_says(
    quantile: float, count: int
) -> None:
    rng = np.random.default_rng(20250323)
    truth = float(scipy.stats.lognorm.ppf(quantile, 0.7))
    turns, held = 600, 0
    for _ in range(turns):
        found = percentile_interval(rng.lognormal(0, 0.7, count).tolist(), quantile)
        assert found is not None
        held += found[0] <= truth <= found[1]
    # Ranks are whole numbers, so it holds a little more than 95 %; the bounds are 3.5 standard errors.
    assert 0.92 <= held / turns <= 0.995


def test_too_few_values_bound_no_tail() -> None:
    assert percentile_interval([1.0, 2.0, 3.0], 0.5) is None
    assert percentile_interval([float(value) for value in range(300)], 0.99) is None
    assert percentile_interval([1.0] * 1000, 0.0) is None
    assert percentile_interval([1.0] * 1000, 1.0) is None


def test_fifty_thousand_values_are_bounded() -> None:
    values = [float(value) for value in range(50_000)]
    low, high = percentile_interval(values, 0.99) or (0, 0)
    middle, spread = 0.99 * 50_000, 1.96 * math.sqrt(50_000 * 0.99 * 0.01)
    assert (low, high) == pytest.approx((middle - spread, middle + spread), abs=3)


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
def test_figures_that_can_be_zero_are_taken_as_they_are(values: list[float]) -> None:
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


def test_two_rounds_that_differ_wildly_bound_nothing() -> None:
    found = over_rounds([1e-200, 1e200])
    assert found.value == pytest.approx(1)
    assert (found.low, found.high) == (0, math.inf)


def test_the_interval_over_rounds_holds_the_truth_where_rounds_differ_from_each_other() -> None:
    """A round has its own level, the same for all of its samples: only rounds tell how much it varies."""
    rng = np.random.default_rng(7)
    turns, by_rounds, by_samples = 400, 0, 0
    for _ in range(turns):
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
    assert 0.91 <= by_rounds / turns <= 0.99
    assert by_samples / turns < 0.5


# -- change -------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(times, min_size=2, max_size=9), st.lists(times, min_size=2, max_size=9))
def test_a_change_has_welchs_interval_on_logarithms(now: list[float], before: list[float]) -> None:
    assume(np.std(np.log(now)) > 1e-6)
    assume(np.std(np.log(before)) > 1e-6)
    welch = scipy.stats.ttest_ind(np.log(now), np.log(before), equal_var=False)
    bounds = welch.confidence_interval(0.95)
    assume(abs(bounds.low) < 600)
    assume(abs(bounds.high) < 600)
    found = change(now, before)
    assert found is not None
    assert found.ratio == pytest.approx(scipy.stats.gmean(now) / scipy.stats.gmean(before), rel=1e-9)
    assert found.low == pytest.approx(math.exp(bounds.low), rel=1e-6)
    assert found.high == pytest.approx(math.exp(bounds.high), rel=1e-6)
    assume(abs(welch.pvalue - 0.05) > 1e-9)
    assert found.is_clear == (welch.pvalue < 0.05)


@settings(deadline=None)
@given(times, st.integers(2, 30), st.integers(2, 30))
def test_the_same_constant_on_both_sides_is_no_change(value: float, count: int, other: int) -> None:
    found = change([value] * count, [value] * other)
    assert found == Change(1.0, 1.0, 1.0)
    assert not found.is_clear


def test_two_constants_that_differ_are_a_clear_change() -> None:
    found = change([110, 110], [100, 100, 100])
    assert found == Change(1.1, 1.1, 1.1)
    assert found.is_clear


def test_neighbouring_numbers_are_as_good_as_one() -> None:
    value = 1000.0
    found = change([value, math.nextafter(value, 0)], [value, value])
    assert found is not None
    assert (found.ratio, found.low, found.high) == pytest.approx((1, 1, 1))


def test_a_constant_beside_figures_that_vary_has_an_interval() -> None:
    found = change([1.0, 1.0, 1.0], [0.9, 1.0, 1.1])
    assert found is not None
    assert found.low is not None
    assert found.low < found.ratio
    assert not found.is_clear


@pytest.mark.parametrize(("now", "before"), [([2.0], [1.0]), ([2.0, 2.0], [1.0]), ([2.0], [1.0, 1.0])])
def test_a_single_round_gives_a_ratio_without_an_interval(now: list[float], before: list[float]) -> None:
    found = change(now, before)
    assert found == Change(2.0)
    assert not found.is_clear


@pytest.mark.parametrize("odd", [0.0, -1.0, math.nan, math.inf])
def test_there_is_no_ratio_without_positive_numbers(odd: float) -> None:
    assert change([1.0, odd], [1.0, 2.0]) is None
    assert change([1.0, 2.0], [odd, 1.0]) is None
    assert change([], [1.0]) is None
    assert change([1.0], []) is None


@settings(deadline=None)
@given(st.lists(times, min_size=2, max_size=6), st.lists(times, min_size=2, max_size=6))
def test_a_change_turned_round_is_its_inverse(now: list[float], before: list[float]) -> None:
    forth, back = change(now, before), change(before, now)
    assert forth is not None
    assert back is not None
    assert forth.ratio * back.ratio == pytest.approx(1)
    assert forth.is_clear == back.is_clear
