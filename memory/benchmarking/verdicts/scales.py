"""Whether a figure changes by a factor or by points."""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.metrics import Metric
from memory.benchmarking.verdicts.records import Scale


def scale_of(path: str, metric: Metric, values: Sequence[float]) -> Scale:
    """Logarithms for what is measured in units and is never zero; differences for shares and the rest."""
    if is_share(path, metric, values) or any(value <= 0 for value in values):
        return "difference"
    return "ratio"


def is_share(path: str, metric: Metric, values: Sequence[float]) -> bool:
    """Recall, F1, similarity, rates: bounded, so that 0.98 to 0.99 is one point and nothing else."""
    has_direction = metric.better == "higher" or path.endswith("_rate")
    return not metric.unit and has_direction and all(-1 <= value <= 1 for value in values)
