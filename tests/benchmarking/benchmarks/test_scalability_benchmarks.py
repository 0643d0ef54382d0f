"""The benchmarks of scalability with a handful of memories: what they promise, and that they can fail."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from broken_targets import place_of
from membench import LIGHT

from memory.benchmarking.bench import Bench, Score
from memory.benchmarking.benchmarks._exact_answers import ExactAnswers
from memory.benchmarking.benchmarks.scalability import resource_utilization
from memory.benchmarking.benchmarks.scalability._agent_pools import (
    TURNS,
    Measurements,
    ProcessPool,
    ThreadPool,
)
from memory.benchmarking.benchmarks.scalability.agent_scaling import (
    _add_efficiencies,
    benchmark_agent_scaling,
)
from memory.benchmarking.benchmarks.scalability.memory_size_scaling import (
    _Sample,
    _shares,
    benchmark_memory_size_scaling,
)
from memory.benchmarking.benchmarks.scalability.resource_utilization import (
    _LIVE,
    _MIN_LEAK_OPERATIONS,
    _WARM_UP_OPERATIONS,
    _leak,
    _mixed,
    benchmark_resource_utilization,
)
from memory.benchmarking.benchmarks.scalability.writers import benchmark_writers
from memory.benchmarking.measure.latencies import Latencies
from memory.benchmarking.measure.open_loop import OpenLoop
from memory.benchmarking.measure.timeline import Reading
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.run.worker import flatten_result
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Found, Item

BASELINE = "sqlite-baseline"


def bench(target: str = "agentmemory") -> Bench:
    return Bench(target=target, seconds=0.002)


def cells(tree: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for by_parallel in tree.values():
        if isinstance(by_parallel, Mapping):
            for by_count in by_parallel.values():
                if isinstance(by_count, Mapping):
                    yield from by_count.values()


# -- agent_scaling --------------------------------------------------------------------------------


def test_agents_work_in_threads_and_in_processes_on_one_store() -> None:
    found = benchmark_agent_scaling([1, 4], [1, 2], bench=bench())
    shape = {
        mode: {parallel: set(counts) for parallel, counts in by_parallel.items()}
        for mode, by_parallel in found.items()
    }
    each = {"parallel_1": {"agents_1", "agents_4"}, "parallel_2": {"agents_4"}}
    assert shape == {"threads": each, "processes": each}
    for cell in cells(found):
        assert cell["operations_per_second"] == pytest.approx(cell["agents_per_second"] * len(TURNS))
        for kind in ("store", "read", "search"):
            assert 0 < cell[kind]["p50_ms"] <= cell[kind]["p95_ms"] <= cell[kind]["p99_ms"]
        assert cell["cpu_percent"] > 0
        assert cell["rss_mb"] > 10
    assert found["threads"]["parallel_1"]["agents_1"]["scaling_efficiency"] == 1
    assert found["threads"]["parallel_2"]["agents_4"]["parallel_efficiency"] > 0
    assert not flatten_result(found).not_available


def test_a_pass_is_ten_stores_five_reads_and_three_searches_of_every_agent() -> None:
    assert [TURNS.count(turn) for turn in "SRF"] == [10, 5, 3]
    here = bench()
    with here.target() as target:
        pool, seen = ThreadPool(target, 3), Measurements()
        for number in range(2):
            pool.prepare([f"agent {each}" for each in range(5)], f"seed {number}")
            pool.run_pass(seen)
            assert sum(target.count().values()) == 5 * 10
            pool.clean()
            assert sum(target.count().values()) == 0
    assert {kind: len(values) for kind, values in seen.samples.items()} == {
        "store": 100,
        "read": 50,
        "search": 30,
    }


def test_efficiencies_compare_with_the_fewest_agents_and_with_one_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "memory.benchmarking.benchmarks.scalability.agent_scaling.available_cores", lambda: 2
    )
    rates = {1: {1: 100.0, 10: 80.0}, 4: {10: 120.0}}
    tree = {
        f"parallel_{parallel}": {
            f"agents_{count}": {"operations_per_second": rate} for count, rate in by_count.items()
        }
        for parallel, by_count in rates.items()
    }
    _add_efficiencies(tree, [1, 10], [1, 4])
    assert tree["parallel_1"]["agents_10"]["scaling_efficiency"] == 0.8
    assert tree["parallel_4"]["agents_10"]["scaling_efficiency"] == 1.0
    assert tree["parallel_4"]["agents_10"]["parallel_efficiency"] == 0.75


def test_a_target_that_can_not_be_shared_is_measured_alone() -> None:
    found = flatten_result(benchmark_agent_scaling([2], [1, 2], bench=bench(BASELINE)))
    assert found.not_available == {
        "threads/parallel_2": "sqlite-baseline can't be shared by threads",
        "processes": "sqlite-baseline can't be shared by processes",
    }
    assert found.figures["threads/parallel_1/agents_2/search/p50_ms"] > 0


def test_a_target_without_search_stores_and_reads() -> None:
    found = benchmark_agent_scaling([2], [1], bench=bench(LIGHT))
    assert "search" not in found["threads"]["parallel_1"]["agents_2"]


def test_too_many_processes_are_not_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "memory.benchmarking.benchmarks.scalability._agent_pools._MAX_PROCESSES_PER_CORE", 0
    )
    found = benchmark_agent_scaling([1], [1], bench=bench())
    assert isinstance(found["processes"]["parallel_1"], NotAvailable)


# -- writers --------------------------------------------------------------------------------------


def test_every_number_of_processes_writes_one_store() -> None:
    found = benchmark_writers([2, 1], 6, bench=bench())
    assert list(found) == ["processes_1", "processes_2"]
    for cell in found.values():
        assert 0 < cell["p50_ms"] <= cell["p99_ms"] <= cell["worst_wait_ms"]
        assert cell["operations_per_second"] > 0


def test_processes_that_can_not_share_a_store_do_not_write_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = flatten_result(benchmark_writers([1], 6, bench=bench(BASELINE)))
    assert found.not_available == {"": "sqlite-baseline can't be shared by processes"}
    monkeypatch.setattr(
        "memory.benchmarking.benchmarks.scalability._agent_pools._MAX_PROCESSES_PER_CORE", 0
    )
    found = flatten_result(benchmark_writers([1], 6, bench=bench()))
    assert found.not_available == {"processes_1": "1 processes are too many for this machine: at most 0"}


# -- wrong answers --------------------------------------------------------------------------------


@pytest.mark.parametrize("target", ["Forgetful", "Talkative"])
@pytest.mark.parametrize("parallel", [1, 2])
def test_wrong_answers_are_not_measured(target: str, parallel: int) -> None:
    with pytest.raises(AssertionError, match=r"agentmemory returned (other content|nothing) to agent"):
        benchmark_agent_scaling([3], [parallel], bench=bench(place_of(target)))


def test_wrong_answers_in_a_process_are_not_measured(tmp_path: Path) -> None:
    with ProcessPool(place_of("Forgetful"), 1) as pool, pool.opened(tmp_path, 1):
        pool.prepare(["agent_0"], "seed")
        with pytest.raises(AssertionError, match="other content to agent_0 than it stored"):
            pool.run_pass(Measurements())


# -- memory_size_scaling --------------------------------------------------------------------------


def test_each_size_is_measured_and_the_growth_is_reported() -> None:
    found = benchmark_memory_size_scaling([60, 200, 400], bench=bench())
    assert [key for key in found if key.startswith("size_")] == ["size_60", "size_200", "size_400"]
    for size in (60, 200, 400):
        cell = found[f"size_{size}"]
        assert 0.9 <= cell["recall_at_10"] <= 1.0
        assert cell["disk_bytes_per_memory"] > 0
        assert "grew by less than 3 MB" in cell["rss_bytes_per_memory"].reason
        assert set(cell["tiers"]) == {"stm", "im", "ltm"}
        for what in ("store", "read", "first_search", "text_search", "vector_search"):
            assert cell[what]["p50_ms"] > 0
    for what in ("store", "read", "text_search", "vector_search"):
        grown = found["growth"][what]
        assert isinstance(grown["growth_exponent"], Score)
        assert "between 60 and 400" in grown["growth"]
    flatten_result(found)


def test_each_size_has_exactly_its_memories_in_fixed_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[dict[str, int]] = []
    close = AgentMemoryTarget.close

    def counted(self: AgentMemoryTarget) -> None:
        counts.append(self.count())
        close(self)

    monkeypatch.setattr(AgentMemoryTarget, "close", counted)
    benchmark_memory_size_scaling([100, 1000], bench=bench())
    assert counts.pop(0) == {"stm": 0, "im": 0, "ltm": 0}, "the size of the empty store is measured first"
    assert counts[:2] == [{"stm": 10, "im": 30, "ltm": 60}, {"stm": 100, "im": 300, "ltm": 600}]


@pytest.mark.parametrize("places", [("store",), ("stm", "im", "ltm"), ("hot", "cold")])
@pytest.mark.parametrize(("added", "singles"), [(1, 1), (10, 1), (997, 100)])
def test_shares_add_up(places: Sequence[str], added: int, singles: int) -> None:
    counts = _shares(added, singles, places)
    assert set(counts) == set(places)
    assert sum(counts.values()) == added - singles
    assert min(counts.values()) >= 0


def test_the_baseline_has_no_tiers_and_finds_exactly() -> None:
    found = flatten_result(benchmark_memory_size_scaling([50, 150], bench=bench(BASELINE)))
    assert found.figures["size_150/recall_at_10"] == 1.0
    for size in (50, 150):
        reason = found.not_available.pop(f"size_{size}/rss_bytes_per_memory")
        assert f"grew by less than 3 MB with {size} memories" in reason
    assert found.not_available == {
        f"size_{size}/cross_tier_to_slowest_tier": "sqlite-baseline has no tiers" for size in (50, 150)
    }


def test_what_a_target_can_not_do_has_a_reason() -> None:
    alone = flatten_result(benchmark_memory_size_scaling([30], bench=bench(place_of("Alone"))))
    assert set(alone.not_available) == {
        f"size_30/{name}"
        for name in (
            "vector_search", "recall_at_10", "cross_tier_to_slowest_tier", "rss_bytes_per_memory",
        )
    }  # fmt: skip
    light = flatten_result(benchmark_memory_size_scaling([30], bench=bench(LIGHT)))
    assert light.not_available["size_30/text_search"] == "light has no search"
    assert "size_30/disk_bytes_per_memory" in light.not_available


def test_recall_falls_with_every_answer_that_is_missing() -> None:
    found = benchmark_memory_size_scaling([100], bench=bench(place_of("HalfBlind")))
    assert found["size_100"]["recall_at_10"] == 0.5


def test_recall_counts_an_equally_near_answer_as_right_and_a_repeated_one_once() -> None:
    exact = ExactAnswers(["Where is the canoe?"], 2)
    exact.add([Item("ann", "the canoe"), Item("ann", "the canoe"), Item("ann", "tax return")])
    canoe, tax = Found("1", 1.0, "the canoe"), Found("3", 0.1, "tax return")
    assert exact.recall([[canoe, Found("9", 1.0, "the canoe")]]) == 1.0
    assert exact.recall([[canoe, canoe]]) == 0.5
    assert exact.recall([[canoe, tax]]) == 0.5
    assert exact.recall([[]]) == 0.0


def test_a_sample_is_fair() -> None:
    counts = [0] * 20
    for seed in range(2000):
        sample = _Sample(5, seed)
        sample.add([str(number) for number in range(13)])
        sample.add([str(number) for number in range(13, 20)])
        assert len(set(sample.ids)) == 5
        for id_ in sample.ids:
            counts[int(id_)] += 1
    expected = 2000 * 5 / 20
    assert all(abs(count - expected) < 6 * math.sqrt(expected) for count in counts)


# -- resource_utilization -------------------------------------------------------------------------


def test_a_steady_load_is_served_and_watched() -> None:
    found = benchmark_resource_utilization(0.5, 300.0, bench=bench())
    assert found["arrivals"] == found["operations"] + found["dropped"]
    assert found["error_rate"] == 0
    assert 0 <= found["drop_rate"] < 1
    assert set(found["latency"]) == {"all", "store", "delete", "read", "search"}
    for figures in found["latency"].values():
        assert 0 < figures["p50_ms"] <= figures["p99_ms"] <= figures["p999_ms"] <= figures["max_ms"]
    assert [reading["operations"] for reading in found["timeline"]] == sorted(
        reading["operations"] for reading in found["timeline"]
    )
    assert found["timeline"][-1]["operations"] == found["operations"]
    flatten_result(found)


def test_a_long_run_has_a_leak_slope_and_a_short_one_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_utilization, "_WARM_UP_OPERATIONS", 100)
    monkeypatch.setattr(resource_utilization, "_MIN_LEAK_OPERATIONS", 500)
    monkeypatch.setattr(
        resource_utilization, "_MAX_UNDONE_SHARE", 1
    )  # how busy the machine is decides no test
    short = benchmark_resource_utilization(0.05, 100.0, bench=bench(LIGHT))
    assert isinstance(short["leak_bytes_per_operation"], NotAvailable)
    slope = benchmark_resource_utilization(0.8, 1000.0, bench=bench(LIGHT))["leak_bytes_per_operation"]
    assert isinstance(slope, Score)
    assert slope.low is not None
    assert slope.high is not None
    assert slope.low <= slope.value <= slope.high


def loop_of(done: int, dropped: int = 0, failed: int = 0) -> OpenLoop:
    return OpenLoop(done + dropped + failed, done, dropped, failed, None, 1.0, {}, Latencies())


def readings_of(done: int, rss_bytes: Callable[[int], float]) -> list[Reading]:
    places = range(0, done + 1, done // 300)
    return [Reading(0.0, place, round(rss_bytes(place)), 0.0) for place in places]


def test_filling_caches_are_not_a_leak() -> None:
    def filling(done: int) -> float:
        return 1e8 + 100 * min(done, _WARM_UP_OPERATIONS)

    slope = _leak(loop_of(_MIN_LEAK_OPERATIONS), readings_of(_MIN_LEAK_OPERATIONS, filling))
    assert slope == Score(0.0, 0.0, 0.0)


def test_there_is_no_slope_if_the_number_of_memories_changed() -> None:
    done = 2 * _MIN_LEAK_OPERATIONS
    readings = readings_of(done, lambda place: 1e8 + 10 * place)
    for few in (loop_of(done), loop_of(done, dropped=100, failed=100)):
        slope = _leak(few, readings)
        assert isinstance(slope, Score)
        assert slope.value == pytest.approx(10)
    for many in (loop_of(done, dropped=1000), loop_of(done, failed=1000)):
        slope = _leak(many, readings)
        assert isinstance(slope, NotAvailable)
        assert slope.reason.endswith("lower operation_rate")


def test_a_leak_gives_a_positive_slope(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource_utilization, "_WARM_UP_OPERATIONS", 100)
    monkeypatch.setattr(resource_utilization, "_MIN_LEAK_OPERATIONS", 500)
    monkeypatch.setattr(resource_utilization, "_MAX_UNDONE_SHARE", 1)
    found = benchmark_resource_utilization(2.0, 500.0, bench=bench(place_of("Hoarding")))
    slope = found["leak_bytes_per_operation"]
    assert slope.low > 50_000
    assert slope.value == pytest.approx(200_000, rel=0.5)  # two of ten operations search


def test_lost_memories_show_as_errors() -> None:
    found = benchmark_resource_utilization(0.2, 200.0, bench=bench(place_of("Forgetful")))
    assert 0.2 < found["error_rate"] < 0.6
    assert "read" not in found["latency"]


@pytest.mark.parametrize("searches", [True, False])
def test_the_number_of_memories_stays_about_the_same(searches: bool) -> None:
    living = lowest = _LIVE
    impossible = {"search": "" if searches else "it has no search"}
    for kind in _mixed(5000, impossible, 1):
        living += {"store": 1, "delete": -1}.get(kind, 0)
        lowest = min(lowest, living)
    assert ("search" in _mixed(100, impossible, 1)) is searches
    assert abs(living - _LIVE) <= 2
    assert lowest >= _LIVE - 2
