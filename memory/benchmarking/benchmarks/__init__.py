"""The benchmarks, one file a category: every function `benchmark_*` in it is one.

The second document's small interface can be had from here too, as that document says.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.benchmarking.framework import BenchmarkReport as BenchmarkReport
    from memory.benchmarking.framework import BenchmarkResult as BenchmarkResult
    from memory.benchmarking.framework import benchmark as benchmark
    from memory.benchmarking.framework import calculate_percentiles as calculate_percentiles
    from memory.benchmarking.runner import BenchmarkRunner as BenchmarkRunner

__all__ = ["BenchmarkReport", "BenchmarkResult", "BenchmarkRunner", "benchmark", "calculate_percentiles"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import memory.benchmarking

    return getattr(memory.benchmarking, name)
