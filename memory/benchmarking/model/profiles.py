"""The sizes of the three profiles: for every benchmark the value of each of its parameters.

`full` holds the sizes of the specification, and the million operations that show a leak; `standard`, the
default, is meant for two cores and a few minutes; `quick` is a smoke run. A test keeps these tables and the
benchmarks' signatures in step.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

Parameters = dict[str, Any]
Sizes = dict[str, dict[str, Parameters]]
"""Category, benchmark, parameter."""


@dataclass(frozen=True)
class Profile:
    """How much is measured, and how long it may take."""

    rounds: int
    seconds: float
    """About how long one timing measures."""
    timeout_seconds: float
    """After which a round is taken for hung."""
    sizes: Sizes
    most_rounds: dict[str, int] = field(default_factory=dict)
    """For benchmarks whose rounds are long here and hold many readings: fewer than the others make."""


_FULL: Sizes = {
    "storage": {
        "write_throughput": {
            "batch_sizes": [10, 100, 1000, 10000],
            "data_complexity_levels": [1, 5, 10],
            "settle_memories": 2000,
        },
        "read_latency": {"num_samples": 1000, "batch_sizes": [10, 50, 100], "settle_memories": 2000},
        "memory_efficiency": {
            "num_memories": 2000,
            "data_complexity_levels": [1, 5, 10],
            "settle_memories": 2000,
        },
    },
    "compression": {
        "embedding_quality": {
            "test_data_categories": ["navigation", "dialogue", "inventory"],
            "samples": 100,
            "corpus_vectors": 2000,
            "training_vectors": 2000,
        },
        "compression_ratio": {"dataset_sizes": [100, 1000, 10000], "settle_memories": 2000},
        "training_efficiency": {"data_sizes": [1000, 10000, 100000], "epochs": 10, "batch_size": 32},
    },
    "memory_transition": {
        "transition_accuracy": {"num_memories": 1000, "importance_levels": 5, "similarity_threshold": 0.8},
        "transition_overhead": {"batch_sizes": [100, 1000, 10000]},
        "importance_scoring": {
            "tier_limits": [100, 50, 20],
            "memories_per_level": [100, 50, 30, 15, 5],
            "arrival_orders": ["rising", "falling", "shuffled"],
        },
    },
    "retrieval": {
        "vector_search_latency": {"data_volumes": [100, 1000, 10000, 100000], "k": 10, "queries": 100},
        "search_accuracy": {
            "clusters": 10,
            "items_per_cluster": 20,
            "noise": 0.2,
            "similarity_thresholds": [0.6, 0.7, 0.8],
        },
        "cross_tier_retrieval": {
            "stm_memories": 1000,
            "im_memories": 500,
            "ltm_memories": 200,
            "related_groups": 50,
            "k": 20,
        },
    },
    "scalability": {
        "agent_scaling": {"agent_counts": [1, 10, 50, 100, 500], "parallel_operations": [1, 4, 8, 16]},
        "memory_size_scaling": {"data_volumes": [1000, 10000, 100000, 1000000]},
        "resource_utilization": {"duration_seconds": 700.0, "operation_rate": 1430.0},
    },
    "integration": {
        "api_overhead": {"num_operations": 1000},
        "hook_implementation": {"num_steps": 1000},
        "framework_integration": {"frameworks": ["gymnasium", "langgraph"], "training_iterations": 10},
    },
    "quality": {"retrieval_quality": {"data_sets": ["synthetic"], "conversations": 20, "sessions": 12}},
    "agent_execution": {
        "simple_invocation": {"iterations": 100},
        "session_creation": {"iterations": 100},
    },
    "memory_search": {
        "short_query": {"entries": [10, 1000, 10000], "iterations": 100},
        "long_query": {"entries": [10, 1000, 10000], "iterations": 100},
        "no_match": {"entries": [10, 1000, 10000], "iterations": 100},
        "vector_search": {"entries": [10, 1000, 10000], "iterations": 100},
        "concurrent_search": {"entries": [10, 1000, 10000], "iterations": 100, "threads": [1, 2, 4, 8]},
    },
    "context_build": {
        "baseline": {"sessions": [5], "tools": [3], "iterations": 100},
        "large_session_count": {"sessions": [5, 10, 100], "tools": [3], "iterations": 100},
        "large_tool_count": {"sessions": [5, 100], "tools": [3, 6, 50], "iterations": 100},
    },
}


def _changed(sizes: Sizes, changes: Sizes) -> Sizes:
    """The same table with some values replaced."""
    return {
        category: {
            benchmark: {**values, **changes.get(category, {}).get(benchmark, {})}
            for benchmark, values in benchmarks.items()
        }
        for category, benchmarks in sizes.items()
    }


_STANDARD = _changed(
    _FULL,
    {
        "storage": {
            "write_throughput": {"batch_sizes": [10, 100, 300], "data_complexity_levels": [1]},
            "read_latency": {"num_samples": 500},
            "memory_efficiency": {"num_memories": 500, "data_complexity_levels": [1]},
        },
        "compression": {
            "embedding_quality": {"corpus_vectors": 1000, "training_vectors": 2000},
            "compression_ratio": {"dataset_sizes": [100, 1000]},
            "training_efficiency": {"data_sizes": [300, 1000]},
        },
        "memory_transition": {"transition_overhead": {"batch_sizes": [300, 3000]}},
        "retrieval": {"vector_search_latency": {"data_volumes": [100, 1000, 10000]}},
        "scalability": {
            "agent_scaling": {"agent_counts": [1, 10, 40], "parallel_operations": [1, 4]},
            "memory_size_scaling": {"data_volumes": [1000, 10000]},
            "resource_utilization": {"duration_seconds": 3.0, "operation_rate": 200.0},
        },
        "memory_search": {
            name: {"entries": [10, 1000]} for name in ("no_match", "vector_search", "concurrent_search")
        },
        "agent_execution": {"simple_invocation": {"iterations": 50}},
        "context_build": {"large_tool_count": {"sessions": [5]}},
        "integration": {
            "api_overhead": {"num_operations": 300},
            "hook_implementation": {"num_steps": 300},
            "framework_integration": {"training_iterations": 5},
        },
    },
)

_QUICK = _changed(
    _STANDARD,
    {
        "storage": {
            "write_throughput": {
                "batch_sizes": [10, 50],
                "data_complexity_levels": [1],
                "settle_memories": 0,
            },
            "read_latency": {"num_samples": 200, "batch_sizes": [10], "settle_memories": 0},
            "memory_efficiency": {
                "num_memories": 100,
                "data_complexity_levels": [1],
                "settle_memories": 0,
            },
        },
        "compression": {
            "embedding_quality": {
                "test_data_categories": ["dialogue"],
                "samples": 50,
                "corpus_vectors": 300,
                "training_vectors": 300,
            },
            "compression_ratio": {"dataset_sizes": [100], "settle_memories": 0},
            "training_efficiency": {"data_sizes": [300], "epochs": 1},
        },
        "memory_transition": {
            "transition_accuracy": {"num_memories": 100},
            "transition_overhead": {"batch_sizes": [500]},
            "importance_scoring": {
                "tier_limits": [20, 10, 4],
                "memories_per_level": [20, 10, 6, 3, 1],
                "arrival_orders": ["shuffled"],
            },
        },
        "retrieval": {
            "vector_search_latency": {"data_volumes": [100, 500], "queries": 20},
            "cross_tier_retrieval": {
                "stm_memories": 100,
                "im_memories": 50,
                "ltm_memories": 20,
                "related_groups": 5,
            },
        },
        "scalability": {
            "agent_scaling": {"agent_counts": [1, 5], "parallel_operations": [1]},
            "memory_size_scaling": {"data_volumes": [100, 500]},
            "resource_utilization": {"duration_seconds": 0.5},
        },
        "integration": {
            "api_overhead": {"num_operations": 50},
            "hook_implementation": {"num_steps": 50},
            "framework_integration": {"frameworks": ["gymnasium"], "training_iterations": 1},
        },
        "quality": {"retrieval_quality": {"conversations": 3}},
        "agent_execution": {
            "simple_invocation": {"iterations": 10},
            "session_creation": {"iterations": 20},
        },
        "memory_search": {
            **{
                name: {"entries": [10, 100], "iterations": 20}
                for name in ("short_query", "long_query", "no_match", "vector_search")
            },
            "concurrent_search": {"entries": [10, 100], "iterations": 20, "threads": [1, 2, 4]},
        },
        "context_build": {
            "baseline": {"iterations": 20},
            "large_session_count": {"sessions": [5, 15], "iterations": 10},
            "large_tool_count": {"sessions": [5], "tools": [3, 10], "iterations": 10},
        },
    },
)

_ALIKE = (
    "compression.embedding_quality",
    "compression.compression_ratio",
    "compression.training_efficiency",
    "memory_transition.transition_accuracy",
    "memory_transition.importance_scoring",
    "quality.retrieval_quality",
    "storage.memory_efficiency",
)
"""What these show hardly differs between rounds: quality and bytes, not time."""

PROFILES = {
    "quick": Profile(
        rounds=2,
        seconds=0.02,
        timeout_seconds=120.0,
        sizes=_QUICK,
        most_rounds=dict.fromkeys(_ALIKE, 1),
    ),
    "standard": Profile(rounds=5, seconds=0.1, timeout_seconds=600.0, sizes=_STANDARD),
    "full": Profile(
        rounds=5,
        seconds=0.3,
        timeout_seconds=3600.0,
        sizes=_FULL,
        most_rounds={"scalability.resource_utilization": 2},
    ),
}
DEFAULT_PROFILE = "standard"

# Seconds of one round on a machine of two cores, for the first estimate; afterwards earlier runs tell.
EXPECTED_SECONDS: dict[str, dict[str, float]] = {
    "storage.write_throughput": {"quick": 0.6, "standard": 5.5, "full": 120.0},
    "storage.read_latency": {"quick": 0.4, "standard": 3.5, "full": 6.0},
    "compression.embedding_quality": {"quick": 2.5, "standard": 18.0, "full": 25.0},
    "compression.compression_ratio": {"quick": 1.2, "standard": 4.0, "full": 15.0},
    "compression.training_efficiency": {"quick": 1.8, "standard": 5.0, "full": 120.0},
    "storage.memory_efficiency": {"quick": 0.4, "standard": 7.0, "full": 60.0},
    "scalability.agent_scaling": {"quick": 1.2, "standard": 5.0, "full": 150.0},
    "scalability.memory_size_scaling": {"quick": 0.8, "standard": 3.5, "full": 900.0},
    "scalability.resource_utilization": {"quick": 0.7, "standard": 3.3, "full": 706.0},
    "integration.api_overhead": {"quick": 0.6, "standard": 2.5, "full": 5.0},
    "integration.hook_implementation": {"quick": 0.4, "standard": 2.5, "full": 4.0},
    "integration.framework_integration": {"quick": 1.0, "standard": 2.0, "full": 4.0},
    "agent_execution.simple_invocation": {"quick": 0.5, "standard": 2.0, "full": 3.0},
    "agent_execution.session_creation": {"quick": 0.1, "standard": 0.3, "full": 0.6},
    "memory_search.short_query": {"quick": 0.2, "standard": 2.0, "full": 2.5},
    "memory_search.long_query": {"quick": 0.2, "standard": 2.5, "full": 3.0},
    "memory_search.no_match": {"quick": 0.2, "standard": 0.8, "full": 2.0},
    "memory_search.vector_search": {"quick": 0.2, "standard": 0.8, "full": 2.0},
    "memory_search.concurrent_search": {"quick": 0.4, "standard": 2.4, "full": 7.0},
    "context_build.baseline": {"quick": 0.4, "standard": 1.0, "full": 1.0},
    "context_build.large_session_count": {"quick": 0.5, "standard": 3.0, "full": 3.0},
    "context_build.large_tool_count": {"quick": 0.6, "standard": 2.8, "full": 6.0},
}
