"""Interleaved timing: the order of the calls, and how the figures are computed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.interleaved import (
    InnerTime,
    overhead_us,
    time_interleaved,
    turn_medians_us,
)
from memory.benchmarking.measure.timing import Timing


def timing(*turns: list[int]) -> Timing:
    """Return a timing with these samples (ns) in its turns."""
    samples = tuple(sample for turn in turns for sample in turn)
    return Timing(samples, tuple(map(len, turns)), tuple(map(sum, turns)), tuple(map(sum, turns)))


@settings(max_examples=15, deadline=None)  # garbage is collected in every turn
@given(st.integers(1, 40), st.integers(1, 12), st.integers(0, 5))
def test_every_item_is_used_once_and_in_order(calls: int, turns: int, warm_up: int) -> None:
    met: dict[str, list[int]] = {"a": [], "b": []}
    items = list(range(calls + warm_up))
    timings = time_interleaved(
        {name: met[name].append for name in met}, {"a": items, "b": items}, turns=turns, warm_up=warm_up
    )
    assert met == {"a": items, "b": items}
    for each in timings.values():
        assert each.calls == calls
        assert sum(each.block_samples) == calls
        assert len(each.block_wall_ns) == len(each.block_cpu_ns) == min(turns, calls)


def test_the_last_operation_of_a_turn_is_first_in_the_next() -> None:
    order: list[str] = []
    operations: dict[str, Any] = {name: lambda _, name=name: order.append(name) for name in "abc"}
    time_interleaved(operations, {name: [1, 2, 3] for name in "abc"}, turns=3)
    assert "".join(order) == "abc" + "cba" + "abc"


def test_operations_with_different_numbers_of_items_are_refused() -> None:
    for items in ({"a": [1], "b": [1, 2]}, {"a": [], "b": []}):
        with pytest.raises(InvalidResult, match="pass each operation the same number"):
            time_interleaved({"a": print, "b": print}, items)


def test_an_overhead_is_the_median_difference_of_the_turns_medians() -> None:
    whole = timing([10_000, 12_000, 90_000], [21_000, 22_000, 23_000], [5_000, 5_000, 5_000])
    part = timing([9_000, 10_000, 11_000], [20_000, 20_000, 20_000], [1_000, 2_000, 50_000])
    assert turn_medians_us(whole) == [12.0, 22.0, 5.0]
    assert overhead_us(whole, part) == 2.0
    assert overhead_us(whole, part, timing([1_000], [1_000], [1_000])) == 1.0


@given(st.lists(st.lists(st.integers(1, 10**9), min_size=1, max_size=5), min_size=1, max_size=8))
def test_an_operation_has_no_overhead_over_itself(turns: list[list[int]]) -> None:
    assert overhead_us(timing(*turns), timing(*turns)) == 0


def test_the_time_of_inner_calls_is_subtracted(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock advances one tick a reading: each inner call takes 1 µs, outer times are given."""
    ticks = iter(range(100))
    monkeypatch.setattr("memory.benchmarking.measure.interleaved.wall_ns", lambda: next(ticks) * 1000)
    inside = InnerTime()
    inner = inside.watched(lambda value, *, twice: value * 2 if twice else value)
    answers: list[int] = []
    outer = inside.around(lambda value: answers.extend(inner(value, twice=True) for _ in range(value)))
    for value in (3, 0, 2):
        outer(value)
    assert answers == [6, 6, 6, 4, 4]
    assert inside.outside_us(timing([9_000, 1_000], [7_000])) == 5.0  # the median of 6, 1 and 5
    assert inside.outside_us(timing([2_000])) == 0.0  # the last call only


def test_an_inner_call_that_raises_is_subtracted_too() -> None:
    inside = InnerTime()
    with pytest.raises(ZeroDivisionError):
        inside.watched(lambda: 1 / 0)()
    assert inside._spent > 0
