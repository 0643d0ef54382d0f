"""Timing of operations: what is timed, what is not, and how often an operation is called.

Tests that depend on durations use a simulated clock: the test sets how long reading the clock and calling
the operation take.
"""

from __future__ import annotations

import gc
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure import timing
from memory.benchmarking.measure.timing import CLOCK_SHARE, Timing, clock_cost_ns, time_calls


class HandClock:
    """A simulated clock of wall and CPU time; it advances only when a test says so."""

    def __init__(self, reading_ns: int = 50) -> None:
        self.wall = self.cpu = 0
        self.reading_ns = reading_ns

    def read_wall(self) -> int:
        self.work(self.reading_ns)
        return self.wall

    def read_cpu(self) -> int:
        self.work(self.reading_ns)
        return self.cpu

    def work(self, nanoseconds: int) -> None:
        self.wall += nanoseconds
        self.cpu += nanoseconds

    def wait(self, nanoseconds: int) -> None:
        self.wall += nanoseconds

    @property
    def patched(self) -> pytest.MonkeyPatch:
        patch = pytest.MonkeyPatch()
        patch.setattr(timing, "wall_ns", self.read_wall)
        patch.setattr(timing, "cpu_ns", self.read_cpu)
        return patch


@pytest.fixture
def hands() -> Iterator[HandClock]:
    clock = HandClock()
    patch = clock.patched
    yield clock
    patch.undo()


class SlowItems(Sequence[int]):
    """Items that take time to fetch."""

    def __init__(self, count: int, fetch: Callable[[], object]) -> None:
        self.count = count
        self.fetch = fetch

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, place: Any) -> Any:
        if place >= self.count:
            raise IndexError
        self.fetch()
        return place


# -- number of calls ---------------------------------------------------------------------------


@given(calls=st.integers(1, 300), blocks=st.integers(1, 20), warm_up=st.integers(0, 5))
@settings(max_examples=25, deadline=None)
def test_with_one_call_a_sample_the_number_of_calls_is_exact(calls: int, blocks: int, warm_up: int) -> None:
    seen: list[int] = []
    found = time_calls(
        seen.append, range(7), calls=calls, blocks=blocks, warm_up=warm_up, calls_per_sample=1
    )
    assert len(seen) == calls + warm_up
    assert found.calls == len(found.samples_ns) == calls


@given(calls=st.integers(1, 3000), operation_ns=st.integers(1, 20_000))
@settings(max_examples=40, deadline=None)
def test_grouped_calls_exceed_the_request_by_less_than_a_sample(calls: int, operation_ns: int) -> None:
    clock = HandClock()
    patch = clock.patched
    count = 0

    def operation() -> None:
        nonlocal count
        count += 1
        clock.work(operation_ns)

    try:
        found = time_calls(operation, calls=calls)
    finally:
        patch.undo()
    warm_up = max(1, calls // 10)
    assert calls <= found.calls < calls + found.calls_per_sample
    assert count <= found.calls + warm_up


@pytest.mark.parametrize("calls", [10, 100, 1000, 5000])
@pytest.mark.parametrize("operation_ns", [100, 300, 700, 1100, 2900])
def test_round_numbers_of_calls_are_made_exactly(hands: HandClock, calls: int, operation_ns: int) -> None:
    assert time_calls(lambda: hands.work(operation_ns), calls=calls).calls == calls


@settings(deadline=None)
@given(samples=st.integers(1, 500), blocks=st.integers(1, 30))
def test_blocks_are_nearly_equal_and_none_is_empty(samples: int, blocks: int) -> None:
    sizes = timing.split_evenly(samples, blocks)
    assert sum(sizes) == samples
    assert len(sizes) == min(samples, blocks)
    assert max(sizes) - min(sizes) <= 1
    assert min(sizes) >= 1


def test_blocks_hold_all_samples_in_order() -> None:
    found = time_calls(lambda: None, calls=95, warm_up=0, blocks=10)
    assert sum(found.block_samples) == len(found.samples_ns) == 95
    start = 0
    for size, wall in zip(found.block_samples, found.block_wall_ns, strict=True):
        assert sum(found.samples_ns[start : start + size]) == wall
        start += size
    assert len(found.block_cpu_ns) == 10


def test_there_are_fewer_blocks_if_they_would_be_too_short(hands: HandClock) -> None:
    begun: list[int] = []
    found = time_calls(lambda: hands.work(20_000), calls=100, before_block=lambda: begun.append(1))
    assert len(found.block_samples) == len(begun) == 2  # 2 ms in all, at least 1 ms each


def test_before_block_is_not_timed(hands: HandClock) -> None:
    found = time_calls(lambda: hands.work(1_000_000), calls=50, before_block=lambda: hands.work(5_000_000))
    assert found["total_time_seconds"] == pytest.approx(0.05, rel=0.001)
    assert found["wall_to_cpu"] == pytest.approx(1)


# -- items --------------------------------------------------------------------------------------


def test_items_are_used_in_order_and_again_from_the_start() -> None:
    seen: list[str] = []
    time_calls(seen.append, ["a", "b", "c"], calls=8, warm_up=0)
    assert "".join(seen) == "abcabcab"


def test_a_block_continues_with_the_next_item() -> None:
    seen: list[int] = []
    time_calls(seen.append, range(5), calls=9, warm_up=0, blocks=4)
    assert seen == [0, 1, 2, 3, 4, 0, 1, 2, 3]


def test_without_warm_up_and_calls_every_item_is_used_once() -> None:
    seen: list[int] = []
    found = time_calls(seen.append, range(1234), warm_up=0)
    assert seen == list(range(1234))
    assert found.calls_per_sample == 1


def test_every_item_is_used_even_if_there_are_more_items_than_samples(
    hands: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "MOST_SAMPLES", 100)
    seen: Counter[int] = Counter()

    def operation(item: int) -> None:
        seen[item] += 1
        hands.work(50_000)

    found = time_calls(operation, range(1999), seconds=0.001)
    assert set(seen) == set(range(1999))
    assert len(found.samples_ns) <= 100


def test_items_may_be_an_array() -> None:
    seen: list[float] = []
    time_calls(seen.append, np.array([1.0, 2.0]), calls=4, warm_up=0)  # type: ignore[arg-type]
    assert seen == [1.0, 2.0, 1.0, 2.0]


@pytest.mark.parametrize("operation_ns", [100, 1000, 100_000])
def test_fetching_items_is_not_timed(hands: HandClock, operation_ns: int) -> None:
    items = SlowItems(500, lambda: hands.work(operation_ns))
    found = time_calls(lambda item: hands.work(operation_ns), items, calls=1000)
    assert found["mean_ms"] * 1e6 == pytest.approx(operation_ns, rel=0.02)
    assert found["cpu_ms"] * 1e6 == pytest.approx(operation_ns, rel=0.05)


# -- figures ------------------------------------------------------------------------------------


@given(reading_ns=st.integers(1, 500), operation_ns=st.integers(5, 1_000_000))
@settings(max_examples=40, deadline=None)
def test_reading_the_clock_is_at_most_its_share_of_a_sample(reading_ns: int, operation_ns: int) -> None:
    clock = HandClock(reading_ns)
    patch = clock.patched
    try:
        found = time_calls(lambda: clock.work(operation_ns), seconds=0.002)
    finally:
        patch.undo()
    assert 1 <= found["mean_ms"] * 1e6 / operation_ns <= 1 + 2 * CLOCK_SHARE
    assert found["p50_ms"] == pytest.approx(found["mean_ms"], rel=1e-6)


def test_a_timing_takes_about_its_seconds_and_limits_its_samples(
    hands: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timing, "MOST_SAMPLES", 200)
    found = time_calls(lambda: hands.work(10_000), seconds=0.1)
    assert len(found.samples_ns) <= 200
    assert found["total_time_seconds"] == pytest.approx(0.1, rel=0.05)


@pytest.mark.parametrize("interrupted", range(1, 11))
def test_an_interruption_of_the_warm_up_does_not_change_the_calibration(
    hands: HandClock, interrupted: int
) -> None:
    count = 0

    def operation() -> None:
        nonlocal count
        count += 1
        hands.work(500_000 if count == interrupted else 500)

    assert time_calls(operation, calls=100).calls_per_sample == 10


def test_cpu_time_excludes_the_loop_and_waiting() -> None:
    clock = HandClock(reading_ns=100)
    patch = clock.patched

    def operation() -> None:
        clock.work(2000)
        clock.wait(6000)

    try:
        found = time_calls(operation, calls=1000, calls_per_sample=1)
    finally:
        patch.undo()
    assert found["wall_to_cpu"] == pytest.approx(4, rel=0.1)
    assert found["cpu_ms"] == pytest.approx(0.002, rel=0.1)


def test_the_figures_of_one_sample_are_that_sample() -> None:
    found = Timing((3_000_000,), (1,), (3_000_000,), (1_500_000,), work=6)
    assert dict(found) == {
        "throughput_ops_per_second": 2000.0,
        "total_time_seconds": 0.003,
        "items_processed": 6,
        "mean_ms": 3.0,
        "p50_ms": 3.0,
        "p95_ms": 3.0,
        "p99_ms": 3.0,
        "max_ms": 3.0,
        "cpu_ms": 1.5,
        "wall_to_cpu": 2.0,
    }
    assert len(found) == len(dict(found))


@settings(deadline=None)
@given(
    samples=st.lists(st.integers(0, 10**10), min_size=1, max_size=50),
    per_sample=st.integers(1, 50),
    work=st.integers(1, 1000),
)
def test_throughput_and_latency_come_from_the_same_samples(
    samples: list[int], per_sample: int, work: int
) -> None:
    found = Timing(tuple(samples), (len(samples),), (sum(samples),), (0,), per_sample, work)
    assert found.calls == len(samples) * per_sample
    assert found["items_processed"] == found.calls * work
    assert found["throughput_ops_per_second"] * found["mean_ms"] == pytest.approx(1000 * work)
    assert found["p50_ms"] <= found["p95_ms"] <= found["p99_ms"] <= found["max_ms"]
    assert "wall_to_cpu" not in found  # the clock saw no CPU time
    assert all(np.isfinite(list(found.values())))


def test_an_operation_that_takes_no_time_has_figures() -> None:
    clock = HandClock(reading_ns=0)
    patch = clock.patched
    try:
        found = time_calls(lambda: None, calls=20)
    finally:
        patch.undo()
    assert found["max_ms"] == 0
    assert np.isfinite(found["throughput_ops_per_second"])


def test_a_timing_without_samples_is_refused() -> None:
    with pytest.raises(InvalidResult, match="no samples"):
        Timing((), (), (), ())


def test_clock_cost_is_the_time_of_one_reading(hands: HandClock) -> None:
    assert clock_cost_ns() == pytest.approx(50, rel=0.02)


def test_reading_the_real_clock_takes_time() -> None:
    assert clock_cost_ns() > 0


def test_a_real_operation_has_all_its_figures() -> None:
    found = time_calls(lambda: sum(range(1000)), seconds=0.01)
    assert 0 < found["p50_ms"] <= found["max_ms"]
    assert found["cpu_ms"] > 0
    assert found.milliseconds == [sample / 1e6 / found.calls_per_sample for sample in found.samples_ns]


# -- garbage collection ------------------------------------------------------------------------


@pytest.fixture
def collector() -> Iterator[None]:
    """Restore the garbage collector's state after a test."""
    was_on, were_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    gc.unfreeze()
    yield
    gc.unfreeze()
    (gc.enable if was_on else gc.disable)()
    if were_frozen:
        gc.collect()
        gc.freeze()


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("on", [True, False])
def test_garbage_collection_is_off_inside_and_restored_afterwards(on: bool) -> None:
    (gc.enable if on else gc.disable)()
    inside: list[bool] = []
    between: list[bool] = []
    time_calls(
        lambda: inside.append(gc.isenabled()),
        calls=20,
        warm_up=0,
        before_block=lambda: between.append(gc.isenabled()),
    )
    assert set(inside) == {False}
    assert set(between) == {on}
    assert gc.isenabled() is on
    assert gc.get_freeze_count() == 0


class Boom(Exception):
    pass


@pytest.mark.usefixtures("collector")
@pytest.mark.parametrize("raised", [Boom, KeyboardInterrupt])
@pytest.mark.parametrize("failing_call", [1, 2, 15, 40])
def test_garbage_collection_is_restored_if_the_operation_raises(
    failing_call: int, raised: type[BaseException]
) -> None:
    gc.enable()
    count = 0

    def operation() -> None:
        nonlocal count
        count += 1
        if count == failing_call:
            raise raised

    with pytest.raises(raised):
        time_calls(operation, calls=100, warm_up=10, calls_per_sample=1)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


@pytest.mark.usefixtures("collector")
def test_garbage_collection_is_restored_if_before_block_raises() -> None:
    def fail() -> None:
        raise Boom

    with pytest.raises(Boom):
        time_calls(lambda: None, calls=1, before_block=fail)
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


class Knot:
    """Make garbage that only the collector can free."""

    def __init__(self) -> None:
        self.myself = self


@pytest.mark.usefixtures("collector")
def test_garbage_is_collected_between_blocks_only() -> None:
    knots: list[weakref.ref[Knot]] = []
    alive: list[int] = []

    def operation() -> None:
        alive.append(sum(knot() is not None for knot in knots))
        knots.append(weakref.ref(Knot()))

    time_calls(operation, calls=12, warm_up=0, blocks=3)
    assert alive == [0, 1, 2, 3] * 3


@pytest.mark.usefixtures("collector")
def test_objects_that_the_caller_froze_stay_frozen() -> None:
    gc.freeze()
    frozen = gc.get_freeze_count()
    time_calls(lambda: None, calls=3)
    assert 0 < gc.get_freeze_count() <= frozen


@pytest.mark.usefixtures("collector")
def test_a_nested_timing_leaves_garbage_collection_off() -> None:
    after: list[bool] = []

    def outer() -> None:
        time_calls(lambda: None, calls=2)
        after.append(gc.isenabled())

    time_calls(outer, calls=2, warm_up=0)
    assert after == [False, False]
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0


# -- invalid settings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        {"calls": 0},
        {"calls": -1},
        {"calls": 2.5},
        {"calls": True},
        {"work": 0},
        {"warm_up": -1},
        {"blocks": 0},
        {"calls_per_sample": 0},
        {"seconds": 0},
        {"seconds": -1.0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
        {"items": []},
    ],
)
def test_invalid_settings_are_named_and_nothing_is_called(wrong: dict[str, Any]) -> None:
    called: list[object] = []
    with pytest.raises(InvalidResult, match=next(iter(wrong))):
        time_calls(lambda *item: called.append(item), **wrong)
    assert not called
