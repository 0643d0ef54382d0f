"""Two more figures of a timing: standard deviation and minimum (see docs/performance/benchmarks.md)."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from memory.benchmarking.measure.statistics import PERCENTILES, percentiles
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import TIMED

SPREAD = ("mean_ms", "p50_ms", "std_dev_ms", "p95_ms", "p99_ms", "min_ms", "max_ms")
"""The figures of `spread_of`."""
TIMED_WITH_SPREAD = (*TIMED, "std_dev_ms", "min_ms")
"""The figures of `with_spread`."""


@dataclass(frozen=True)
class SpreadTiming(Timing):
    """A timing with its standard deviation and its fastest sample."""

    def __post_init__(self) -> None:
        super().__post_init__()
        figures = {
            **self.figures,
            "std_dev_ms": _std_dev(self.milliseconds),
            "min_ms": min(self.milliseconds),
        }
        object.__setattr__(self, "figures", figures)


def with_spread(timing: Timing) -> SpreadTiming:
    """Return the same timing with two more figures."""
    return SpreadTiming(
        timing.samples_ns,
        timing.block_samples,
        timing.block_wall_ns,
        timing.block_cpu_ns,
        timing.calls_per_sample,
        timing.work,
    )


def spread_of(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the figures of latencies that several threads measured, for which there is no `Timing`."""
    quantiles = percentiles(milliseconds, PERCENTILES.values())
    return {
        "mean_ms": statistics.fmean(milliseconds),
        **{f"{name}_ms": value for name, value in zip(PERCENTILES, quantiles, strict=True)},
        "std_dev_ms": _std_dev(milliseconds),
        "min_ms": min(milliseconds),
        "max_ms": max(milliseconds),
    }


def _std_dev(milliseconds: Sequence[float]) -> float:
    return statistics.stdev(milliseconds) if len(milliseconds) > 1 else 0.0
