"""The table of the league, the promises as a grid, and the details of each system, as HTML."""

from __future__ import annotations

from collections.abc import Mapping

from memory.benchmarking.league.model import Axis, Cell, CheckOutcome, League, System
from memory.benchmarking.league.pictures import names_of
from memory.benchmarking.model.figure_kinds import COMPARES, SURVIVES
from memory.benchmarking.promises.suite import PROMISES
from memory.benchmarking.report.markup import Child, Markup, element
from memory.benchmarking.report.parts import anchor
from memory.benchmarking.text.display import figure_text, interval_text

_SIGNS = {"best": ("★", "best"), "tied": ("≈", "not distinguishable from the best")}
_ARROWS = {"higher": "↑", "lower": "↓", "neither": ""}
_BETTER = {"higher": "higher is better", "lower": "lower is better", "neither": ""}
_TONES = {"kept": "good", "broken": "bad", "not promised": "", "not tried": ""}


def system_anchor(system: System) -> str:
    """Return the id of a system's details."""
    return f"system-{anchor(system.target)}"


def league_table(league: League) -> Markup:
    """Return the table: a row a system, a column an axis."""
    reasons = league.reasons
    head = [
        element(
            "th",
            # league.js makes this a working button; without scripts it is plain text.
            element(
                "button", axis.title, " ", _ARROWS[axis.better], type="button", class_="sort", disabled=True
            ),
            element("span", axis.at, class_="fact") if axis.at else None,
            scope="col",
            title=f"{axis.explanation} {_BETTER[axis.better].capitalize()}.",
            data_axis=axis.key,
            data_group=axis.group,
            data_better=axis.better,
            aria_sort="none",
        )
        for axis in league.axes
    ]
    rows = [
        element(
            "tr",
            element(
                "th",
                element("a", name, href=f"#{system_anchor(system)}", class_="name"),
                element("span", _facts(system), class_="fact"),
                element("span", system.version, class_="fact"),
                scope="row",
            ),
            [_cell(league.cell(system.target, axis.key), axis, reasons) for axis in league.axes],
            data_system=name,
            data_durability=system.durability,
        )
        for system, name in zip(league.systems, names_of(league.systems), strict=True)
    ]
    first = element(
        "th",
        element("button", "System", type="button", class_="sort", disabled=True),
        scope="col",
        aria_sort="none",
    )
    inner = element(
        "table",
        element("caption", "All systems and axes, with 95 % intervals", class_="hidden-text"),
        element("thead", element("tr", first, head)),
        element("tbody", rows),
        class_="league",
        id="league-table",
    )
    listed = [
        element("li", element("span", f"{number}", class_="soft"), " ", reason)
        for reason, number in reasons.items()
    ]
    return element(
        "div",
        element(
            "div", inner, class_="wide", tabindex="0", role="region", aria_label="All systems and axes"
        ),
        element("p", "Why there is no figure:", class_="soft") if listed else None,
        element("ol", listed, class_="reasons") if listed else None,
    )


def _facts(system: System) -> str:
    return f"writes: {system.durability or 'unknown'}; search: {system.search_by or 'none'}"


def _cell(cell: Cell, axis: Axis, reasons: Mapping[str, int]) -> Markup:
    attributes: dict[str, str | None] = {
        "data_axis": axis.key,
        "data_group": axis.group,
        "data_name": axis.title,
    }
    if cell.figure is None:
        content: list[Child] = [element("span", "n/a", class_="soft")]
        if cell.reason in reasons:
            content.append(element("sup", f"{reasons[cell.reason]}"))
        return element("td", content, title=cell.reason, data_value="", **attributes)
    return element(
        "td",
        figure_parts(cell, axis),
        title="; ".join(filter(None, (cell.against_best, cell.detail, axis.title))),
        class_=cell.standing or None,
        data_value=repr(cell.figure.value),
        data_low=None if cell.figure.low is None else f"{cell.figure.low:.4g}",
        data_high=None if cell.figure.high is None else f"{cell.figure.high:.4g}",
        **attributes,
    )


def figure_parts(cell: Cell, axis: Axis) -> list[Child]:
    """Return sign, value, interval and detail of a cell with a figure."""
    assert cell.figure is not None
    figure = cell.figure
    sign: Child = None
    if cell.standing in _SIGNS:
        shown, spoken = _SIGNS[cell.standing]
        sign = (
            element("span", shown, aria_hidden="true"),
            element("span", f" {spoken}", class_="hidden-text"),
            " ",
        )
    bounds = interval_text(figure.value, figure.low, figure.high, axis.unit)
    return [
        element("span", sign, figure_text(figure.value, axis.unit), class_="value"),
        element("span", bounds, class_="fact") if bounds else None,
        element("span", cell.detail, class_="fact") if cell.detail else None,
    ]


# -- promises ---------------------------------------------------------------------------------


def promise_grid(league: League) -> Markup | None:
    """Return the grid of promises: how many checks of each were kept; a click shows the evidence."""
    measured = [system for system in league.systems if league.promises.get(system.target)]
    if not measured:
        return None
    head = [element("th", words, scope="col") for words in PROMISES]
    rows = []
    for system, name in zip(measured, names_of(measured), strict=True):
        cells = [_promise_cell(system, words, number, league) for number, words in enumerate(PROMISES)]
        rows.append(element("tr", element("th", name, scope="row"), cells))
    inner = element(
        "table",
        element("caption", "Promises kept, broken and not made", class_="hidden-text"),
        element("thead", element("tr", element("th", "System", scope="col"), head)),
        element("tbody", rows),
        class_="promises",
    )
    return element(
        "div",
        element(
            "div", inner, class_="wide", tabindex="0", role="region", aria_label="Promises of all systems"
        ),
        element("div", id="evidence", class_="note", aria_live="polite", hidden=True),
    )


def _promise_cell(system: System, words: str, number: int, league: League) -> Markup:
    outcomes = [one for one in league.promises[system.target] if one.promise == words]
    name, tone = summary_of(outcomes)
    if not outcomes:
        return element("td", element("span", name, class_="soft"))
    return element(
        "td",
        element(
            "a",
            name,
            href=f"#{promise_anchor(system, number)}",
            class_=f"mark {tone}".strip(),
            data_evidence=promise_anchor(system, number),
            aria_label=f"{system.name}, {words}: {name}",
        ),
    )


def promise_anchor(system: System, number: int) -> str:
    """Return the id of the evidence of one promise of one system."""
    return f"{system_anchor(system)}-promise-{number}"


def summary_of(outcomes: list[CheckOutcome]) -> tuple[str, str]:
    """Return how the checks of a promise ended, in words, and the tone of the mark."""
    counts = {status: sum(one.status == status for one in outcomes) for status in _TONES}
    if not outcomes:
        return "not run", ""
    if counts["broken"]:
        judged = counts["broken"] + counts["kept"]
        return (f"{counts['broken']} of {judged} broken" if judged > 1 else "broken"), "bad"
    if counts["kept"]:
        return "kept", "good"
    return ("not promised" if counts["not promised"] else "not tried"), ""


# -- details ----------------------------------------------------------------------------------


def system_details(league: League, system: System, name: str) -> Markup:
    """Return everything about one system, folded."""
    axes = [
        element(
            "tr",
            element("th", axis.title, scope="row"),
            element("td", _detail_figure(league.cell(system.target, axis.key), axis)),
            element("td", league.cell(system.target, axis.key).against_best or None),
            element("td", element("code", league.cell(system.target, axis.key).path or "")),
        )
        for axis in league.axes
    ]
    head = [element("th", text, scope="col") for text in ("Axis", "Figure", "Against the best", "Path")]
    table = element("table", element("thead", element("tr", head)), element("tbody", axes))
    return element(
        "details",
        element("summary", element("h3", name)),
        element("p", _sentence(system)),
        element("p", system.limits, class_="soft") if system.limits else None,
        [element("p", element("strong", "Failed: "), failure, class_="bad") for failure in system.failures],
        element("div", table, class_="wide", tabindex="0", role="region", aria_label=f"Figures of {name}"),
        _curve_table(league, system),
        _promise_list(league, system),
        id=system_anchor(system),
        class_="system",
    )


def _sentence(system: System) -> str:
    parts = [
        f"{system.version or 'version unknown'}.",
        f"An acknowledged write survives {SURVIVES.get(system.durability, 'unknown')}.",
        f"A text search compares {COMPARES[system.search_by]}."
        if system.search_by in COMPARES
        else "No search.",
        f"Conformance: {system.conformance}." if system.conformance else "",
    ]
    return " ".join(filter(None, parts))


def _detail_figure(cell: Cell, axis: Axis) -> Child:
    if cell.figure is None:
        return element("span", f"n/a: {cell.reason}", class_="soft")
    return figure_parts(cell, axis)


def _curve_table(league: League, system: System) -> Markup | None:
    points = league.curves.get(system.target, ())
    if len(points) < 2:
        return None
    rows = [
        element(
            "tr",
            element("th", point.setting, scope="row"),
            element("td", f"{point.recall:.3f}", class_="n"),
            element("td", figure_text(point.milliseconds.value, "ms"), class_="n"),
        )
        for point in points
    ]
    head = [element("th", text, scope="col") for text in ("Setting", "Recall", "Median time")]
    return element(
        "table",
        element("caption", f"Settings of the dial, {league.curve_size:,} memories"),
        element("thead", element("tr", head)),
        element("tbody", rows),
        class_="narrow",
    )


def _promise_list(league: League, system: System) -> Markup | None:
    outcomes = league.promises.get(system.target, ())
    if not outcomes:
        return None
    parts: list[Child] = []
    for number, words in enumerate(PROMISES):
        own = [one for one in outcomes if one.promise == words]
        if own:
            items = [
                element(
                    "li",
                    element("span", one.status, class_=f"mark {_TONES[one.status]}".strip()),
                    " ",
                    one.check.replace("_", " "),
                    ": ",
                    element("span", one.evidence, class_="soft"),
                    element("pre", one.code) if one.code and one.status == "broken" else None,
                )
                for one in own
            ]
            parts.append(
                element(
                    "div",
                    element("h4", f"{words[:1].upper()}{words[1:]}"),
                    element("ul", items, class_="checks"),
                    id=promise_anchor(system, number),
                )
            )
    return element("div", parts)
