"""Ways to make a chart from a benchmark's figures. `pictures.py` says which benchmark gets which.

A maker is a function from what was gathered to a chart, or to None where there is nothing to draw.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memory.benchmarking.measure.growth import growth
from memory.benchmarking.measure.statistics import CONFIDENCE, Estimate, one_sample, student
from memory.benchmarking.metrics import Metric
from memory.benchmarking.model.paths import TIERS, Place
from memory.benchmarking.report.charts import (
    Axis,
    Chart,
    Line,
    Panel,
    Point,
    averaged,
    fitting_scale,
    thinned,
    with_fitting_y,
)
from memory.benchmarking.report.curves import curves
from memory.benchmarking.report.gather import FigureRow, Gathered, Value, sort_values, value_of, words
from memory.benchmarking.text.display import figure_text

Maker = Callable[[Gathered], Chart | None]
Keep = Callable[[Place], bool]
MOST_PANELS = 6
MOST_LINES = 8
MOST_TIMES = 120
"""Points of a timeline: more can't be told apart on a screen."""
SHARE = (0.0, 1.0)
"""The bounds of recall, precision and every other share."""
_COLOURS = {tier: number for number, tier in enumerate((*TIERS, "all"))}
"""A tier has one colour on the whole page."""


@dataclass(frozen=True)
class Shown:
    """How to read the values of a chart's y axis."""

    label: str
    bounds: tuple[float, float] | None = None
    goal: float | None = None


def over(
    title: str,
    metric: str | Sequence[str],
    x: str,
    *,
    x_label: str,
    shown: Shown,
    lines: Sequence[str] = (),
    panels: Sequence[str] = (),
    keep: Keep | None = None,
    x_if_none: float | None = None,
    fit: bool = False,
    note: str = "",
) -> Maker:
    """A metric (or several, a line each) over a parameter. `fit` adds how it grows."""

    def make(gathered: Gathered) -> Chart | None:
        leaves = [metric] if isinstance(metric, str) else [*metric]
        rows = [row for leaf in leaves for row in gathered.select(leaf, keep)]
        places = [(row, _number(row.of(x), x_if_none)) for row in rows]
        points = [(row, place) for row, place in places if place is not None]
        if not points:
            return None
        sizes = sorted({place for _, place in points})
        naming = [*lines, *(["metric"] if len(leaves) > 1 else [])]
        if len(sizes) == 1:
            names = naming or list(panels) or ["metric"]
            kept = [row for row, _ in points]
            return _bars(
                title, kept, names, [], panels if naming else [], shown, _read(gathered, leaves), note
            )
        made = Chart(
            title,
            Axis(x_label, scale=fitting_scale(sizes), ticks=tuple(sizes)),
            _axis(shown, _read(gathered, leaves)),
            _panels(points, panels, naming),
            note=note,
        )
        made = _with_y(made, shown)
        return _with_fits(made) if fit else made

    return make


def over_leaves(
    title: str,
    pattern: str,
    *,
    x_label: str,
    shown: Shown,
    lines: Sequence[str] = (),
    panels: Sequence[str] = (),
    keep: Keep | None = None,
    scale: str = "linear",
    note: str = "",
) -> Maker:
    """Metrics whose names hold a number, as `recall_at_10` does, over that number."""
    compiled = re.compile(pattern)

    def make(gathered: Gathered) -> Chart | None:
        points = []
        for row in gathered.rows:
            match = compiled.fullmatch(row.metric)
            if match and (keep is None or keep(row.place)):
                number = match[1]
                # p999 is the share 0.999 of all calls.
                points.append((row, float(f"0.{number}") if scale == "nines" else float(number)))
        if not points:
            return None
        sizes = sorted({place for _, place in points})
        leaf = points[0][0].metric
        x = Axis(x_label, scale="nines") if scale == "nines" else Axis(x_label, ticks=tuple(sizes), low=0)
        made = Chart(
            title, x, _axis(shown, gathered.metric(leaf)), _panels(points, panels, lines), note=note
        )
        return _with_y(made, shown)

    return make


def bars(
    title: str,
    metric: str | Sequence[str],
    names: Sequence[str],
    *,
    shown: Shown,
    lines: Sequence[str] = (),
    panels: Sequence[str] = (),
    keep: Keep | None = None,
    called: Mapping[str, str] | None = None,
    note: str = "",
) -> Maker:
    """A bar for each name, beside each other for each line. Several metrics are lines."""

    def make(gathered: Gathered) -> Chart | None:
        leaves = [metric] if isinstance(metric, str) else [*metric]
        rows = [row for leaf in leaves for row in gathered.select(leaf, keep)]
        if not rows:
            return None
        naming = [*lines, *(["metric"] if len(leaves) > 1 and "metric" not in names else [])]
        return _bars(title, rows, names, naming, panels, shown, _read(gathered, leaves), note, called)

    return make


def percentiles(
    title: str,
    *,
    lines: Sequence[str] = ("tier", "part"),
    keep: Keep | None = None,
    largest: str = "",
    goal: float | None = None,
    what: str = "time of a call",
) -> Maker:
    """How latencies are distributed, from the raw samples. `largest` keeps only the largest of a size."""

    def make(gathered: Gathered) -> Chart | None:
        wanted = keep or (lambda place: True)
        if largest:
            sizes: dict[tuple[str | None, str], float] = {}
            for row in gathered.rows:
                if wanted(row.place) and (size := row.place.parameters.get(largest)) is not None:
                    key = (row.place.tier, row.place.part)
                    sizes[key] = max(sizes.get(key, size), size)
            found = curves(
                gathered,
                lambda place: (
                    wanted(place)
                    and place.parameters.get(largest) == sizes.get((place.tier, place.part), -1)
                ),
            )
        else:
            found = curves(gathered, wanted)
        names = [words(*(value_of(curve.place, name) for name in lines), names=lines) for curve in found]
        kept = [*dict.fromkeys(names)][:MOST_LINES]
        others = [
            name for name in _varying(curve.place for curve in found) if name not in (*lines, largest)
        ]
        panels: dict[str, list[Line]] = {}
        for curve, name in zip(found, names, strict=True):
            if name in kept:
                panel = words(*(curve.place.parameters.get(other) for other in others), names=others)
                line = Line(name, curve.points, curve.source, "curve", _colour(name, kept))
                panels.setdefault(panel, []).append(line)
        if not panels:
            return None
        made = [
            Panel(tuple(sorted(drawn, key=lambda line: kept.index(line.name))), panel)
            for panel, drawn in [*panels.items()][:MOST_PANELS]
        ]
        bounded = any(point.low is not None for line in made[0].lines for point in line.points)
        note = "Share of calls that took no longer."
        if bounded:
            note += " The band is the 95 % interval over rounds."
        if max(curve.calls_per_sample for curve in found) > 1:
            note += " Where calls are very quick, a sample is the mean of several."
        chart = Chart(
            title,
            Axis("share of calls", scale="nines"),
            Axis(what, "ms"),
            tuple(made),
            findings=_tail(made[0].lines, made[0].title),
            note=note,
        )
        return _with_y(chart, Shown(what, goal=goal))

    return make


def timeline(title: str, leaf: str, field: str, label: str, unit: str, *, from_zero: bool) -> Maker:
    """What was read again and again while a benchmark ran: a list of readings with their seconds."""

    def make(gathered: Gathered) -> Chart | None:
        lines, most = [], 0
        for source, path, value in gathered.leaves(leaf):
            if not isinstance(value, list):
                continue
            points = tuple(
                Point(float(each["seconds"]), float(each[field]))
                for each in value
                if isinstance(each, dict)
                and _is_number(each.get("seconds"))
                and _is_number(each.get(field))
            )
            if points:
                most = max(most, len(points))
                lines.append(Line(words(*path), averaged(points, MOST_TIMES), source, "curve"))
        if not lines:
            return None
        values = [point.y for line in lines for point in line.points]
        margin = (max(values) - min(values)) / 10
        low, high = (0.0, None) if from_zero else (min(values) - margin, max(values) + margin)
        return Chart(
            title,
            Axis(
                "seconds into the run", low=0, high=max(point.x for line in lines for point in line.points)
            ),
            Axis(label, unit, low=low, high=high),
            (Panel(tuple(lines)),),
            note="Of the last round."
            + (f" {most} readings, drawn as {MOST_TIMES} means." if most > MOST_TIMES else ""),
        )

    return make


def numbers(title: str, leaf: str, x_label: str, shown: Shown, *, note: str = "") -> Maker:
    """A list of numbers in their order: the loss of each epoch."""

    def make(gathered: Gathered) -> Chart | None:
        lines = []
        for source, path, value in gathered.leaves(leaf):
            if isinstance(value, list) and value and all(_is_number(each) for each in value):
                points = tuple(Point(number + 1, float(each)) for number, each in enumerate(value))
                lines.append(Line(words(*path), thinned(points, MOST_TIMES), source, "curve"))
        if not lines:
            return None
        chart = Chart(title, Axis(x_label), Axis(shown.label), (Panel(tuple(lines)),), note=note)
        return _with_y(chart, shown)

    return make


def against(
    title: str,
    x_metric: str,
    y_metric: str,
    *,
    x_label: str,
    shown: Shown,
    names: Sequence[str],
    panels: Sequence[str] = (),
    keep: Keep | None = None,
    line: str = "",
    findings: Callable[[Gathered], tuple[str, ...]] | None = None,
    note: str = "",
) -> Maker:
    """One metric against another, a named point for each place where both were measured."""

    def make(gathered: Gathered) -> Chart | None:
        across = {(row.source, row.where): row.figure.value for row in gathered.select(x_metric, keep)}
        by_panel: dict[str, dict[int, list[Point]]] = {}
        for row in gathered.select(y_metric, keep):
            x = across.get((row.source, row.where))
            if x is None:
                continue
            panel = words(*(row.of(name) for name in panels), names=panels)
            name = words(*(row.of(each) for each in names), names=names)
            figure = row.figure
            by_panel.setdefault(panel, {}).setdefault(row.source, []).append(
                Point(x, figure.value, figure.low, figure.high, text=name)
            )
        if not by_panel:
            return None
        made = tuple(
            Panel(
                tuple(Line(line, tuple(points), source, "dots") for source, points in sources.items()),
                panel,
            )
            for panel, sources in [*by_panel.items()][:MOST_PANELS]
        )
        xs = [point.x for panel in made for each in panel.lines for point in each.points]
        x_axis = Axis(x_label, gathered.metric(x_metric).unit, scale=fitting_scale(xs))
        chart = Chart(
            title,
            x_axis,
            _axis(shown, gathered.metric(y_metric)),
            made,
            findings=findings(gathered) if findings else (),
            note=note,
        )
        return _with_y(chart, shown)

    return make


# -- parts of a chart -------------------------------------------------------------------------


def _bars(
    title: str,
    rows: Sequence[FigureRow],
    names: Sequence[str],
    lines: Sequence[str],
    panels: Sequence[str],
    shown: Shown,
    metric: Metric,
    note: str,
    called: Mapping[str, str] | None = None,
) -> Chart:
    called = called or {}
    kept = [*dict.fromkeys(_name(row, names) for row in _sorted(rows, names))]
    points = [(row, float(kept.index(_name(row, names)))) for row in rows]
    shown_names = tuple(called.get(name, name) or shown.label for name in kept)
    chart = Chart(
        title,
        Axis("", scale="names", names=shown_names),
        _axis(shown, metric),
        _panels(points, panels, lines, called),
        note=note,
        horizontal=True,
    )
    made = _with_y(chart, shown)
    return replace(
        made,
        panels=tuple(
            replace(panel, lines=tuple(replace(line, drawn="dots") for line in panel.lines))
            for panel in made.panels
        ),
    )


def _panels(
    points: Sequence[tuple[FigureRow, float]],
    panels: Sequence[str],
    lines: Sequence[str],
    called: Mapping[str, str] | None = None,
) -> tuple[Panel, ...]:
    """Points sorted into panels and lines by the dimensions that each of them is told by."""
    called = called or {}
    panels = [name for name in panels if len({row.of(name) for row, _ in points}) > 1]
    found: dict[str, dict[tuple[int, str], list[tuple[float, Point]]]] = {}
    for row, x in sorted(points, key=lambda pair: pair[1]):
        figure = row.figure
        point = Point(x, figure.value, figure.low, figure.high, tuple(figure.rounds))
        panel = _name(row, panels)
        found.setdefault(panel, {}).setdefault((row.source, _name(row, lines)), []).append((x, point))
    titles = [*dict.fromkeys(_name(row, panels) for row in _sorted([row for row, _ in points], panels))]
    order = [*dict.fromkeys(_name(row, lines) for row in _sorted([row for row, _ in points], lines))]
    made = []
    for title in titles[:MOST_PANELS]:
        members = sorted(found[title].items(), key=lambda item: (order.index(item[0][1]), item[0][0]))
        made.append(
            Panel(
                tuple(
                    Line(
                        called.get(name, name),
                        tuple(point for _, point in values),
                        source,
                        colour=_colour(name, order),
                    )
                    for (source, name), values in members
                    if order.index(name) < MOST_LINES
                ),
                title,
            )
        )
    return tuple(made)


def _varying(places: Iterable[Place]) -> list[str]:
    """The parameters that have more than one value."""
    found: dict[str, set[float]] = {}
    for place in places:
        for name, value in place.parameters.items():
            found.setdefault(name, set()).add(value)
    return [name for name, values in found.items() if len(values) > 1]


def _colour(name: str, names: Iterable[str]) -> int | None:
    """That of the tier, where all lines are tiers."""
    return _COLOURS[name] if all(each in _COLOURS for each in names) else None


def _sorted(rows: Sequence[FigureRow], names: Sequence[str]) -> list[FigureRow]:
    """By the order of the values of each dimension, the first dimension first."""
    places = {name: sort_values(row.of(name) for row in rows) for name in names}
    return sorted(rows, key=lambda row: [places[name].index(row.of(name)) for name in names])


def _name(row: FigureRow, names: Sequence[str]) -> str:
    return words(*(row.of(name) for name in names), names=names)


def _axis(shown: Shown, metric: Metric) -> Axis:
    low, high = shown.bounds or (None, None)
    return Axis(shown.label, metric.unit, low=low, high=high)


def _read(gathered: Gathered, leaves: Iterable[str]) -> Metric:
    """How to read the first of these that there is."""
    known = gathered.metrics
    return gathered.metric(next((leaf for leaf in leaves if leaf in known), ""))


def _with_y(chart: Chart, shown: Shown) -> Chart:
    if shown.bounds is None:
        chart = with_fitting_y(chart)
    if shown.goal is None:
        return chart
    goal = f"{shown.goal:g} {chart.y.unit}"
    points = [point for line in chart.lines for point in line.points]
    # Goals are for medians; on a curve that is one of its points.
    medians = [point.y for point in points if chart.x.scale != "nines" or point.x == 0.5]
    what = "median" if len(medians) == 1 else "medians"
    if max(medians, default=0.0) >= shown.goal:
        said = f"The goal of {goal} is missed."
    elif max(point.y for point in points) < shown.goal:
        said = f"All of it stays below the goal of {goal}."
    else:
        said = f"The {what} {'stays' if len(medians) == 1 else 'stay'} below the goal of {goal}."
    return replace(chart, limits=((shown.goal, f"goal: {goal}"),), findings=(*chart.findings, said))


# -- what a chart shows, in words -------------------------------------------------------------


def _with_fits(chart: Chart) -> Chart:
    """A dashed line for each line: cost ~ size^slope, on logarithmic axes, and the slopes in words."""
    chart = replace(chart, x=replace(chart.x, scale="log"), y=replace(chart.y, scale="log"))
    panels, slopes = [], {}
    for panel in chart.panels:
        fits = []
        for line in panel.lines:
            costs = {point.x: point.y for point in line.points}
            if len(costs) < 2 or min(costs) <= 0 or min(costs.values()) <= 0:
                continue
            slope = _slope(line.points)
            logs = [math.log(cost) - slope.value * math.log(size) for size, cost in costs.items()]
            base = math.fsum(logs) / len(logs)
            ends = tuple(
                Point(size, math.exp(base + slope.value * math.log(size)))
                for size in (min(costs), max(costs))
            )
            fits.append(Line(line.name, ends, line.source, "fit", chart.colour_of(line)))
            if line.source == 0:
                slopes[", ".join(filter(None, (panel.title, line.name)))] = slope
        panels.append(replace(panel, lines=(*panel.lines, *fits)))
    findings = (_growth_in_words(slopes, chart.x.label), *chart.findings) if slopes else chart.findings
    return replace(chart, panels=tuple(panels), findings=findings)


def _slope(points: Sequence[Point]) -> Estimate:
    """Of each round, and over the rounds; of the figures themselves where there are no rounds."""
    counts = {len(point.rounds) for point in points}
    if len(counts) == 1 and counts != {0} and all(value > 0 for point in points for value in point.rounds):
        exponents = []
        for number in range(counts.pop()):
            found = growth({point.x: point.rounds[number] for point in points})
            if found is not None:
                exponents.append(found.exponent)
        if exponents:
            # As they are: a slope is no amount, and may be below nothing.
            effect = one_sample(exponents)
            if effect.error is None:
                return Estimate(effect.value)
            reach = student(effect.freedom, CONFIDENCE) * effect.error if effect.error else 0.0
            return Estimate(effect.value, effect.value - reach, effect.value + reach)
    found = growth({point.x: point.y for point in points})
    return Estimate(found.exponent, found.low, found.high) if found else Estimate(0.0)


def _growth_in_words(slopes: Mapping[str, Estimate], size: str) -> str:
    """`Ten times the memories cost 2.1 times as much for stm (n^0.32, 0.30 to 0.34), …`"""
    said = []
    for name, slope in slopes.items():
        bounds = f", {slope.low:.2f} to {slope.high:.2f}" if slope.low is not None else ""
        where = f" for {name}" if name and len(slopes) > 1 else ""
        said.append(f"{10**slope.value:.2g} times as much{where} (n^{slope.value:.2f}{bounds})")
    said = [said[0], *(text.replace(" times as much", " times", 1) for text in said[1:])]
    return f"Ten times the {size} cost {_listed(said)}."


def _tail(lines: Sequence[Line], where: str = "") -> tuple[str, ...]:
    """`Half of the calls take up to 2.8 µs (stm) and 12.9 µs (im), 99 % up to 43 µs and 69 µs.`"""
    first = [line for line in lines if line.source == 0]
    shared = set.intersection(*({point.x for point in line.points} for line in first)) if first else set()
    last = max((share for share in shared if share >= 0.9), default=None)
    if last is None:
        return ()
    times = [{point.x: point.y for point in line.points} for line in first]
    named = len(first) > 1
    half = [
        figure_text(each[0.5], "ms") + (f" ({line.name})" if named else "")
        for each, line in zip(times, first, strict=True)
    ]
    slow = [figure_text(each[last], "ms") for each in times]
    of = f" ({where})" if where else ""
    return (
        f"Half of the calls{of} take up to {_listed(half)}; {last * 100:.10g} % up to {_listed(slow)}.",
    )


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"


def _number(value: Value, otherwise: float | None) -> float | None:
    return float(value) if isinstance(value, int | float) else otherwise


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
