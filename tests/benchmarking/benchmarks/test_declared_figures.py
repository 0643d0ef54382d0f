"""What the documents list of a benchmark is what it gives: every one is run, with a handful of memories."""

from __future__ import annotations

from typing import Any

import pytest

from memory.benchmarking import benchmarks
from memory.benchmarking.bench import Bench
from memory.benchmarking.run.discovery import Benchmark, discover
from memory.benchmarking.run.worker import flatten_result

_SEARCHES: dict[str, Any] = {"entries": [3, 12], "iterations": 4}
_CONTEXTS: dict[str, Any] = {"sessions": [2, 4], "tools": [1, 3], "iterations": 3}
# Two sizes wherever a slope over the sizes is one of the figures.
TINY: dict[str, dict[str, Any]] = {
    "storage.write_throughput": {"batch_sizes": [3], "data_complexity_levels": [1], "settle_memories": 0},
    "storage.read_latency": {"num_samples": 20, "batch_sizes": [5], "settle_memories": 0},
    "storage.memory_efficiency": {"num_memories": 20, "data_complexity_levels": [1], "settle_memories": 0},
    "storage.footprint": {"memories": 5},
    "compression.embedding_quality": {
        "test_data_categories": ["dialogue"],
        "samples": 5,
        "corpus_vectors": 40,
        "training_vectors": 260,
    },
    "compression.compression_ratio": {"dataset_sizes": [60], "settle_memories": 0},
    "compression.training_efficiency": {"data_sizes": [260], "epochs": 1},
    "memory_transition.transition_accuracy": {"num_memories": 50},
    "memory_transition.transition_overhead": {"batch_sizes": [50]},
    "memory_transition.importance_scoring": {
        "tier_limits": [20, 10, 4],
        "memories_per_level": [20, 10, 6, 3, 1],
        "arrival_orders": ["shuffled"],
    },
    "retrieval.vector_search_latency": {"data_volumes": [20, 40], "queries": 5},
    "retrieval.search_accuracy": {"clusters": 3, "items_per_cluster": 5},
    "retrieval.search_delay": {"memories": 5},
    "retrieval.search_by_size": {"data_volumes": [20, 40], "queries": 3},
    "retrieval.search_large": {"data_volumes": [40], "queries": 3},
    "retrieval.cross_tier_retrieval": {
        "stm_memories": 20,
        "im_memories": 10,
        "ltm_memories": 10,
        "related_groups": 2,
        "k": 5,
    },
    "scalability.agent_scaling": {"agent_counts": [1, 2], "parallel_operations": [1, 2]},
    "scalability.memory_size_scaling": {"data_volumes": [30, 60]},
    "scalability.cold_search": {"data_volumes": [20, 40], "openings": 2},
    "scalability.threads": {"thread_counts": [2], "memories": 20, "operations": 20, "blocks": 1},
    "scalability.many_agents": {"agent_counts": [3], "memories": 4},
    "scalability.writers": {"process_counts": [1, 2], "writes": 5},
    "scalability.resource_utilization": {"duration_seconds": 0.3, "operation_rate": 200.0},
    "scalability.saturation": {
        "clients": ["1x1"],
        "limit_ms": 300.0,  # however busy the machine is
        "seconds": 3.0,
        "agents": 2,
        "memories": 5,
    },
    "integration.api_overhead": {"num_operations": 10},
    "integration.hook_implementation": {"num_steps": 10},
    "integration.framework_integration": {"training_iterations": 1},
    "quality.retrieval_quality": {"conversations": 2, "sessions": 2},
    "agent_execution.simple_invocation": {"iterations": 3},
    "agent_execution.session_creation": {"iterations": 3},
    "memory_search.short_query": _SEARCHES,
    "memory_search.long_query": _SEARCHES,
    "memory_search.no_match": _SEARCHES,
    "memory_search.vector_search": _SEARCHES,
    "memory_search.concurrent_search": {**_SEARCHES, "threads": [1, 2]},
    "context_build.baseline": _CONTEXTS,
    "context_build.large_session_count": _CONTEXTS,
    "context_build.large_tool_count": _CONTEXTS,
}
OURS = {
    benchmark.full_name: benchmark
    for benchmark in discover().benchmarks
    if (benchmark.module or "").startswith(benchmarks.__name__) and benchmark.category != "promises"
}
"""All built-in benchmarks. test_promises.py runs those of the category `promises`."""


def may_be_missing(benchmark: Benchmark, figure: str) -> bool:
    """Of what takes no time to speak of there is no such figure, and how long it takes decides no test."""
    if benchmark.full_name == "memory_transition.transition_overhead":
        return "before" in figure or "during" in figure
    # Only systems behind a protocol have a transport: see test_described_servers.py.
    return figure in ("wall_to_cpu", "transport_ms")


def test_every_benchmark_is_run_here() -> None:
    assert set(TINY) == set(OURS)


@pytest.mark.parametrize("benchmark", OURS.values(), ids=OURS)
def test_a_benchmark_returns_exactly_the_figures_that_it_declares(benchmark: Benchmark) -> None:
    found = flatten_result(benchmark.function(**TINY[benchmark.full_name], bench=Bench(seconds=0.005)))
    figures = {path.rpartition("/")[2] for path in found.figures}
    # A figure that is n/a, or a word in its place, is given, too.
    leaves = figures | {path.rpartition("/")[2] for path in (*found.not_available, *found.other)}
    declared = set(benchmark.metrics)
    assert not figures - declared, "not declared"
    assert not {name for name in declared - leaves if not may_be_missing(benchmark, name)}, "not given"
