"""What a target can't do is n/a with the reason. It never fails a benchmark, and is never a zero."""

from __future__ import annotations

from typing import Any

import pytest
from lacking_targets import lacking

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.benchmarks.retrieval.search_delay import benchmark_search_delay
from memory.benchmarking.errors import BenchmarkError, NotSupported
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.run.worker import flatten_result

SMALL: dict[str, dict[str, Any]] = {
    "storage.write_throughput": {"batch_sizes": [5], "data_complexity_levels": [1], "settle_memories": 0},
    "storage.read_latency": {"num_samples": 10, "batch_sizes": [5], "settle_memories": 0},
    "storage.memory_efficiency": {"num_memories": 20, "data_complexity_levels": [1], "settle_memories": 0},
    "retrieval.vector_search_latency": {"data_volumes": [20], "queries": 3},
    "retrieval.search_accuracy": {"clusters": 3, "items_per_cluster": 4},
    "retrieval.cross_tier_retrieval": {
        "stm_memories": 30, "im_memories": 20, "ltm_memories": 20, "related_groups": 5,
    },
    "storage.footprint": {"memories": 5},
    "retrieval.search_delay": {"memories": 3},
    "retrieval.search_by_size": {"data_volumes": [20, 40], "queries": 3},
    "retrieval.search_large": {"data_volumes": [20], "queries": 3},
    "quality.retrieval_quality": {"conversations": 1, "sessions": 2},
    "scalability.agent_scaling": {"agent_counts": [2], "parallel_operations": [1]},
    "scalability.cold_search": {"data_volumes": [20], "openings": 1},
    "scalability.many_agents": {"agent_counts": [2], "memories": 10},
    "scalability.threads": {"thread_counts": [2], "memories": 20, "operations": 8, "blocks": 1},
    "scalability.memory_size_scaling": {"data_volumes": [30]},
    "scalability.resource_utilization": {"duration_seconds": 0.1, "operation_rate": 200.0},
    "scalability.saturation": {"clients": ["1x1"], "seconds": 0.2, "agents": 1, "memories": 5},
    "scalability.writers": {"process_counts": [2], "writes": 5},
}  # fmt: skip
WITHOUT_FIGURES = ("scalability.saturation", "scalability.writers", "scalability.cold_search")
"""These give none to any of the targets: 0.2 s find no knee, and no target here takes several processes or
keeps anything after it is closed."""
TARGETS = [
    "WithoutGet", "Rewriting", "FewHits", "Late", "WithoutUpdate", "WithoutVectors", "WithoutSearch",
]  # fmt: skip


def result_of(benchmark: str, target: str) -> tuple[dict[str, float], dict[str, str]]:
    """Return the figures, and the reasons for those that are not available, by path."""
    bench = Bench(target=lacking(target), seconds=0.002, seed=1)
    try:
        tree = built_in()[benchmark].function(**SMALL[benchmark], bench=bench)
    except NotSupported as reason:
        tree = NotAvailable(str(reason))
    leaves = flatten_result(tree)
    return leaves.figures, leaves.not_available


def test_all_benchmarks_of_the_four_categories_are_tested() -> None:
    categories = ("storage", "retrieval", "quality", "scalability")
    assert set(SMALL) == {name for name in built_in() if name.partition(".")[0] in categories}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("benchmark", SMALL)
def test_no_benchmark_fails_on_a_target_that_lacks_something(benchmark: str, target: str) -> None:
    figures, reasons = result_of(benchmark, target)
    assert figures or reasons
    assert all(reasons.values())
    if target in ("Late", "WithoutUpdate") and benchmark not in WITHOUT_FIGURES:
        assert figures, "this takes nothing from the benchmark"


@pytest.mark.parametrize(
    ("benchmark", "target", "path", "reason"),
    [
        ("storage.read_latency", "WithoutGet", "", "without-get can't read memories by id"),
        ("scalability.memory_size_scaling", "WithoutGet", "size_30/read", "can't read memories by id"),
        (
            "scalability.agent_scaling", "WithoutGet",
            "threads/parallel_1/agents_2/operations_per_second", "can't read memories by id",
        ),
        ("scalability.resource_utilization", "WithoutGet", "latency/all", "can't read memories by id"),
        ("scalability.resource_utilization", "WithoutSearch", "latency/all", "has no search"),
        ("retrieval.vector_search_latency", "FewHits", "", "returns at most 3 hits"),
        ("retrieval.search_accuracy", "FewHits", "", "at most 3 hits of a search, and this needs 4"),
        ("retrieval.cross_tier_retrieval", "FewHits", "", "returns at most 3 hits"),
        ("quality.retrieval_quality", "FewHits", "", "few-hits returns at most 3 hits"),
        ("quality.retrieval_quality", "WithoutSearch", "", "without-search has no search"),
        ("scalability.memory_size_scaling", "FewHits", "size_30/text_search", "at most 3 hits"),
        ("scalability.memory_size_scaling", "Rewriting", "size_30/recall_at_10", "rewrites contents"),
        ("retrieval.vector_search_latency", "WithoutVectors", "", "can't be searched by a vector"),
        ("retrieval.search_accuracy", "WithoutVectors", "threshold_0.7", "its scores are no similarities"),
        ("retrieval.search_accuracy", "WithoutVectors", "recall_against_exact", "searches by words"),
        ("storage.memory_efficiency", "WithoutUpdate", "texts/store/ram_bytes_per_memory", "< 150,000 B:"),
    ],
)  # fmt: skip
def test_the_reason_says_what_is_missing(benchmark: str, target: str, path: str, reason: str) -> None:
    figures, reasons = result_of(benchmark, target)
    assert reason in reasons[path]
    assert path not in figures


def test_a_memory_that_is_found_at_once_has_no_delay() -> None:
    for name in ("agentmemory", "sqlite-baseline"):
        assert benchmark_search_delay(5, bench=Bench(target=name)) == {
            "searchable_after_ms": 0.0,
            "slowest_searchable_after_ms": 0.0,
            "found_at_once_rate": 1.0,
            "found_rate": 1.0,
        }


def test_the_delay_of_a_search_that_lags_is_measured() -> None:
    found = benchmark_search_delay(5, bench=Bench(target=lacking("Late")))
    assert 0 < found["searchable_after_ms"] <= found["slowest_searchable_after_ms"]
    assert found["found_at_once_rate"] == 0.0
    assert found["found_rate"] == 1.0


def test_a_delay_that_is_not_declared_fails() -> None:
    with pytest.raises(AssertionError, match="late-without-a-word found a new memory only after flush"):
        benchmark_search_delay(5, bench=Bench(target=lacking("LateWithoutAWord")))


def test_agents_of_the_benchmarks_have_plain_names() -> None:
    from recording_target import RECORDING, RecordingTarget

    RecordingTarget.given.clear()
    for name, options in SMALL.items():
        try:
            built_in()[name].function(**options, bench=Bench(target=RECORDING, seconds=0.002))
        except (AssertionError, BenchmarkError):
            continue  # it finds nothing, has no vectors, and is not there in another process
    items = [item for call, given in RecordingTarget.given if call == "add" for item in given[0]]
    agents = {item["agent_id"] for item in items}
    assert len(agents) > 3
    assert not [agent for agent in agents if not agent.replace("_", "").isalnum() or not agent.isascii()]
