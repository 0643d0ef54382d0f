"""The smallest sizes of every benchmark, for tests that check only that a command works."""

from __future__ import annotations

from pathlib import Path

from memory.benchmarking.config import BenchmarkConfig


def smallest_config(path: Path) -> Path:
    """Write a configuration file with the smallest sizes, and return its path."""
    config = BenchmarkConfig("quick")
    config.rounds, config.seconds = 1, 0.002
    config.storage.batch_sizes = [5, 10]
    config.storage.num_samples = config.storage.num_memories = 10
    config.retrieval.data_volumes = [20]
    config.quality.conversations = 1
    config.memory_transition.num_memories = 10
    config.memory_transition.batch_sizes = [20]
    config.compression.corpus_vectors = config.compression.training_vectors = 260
    config.compression.dataset_sizes = [20]
    config.compression.data_sizes = [260]
    config.compression.epochs = 1
    config.scalability.agent_counts = [1, 2]
    config.scalability.parallel_operations = [1]
    config.scalability.data_volumes = [50]
    config.scalability.duration_seconds = 0.2
    config.scalability.saturation.seconds = 0.5
    config.promises.checks = ["unknown_ids_are_no_error"]  # the tests of the promises run all checks
    config.integration.num_operations = config.integration.num_steps = 10
    config.memory_search.entries = [10]
    config.memory_search.threads = [1]
    for section in (config.memory_search, config.context_build, config.agent_execution):
        section.iterations = 3
    config.context_build.sessions = config.context_build.tools = [2]
    config.save(path)
    return path
