"""Growth: the exponent of a power law, with an interval if there are at least three sizes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from memory.benchmarking.bench import Score
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.growth import growth


@given(st.floats(-1, 2), st.floats(0.001, 1000))
def test_the_exponent_of_a_power_law_is_found(exponent: float, factor: float) -> None:
    fit = growth({size: factor * size**exponent for size in (100.0, 1000.0, 10000.0)})
    assert fit is not None
    assert fit.exponent == pytest.approx(exponent, abs=1e-6)


def test_the_interval_is_that_of_a_linear_regression_on_logarithms() -> None:
    costs = {100.0: 1.0, 1000.0: 2.2, 10000.0: 3.9, 100000.0: 9.0}
    fit = growth(costs)
    assert fit is not None
    line = stats.linregress(np.log(list(costs)), np.log(list(costs.values())))
    half_width = stats.t.ppf(0.975, 2) * line.stderr
    assert (fit.exponent, fit.low, fit.high) == pytest.approx(
        (line.slope, line.slope - half_width, line.slope + half_width)
    )
    leaves = growth_leaves("search p50", costs)
    assert leaves["growth_exponent"] == Score(fit.exponent, fit.low, fit.high)
    assert leaves["growth"] == (
        f"search p50 grows like n^{fit.exponent:.2f} ({fit.low:.2f} to {fit.high:.2f}) "
        "between 100 and 100,000"
    )


def test_two_sizes_have_no_interval_and_one_has_no_growth() -> None:
    fit = growth({10.0: 1.0, 100.0: 10.0})
    assert fit is not None
    leaves = growth_leaves("it", {10.0: 1.0, 100.0: 10.0})
    assert leaves["growth"] == "it grows like n^1.00 between 10 and 100"
    assert growth_leaves("it", {10.0: 1.0}) == {}
    assert growth({10.0: 1.0}) is None
    with pytest.raises(InvalidResult, match="above 0"):
        growth({10.0: 0.0, 20.0: 1.0})
