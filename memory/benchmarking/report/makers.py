"""Make the charts that a benchmark declares (see `model.presentation`) from its figures."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from memory.benchmarking.measure.growth import growth
from memory.benchmarking.measure.statistics import CONFIDENCE, Estimate, one_sample, t_critical
from memory.benchmarking.model.paths import TIERS, Place, segments_of
from memory.benchmarking.model.presentation import (
    AnyChart,
    BarChart,
    ChartSpec,
    Goal,
    LineChart,
    ListChart,
    PercentileChart,
    ScatterChart,
    SeriesChart,
    TimelineChart,
)
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
from memory.benchmarking.report.gather import (
    FigureRow,
    GatheredResults,
    Value,
    plain,
    short_name,
    sort_values,
    value_of,
    words,
)
from memory.benchmarking.text.display import figure_text
from memory.benchmarking.text.notes import result_notes

MOST_PANELS = 6
"""The largest number of panels of a chart."""
MOST_LINES = 8
"""The largest number of lines of a panel."""
MOST_TIMES = 120
"""The largest number of points of a timeline: on a screen, more points would overlap."""
_COLOURS = {tier: number for number, tier in enumerate((*TIERS, "all"))}
"""A tier has the same colour on the whole page."""
Goals = Mapping[str, Goal]
"""Goals by the name of their metric."""


def make_chart(spec: AnyChart, gathered: GatheredResults, goals: Goals | None = None) -> Chart | None:
    """Make a declared chart from a benchmark's figures; return None if there is nothing to draw."""
    goals = goals or {}
    match spec:
        case LineChart():
            return _line_chart(spec, gathered, goals)
        case SeriesChart():
            return _series_chart(spec, gathered, goals)
        case BarChart():
            return _bar_chart(spec, gathered, goals)
        case PercentileChart():
            return _percentile_chart(spec, gathered, goals)
        case TimelineChart():
            return _timeline_chart(spec, gathered)
        case ListChart():
            return _list_chart(spec, gathered)
        case ScatterChart():
            return _scatter_chart(spec, gathered, goals)


def _line_chart(spec: LineChart, gathered: GatheredResults, goals: Goals) -> Chart | None:
    leaves = _leaves(spec.metric)
    rows = [row for leaf in leaves for row in gathered.select(leaf, spec.keeps)]
    places = [(row, _number(row.of(spec.x), spec.x_if_missing)) for row in rows]
    points = [(row, place) for row, place in places if place is not None]
    if not points:
        return None
    sizes = sorted({place for _, place in points})
    naming = [*spec.lines, *(["metric"] if len(leaves) > 1 else [])]
    if len(sizes) == 1:
        names = naming or list(spec.panels) or ["metric"]
        kept = [row for row, _ in points]
        return _bars(spec, gathered, goals, leaves, kept, names, [], spec.panels if naming else [])
    chart = Chart(
        spec.title,
        Axis(spec.x_label or plain(spec.x), scale=fitting_scale(sizes), ticks=tuple(sizes)),
        _y_axis(spec, gathered, leaves),
        _panels(points, spec.panels, naming),
        note=_note(spec, gathered, leaves),
    )
    chart = _with_y(chart, spec, gathered, goals, leaves)
    return _with_fits(chart) if spec.fit else chart


def _series_chart(spec: SeriesChart, gathered: GatheredResults, goals: Goals) -> Chart | None:
    pattern = re.compile(spec.pattern)
    points = []
    for row in gathered.rows:
        match = pattern.fullmatch(row.metric)
        if match and spec.keeps(row.place):
            number = match[1]
            # p999 is the share 0.999 of all calls.
            points.append((row, float(f"0.{number}") if spec.percentiles else float(number)))
    if not points:
        return None
    sizes = tuple(sorted({place for _, place in points}))
    leaves = [points[0][0].metric]
    x = Axis(spec.x_label, scale="nines") if spec.percentiles else Axis(spec.x_label, ticks=sizes, low=0)
    chart = Chart(
        spec.title,
        x,
        _y_axis(spec, gathered, leaves),
        _panels(points, spec.panels, spec.lines),
        note=_note(spec, gathered, leaves),
    )
    return _with_y(chart, spec, gathered, goals, [])


def _bar_chart(spec: BarChart, gathered: GatheredResults, goals: Goals) -> Chart | None:
    leaves = _leaves(spec.metric)
    rows = [row for leaf in leaves for row in gathered.select(leaf, spec.keeps)]
    if not rows:
        return None
    naming = [*spec.lines, *(["metric"] if len(leaves) > 1 and "metric" not in spec.names else [])]
    return _bars(spec, gathered, goals, leaves, rows, spec.names, naming, spec.panels, spec.renamed)


def _percentile_chart(spec: PercentileChart, gathered: GatheredResults, goals: Goals) -> Chart | None:
    largest, lines = spec.largest, spec.lines
    sizes: dict[tuple[str | None, str], float] = {}
    for row in gathered.rows:
        if spec.keeps(row.place) and (size := row.place.parameters.get(largest)) is not None:
            key = (row.place.tier, row.place.part)
            sizes[key] = max(sizes.get(key, size), size)

    def is_drawn(place: Place) -> bool:
        size = sizes.get((place.tier, place.part), -1)
        return spec.keeps(place) and (not largest or place.parameters.get(largest) == size)

    found = curves(gathered, is_drawn)
    names = [words(*(value_of(curve.place, name) for name in lines), names=lines) for curve in found]
    kept = [*dict.fromkeys(names)][:MOST_LINES]
    others = [name for name in _varying(curve.place for curve in found) if name not in (*lines, largest)]
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
    note = "Share of calls that took no longer."
    if any(point.low is not None for line in made[0].lines for point in line.points):
        note += " The band is the 95 % interval over rounds."
    if max(curve.calls_per_sample for curve in found) > 1:
        note += " Very short calls: a sample is the mean of several calls."
    chart = Chart(
        spec.title,
        Axis("share of calls", scale="nines"),
        Axis(spec.label or "time of a call", "ms"),
        tuple(made),
        findings=_tail(made[0].lines, made[0].title),
        note=note,
    )
    return _with_y(chart, spec, gathered, goals, ["p50_ms"])


def _timeline_chart(spec: TimelineChart, gathered: GatheredResults) -> Chart | None:
    lines, most = [], 0
    for source, path, value in gathered.leaves(spec.leaf):
        if not isinstance(value, list):
            continue
        points = tuple(
            Point(float(reading["seconds"]), float(reading[spec.field]))
            for reading in value
            if isinstance(reading, dict)
            and _is_number(reading.get("seconds"))
            and _is_number(reading.get(spec.field))
        )
        if points:
            most = max(most, len(points))
            lines.append(Line(words(*path), averaged(points, MOST_TIMES), source, "curve"))
    if not lines:
        return None
    values = [point.y for line in lines for point in line.points]
    margin = (max(values) - min(values)) / 10
    low, high = (0.0, None) if spec.from_zero else (min(values) - margin, max(values) + margin)
    last = max(point.x for line in lines for point in line.points)
    return Chart(
        spec.title,
        Axis("seconds into the run", low=0, high=last),
        Axis(spec.label, spec.unit, low=low, high=high),
        (Panel(tuple(lines)),),
        note="The last round."
        + (f" {most} readings, drawn as {MOST_TIMES} means." if most > MOST_TIMES else ""),
    )


def _list_chart(spec: ListChart, gathered: GatheredResults) -> Chart | None:
    lines = []
    for source, path, value in gathered.leaves(spec.leaf):
        if isinstance(value, list) and value and all(map(_is_number, value)):
            points = tuple(Point(number, float(item)) for number, item in enumerate(value, start=1))
            lines.append(Line(words(*path), thinned(points, MOST_TIMES), source, "curve"))
    if not lines:
        return None
    return with_fitting_y(
        Chart(spec.title, Axis(spec.x_label), Axis(spec.label), (Panel(tuple(lines)),), note=spec.note)
    )


def _scatter_chart(spec: ScatterChart, gathered: GatheredResults, goals: Goals) -> Chart | None:
    across = {
        (row.source, row.where): row.figure.value for row in gathered.select(spec.x_metric, spec.keeps)
    }
    by_panel: dict[str, dict[tuple[int, str], list[Point]]] = {}
    for row in gathered.select(spec.y_metric, spec.keeps):
        x = across.get((row.source, row.where))
        if x is not None:
            figure, name = row.figure, _name(row, spec.names)
            text = "" if spec.joined else name
            point = Point(x, figure.value, figure.low, figure.high, text=text)
            line = (row.source, name if spec.joined else "")
            by_panel.setdefault(_name(row, spec.panels), {}).setdefault(line, []).append(point)
    if not by_panel:
        return None
    made = tuple(
        Panel(
            tuple(
                Line(
                    name,
                    tuple(sorted(points, key=lambda point: point.x) if spec.joined else points),
                    source,
                    "line" if spec.joined else "dots",
                )
                for (source, name), points in lines.items()
            )
            + _diagonal(spec.diagonal, min(source for source, _ in lines)),
            panel,
        )
        for panel, lines in [*by_panel.items()][:MOST_PANELS]
    )
    xs = [point.x for panel in made for line in panel.lines for point in line.points]
    x_axis = Axis(spec.x_label, gathered.metric(spec.x_metric).unit, scale=fitting_scale(xs))
    if spec.diagonal:
        x_axis = replace(x_axis, scale="linear", low=0.0, high=1.0)
    chart = Chart(
        spec.title,
        x_axis,
        _y_axis(spec, gathered, [spec.y_metric]),
        made,
        findings=_repeated_notes(spec.notes, gathered),
        note=spec.note,
    )
    return _with_y(chart, spec, gathered, goals, [spec.y_metric])


def _diagonal(name: str, source: int) -> tuple[Line, ...]:
    return (Line(name, (Point(0, 0), Point(1, 1)), source, "fit"),) if name else ()


def _repeated_notes(name: str, gathered: GatheredResults) -> tuple[str, ...]:
    """Return the first source's notes of this name as sentences, each with its places in the results."""
    title = plain(name).capitalize()
    return tuple(
        f"{title} for {', '.join(segments_of(path)[0] for path in note.paths)}: {note.text}."
        for source, result in gathered.results
        for note in result_notes(result.result)
        if source == 0 and note.name == name
    )


# -- parts of a chart -------------------------------------------------------------------------


def _bars(
    spec: ChartSpec,
    gathered: GatheredResults,
    goals: Goals,
    leaves: Sequence[str],
    rows: Sequence[FigureRow],
    names: Sequence[str],
    lines: Sequence[str],
    panels: Sequence[str],
    renamed: Mapping[str, str] | None = None,
) -> Chart:
    renamed = renamed or {}
    kept = [*dict.fromkeys(_name(row, names) for row in _sorted(rows, names))]
    points = [(row, float(kept.index(_name(row, names)))) for row in rows]
    y_axis = _y_axis(spec, gathered, leaves)
    chart = Chart(
        spec.title,
        Axis("", scale="names", names=tuple(renamed.get(name, name) or y_axis.label for name in kept)),
        y_axis,
        _panels(points, panels, lines, renamed),
        note=_note(spec, gathered, leaves),
        horizontal=True,
    )
    made = _with_y(chart, spec, gathered, goals, leaves)
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
    renamed: Mapping[str, str] | None = None,
) -> tuple[Panel, ...]:
    """Group the points into panels by the dimensions `panels`, and into lines by the dimensions `lines`."""
    renamed = renamed or {}
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
                        renamed.get(name, name),
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
    """Return the parameters that have more than one value."""
    found: dict[str, set[float]] = {}
    for place in places:
        for name, value in place.parameters.items():
            found.setdefault(name, set()).add(value)
    return [name for name, values in found.items() if len(values) > 1]


def _colour(name: str, names: Iterable[str]) -> int | None:
    """Return the fixed colour of a tier if all lines are tiers, else None."""
    return _COLOURS[name] if all(other in _COLOURS for other in names) else None


def _sorted(rows: Sequence[FigureRow], names: Sequence[str]) -> list[FigureRow]:
    """Return the rows, sorted by the first dimension, then by the second, and so on."""
    places = {name: sort_values(row.of(name) for row in rows) for name in names}
    return sorted(rows, key=lambda row: [places[name].index(row.of(name)) for name in names])


def _name(row: FigureRow, names: Sequence[str]) -> str:
    return words(*(row.of(name) for name in names), names=names)


def _leaves(metric: str | Sequence[str]) -> list[str]:
    return [metric] if isinstance(metric, str) else [*metric]


def _note(spec: ChartSpec, gathered: GatheredResults, leaves: Sequence[str]) -> str:
    better = gathered.metric(leaves[0]).better
    return spec.note or ("" if better == "neither" else f"{better.capitalize()} is better.")


def _y_axis(spec: ChartSpec, gathered: GatheredResults, leaves: Sequence[str]) -> Axis:
    known = gathered.metrics
    metric = gathered.metric(next((leaf for leaf in leaves if leaf in known), ""))
    low, high = (0.0, 1.0) if spec.share else (None, None)
    return Axis(spec.label or short_name(leaves[0]), metric.unit, low=low, high=high)


def _with_y(
    chart: Chart, spec: ChartSpec, gathered: GatheredResults, goals: Goals, leaves: Sequence[str]
) -> Chart:
    """Return the chart with a suitable scale of y, and with the goal of its metrics if there is one."""
    if not spec.share:
        chart = with_fitting_y(chart)
    leaf = next((leaf for leaf in leaves if leaf in goals), None)
    if leaf is None:
        return chart
    better, limit = gathered.metric(leaf).better, goals[leaf].limit
    goal = f"{limit:g} {chart.y.unit}".strip()
    points = [point for line in chart.lines for point in line.points]
    # On a percentile curve the goal applies to the median, which is one of the points.
    values = [point.y for point in points if chart.x.scale != "nines" or point.x == 0.5]
    side = "above" if better == "higher" else "below"

    def misses(value: float) -> bool:
        return goals[leaf].is_missed(value, None, None, better)

    if any(map(misses, values)):
        sentence = f"The goal of {goal} is missed."
    elif not any(misses(point.y) for point in points):
        sentence = f"All of it stays {side} the goal of {goal}."
    else:
        sentence = (
            f"The {'median stays' if len(values) == 1 else 'medians stay'} {side} the goal of {goal}."
        )
    return replace(chart, limits=((limit, f"goal: {goal}"),), findings=(*chart.findings, sentence))


# -- what a chart shows, in words -------------------------------------------------------------


def _with_fits(chart: Chart) -> Chart:
    """Return the chart on logarithmic axes, with a fitted line (cost ~ size^slope) for each line."""
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
    """Return the mean slope over the rounds; if the points have no rounds, the slope of the figures."""
    counts = {len(point.rounds) for point in points}
    if len(counts) == 1 and counts != {0} and all(value > 0 for point in points for value in point.rounds):
        exponents = []
        for number in range(counts.pop()):
            found = growth({point.x: point.rounds[number] for point in points})
            if found is not None:
                exponents.append(found.exponent)
        if exponents:
            # Do not use `over_rounds`, which computes on logarithms: a slope can be negative.
            effect = one_sample(exponents)
            if effect.error is None:
                return Estimate(effect.value)
            half_width = t_critical(effect.freedom, CONFIDENCE) * effect.error if effect.error else 0.0
            return Estimate(effect.value, effect.value - half_width, effect.value + half_width)
    found = growth({point.x: point.y for point in points})
    return Estimate(found.exponent, found.low, found.high) if found else Estimate(0.0)


def _growth_in_words(slopes: Mapping[str, Estimate], size: str) -> str:
    """Return `Ten times the memories cost 2.1 times as much for stm (n^0.32, 0.30 to 0.34), …`."""
    texts = []
    for name, slope in slopes.items():
        bounds = f", {slope.low:.2f} to {slope.high:.2f}" if slope.low is not None else ""
        where = f" for {name}" if name and len(slopes) > 1 else ""
        texts.append(f"{10**slope.value:.2g} times as much{where} (n^{slope.value:.2f}{bounds})")
    texts = [texts[0], *(text.replace(" times as much", " times", 1) for text in texts[1:])]
    return f"Ten times the {size} cost {_listed(texts)}."


def _tail(lines: Sequence[Line], where: str = "") -> tuple[str, ...]:
    """Return `Half of the calls take up to 2.8 µs (stm) and 12.9 µs (im); 99 % up to 43 µs and 69 µs.`"""
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
