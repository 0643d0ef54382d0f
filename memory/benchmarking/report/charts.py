"""What a picture shows, apart from how it is drawn: lines of points with intervals, in panels.

`svg.py` draws a chart, `chart_html.py` puts its legend and its data beside it. Nothing here knows of
benchmarks; `pictures/` makes charts from results.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

Scale = Literal["linear", "log", "nines", "names"]
"""`nines` is for percentiles: as far from 90 to 99 as from 99 to 99.9. `names` counts 0, 1, 2, …"""
Drawn = Literal["line", "curve", "dots", "fit"]
"""A line with its points; many points without marks; marks alone; a fitted line, dashed."""

WIDTH = 360
LOG_FROM = 1.5
"""Decades between the smallest and the largest value, from which on a linear axis hides the small ones."""


@dataclass(frozen=True)
class Axis:
    """One direction of a chart. Bounds that are not given follow from the points."""

    label: str
    unit: str = ""
    scale: Scale = "linear"
    names: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    ticks: tuple[float, ...] = ()
    """Where to put marks, if not at round numbers: at the sizes that were measured, say."""


@dataclass(frozen=True)
class Point:
    """A figure with its interval. On the axis of names `x` counts; percentiles are shares below 1."""

    x: float
    y: float
    low: float | None = None
    high: float | None = None
    rounds: tuple[float, ...] = ()
    """The figure of each round, for what is computed over rounds."""
    text: str = ""
    """Stands beside the point, and for it in the table: the name of a codec, say."""


@dataclass(frozen=True)
class Line:
    """Points that belong together. Lines of one name have one colour; the source tells runs apart."""

    name: str
    points: tuple[Point, ...]
    source: int = 0
    drawn: Drawn = "line"
    colour: int | None = None
    """None: by the order of the names in the chart."""


@dataclass(frozen=True)
class Panel:
    """One frame; the panels of a chart have the same axes."""

    lines: tuple[Line, ...]
    title: str = ""


@dataclass(frozen=True)
class Chart:
    """A picture that answers one question."""

    title: str
    x: Axis
    y: Axis
    panels: tuple[Panel, ...]
    findings: tuple[str, ...] = ()
    """What it shows, in words."""
    note: str = ""
    """How to read it."""
    horizontal: bool = False
    """The x axis goes down and the y axis to the right: for names, which are long."""
    limits: tuple[tuple[float, str], ...] = ()
    """Values of y with a name, drawn across: a goal."""
    width: int = WIDTH
    """Of a panel, in pixels; a long series needs more."""

    @property
    def names(self) -> list[str]:
        """Of the lines, each once, fitted ones apart; the order gives the colours."""
        return [*dict.fromkeys(line.name for line in self.lines if line.drawn != "fit")]

    @property
    def lines(self) -> list[Line]:
        return [line for panel in self.panels for line in panel.lines]

    @property
    def sources(self) -> list[int]:
        return sorted({line.source for line in self.lines})

    def colour_of(self, line: Line) -> int:
        """Where all lines have one name, the source is what must be told apart."""
        if line.colour is not None:
            return line.colour
        names = self.names
        if len(names) == 1 and len(self.sources) > 1:
            return self.sources.index(line.source)
        return names.index(line.name) if line.name in names else len(names)


def fitting_scale(values: Iterable[float]) -> Scale:
    """Logarithmic where the values are positive and span decades."""
    found = [value for value in values if math.isfinite(value)]
    if found and min(found) > 0 and math.log10(max(found) / min(found)) > LOG_FROM:
        return "log"
    return "linear"


def with_fitting_y(chart: Chart) -> Chart:
    """The chart with the scale of y that suits its points."""
    return replace(
        chart, y=replace(chart.y, scale=fitting_scale(p.y for line in chart.lines for p in line.points))
    )


def thinned(points: tuple[Point, ...], most: int) -> tuple[Point, ...]:
    """At most so many points, the first and the last among them, evenly chosen."""
    if len(points) <= most:
        return points
    step = (len(points) - 1) / (most - 1)
    return tuple(points[round(number * step)] for number in range(most))


def averaged(points: tuple[Point, ...], most: int) -> tuple[Point, ...]:
    """At most so many points, each the mean of its neighbours: what was between two is not lost."""
    if len(points) <= most:
        return points
    found = []
    for number in range(most):
        part = points[number * len(points) // most : (number + 1) * len(points) // most]
        mean_x = math.fsum(point.x for point in part) / len(part)
        found.append(Point(mean_x, math.fsum(point.y for point in part) / len(part)))
    return tuple(found)
