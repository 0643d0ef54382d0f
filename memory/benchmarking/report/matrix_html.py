"""The matrix of targets as a table of a page. On a narrow screen every row becomes a list."""

from __future__ import annotations

from collections.abc import Mapping

from memory.benchmarking.metrics import Metric
from memory.benchmarking.report.markup import Child, Markup, element
from memory.benchmarking.report.matrix import Cell, Column, Matrix, Row, matrix_notes
from memory.benchmarking.report.parts import anchor, path_words
from memory.benchmarking.text.display import figure_text, interval_text

_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": ""}


def matrix_table(matrix: Matrix) -> Markup:
    """Return the table with its notes and the reasons for missing figures."""
    head = element(
        "tr",
        element("th", "Figure", scope="col"),
        [_head(column, number) for number, column in enumerate(matrix.columns)],
    )
    reasons = matrix.reasons
    rows: list[Child] = []
    category = ""
    for row in matrix.rows:
        if row.category != category:
            category = row.category
            title = element(
                "th", category, class_="group", colspan=len(matrix.columns) + 1, scope="colgroup"
            )
            rows.append(element("tr", title, class_="category"))
        rows.append(_row(row, matrix, reasons))
    inner = element("table", element("thead", head), element("tbody", rows), class_="matrix")
    notes = element("p", " ".join(matrix_notes(matrix)), class_="soft")
    listed = [
        element("li", element("span", f"{number}", class_="soft"), " ", reason)
        for reason, number in reasons.items()
    ]
    return element(
        "div",
        element(
            "div", inner, class_="wide", tabindex="0", role="region",
            aria_label="Headline figures of all targets",
        ),
        notes,
        element("ol", listed, class_="reasons") if listed else None,
    )  # fmt: skip


def _head(column: Column, number: int) -> Markup:
    facts = [
        element("span", text, class_="fact")
        for text in (
            f"writes: {column.durability}" if column.durability else "",
            f"search: {column.search_by}" if column.search_by else "search: none",
            column.version,
        )
        if text
    ]
    return element("th", element("strong", column.name), facts, scope="col", data_s=number)


def _row(row: Row, matrix: Matrix, reasons: Mapping[str, int]) -> Markup:
    link = element(
        "a", row.benchmark.replace("_", " "), href=f"#{anchor(f'{row.category}.{row.benchmark}')}"
    )
    what = ", ".join(filter(None, (path_words(row.path, tier=False), _BETTER[row.metric.better])))
    cells = [
        _cell(cell, row.metric, column.name, number, reasons)
        for number, (cell, column) in enumerate(zip(row.cells, matrix.columns, strict=True))
    ]
    return element("tr", element("th", link, element("span", what, class_="fact"), scope="row"), cells)


def _cell(cell: Cell, metric: Metric, name: str, number: int, reasons: Mapping[str, int]) -> Markup:
    if cell.figure is None:
        content: list[Child] = [element("span", cell.missing, class_="soft")]
        if cell.reason:
            content.append(element("sup", f"{reasons[cell.reason]}"))
        return element("td", content, title=cell.reason or None, data_name=name, data_s=number)
    figure = cell.figure
    bounds = interval_text(figure.value, figure.low, figure.high, metric.unit)
    kinds = ", ".join(filter(None, (cell.durability, cell.search_by)))
    sign: Child = None
    if cell.best:
        sign = (
            element("span", "★", aria_hidden="true"),
            element("span", " best", class_="hidden-text"),
            " ",
        )
    elif cell.unlike:
        sign = "≠ "
    return element(
        "td",
        element("span", sign, figure_text(figure.value, metric.unit), class_="value"),
        element("span", bounds, class_="fact") if bounds else None,
        element("span", kinds, class_="fact kinds") if kinds else None,
        title=path_words(cell.path),
        class_="best" if cell.best else None,
        data_name=name,
        data_s=number,
    )
