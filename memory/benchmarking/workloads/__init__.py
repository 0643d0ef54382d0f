"""What the benchmarks store and ask for: made from a seed, so that two runs see the same data."""

from memory.benchmarking.workloads.states import agent_states, generate_test_state

__all__ = ["agent_states", "generate_test_state"]
