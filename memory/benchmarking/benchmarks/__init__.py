"""The benchmarks: the functions `benchmark_*` of each module whose name has no leading underscore.

A module is a category. `built_in` returns all benchmarks.

The classes of docs/performance/benchmarks.md can be imported from here too.
"""

from __future__ import annotations

import pkgutil
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from memory.benchmarking.errors import BrokenBenchmark
from memory.benchmarking.model.benchmark import Benchmark, benchmarks_of, import_benchmarks

if TYPE_CHECKING:
    from memory.benchmarking.framework import BenchmarkReport as BenchmarkReport
    from memory.benchmarking.framework import BenchmarkResult as BenchmarkResult
    from memory.benchmarking.framework import benchmark as benchmark
    from memory.benchmarking.framework import calculate_percentiles as calculate_percentiles
    from memory.benchmarking.runner import BenchmarkRunner as BenchmarkRunner

__all__ = ["BenchmarkReport", "BenchmarkResult", "BenchmarkRunner", "benchmark", "calculate_percentiles"]

ORDER = (
    "storage", "compression", "memory_transition", "retrieval", "scalability", "integration", "quality",
    "promises", "agent_execution", "memory_search", "context_build",
)  # fmt: skip
"""The categories in the order of the specification. Others come after them."""


def built_in_modules() -> dict[str, str]:
    """Return the modules of this package by category, in order."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if module.name[0] != "_"]
    names.sort(key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: f"{__name__}.{name}" for name in names}


@cache
def built_in() -> dict[str, Benchmark]:
    """Return this package's benchmarks by full name, in order, without modules that can't be loaded."""
    found: list[Benchmark] = []
    for category, module in built_in_modules().items():
        with suppress(BrokenBenchmark):  # `run.discovery` reports it
            found += benchmarks_of(import_benchmarks(module), category)
    return {benchmark.full_name: benchmark for benchmark in found}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import memory.benchmarking

    return getattr(memory.benchmarking, name)
