"""The benchmarks, one file a category: every function `benchmark_*` in it is one.

The second document's small interface can be had from here too, as that document says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.benchmarking.runner import BenchmarkRunner as BenchmarkRunner
    from memory.benchmarking.small import BenchmarkReport as BenchmarkReport
    from memory.benchmarking.small import BenchmarkResult as BenchmarkResult
    from memory.benchmarking.small import benchmark as benchmark
    from memory.benchmarking.small import calculate_percentiles as calculate_percentiles

__all__ = ["BenchmarkReport", "BenchmarkResult", "BenchmarkRunner", "benchmark", "calculate_percentiles"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import memory.benchmarking

    return getattr(memory.benchmarking, name)
