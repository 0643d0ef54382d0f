"""What a figure means (its unit, and which direction is better), and what a benchmark declares.

Unit and direction follow from the metric's name. A benchmark declares the unit and direction of
the other metrics. A metric without a direction is shown, but never called better or worse.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from memory.benchmarking.model.presentation import AnyChart, Goal, Versus

Better = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Metric:
    """How to read the figures of one metric."""

    unit: str = ""
    better: Better = "neither"
    most: float | None = None
    """The largest possible value, such as 1 for a share. Intervals end there."""
    whole: bool = False
    """Whether it counts things, so that a result file holds a whole number."""


SHARE = Metric("", "higher", most=1.0)
"""A share of the whole: higher is better, up to 1."""


# The first match counts, so longer endings come before shorter ones.
_ENDINGS: tuple[tuple[str, Metric], ...] = (
    ("items_processed", Metric(whole=True)),
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
    ("growth_exponent", Metric("", "lower")),
)
_QUALITIES = ("recall", "precision", "f1", "ndcg", "mrr")
"""Names that start with these are shares, unless their endings say otherwise (`recall_ms`)."""

_TIMED_UNITS = ("s", "ms", "µs", "ns", "/s")
_SIGNED = ("exponent", "correlation", "overhead", "slope", "leak")
_DERIVED = (
    "*overhead*", "growth_exponent", "scaling", "*_efficiency", "*_to_*", "*_us_per_*", "generator_late_*",
)  # fmt: skip
_RESIDENT = ("ram_", "rss_")


def is_signed(leaf: str) -> bool:
    """Return whether figures of this name can be 0 or negative, so that no ratio compares two of them."""
    return any(word in leaf for word in _SIGNED)


def is_derived(leaf: str) -> bool:
    """Return whether figures of this name are computed from other figures of the same result."""
    return any(fnmatchcase(leaf, pattern) for pattern in _DERIVED)


def is_timed(unit: str) -> bool:
    """Return whether figures of this unit come from a clock, so that a busy machine disturbs them."""
    return unit in _TIMED_UNITS


def is_resident_memory(leaf: str) -> bool:
    """Return whether figures of this name are RAM that the operating system reports.

    The same data need more or less of it from process to process.
    """
    return leaf.startswith(_RESIDENT)


def metric_of(leaf: str, declared: Mapping[str, Metric] | None = None) -> Metric:
    """Return how to read a metric: as declared, else by its name (the last segment of its path)."""
    if declared and leaf in declared:
        return declared[leaf]
    metric = next((metric for ending, metric in _ENDINGS if leaf.endswith(ending)), Metric())
    if metric.better == "neither" and leaf.startswith(_QUALITIES):
        return SHARE if not metric.unit else Metric(metric.unit, "higher")
    return metric


@dataclass(frozen=True)
class Declaration:
    """What a benchmark declares besides its signature and docstring; see `declare`."""

    headline: str = ""
    metrics: Mapping[str, Metric] | None = None
    reports: tuple[str, ...] = ()
    profiles: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    rounds: int | Mapping[str, int] | None = None
    expected_seconds: Mapping[str, float] = field(default_factory=dict)
    goals: Mapping[str, float | Goal] = field(default_factory=dict)
    charts: tuple[AnyChart, ...] = ()
    notes: tuple[str, ...] = ()
    versus: Versus | None = None
    write_figures: str = ""
    search_figures: str = ""
    vector_figures: str = ""

    def metric(self, leaf: str) -> Metric:
        """Return how to read a figure of this benchmark."""
        return metric_of(leaf, self.metrics)

    def most_rounds(self, profile: str, *, asked_for_more: bool = False) -> int | None:
        """Return the most rounds under a profile; None for no limit.

        asked_for_more: whether the user wants more rounds than the profile has. Then a benchmark that takes
        fewer to save time gets them too. Only `rounds=1` stays: one round tells everything."""
        if asked_for_more:
            return 1 if self.rounds == 1 else None
        return self.rounds.get(profile) if isinstance(self.rounds, Mapping) else self.rounds


TIMED = (
    "throughput_ops_per_second", "total_time_seconds", "items_processed", "mean_ms", "p50_ms", "p95_ms",
    "p99_ms", "max_ms", "cpu_ms", "wall_to_cpu",
)  # fmt: skip
"""The figures of every `bench.time`."""


Function = TypeVar("Function", bound=Callable[..., Any])


def declare(
    headline: str = "",
    *,
    reports: Sequence[str] = (),
    profiles: Mapping[str, Mapping[str, Any]] | None = None,
    rounds: int | Mapping[str, int] | None = None,
    expected_seconds: Mapping[str, float] | None = None,
    goals: Mapping[str, float | Goal] | None = None,
    charts: Sequence[AnyChart] = (),
    notes: Sequence[str] = (),
    versus: Versus | None = None,
    write_figures: str = "",
    search_figures: str = "",
    vector_figures: str = "",
    **metrics: Metric,
) -> Callable[[Function], Function]:
    """Declare everything about a benchmark that its signature and docstring do not say.

    Args:
        headline: the figure for the summary, as a pattern over paths (`*/stm/*/p50_ms`). The last match
            counts. Patterns with `|` between them are tried in order.
        reports: the names of its figures, for the documents
        profiles: parameters by profile (`quick`, `standard`, `full`), where they differ from the signature
        rounds: the most rounds that make sense, for all profiles or by profile; figures that follow from
            the data alone need few
        expected_seconds: how long one round takes, by profile, until a previous run says it
        goals: by metric, the limit that its figures should reach
        charts: how the report draws its figures
        notes: names of the texts in its result that are shown first
        versus: a figure to set beside that of a reference method
        write_figures: which figures are those of writes, as patterns over paths with `|` between them. The
            target's durability is shown beside them.
        search_figures: in the same form, the figures of `Target.search`. What the target compares (words,
            vector or both) is shown beside them.
        vector_figures: in the same form, the figures of `Target.search_vector`
        metrics: unit and direction of the metrics whose names do not say them
    """

    def mark(function: Function) -> Function:
        function.__benchmark__ = Declaration(  # type: ignore[attr-defined]
            headline,
            metrics,
            tuple(dict.fromkeys((*reports, *metrics))),
            profiles or {},
            rounds,
            expected_seconds or {},
            goals or {},
            tuple(charts),
            tuple(notes),
            versus,
            write_figures,
            search_figures,
            vector_figures,
        )
        return function

    return mark


def declaration_of(function: Callable[..., Any]) -> Declaration:
    """Return what a benchmark declares; an empty declaration for a function without one."""
    declared = getattr(function, "__benchmark__", None)
    return declared if isinstance(declared, Declaration) else Declaration()
