"""The transition benchmarks see what came through, what it cost, what stayed, and when that is wrong."""

from __future__ import annotations

import pytest
from broken_targets import place_of

from memory.benchmarking import Bench
from memory.benchmarking.benchmarks.memory_transition import (
    _Latencies,
    _slowdown,
    benchmark_importance_scoring,
    benchmark_transition_accuracy,
    benchmark_transition_overhead,
)
from memory.benchmarking.errors import InvalidResult, NotSupported

SQUEEZED = {"tier_limits": [6, 4, 2], "memories_per_level": [6, 4, 3, 2, 1]}


def test_everything_comes_through_both_transitions_unchanged() -> None:
    found = benchmark_transition_accuracy(num_memories=40)
    assert set(found) == {"im", "ltm"}
    for tier in found.values():
        assert tier["total_transitioned"] == tier["correctly_transitioned"] == 40
        for name in ("content", "id", "step", "kind"):
            assert tier[f"{name}_exact_rate"] == 1.0
        for level in range(1, 6):
            assert tier[f"importance_{level}"]["preservation_rate"] == 1.0
            assert tier[f"importance_{level}"]["avg_similarity"] > 0.99


def test_a_lost_field_lowers_the_rates() -> None:
    found = benchmark_transition_accuracy(num_memories=20, bench=Bench(target=place_of("ForgetsSteps")))
    assert found["ltm"]["step_exact_rate"] == 0.5
    assert found["ltm"]["content_exact_rate"] == 1.0
    assert found["ltm"]["correctly_transitioned"] == 10


def test_a_memory_that_no_search_finds_is_not_preserved() -> None:
    bench = Bench(target=place_of("FindsNothing"))
    found = benchmark_transition_accuracy(num_memories=300, bench=bench)["ltm"]["importance_2"]
    assert found["content_exact_rate"] == 1.0
    assert (found["preservation_rate"], found["avg_similarity"]) == (0.0, 0.0)
    assert found["total_transitioned"] == found["correctly_transitioned"] == 60


def test_a_memory_that_did_not_move_is_not_counted_as_moved() -> None:
    bench = Bench(target=place_of("NeverMoves"))
    found = benchmark_transition_accuracy(num_memories=10, bench=bench)
    assert found["im"]["total_transitioned"] == 0
    assert found["im"]["importance_1"]["preservation_rate"] == 0
    with pytest.raises(InvalidResult, match="0 of 50 memories moved"):
        benchmark_transition_overhead(batch_sizes=[50], bench=bench)


@pytest.mark.parametrize("order", ["rising", "falling", "shuffled"])
def test_the_most_important_stay_highest_whatever_the_order_of_arrival(order: str) -> None:
    found = benchmark_importance_scoring(**SQUEEZED, arrival_orders=[order])[order]
    assert found["prioritisation_effectiveness"] == pytest.approx(1.0)
    assert found["kept_importance"] == pytest.approx(1.0)
    assert found["stm"]["importance_5"]["retention_rate"] == 1.0
    retained = sum(found[tier]["importance_1"]["retention_rate"] for tier in ("stm", "im", "ltm"))
    assert retained == pytest.approx(2 / 6), "twelve places, ten memories above level 1"


def test_a_memory_that_ignores_importance_scores_lower() -> None:
    bench = Bench(target=place_of("IgnoresImportance"))
    found = benchmark_importance_scoring(**SQUEEZED, arrival_orders=["falling"], bench=bench)["falling"]
    assert found["prioritisation_effectiveness"] < 0.9


def test_limits_that_do_not_match_the_tiers_are_an_error() -> None:
    with pytest.raises(InvalidResult, match="tier_limits has 2 numbers"):
        benchmark_importance_scoring(tier_limits=[1, 2])
    with pytest.raises(InvalidResult, match="'sideways'"):
        benchmark_importance_scoring(**SQUEEZED, arrival_orders=["sideways"])


def test_a_mass_transition_is_timed_and_its_readers_are_watched() -> None:
    found = benchmark_transition_overhead(batch_sizes=[300], bench=Bench(seconds=0.01))["batch_300"]
    assert found["moved"] == 300
    assert found["moves_per_second"] == pytest.approx(300 / found["transition_duration_seconds"])
    assert found["reads_during"] > 0
    assert found["rss_growth_bytes"] >= 0
    for name, least in (("p50", 20), ("p99", 100)):
        ratio = found[f"read_{name}_during_to_before"]
        if found["reads_during"] >= least:
            expected = found[f"read_{name}_during_ms"] / found[f"read_{name}_before_ms"]
            assert ratio == pytest.approx(expected)
        else:
            assert ratio.reason == (
                f"it ended after {found['reads_during']} reads, and {name} needs {least}: "
                "increase batch_sizes"
            )
            assert f"read_{name}_during_ms" not in found


def test_a_percentile_of_too_few_reads_is_not_available() -> None:
    few, many = _Latencies(), _Latencies()
    many.reads, many.writes = [1.0] * 99 + [5.0] * 101, [1.0] * 10
    few.reads, few.writes = [2.0] * 30, [1.0] * 4
    found = _slowdown(many, few)
    assert found["read_p50_during_to_before"] == pytest.approx(2 / 5, rel=0.5)
    for name in ("read_p99_during_to_before", "write_p95_during_to_before"):
        assert "increase batch_sizes" in found[name].reason
    assert set(_slowdown(many, many)) == {
        "reads_during", "read_p50_before_ms", "read_p50_during_ms", "read_p50_during_to_before",
        "read_p99_before_ms", "read_p99_during_ms", "read_p99_during_to_before",
        "write_p95_during_ms", "write_p95_during_to_before", "timeline",
    }  # fmt: skip
    assert "timeline" not in _slowdown(many, _Latencies())


@pytest.mark.parametrize(
    "benchmark",
    [benchmark_transition_accuracy, benchmark_transition_overhead, benchmark_importance_scoring],
)
def test_a_system_without_transitions_is_not_supported(benchmark: object) -> None:
    assert callable(benchmark)
    with pytest.raises(NotSupported, match="sqlite-baseline has no transitions"):
        benchmark(bench=Bench(target="sqlite-baseline"))
