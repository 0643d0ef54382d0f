"""The page that shows one metric over the runs, and the runs where its level changed."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.files import read_result_of, read_run
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.report.charts import Axis, Chart, Drawn, Line, Panel, Point, with_fitting_y
from memory.benchmarking.report.gather import short_name
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.parts import count, mark, note, table
from memory.benchmarking.report.svg import draw, shapes
from memory.benchmarking.text.display import NOTHING, figure_text, interval_text
from memory.benchmarking.verdicts.history import LevelChange, Series, series_of
from memory.benchmarking.verdicts.history_text import date_texts
from memory.benchmarking.view.index import RunIndex, RunLine, benchmarks_of
from memory.benchmarking.view.layout import Page, case_text, compare_address, run_address, select

LAST = (60, 200, 1000)
"""Choices for how many of the newest runs to read; reading more takes longer."""
LOOKED_AT = 20
"""The largest number of runs that are opened to find the metrics of a benchmark."""
WIDTH = 1040
"""Width of the chart, in pixels."""
MARKED = 120
"""A line with more points than this has small dots instead of markers, which would overlap."""
_TONES = {"better": "good", "worse": "bad"}


@dataclass(frozen=True)
class _Metrics:
    """The metrics of a benchmark, from the newest run that has it."""

    paths: tuple[str, ...] = ()
    headline: str = ""


def history_page(index: RunIndex, query: Mapping[str, Sequence[str]]) -> Page:
    """Return the history of the metric that the fields of the address choose."""
    lines = index.lines()
    cases = {case_text(case): case for case in benchmarks_of(lines)}
    heading = element("h1", "History")
    if not cases:
        empty = note("There is no history yet: it starts with the first run that has results.")
        return Page("History", join((heading, empty)), here="History")
    asked_case, asked_metric = query.get("case", [""])[-1], query.get("metric", [""])[-1]
    name = asked_case if asked_case in cases else next(iter(cases))
    known = _metrics_of(lines, cases[name])
    metric = asked_metric if asked_metric in known.paths else known.headline
    last = next((number for number in LAST if str(number) in query.get("last", ())), LAST[0])
    form = element(
        "form",
        select("Benchmark", "case", [(each, each) for each in cases], name),
        select("Metric", "metric", [(path, path) for path in known.paths], metric),
        select("Newest runs", "last", [(str(number), f"{number:,}") for number in LAST], str(last)),
        element("button", "Show", class_="main"),
        method="get",
        action="/history",
        class_="filters",
    )
    notes = [
        note(f"There is no {what} {asked!r}; the page shows another one.", tone="warn")
        for what, asked, shown in (("benchmark", asked_case, name), ("metric", asked_metric, metric))
        # If the user chooses another benchmark, the form still sends the old metric: this is no error.
        if asked and asked != shown and (what == "benchmark" or not known.paths)
    ]
    body = (heading, form, notes, shapes(), *_sections(index, cases[name], metric, last))
    return Page("History", join(body), here="History")


def _metrics_of(lines: Sequence[RunLine], case: tuple[str, str, str]) -> _Metrics:
    looked_at = 0
    for line in lines:
        if case not in line.cases or not line.results:
            continue
        looked_at += 1
        if looked_at > LOOKED_AT:
            break
        try:
            refs = read_run(line.folder).results
            ref = next((r for r in refs if (r.category, r.benchmark, r.target) == case), None)
            if ref is None:
                continue
            metrics = read_result_of(line.folder, ref).metrics
        except BenchmarkError:
            continue  # the list of runs and the run's page report the damage
        if metrics:
            headline = ref.headline if ref.headline in metrics else next(iter(metrics))
            return _Metrics(tuple(metrics), headline)
    return _Metrics()


def _sections(index: RunIndex, case: tuple[str, str, str], metric: str, last: int) -> Iterator[Markup]:
    try:
        chosen = _read_series(index.output_dir, index.version, case, metric, last) if metric else []
    except BenchmarkError as problem:
        yield note(f"{problem}.")
        return
    if not chosen:
        yield note(f"None of the newest {last:,} runs has this metric.")
    environments = len({(each.fingerprint, each.params_digest) for each in chosen})
    for each in chosen:
        yield _series(each, apart=environments > 1)


@lru_cache(maxsize=8)
def _read_series(
    output_dir: Path, version: int, case: tuple[str, str, str], metric: str, last: int
) -> list[Series]:
    """Return all series of a metric. Finding the changes takes seconds, so it is cached by `version`."""
    category, benchmark, target = case
    # `series_of` takes a glob pattern: escape the path, so that it matches only itself.
    found = series_of(output_dir, glob.escape(metric), benchmark=f"{category}.{benchmark}", last=last)
    return [each for each in found if (each.target, each.path) == (target, metric)]


def _series(series: Series, *, apart: bool) -> Markup:
    """Return the section of one series. A series has one environment and one set of parameters."""
    title = count(len(series.points), "run")
    if series.better != "neither":
        title += f", {series.better} is better"
    where = f"Environment {series.fingerprint}, parameters {series.params_digest}: " if apart else ""
    return element(
        "section",
        element("h2", where + title),
        _changes(series),
        element(
            "div", draw(_chart(series), _panel(series), _spoken(series)), class_="wide long", tabindex="0"
        ),
        element("details", element("summary", "The runs as a table"), _table(series), class_="data"),
        class_="history",
    )


def _changes(series: Series) -> Markup:
    if not series.changes:
        text = "The level did not change." if len(series.points) > 1 else "There is only one run yet."
        return element("p", text, class_="soft")
    return element(
        "ul", [element("li", _change(series, change)) for change in series.changes], class_="changes"
    )


def _change(series: Series, change: LevelChange) -> list[str]:
    before = series.points[change.index - 1]
    revision = f" ({change.revision})" if change.revision else ""
    figures = f"{figure_text(change.before, series.unit)} → {figure_text(change.after, series.unit)}"
    return [
        mark(
            change.direction if change.direction != "neither" else "changed",
            _TONES.get(change.direction, ""),
        ),
        " from ",
        element("a", change.run_id, href=run_address(change.run_id)),
        f"{revision} on: {figures}, {_percent(change)}. ",
        element("a", "Compare with the previous run", href=compare_address(before.run_id, change.run_id)),
    ]


def _percent(change: LevelChange) -> str:
    if change.before <= 0 or change.after <= 0:
        return f"{change.after - change.before:+.3g}"
    percent = 100 * (change.after / change.before - 1)
    return f"{percent:+.1f} %" if abs(percent) < 100 else f"× {change.after / change.before:.1f}"


def _chart(series: Series) -> Chart:
    times = date_texts([point.started_at for point in series.points], shortest=len("2026-11-18T00:08"))
    names = tuple(
        time[len("2026-") :].replace("T", " ") or point.run_id
        for time, point in zip(times, series.points, strict=True)
    )
    chart = Chart(
        title=f"{series.name} {series.path}",
        x=Axis("run", scale="names", names=names),
        y=Axis(short_name(leaf_of(series.path)), series.unit, low=_lowest(series)),
        panels=(_panel(series),),
        width=WIDTH,
    )
    return with_fitting_y(chart)


def _lowest(series: Series) -> float | None:
    """Return where the y axis starts: None for 0, or a higher value if 0 would flatten the line."""
    low = min(point.value if point.low is None else point.low for point in series.points)
    high = max(point.value if point.high is None else point.high for point in series.points)
    if low <= high / 2:
        return None
    return max(0.0, low - max((high - low) / 2, 0.05 * high))


def _panel(series: Series) -> Panel:
    points = tuple(
        Point(x=number, y=point.value, low=point.low, high=point.high)
        for number, point in enumerate(series.points)
    )
    # Draw the levels before and after each change as lines.
    bounds = [0, *(change.index for change in series.changes), len(points)]
    heights = [change.before for change in series.changes[:1]] + [change.after for change in series.changes]
    levels = [
        Line("level", (Point(start, height), Point(end - 1, height)), drawn="fit", colour=1)
        for (start, end), height in zip(pairwise(bounds), heights, strict=False)
    ]
    drawn: Drawn = "line" if len(points) <= MARKED else "curve"
    return Panel((Line(series.target, points, drawn=drawn, colour=0), *levels))


def _spoken(series: Series) -> str:
    first, last = series.points[0], series.points[-1]
    return (
        f"Chart: {series.name} {series.path} over {len(series.points)} runs, "
        f"from {figure_text(first.value, series.unit)} to {figure_text(last.value, series.unit)}, "
        f"{len(series.changes)} changes of level. The data follow as a table."
    )


def _table(series: Series) -> Markup:
    changes = {change.index: change for change in series.changes}
    rows = []
    for number, point in reversed(list(enumerate(series.points))):
        change = changes.get(number)
        rows.append(
            element(
                "tr",
                element("th", element("a", point.run_id, href=run_address(point.run_id)), scope="row"),
                element("td", point.started_at[:16].replace("T", " ")),
                element("td", figure_text(point.value, series.unit), class_="n"),
                element(
                    "td",
                    interval_text(point.value, point.low, point.high, series.unit) or NOTHING,
                    class_="n",
                ),
                element("td", element("code", point.revision) if point.revision else NOTHING),
                element("td", f"new level, {_percent(change)}" if change else ""),
            )
        )
    names = ("Run", "Started", "Figure", "95 % interval", "Revision", "Change")
    return table(names, rows, "The runs", numbers=(2, 3))
