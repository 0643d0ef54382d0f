"""Operations on a schedule: latency from the intended start, dropped arrivals, lateness."""

from __future__ import annotations

import threading
import time
from itertools import pairwise

import pytest

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.arrivals import poisson_starts
from memory.benchmarking.measure.latencies import Latencies
from memory.benchmarking.measure.open_loop import GiveUp, Progress, run_open_loop
from memory.benchmarking.measure.timeline import Timeline


def test_arrivals_are_independent_and_match_the_rate() -> None:
    starts = poisson_starts(100.0, 50.0, seed=1)
    assert list(starts) == sorted(starts)
    assert starts == poisson_starts(100.0, 50.0, seed=1)
    assert starts != poisson_starts(100.0, 50.0, seed=2)
    assert 0 < starts[0] < starts[-1] < 50
    assert abs(len(starts) - 5000) < 6 * 5000**0.5
    # For independent arrivals, a share of 1/e of the gaps is longer than the mean gap.
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert sum(gap > 0.01 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)


def test_a_short_schedule_has_at_least_one_arrival() -> None:
    assert list(poisson_starts(1.0, 1e-9, seed=0)) == [0.0]


def test_each_arrival_is_done_once_and_never_before_its_time() -> None:
    began, began_at, lock = time.perf_counter(), dict[int, float](), threading.Lock()

    def operation(number: int) -> None:
        with lock:
            assert number not in began_at
            began_at[number] = time.perf_counter() - began

    starts = [number * 0.002 for number in range(50)]
    progress = Progress()
    loop = run_open_loop(
        operation, starts, ["a", "b"] * 25, workers=3, max_wait_seconds=60.0, progress=progress
    )
    assert sorted(began_at) == list(range(50))
    assert all(began_at[number] >= start for number, start in enumerate(starts))
    assert (loop.arrivals, loop.done, loop.dropped, loop.failed) == (50, 50, 0, 0)
    assert {kind: part.count for kind, part in loop.latencies.items()} == {"a": 25, "b": 25}
    assert loop.all_latencies.count == 50 == progress.done
    assert 0 < loop.lateness.count <= 50
    assert loop.seconds >= starts[-1]


def test_a_stall_counts_for_all_arrivals_during_it() -> None:
    """A closed loop would measure one slow operation and nine fast ones."""
    stall = 0.05

    def operation(number: int) -> None:
        if number == 0:
            time.sleep(stall)

    loop = run_open_loop(
        operation, [number * 0.001 for number in range(10)], ["x"] * 10, max_wait_seconds=60
    )
    assert loop.latencies["x"].percentile_ms(50) >= stall * 1e3 - 10


def test_an_arrival_that_no_worker_could_start_in_time_is_dropped() -> None:
    def operation(number: int) -> None:
        if number == 0:
            time.sleep(0.1)

    loop = run_open_loop(operation, [0.0, 0.001, 0.002], ["x"] * 3, max_wait_seconds=0.02)
    assert loop.dropped == 2
    assert loop.done == 1


def test_failures_are_counted_and_the_first_exception_is_kept() -> None:
    def operation(number: int) -> None:
        if number % 2:
            raise ValueError(number)

    loop = run_open_loop(operation, [0.0] * 10, ["odd or even"] * 10, max_wait_seconds=60)
    assert (loop.done, loop.failed) == (5, 5)
    assert isinstance(loop.problem, ValueError)
    assert loop.problem.args == (1,)
    assert loop.latencies["odd or even"].count == 5


def test_every_arrival_needs_a_kind() -> None:
    with pytest.raises(InvalidResult, match="2 starts and 1 kinds"):
        run_open_loop(print, [0.0, 1.0], ["x"])
    with pytest.raises(InvalidResult, match="0 starts"):
        run_open_loop(print, [], [])


def test_latencies_have_three_significant_digits() -> None:
    one, other = Latencies(), Latencies()
    for value in range(1, 1001):
        (one if value % 2 else other).record(value * 1_000_000)
    one.add(other)
    assert one.count == 1000
    assert one.percentile_ms(50) == pytest.approx(500, rel=2e-3)
    assert one.percentile_ms(99.9) == pytest.approx(999, rel=2e-3)
    assert one.figures()["max_ms"] == pytest.approx(1000, rel=1e-3)


def test_a_latency_beyond_the_range_counts_as_its_maximum() -> None:
    latencies = Latencies()
    latencies.record(-5)
    latencies.record(10**18)
    assert latencies.count == 2
    assert latencies.percentile_ms(100) == pytest.approx(3.6e6, rel=1e-3)


def test_a_percentile_without_latencies_is_an_error() -> None:
    with pytest.raises(InvalidResult, match="no latency was recorded"):
        Latencies().percentile_ms(50)


def test_a_timeline_records_memory_and_cpu_of_the_process() -> None:
    done = 0
    held = None
    with Timeline(0.002, lambda: done) as timeline:
        time.sleep(0.02)
        done = 7
        held = bytearray(b"x" * 50_000_000)
    first, *_, last = timeline.readings
    assert (first.done, last.done) == (0, 7)
    assert last.rss_bytes - first.rss_bytes > 40_000_000
    assert last.cpu_seconds >= 0
    assert last.seconds >= 0.02
    assert len(timeline.cpu_percents()) == len(timeline.readings) - 1
    assert held is not None


def test_a_timeline_calls_before_reading_each_time() -> None:
    before: list[int] = []
    with Timeline(0.002, lambda: len(before), lambda: before.append(1)) as timeline:
        time.sleep(0.01)
    assert [each.done for each in timeline.readings] == list(range(1, len(before) + 1))


def test_a_dropped_arrival_stays_in_the_percentiles() -> None:
    """Without it, the system that drops more would look faster."""

    def operation(number: int) -> None:
        if number == 0:
            time.sleep(0.1)

    loop = run_open_loop(operation, [0.0, *[0.001] * 9], ["x"] * 10, max_wait_seconds=0.02)
    assert loop.dropped == 9
    assert loop.all_latencies.count == 10
    assert loop.all_latencies.percentile_ms(50) >= 20


def test_a_loop_gives_up_when_the_limit_is_certainly_missed() -> None:
    loop = run_open_loop(
        lambda number: time.sleep(0.005), [0.0] * 100, ["x"] * 100, give_up=GiveUp(limit_ms=1, most_late=3)
    )
    assert loop.done == 4
    assert loop.skipped == 96


def test_the_time_inside_of_operations_is_not_the_generators() -> None:
    loop = run_open_loop(
        lambda number: sum(range(20_000)), [0.0] * 64, ["x"] * 64, workers=1, max_wait_seconds=60
    )
    assert loop.generator_cpu_seconds < loop.service_cpu_seconds
    assert loop.service_seconds > 0


def test_lateness_while_operations_run_is_not_the_generators() -> None:
    """The first operation runs until the other worker has woken up."""
    woken = threading.Event()

    def operation(number: int) -> None:
        if number == 0:
            woken.wait(10)
        woken.set()

    starts = [0.0, 0.02]
    loop = run_open_loop(operation, starts, ["x"] * 2, workers=2, only_idle_lateness=True)
    assert loop.done == 2
    assert loop.lateness.count <= 1
    woken.clear()
    everything = run_open_loop(operation, starts, ["x"] * 2, workers=2)
    assert everything.lateness.count >= 1
