"""Charts for a benchmark that declares none, chosen by its metrics and parameters."""

from __future__ import annotations

from memory.benchmarking.metrics import Metric
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.presentation import AnyChart, BarChart, LineChart, PercentileChart
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.gather import FigureRow, GatheredResults, plain, short_name
from memory.benchmarking.report.makers import MOST_LINES, Goals, make_chart

MOST_CHARTS = 4
"""The largest number of charts of one benchmark."""
_MEDIAN = "p50_ms"
_OTHER_TIMES = ("mean_ms", "p95_ms", "p99_ms", "max_ms", "cpu_ms", "min_ms", "std_dev_ms")
"""Metrics of a timing that get no own chart: the charts of the median and the distribution show enough."""


def default_charts(gathered: GatheredResults, goals: Goals | None = None) -> list[Chart]:
    """Return a chart for each important metric; x is the parameter with the most values."""
    charts = []
    for leaf in _important_metrics(gathered):
        rows = gathered.select(leaf)
        x = _parameter(rows)
        others = _varying(rows, x)
        lines, panels = _split(rows, others)
        title = short_name(leaf).capitalize()
        spec: AnyChart
        if x:
            spec = LineChart(f"{title}, by {plain(x)}", leaf, x, lines=lines, panels=panels)
        else:
            spec = BarChart(title, metric=leaf, names=others or ["part"])
        chart = make_chart(spec, gathered, goals)
        if chart is not None and (x or len(rows) > 1):
            charts.append(chart)
    timed = [row for row in gathered.rows if row.figure.samples]
    size = _parameter(timed)
    title = f"How long calls take, with the largest {plain(size)}" if size else "How long calls take"
    names = _varying(timed, size) or ["part"]
    if distribution := make_chart(PercentileChart(title, lines=names, largest=size), gathered, goals):
        charts.append(distribution)
    return charts[:MOST_CHARTS]


def _important_metrics(gathered: GatheredResults) -> list[str]:
    """Return the metrics to draw: the headline's metric, then metrics where higher or lower is better."""
    metrics = gathered.metrics
    timed = _MEDIAN in metrics
    useful = [
        leaf
        for leaf in metrics
        if gathered.metric(leaf) != Metric() and gathered.metric(leaf).better != "neither"
        and not (timed and leaf in _OTHER_TIMES)
    ]  # fmt: skip
    headline = leaf_of(gathered.headline)
    first = [headline] if headline in metrics else []
    return [*dict.fromkeys([*first, *useful])][: MOST_CHARTS - 1]


def _parameter(rows: list[FigureRow]) -> str:
    """Return the parameter with the most values; empty if no parameter has two values."""
    names = dict.fromkeys(name for row in rows for name in row.place.parameters)
    counts = {name: len({row.of(name) for row in rows} - {None}) for name in names}
    best = max(counts, key=lambda name: counts[name], default="")
    return best if best and counts[best] > 1 else ""


def _varying(rows: list[FigureRow], without: str) -> list[str]:
    """Return the dimensions with several values, except `without`."""
    names = dict.fromkeys(["tier", "part", *(name for row in rows for name in row.place.parameters)])
    return [name for name in names if name != without and len({row.of(name) for row in rows}) > 1]


def _split(rows: list[FigureRow], names: list[str]) -> tuple[list[str], list[str]]:
    """Split dimensions into two lists, for lines and for panels, so that no panel has too many lines."""
    lines, panels = [*names], list[str]()
    while len(lines) > 1 and len({tuple(row.of(name) for name in lines) for row in rows}) > MOST_LINES:
        panels.append(lines.pop())
    return lines, panels
