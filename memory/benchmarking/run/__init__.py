"""Running benchmarks: discovery, plan, worker processes, execution, progress, summary."""
