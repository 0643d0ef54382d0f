"""What a figure means: its unit, and which way is better.

Both follow from the name of a result's leaf; a benchmark declares those whose name can't say it.
A metric whose direction is unknown is shown, and never called better or worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Metric:
    """How to read one figure."""

    unit: str = ""
    better: Better = "neither"
    most: float | None = None
    """What it can't be above, as a share can't be above 1: its interval ends there."""


SHARE = Metric("", "higher", most=1.0)
"""How much of all that there is: more is better, up to 1."""


# The first that fits counts, so the longer endings stand before the shorter ones.
_ENDINGS: tuple[tuple[str, Metric], ...] = (
    ("_per_second", Metric("/s", "higher")),
    ("_per_mb", Metric("/MB", "higher")),
    ("total_time_seconds", Metric("s", "neither")),
    ("_seconds", Metric("s", "lower")),
    ("_ms", Metric("ms", "lower")),
    ("_us", Metric("µs", "lower")),
    ("_ns", Metric("ns", "lower")),
    ("_bytes", Metric("B", "lower")),
    ("_bytes_per_memory", Metric("B", "lower")),
    ("_mb", Metric("MB", "lower")),
    ("_percent", Metric("%", "neither")),
    *((f"{good}_rate", SHARE) for good in ("hit", "success")),
    *((f"{bad}_rate", Metric("", "lower")) for bad in ("error", "failure", "miss", "drop", "loss")),
    ("_ratio", Metric("×", "neither")),
)
_QUALITIES = ("recall", "precision", "f1", "ndcg", "mrr")
"""What a name begins with where more is better, unless its ending says otherwise: not `recall_ms`."""

_TIMED_UNITS = ("s", "ms", "µs", "ns", "/s")


_SIGNED = ("exponent", "correlation", "overhead", "slope", "leak")


def is_signed(leaf: str) -> bool:
    """Whether a figure of this name is a difference, which can as well be 0 or below: no factor says how
    much two of them differ."""
    return any(word in leaf for word in _SIGNED)


def is_timed(unit: str) -> bool:
    """Whether a clock stands behind figures of this unit, so that a busy machine disturbs them."""
    return unit in _TIMED_UNITS


def metric_of(leaf: str, declared: Mapping[str, Metric] | None = None) -> Metric:
    """The metric of a leaf, by its own name (the last part of its path)."""
    if declared and leaf in declared:
        return declared[leaf]
    metric = next((metric for ending, metric in _ENDINGS if leaf.endswith(ending)), Metric())
    if metric.better == "neither" and leaf.startswith(_QUALITIES):
        return SHARE if not metric.unit else Metric(metric.unit, "higher")
    return metric


@dataclass(frozen=True)
class Declaration:
    """What a benchmark says of itself besides its signature and docstring."""

    headline: str = ""
    """The figure for the summary, as a pattern over paths: `*/stm/*/p50_ms`; the last match counts."""
    metrics: Mapping[str, Metric] | None = None
    rounds: int | None = None
    """The most rounds that make sense: figures that follow from the data alone don't need many."""
    reports: tuple[str, ...] = ()
    """The names of its figures, for the documents; a test compares them with what it returns."""

    def metric(self, leaf: str) -> Metric:
        return metric_of(leaf, self.metrics)


TIMED = (
    "throughput_ops_per_second", "total_time_seconds", "items_processed", "mean_ms", "p50_ms", "p95_ms",
    "p99_ms", "max_ms", "cpu_ms", "wall_to_cpu",
)  # fmt: skip
"""The figures that every `bench.time` gives."""


Function = TypeVar("Function", bound=Callable[..., Any])


def declare(
    headline: str = "",
    *,
    rounds: int | None = None,
    reports: Sequence[str] = (),
    **metrics: Metric,
) -> Callable[[Function], Function]:
    """Mark a benchmark's headline figure and the metrics whose names don't tell unit and direction."""

    def mark(function: Function) -> Function:
        names = tuple(dict.fromkeys((*reports, *metrics)))
        function.__benchmark__ = Declaration(headline, metrics, rounds, names)  # type: ignore[attr-defined]
        return function

    return mark


def declaration_of(function: Callable[..., Any]) -> Declaration:
    found = getattr(function, "__benchmark__", None)
    return found if isinstance(found, Declaration) else Declaration()
