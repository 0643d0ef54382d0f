"""The data of the benchmarks. It is generated from a seed, so that two runs use the same data."""

from memory.benchmarking.workloads.states import agent_states, generate_test_state

__all__ = ["agent_states", "generate_test_state"]
