"""Histograms of latencies: three digits, and exact merging."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.latencies import LONGEST_NS, Latencies, merged

NANOSECONDS = st.lists(st.integers(1, LONGEST_NS), min_size=1, max_size=50)


def histogram(values: list[int]) -> Latencies:
    made = Latencies()
    for value in values:
        made.record(value)
    return made


@given(NANOSECONDS, st.floats(0, 100))
def test_a_percentile_is_right_to_three_digits(values: list[int], percent: float) -> None:
    exact = float(np.percentile(values, percent, method="inverted_cdf"))
    found = histogram(values).percentile_ms(percent) * 1e6
    assert exact <= found * (1 + 1e-12)
    assert found <= exact * (1 + 1 / 1024)


@given(NANOSECONDS, NANOSECONDS)
def test_merging_is_the_same_as_recording_together(one: list[int], other: list[int]) -> None:
    together = histogram([*one, *other])
    apart = merged([histogram(one), Latencies.from_counts(histogram(other).as_counts())])
    assert apart.as_counts() == together.as_counts()
    assert apart.count == together.count == len(one) + len(other)


def test_how_many_are_above_a_limit() -> None:
    made = histogram([1_000_000, 9_990_000, 10_000_000, 10_050_000, 50_000_000])
    assert made.above(10.0) == 2
    assert made.above(0.5) == 5
    assert made.above(60.0) == 0


def test_counts_of_another_format_are_refused() -> None:
    for wrong in ({"-1": 1}, {"999999": 1}, {"5": -1}):
        with pytest.raises(InvalidResult, match="not a count"):
            Latencies.from_counts(wrong)
