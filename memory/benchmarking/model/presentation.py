"""How a report presents a benchmark: its charts, its goals and its sentences.

A benchmark declares these beside its function (see `metrics.declare`). They are plain data, so that a run
can store them: a report of a user's own benchmark must not run the user's code again.

A figure's path gives the dimensions that a chart can use: `tier`, `part` (the names that are neither tier
nor parameter; `part0` is the first of them), `metric` (the leaf) and every parameter, such as `size` in
`size_100/p50_ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

import msgspec

from memory.benchmarking.metrics import Declaration
from memory.benchmarking.model.paths import Place


class Goal(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a figure should reach: at least `limit` where higher is better, else at most `limit`."""

    limit: float
    reached: str = ""
    """The sentence for the report when every figure reaches the goal."""
    missed: str = ""
    """The sentence for a figure that misses it, with `{figure}` and `{interval}`."""
    whole_interval: bool = False
    """The goal is missed only if the whole interval is beyond the limit; the miss is then a warning."""

    def is_missed(self, value: float, low: float | None, high: float | None, better: str) -> bool:
        """Return whether a figure misses the goal."""
        if self.whole_interval:
            bound = high if better == "higher" else low
            if bound is None:
                return False
            value = bound
        return value < self.limit if better == "higher" else value > self.limit


class Versus(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure that the report sets beside that of a reference method, in one sentence for each group.

    The part of a path must read `group/method/where`.
    """

    metric: str
    method: str
    reference: str
    where: str
    sentence: str
    """With `{figure}`, `{interval}`, `{reference}` and `{group}` (empty where there is one group)."""


class _Titled(msgspec.Struct, frozen=True, omit_defaults=True):
    title: str


class ChartSpec(_Titled, frozen=True, omit_defaults=True, tag=True, kw_only=True):
    """A chart of a benchmark's figures. The fields that all charts have:

    title: what the chart shows
    label: the name of the y axis; by default the metric's name
    only, without: patterns for the part of a path, with `|` between them (`*/codecs/*|single`)
    share: whether the y axis goes from 0 to 1
    note: how to read the chart; by default which direction is better
    """

    label: str = ""
    only: str = ""
    without: str = ""
    share: bool = False
    note: str = ""

    def keeps(self, place: Place) -> bool:
        """Return whether the chart shows figures of this place."""
        return (not self.only or _fits(place.part, self.only)) and not (
            self.without and _fits(place.part, self.without)
        )


class LineChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """A metric over a parameter; several metrics are a line each.

    x: the parameter; `x_if_missing` is its value for figures whose path does not have it
    lines, panels: the dimensions that get a line, and a frame of their own
    fit: whether to draw and say how the metric grows with the parameter
    """

    metric: str | Sequence[str]
    x: str
    x_label: str = ""
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    x_if_missing: float | None = None
    fit: bool = False


class SeriesChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """Metrics whose names hold a number, such as `recall_at_10`, over that number.

    pattern: a regular expression for the metric's name, with one group for the number
    percentiles: whether the number is a percentile (`p999_ms` is the share 0.999)
    """

    pattern: str
    x_label: str
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    percentiles: bool = False


class BarChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """A bar for each value of the dimensions `names`; several metrics are bars beside each other.

    renamed: other names for bars and lines
    """

    metric: str | Sequence[str]
    names: Sequence[str]
    lines: Sequence[str] = ()
    panels: Sequence[str] = ()
    renamed: Mapping[str, str] = {}


class PercentileChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """How the latencies of calls are distributed, from the raw samples.

    largest: a parameter of which only the largest value is drawn
    """

    lines: Sequence[str] = ("tier", "part")
    largest: str = ""


class TimelineChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """Readings that a benchmark took while it ran: a list of objects with `seconds` and other fields."""

    leaf: str
    field: str
    unit: str
    from_zero: bool = False


class ListChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """A list of numbers in their order, such as the loss of each epoch."""

    leaf: str
    x_label: str


class ScatterChart(ChartSpec, frozen=True, omit_defaults=True, tag=True):
    """One metric against another, a named point for each place that has both.

    names: the dimensions that name a point
    joined: whether the points of one name are a line; otherwise each point has its own name
    diagonal: the name of the line y = x, for two shares; without one the line is not drawn
    notes: the name of the result's notes that the chart repeats as its findings
    """

    x_metric: str
    y_metric: str
    x_label: str
    names: Sequence[str]
    panels: Sequence[str] = ()
    notes: str = ""
    joined: bool = False
    diagonal: str = ""


AnyChart = LineChart | SeriesChart | BarChart | PercentileChart | TimelineChart | ListChart | ScatterChart


class Presentation(msgspec.Struct, frozen=True, omit_defaults=True):
    """Everything that a report needs besides the figures."""

    category: str = ""
    """What the benchmarks of its category are about: the first sentence of the module's docstring."""
    summary: str = ""
    """What it measures: the first sentence of the function's docstring."""
    charts: tuple[AnyChart, ...] = ()
    """Without any, the report chooses charts by the figures' names and paths."""
    goals: dict[str, Goal] = {}
    """By the metric's name."""
    notes: tuple[str, ...] = ()
    """Names of the result's notes to show first."""
    versus: Versus | None = None


def presentation_from(declaration: Declaration, category: str = "", summary: str = "") -> Presentation:
    """Return what a report needs of a declaration."""
    goals = {
        leaf: goal if isinstance(goal, Goal) else Goal(float(goal))
        for leaf, goal in declaration.goals.items()
    }
    return Presentation(
        category, summary, tuple(declaration.charts), goals, tuple(declaration.notes), declaration.versus
    )


def stored_presentation(metadata: Mapping[str, object]) -> Presentation | None:
    """Return the presentation that a result's metadata holds; None where it holds none that can be read."""
    stored = metadata.get("presentation")
    if stored is None:
        return None
    try:
        return msgspec.convert(stored, Presentation)
    except msgspec.ValidationError:  # written by another version
        return None


def _fits(part: str, patterns: str) -> bool:
    return any(fnmatchcase(part, pattern) for pattern in patterns.split("|"))
