"""The benchmark: runs workloads on any memory system, measures, compares and reports.

The names below are imported when they are first used, so that `membench --help` stays fast.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memory.benchmarking.bench import Bench as Bench
    from memory.benchmarking.bench import not_available as not_available
    from memory.benchmarking.config import BenchmarkConfig as BenchmarkConfig
    from memory.benchmarking.errors import BenchmarkError as BenchmarkError
    from memory.benchmarking.framework import BenchmarkReport as BenchmarkReport
    from memory.benchmarking.framework import BenchmarkResult as BenchmarkResult
    from memory.benchmarking.framework import benchmark as benchmark
    from memory.benchmarking.framework import calculate_percentiles as calculate_percentiles
    from memory.benchmarking.metrics import Metric as Metric
    from memory.benchmarking.metrics import declare as declare
    from memory.benchmarking.model.presentation import BarChart as BarChart
    from memory.benchmarking.model.presentation import Goal as Goal
    from memory.benchmarking.model.presentation import LineChart as LineChart
    from memory.benchmarking.model.presentation import ListChart as ListChart
    from memory.benchmarking.model.presentation import PercentileChart as PercentileChart
    from memory.benchmarking.model.presentation import ScatterChart as ScatterChart
    from memory.benchmarking.model.presentation import SeriesChart as SeriesChart
    from memory.benchmarking.model.presentation import TimelineChart as TimelineChart
    from memory.benchmarking.model.presentation import Versus as Versus
    from memory.benchmarking.results import BenchmarkResults as BenchmarkResults
    from memory.benchmarking.runner import BenchmarkRunner as BenchmarkRunner
    from memory.benchmarking.targets.base import Target as Target

# Each name and its module. `memory`'s own helper for lazy imports is not used here: `membench ab` also
# measures revisions of `memory` without that helper.
_MODULES = {
    "BarChart": "model.presentation",
    "Bench": "bench",
    "BenchmarkConfig": "config",
    "BenchmarkError": "errors",
    "BenchmarkReport": "framework",
    "BenchmarkResult": "framework",
    "BenchmarkResults": "results",
    "BenchmarkRunner": "runner",
    "Goal": "model.presentation",
    "LineChart": "model.presentation",
    "ListChart": "model.presentation",
    "Metric": "metrics",
    "PercentileChart": "model.presentation",
    "ScatterChart": "model.presentation",
    "SeriesChart": "model.presentation",
    "Target": "targets.base",
    "TimelineChart": "model.presentation",
    "Versus": "model.presentation",
    "benchmark": "framework",
    "calculate_percentiles": "framework",
    "declare": "metrics",
    "not_available": "bench",
}

__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
