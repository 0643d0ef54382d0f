"""The content of a chart, without how it is drawn. A chart has panels, a panel lines, and a line points.

`svg.py` draws a chart, and `chart_html.py` adds its legend and its data. `benchmark_charts.py` makes charts
from results. This module does not depend on benchmarks.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Scale = Literal["linear", "log", "nines", "names"]
"""`nines` is for percentiles: 90 to 99 takes as much room as 99 to 99.9. `names` is for a list of names."""
Drawn = Literal["line", "curve", "dots", "fit"]
"""`line` has markers, `curve` only small dots, `dots` only markers, and `fit` is a dashed fitted line."""

WIDTH = 360
"""Width of a panel, in pixels."""
MANY_SOURCES = 3
"""From this number of sources on, colours tell sources apart, and dashes tell names apart."""
DASHES = 4
"""Number of dashes of lines in `charts.css`."""
LOG_FROM = 1.5
"""Values that span more decades than this get a logarithmic axis: a linear axis would hide small values."""


@dataclass(frozen=True)
class Axis:
    """One axis of a chart. Without `low` and `high` it spans all points."""

    label: str
    unit: str = ""
    scale: Scale = "linear"
    names: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    ticks: tuple[float, ...] = ()
    """Values to mark instead of round numbers, such as the sizes that were measured."""


@dataclass(frozen=True)
class Point:
    """A figure with its interval. `x` is a number, the index of a name, or a percentile as a share."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    rounds: tuple[float, ...] = ()
    """The figure of each round, for computations over rounds."""
    text: str = ""
    """A name that is shown beside the point and in the table, such as the name of a codec."""


@dataclass(frozen=True)
class Line:
    """Points that belong together. Lines with the same name have the same colour.

    `source` is the number of the run or target that the points come from.
    """

    name: str
    points: tuple[Point, ...]
    source: int = 0
    drawn: Drawn = "line"
    colour: int | None = None
    """The number of the colour; if None, it follows from the order of the names in the chart."""


@dataclass(frozen=True)
class Panel:
    """One plot of a chart. All panels of a chart have the same axes."""

    lines: tuple[Line, ...]
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """One or more panels that answer one question."""

    title: str
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    findings: tuple[str, ...] = ()
    """Sentences that say what the chart shows."""
    note: str = ""
    """How to read the chart."""
    horizontal: bool = False
    """The x axis goes down and the y axis to the right, which leaves room for long names."""
    limits: tuple[tuple[float, str], ...] = ()
    """Values of y, such as a goal, with their names. Each is drawn as a line across the panel."""
    width: int = WIDTH
    """Width of a panel, in pixels."""

    @property
    def names(self) -> list[str]:
        """The distinct names of the lines, without fitted lines. Their order determines the colours."""
        return [*dict.fromkeys(line.name for line in self.lines if line.drawn != "fit")]

    @property
    def lines(self) -> list[Line]:
        return [line for panel in self.panels for line in panel.lines]

    @property
    def sources(self) -> list[int]:
        return sorted({line.source for line in self.lines})

    @property
    def has_panel_titles(self) -> bool:
        return len(self.panels) > 1 or bool(self.panels and self.panels[0].title)

    @property
    def has_source_colours(self) -> bool:
        """Whether each source has a colour, and each name a dash.

        With one or two sources it is the other way round: more than a few dashes can't be told apart.
        """
        sources = len(self.sources)
        return sources >= MANY_SOURCES or (len(self.names) == 1 and sources > 1)

    def colour_of(self, line: Line) -> int:
        """Return the number of a line's colour."""
        if self.has_source_colours and (line.colour is None or len(self.sources) >= MANY_SOURCES):
            return self.sources.index(line.source)
        if line.colour is not None:
            return line.colour
        names = self.names
        return names.index(line.name) if line.name in names else len(names)

    def dash_of(self, line: Line) -> int:
        """Return the number of a line's dash."""
        if len(self.sources) >= MANY_SOURCES:
            names = self.names
            return names.index(line.name) % DASHES if line.name in names else 0
        return line.source % DASHES if len(self.sources) > 1 else 0


def fitting_scale(values: Iterable[float]) -> Scale:
    """Return `log` if all values are positive and span more than `LOG_FROM` decades, else `linear`."""
    found = [value for value in values if math.isfinite(value)]
    if found and min(found) > 0 and math.log10(max(found) / min(found)) > LOG_FROM:
        return "log"
    return "linear"


def with_fitting_y(chart: Chart) -> Chart:
    """Return the chart with the scale of y that fits its points."""
    return replace(
        chart, y=replace(chart.y, scale=fitting_scale(p.y for line in chart.lines for p in line.points))
    )


def thinned(points: tuple[Point, ...], most: int) -> tuple[Point, ...]:
    """Return at most `most` evenly spaced points, including the first and the last."""
    if len(points) <= most:
        return points
    step = (len(points) - 1) / (most - 1)
    return tuple(points[round(number * step)] for number in range(most))


def averaged(points: tuple[Point, ...], most: int) -> tuple[Point, ...]:
    """Return at most `most` points, each the mean of several neighbours: no point is simply left out."""
    if len(points) <= most:
        return points
    found = []
    for number in range(most):
        part = points[number * len(points) // most : (number + 1) * len(points) // most]
        mean_x = math.fsum(point.x for point in part) / len(part)
        found.append(Point(mean_x, math.fsum(point.y for point in part) / len(part)))
    return tuple(found)
