"""A chart as an HTML figure: title, findings, legend, panels, and a table of its data."""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.report.charts import MANY_SOURCES, Chart, Line, Panel, Point
from memory.benchmarking.report.markup import Child, Markup, element, join
from memory.benchmarking.report.svg import COLOURS, SHAPES, draw, x_text
from memory.benchmarking.text.display import NOTHING, figure_text, with_interval

COLOURS_OF_TEXT = 6
"""The number of the grey colour, for samples of dashes."""
MOST_KEYS = 12
"""charts.css has rules to hide this many lines and this many sources."""


def figure(chart: Chart, sources: Sequence[str] = ("",)) -> Markup:
    """Return the whole figure. `sources` holds the names of runs or targets; `Line.source` is the index."""
    several = len(sources) > 1
    return element(
        "figure",
        element("figcaption", chart.title, class_="title"),
        [element("p", text, class_="finding") for text in chart.findings],
        _legend(chart, sources),
        element("div", [_panel(chart, panel, sources) for panel in chart.panels], class_="panels"),
        element("p", chart.note, class_="soft note-below") if chart.note else None,
        element(
            "details",
            element("summary", "The data as a table"),
            data_table(chart, sources if several else ("",)),
            class_="data",
        ),
        class_="chart",
    )


def _panel(chart: Chart, panel: Panel, sources: Sequence[str]) -> Markup:
    spoken = ". ".join(filter(None, (f"Chart: {chart.title}", panel.title, *chart.findings)))
    return element(
        "div",
        element("div", panel.title, class_="panel-title") if panel.title else None,
        draw(chart, panel, f"{spoken}. The data follow as a table.", sources),
        class_="panel",
    )


def _legend(chart: Chart, sources: Sequence[str]) -> Markup | None:
    """Return a button for each line, which charts.js enables, and a sample of the dash of each source."""
    names = chart.names
    keys: list[Markup] = []
    if len(names) > 1:
        for number, name in enumerate(names):
            line = next(each for each in chart.lines if each.name == name)
            by_source = len(chart.sources) >= MANY_SOURCES
            sample = _sample(COLOURS_OF_TEXT, chart.dash_of(line), "line", 0) if by_source else None
            content = [
                sample or _sample(chart.colour_of(line), 0, line.drawn),
                element("span", name or NOTHING),
            ]
            switchable = number < MOST_KEYS
            keys.append(
                element(
                    "button", content, type="button", class_="key", aria_pressed="true", data_key=number,
                    disabled=True, title="Hide or show this line" if switchable else None,
                )
            )  # fmt: skip
    if len(chart.sources) > 1:
        many = len(chart.sources) >= MANY_SOURCES
        for place, source in enumerate(chart.sources):
            if chart.has_source_colours:
                sample = _sample(place, 0 if many else source, "line")
            else:
                sample = _sample(COLOURS_OF_TEXT, source, "line", 0)
            keys.append(element("span", sample, sources[source], class_="key plain", data_s=source))
    return element("div", keys, class_="legend", role="group", aria_label="Lines") if keys else None


def _sample(colour: int, source: int, drawn: str, shape: int | None = None) -> Markup:
    """Draw a short piece of a line with its marker, for the legend."""
    shape = colour if shape is None else shape
    line = element("path", class_="stroke", d="M1 7H25") if drawn != "dots" else None
    mark = element("use", class_="pt", href=f"#m{shape % len(SHAPES)}", x=13, y=7)
    group = element("g", line, mark, class_=f"c{colour % COLOURS} d{source % 4}")
    return element(
        "svg", group, class_="sample", viewBox="0 0 26 14", aria_hidden="true", focusable="false"
    )


# -- the data ---------------------------------------------------------------------------------


def data_table(chart: Chart, sources: Sequence[str] = ("",)) -> Markup:
    """Return all points of a chart as a table: a row for each x, a column for each line."""
    if any(point.text for line in chart.lines for point in line.points):
        return _named_points(chart, sources)
    columns = [*dict.fromkeys((line.source, line.name) for line in chart.lines if line.drawn != "fit")]
    head: list[Child] = [element("th", "", scope="col")] if chart.has_panel_titles else []
    head.append(element("th", chart.x.label, scope="col"))
    for source, name in columns:
        several = len(sources) > 1 and sources[source]
        title = ", ".join(filter(None, (name, sources[source] if several else ""))) or chart.y.label
        head.append(element("th", title, scope="col", class_="n", data_s=source))
    rows = []
    for panel in chart.panels:
        points = {
            (line.source, line.name, point.x): point
            for line in panel.lines
            if line.drawn != "fit"
            for point in line.points
        }
        for number, x in enumerate(sorted({x for _, _, x in points})):
            cells: list[Child] = []
            if chart.has_panel_titles:
                cells.append(element("th", panel.title if number == 0 else "", scope="row"))
            cells.append(element("th", _x_cell(chart, x), scope="row"))
            cells += [
                element("td", _y_cell(chart, points.get((source, name, x))), class_="n", data_s=source)
                for source, name in columns
            ]
            rows.append(element("tr", cells))
    return _table(head, rows, f"{chart.title}: {chart.y.label}, with 95 % intervals where known")


def _named_points(chart: Chart, sources: Sequence[str]) -> Markup:
    """Return the table of a chart whose points have names: a row for each point."""
    several = len(sources) > 1
    titles = ["", "name", *(["run"] if several else []), chart.x.label, chart.y.label]
    head: list[Child] = [
        element("th", title, scope="col", class_="n" if place >= len(titles) - 2 else None)
        for place, title in enumerate(titles)
        if place or chart.has_panel_titles
    ]
    rows = []
    for panel in chart.panels:
        for line, point in _pairs(panel):
            name = point.text or line.name
            cells: list[Child] = [element("th", panel.title, scope="row")] if chart.has_panel_titles else []
            cells.append(element("th", name, scope="row"))
            if several:
                cells.append(element("td", sources[line.source]))
            cells.append(element("td", _x_cell(chart, point.x), class_="n"))
            cells.append(element("td", _y_cell(chart, point), class_="n"))
            rows.append(element("tr", cells, data_s=line.source))
    return _table(head, rows, f"{chart.title}: {chart.x.label} and {chart.y.label}")


def _pairs(panel: Panel) -> list[tuple[Line, Point]]:
    """Return all measured points, each with its line."""
    return [(line, point) for line in panel.lines if line.drawn != "fit" for point in line.points]


def _x_cell(chart: Chart, x: float) -> str:
    if chart.x.scale in ("names", "nines"):
        return x_text(chart.x, x)
    return figure_text(x, chart.x.unit)


def _y_cell(chart: Chart, point: Point | None) -> str:
    if point is None:
        return NOTHING
    return with_interval(point.y, point.low, point.high, chart.y.unit)


def _table(head: Child, rows: Sequence[Markup], caption: str) -> Markup:
    # A region that scrolls needs a tab stop, for people who use the keyboard.
    return element(
        "div",
        element(
            "table",
            element("caption", caption, class_="hidden-text"),
            element("thead", element("tr", head)),
            element("tbody", join(rows)),
        ),
        class_="wide",
        tabindex="0",
        role="region",
        aria_label=caption,
    )
