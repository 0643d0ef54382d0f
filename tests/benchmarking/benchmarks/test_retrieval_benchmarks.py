"""The retrieval benchmarks measure searches that find something, and notice when it is the wrong thing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from broken_targets import place_of

from memory.benchmarking import Bench
from memory.benchmarking.benchmarks.retrieval.cross_tier_retrieval import benchmark_cross_tier_retrieval
from memory.benchmarking.benchmarks.retrieval.search_accuracy import benchmark_search_accuracy
from memory.benchmarking.benchmarks.retrieval.vector_search_latency import benchmark_vector_search_latency
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.targets.base import Item, Target

SMALL_CLUSTERS = {"clusters": 5, "items_per_cluster": 8, "noise": 0.1}
SMALL_TIERS = {"stm_memories": 60, "im_memories": 30, "ltm_memories": 20, "related_groups": 5}


@pytest.mark.parametrize(
    ("target", "places"),
    [("agentmemory", ["stm", "im", "ltm", "all"]), ("sqlite-baseline", ["all"])],
)
def test_vector_search_is_timed_in_every_place_with_its_growth(target: str, places: list[str]) -> None:
    bench = Bench(target=target, seconds=0.005)
    found = benchmark_vector_search_latency(data_volumes=[20, 60], k=5, queries=3, bench=bench)
    assert list(found) == places
    for place, by_size in found.items():
        assert isinstance(by_size["size_20"], Timing)
        assert by_size["growth"].startswith(f"{place} search p50 grows like n^")
        assert by_size["growth"].endswith("between 20 and 60")


@pytest.mark.parametrize("target", ["agentmemory", "sqlite-baseline"])
def test_every_target_searches_the_same_number_of_memories(target: str) -> None:
    """The headline is that of `all`: with tiers, they share the memories."""
    stored: list[tuple[str, int]] = []

    class Counting(Bench):
        def store(self, target: Target, items: Sequence[Item], *more: Any, **named: Any) -> list[str]:
            stored.append((items[0].agent_id, len(items)))
            return super().store(target, items, *more, **named)

    benchmark_vector_search_latency([30], 5, 3, bench=Counting(target=target, seconds=0.005))
    assert sum(count for agent, count in stored if agent == "agent_with_30") == 30


@pytest.mark.parametrize("target", ["agentmemory", "sqlite-baseline"])
def test_a_search_finds_the_clusters(target: str) -> None:
    found = benchmark_search_accuracy(**SMALL_CLUSTERS, bench=Bench(target=target))
    assert found["at_cluster_size"]["recall"] > 0.9
    assert found["at_cluster_size"]["precision"] == pytest.approx(found["at_cluster_size"]["recall"])
    assert found["recall_against_exact"] > 0.95
    recalls = [found[f"threshold_{threshold}"]["recall"] for threshold in ("0.6", "0.7", "0.8")]
    assert recalls == sorted(recalls, reverse=True), "a higher threshold can't find more"


def test_a_search_that_finds_wrong_memories_has_a_low_precision() -> None:
    bench = Bench(target=place_of("FindsTheWrongOnes"))
    found = benchmark_search_accuracy(**SMALL_CLUSTERS, bench=bench)
    assert found["at_cluster_size"]["recall"] < 0.1
    assert found["recall_against_exact"] < 0.3
    related = benchmark_cross_tier_retrieval(**SMALL_TIERS, bench=bench)
    assert related["im_related_found_rate"] < 0.2


def test_related_memories_are_found_in_all_tiers() -> None:
    found = benchmark_cross_tier_retrieval(**SMALL_TIERS, bench=Bench(seconds=0.01))
    assert found["im_related_found_rate"] >= 0.9
    assert found["ltm_related_found_rate"] >= 0.9
    assert 0 < sum(found[f"share_from_{tier}"] for tier in ("stm", "im", "ltm")) <= 1
    slowest = max(found[tier]["p50_ms"] for tier in ("stm", "im", "ltm"))
    assert found["cross_tier_to_slowest_tier"] == pytest.approx(found["all"]["p50_ms"] / slowest)


def test_comparisons_of_tiers_are_not_available_without_tiers() -> None:
    found = benchmark_cross_tier_retrieval(
        **SMALL_TIERS, bench=Bench(target="sqlite-baseline", seconds=0.01)
    )
    assert found["cross_tier_to_slowest_tier"] == NotAvailable("sqlite-baseline has no tiers")
    assert "stm" not in found
    assert found["im_related_found_rate"] > 0.3
