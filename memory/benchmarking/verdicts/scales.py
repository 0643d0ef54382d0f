"""Whether a figure changes by a factor or by points."""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.metrics import Metric, is_signed
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.verdicts.records import Scale


def scale_of(path: str, metric: Metric, values: Sequence[float]) -> Scale:
    """Return "ratio" for positive figures with a unit, and "difference" for shares and the rest."""
    if is_share(path, metric, values) or any(value <= 0 for value in values):
        return "difference"
    return "ratio"


def limits_of(path: str, metric: Metric, values: Sequence[float]) -> tuple[float, float] | None:
    """Return the smallest and the largest possible value of a share; None for other figures."""
    if not is_share(path, metric, values):
        return None
    can_be_negative = is_signed(leaf_of(path)) or any(value < 0 for value in values)
    return (-1.0 if can_be_negative else 0.0), 1.0


def is_share(path: str, metric: Metric, values: Sequence[float]) -> bool:
    """Whether a figure is a share: recall, F1, similarity, a rate. It has no unit and is from -1 to 1."""
    has_direction = metric.better == "higher" or path.endswith("_rate")
    return not metric.unit and has_direction and all(-1 <= value <= 1 for value in values)
