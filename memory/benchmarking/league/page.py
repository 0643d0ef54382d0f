"""The page of the league: one self-contained file that works without scripts, and better with them."""

from __future__ import annotations

import base64
from collections.abc import Sequence

from memory.benchmarking.league.export import as_csv, as_json
from memory.benchmarking.league.model import League
from memory.benchmarking.league.pictures import names_of, pictures_of
from memory.benchmarking.league.situations import (
    SITUATIONS,
    Situation,
    Verdict,
    order_axis,
    rule_texts,
    verdicts_of,
)
from memory.benchmarking.league.standing import ROUNDS_APART
from memory.benchmarking.league.table_html import league_table, promise_grid, system_anchor, system_details
from memory.benchmarking.report.chart_html import figure
from memory.benchmarking.report.document import document
from memory.benchmarking.report.markup import Child, Markup, element, with_code
from memory.benchmarking.report.parts import about_run, folded
from memory.benchmarking.report.run_facts import duration_of, started_text

_ASSETS = ("../league/league.css", "../league/league.js")
TITLE = "Which memory should I use?"


def league_page(league: League, *, title: str = TITLE, links: Sequence[tuple[str, str]] = ()) -> str:
    """Return the whole page.

    Args:
        league: what to show.
        title: the title of the page.
        links: more links for the bar at the top, as address and text.
    """
    parts = [
        ("#whom", "for whom"),
        ("#table", "table"),
        ("#pictures", "pictures"),
        ("#promises", "promises"),
    ]
    parts += [("#pair", "side by side"), ("#systems", "systems"), ("#machine", "machine")]
    return document(title, league_body(league, title), [*links, *parts], assets=_ASSETS)


def league_body(league: League, title: str = TITLE) -> list[Child]:
    """Return what is on the page; `membench view` shows it in its own frame."""
    pictures = [
        element("div", figure(chart, sources), id=anchor, class_="picture")
        for anchor, chart, sources in pictures_of(league)
    ]
    grid = promise_grid(league)
    return [
        element("h1", title),
        _lede(league),
        element(
            "section",
            element("h2", "For whom"),
            element(
                "p",
                "There is no single score. Each situation has a rule, which is shown; a system fits if "
                "it meets every part of it.",
                class_="soft",
            ),
            element("div", [_situation(league, each) for each in SITUATIONS], class_="situations"),
            id="whom",
        ),
        element(
            "section",
            element("h2", "The table"),
            _controls(league),
            league_table(league),
            element("p", _legend(), class_="soft"),
            element("p", _downloads(league), class_="no-print"),
            id="table",
        ),
        element(
            "section", element("h2", "Pictures"), element("div", pictures, class_="pictures"), id="pictures"
        )
        if pictures
        else None,
        element(
            "section",
            element("h2", "Promises"),
            element(
                "p",
                "What a system promises was tried. A mark leads to the evidence. “Not promised” is no "
                "fault: the system does not claim it.",
                class_="soft",
            ),
            grid,
            id="promises",
        )
        if grid is not None
        else None,
        _side_by_side(league),
        element(
            "section",
            element("h2", "Each system"),
            [
                system_details(league, system, name)
                for system, name in zip(league.systems, names_of(league.systems), strict=True)
            ],
            id="systems",
        ),
        element(
            "section",
            element("h2", "Machine and command"),
            [about_run(run) for run in league.runs],
            id="machine",
        ),
        _how_to_read(league),
    ]


def _lede(league: League) -> Markup:
    run = league.runs[-1]
    where = run.environment
    failed = sum(bool(system.failures) for system in league.systems)
    text = (
        f"{len(league.systems)} systems on {len(league.axes)} axes, {run.profile} profile, {run.rounds} "
        "rounds, each in fresh processes; the systems took turns. "
        f"{started_text(run)}{duration_of(run)}, on {where.cpu}, {where.cores} cores, "
        f"{where.memory_gb:g} GB, {where.os}; {where.python}. The figures hold for this machine, these "
        "versions and these settings."
    )
    problem = f" {failed} of them failed at something: their cells say at what." if failed else None
    unfinished = None if run.status in ("complete", "failed") else " The run is not complete yet."
    return element("p", text, problem, element("strong", unfinished) if unfinished else None, class_="lede")


# -- for whom ---------------------------------------------------------------------------------


def _situation(league: League, situation: Situation) -> Markup:
    verdicts = verdicts_of(league, situation)
    names = dict(zip((system.target for system in league.systems), names_of(league.systems), strict=True))
    fitting = [each for each in verdicts if each.fits]
    others = [each for each in verdicts if not each.fits]
    axis = league.axis(order_axis(league, situation) or "")
    order = f"Listed by {axis.title.lower()}, the best first." if axis is not None else ""
    listed = element("ul", [_fit(each, names[each.system.target]) for each in fitting], class_="fits")
    return element(
        "article",
        element("h3", situation.title),
        element("p", situation.who, class_="soft"),
        element(
            "p",
            element("strong", "Rule: "),
            "; ".join(rule_texts(league, situation)),
            ". ",
            order,
            class_="rule",
        ),
        listed if fitting else element("p", element("strong", "No measured system meets the rule.")),
        folded(
            f"Why not the other {len(others)}" if len(others) > 1 else "Why not the other one",
            element("ul", [_miss(each, names[each.system.target]) for each in others], class_="fits"),
        )
        if others
        else None,
        class_="situation",
        id=f"for-{situation.key}",
    )


def _fit(verdict: Verdict, name: str) -> Markup:
    link = element("a", name, href=f"#{system_anchor(verdict.system)}")
    return element("li", element("strong", link), ": ", "; ".join(verdict.facts))


def _miss(verdict: Verdict, name: str) -> Markup:
    link = element("a", name, href=f"#{system_anchor(verdict.system)}")
    return element("li", link, ": ", "; ".join(verdict.misses))


# -- the table's surroundings -----------------------------------------------------------------


def _controls(league: League) -> Markup:
    """Return the filters; league.js shows them, because they do nothing without it."""
    classes = dict.fromkeys(system.durability for system in league.systems if system.durability)
    groups = dict.fromkeys(axis.group for axis in league.axes)
    boxes = [
        element(
            "label", element("input", type="checkbox", checked=True, data_group_switch=group), " ", group
        )
        for group in groups
    ]
    choices = [
        element("option", "any", value=""),
        *(element("option", each, value=each) for each in classes),
    ]
    return element(
        "div",
        element("label", "System ", element("input", type="search", id="filter-name", autocomplete="off")),
        element("label", "Writes survive ", element("select", choices, id="filter-durability")),
        element("div", boxes, role="group", aria_label="Axes that are shown", class_="boxes"),
        element("span", "", id="filter-count", role="status", class_="soft"),
        class_="controls no-print",
        id="controls",
        hidden=True,
    )


def _legend() -> str:
    return (
        "★ is the best of its column. ≈ is not distinguishable from it: the verdict of `membench "
        "compare` at 95 %, with Holm's correction over the whole table, and differences below 5 % (0.01 "
        "of recall) do not count. Writes and load are ranked only among systems whose writes survive "
        f"the same; loads differ only beyond {ROUNDS_APART * 100:.0f} %, because each has one round. No "
        "sign means worse than the best, or the only system of its durability."
    ).replace("`", "")


def _downloads(league: League) -> list[Child]:
    def link(name: str, kind: str, data: bytes) -> Markup:
        address = f"data:{kind};base64,{base64.b64encode(data).decode()}"
        return element("a", name.rpartition(".")[2].upper(), href=address, download=name, class_="button")

    return [
        "Everything as ",
        link("league.csv", "text/csv", as_csv(league)),
        " or ",
        link("league.json", "application/json", as_json(league)),
    ]


def _side_by_side(league: League) -> Markup:
    names = names_of(league.systems)

    def choice(number: int, label: str) -> Markup:
        options = [
            element("option", name, value=name, selected=place == number)
            for place, name in enumerate(names)
        ]
        return element("label", f"{label} ", element("select", options, id=f"pair-{number}"))

    return element(
        "section",
        element("h2", "Side by side"),
        element(
            "p",
            "Green is better than the other: their 95 % intervals do not overlap. Compare writes and load "
            "only where writes survive the same.",
            class_="soft",
        ),
        element("div", choice(0, "First"), choice(1, "Second"), class_="controls no-print"),
        element(
            "div", id="pair-table", class_="wide", tabindex="0", role="region", aria_label="Two systems"
        ),
        id="pair",
        hidden=True,
    )


def _how_to_read(league: League) -> Markup:
    axes = [element("li", element("strong", axis.title), ": ", axis.explanation) for axis in league.axes]
    texts = (
        "All systems get the same data, the same k and the same vectors. Each is used as its own "
        "documents advise for durable use; `membench targets` says how.",
        "A figure is the centre over its rounds, and the interval is Student's 95 % interval over them; "
        "that of quality is over questions.",
        "Where a system has tiers, writing, reading and space are those of the tier that takes new "
        "memories.",
        "Recall and latency belong together: the time of a vector search is that of the fastest setting "
        "that reaches the recall in the title. A text search has no such recall: look at it together "
        "with the quality.",
        "Verify it: `membench results verify FILE` computes every figure of a bundle again from the raw "
        "samples.",
    )
    return element(
        "section",
        element("h2", "How to read this"),
        element("ul", [element("li", with_code(text)) for text in texts], class_="soft"),
        folded("What each axis means", element("ul", axes)),
        class_="reading",
    )
