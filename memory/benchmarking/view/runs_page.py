"""The page with the list of runs and its filters."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from memory.benchmarking.model.files import RUN_FILE
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.parts import note
from memory.benchmarking.report.run_facts import time_between
from memory.benchmarking.text.display import NOTHING
from memory.benchmarking.view.index import DAMAGED, RunLine
from memory.benchmarking.view.layout import Page, field, progress, run_address, select, status_mark
from memory.benchmarking.view.run_filter import PER_PAGE, RunFilter

STATUSES = ("running", "complete", "failed", "interrupted", DAMAGED)


def runs_page(lines: Sequence[RunLine], chosen: RunFilter, output_dir: Path) -> Page:
    """Return the list of the runs that the filter `chosen` matches."""
    if not lines:
        text = (
            element("h1", "Runs"),
            note(
                f"There are no runs in {output_dir} yet. Start one with ",
                element("code", "membench run --profile quick"),
                "; it appears here by itself.",
            ),
        )
        return Page("Runs", element("div", text, data_live=True, id="runs"), here="Runs", refreshes=True)
    found = chosen.apply(lines)
    pages = max(1, -(-len(found) // PER_PAGE))
    page = min(max(chosen.page, 1), pages)
    shown = found[(page - 1) * PER_PAGE : page * PER_PAGE]
    count = f"{len(lines):,} runs" if chosen.is_empty else f"{len(found):,} of {len(lines):,} runs"
    body = join(
        (
            element("h1", "Runs"),
            element("p", "In ", element("code", str(output_dir)), class_="soft"),
            _filters(lines, chosen),
            element("div", _compare_form(), class_="bar"),
            element(
                "section",
                element("p", count, role="status", class_="soft", id="count"),
                _table(shown)
                if shown
                else note("No run matches. ", element("a", "Show all runs", href="/")),
                _pager(chosen, page, pages),
                id="runs",
                data_live=True,
                aria_label="Runs",
            ),
        )
    )
    return Page("Runs", body, here="Runs", refreshes=True)


def _filters(lines: Sequence[RunLine], chosen: RunFilter) -> Markup:
    """Return the filter form. live.js applies it while the user types; without scripts a button does."""
    profiles = sorted({line.profile for line in lines if line.profile})
    targets = sorted({target for names in {line.targets for line in lines} for target in names})
    statuses = [status for status in STATUSES if any(line.status == status for line in lines)]
    search = element(
        "input", type="search", name="text", id="text", value=chosen.text, autocomplete="off",
        placeholder="id, benchmark, revision, command …",
    )  # fmt: skip
    return element(
        "form",
        field("Search", "text", search),
        _select("Profile", "profile", profiles, chosen.profile),
        _select("Target", "target", targets, chosen.target),
        _select("Status", "status", statuses, chosen.status),
        field("From", "since", element("input", type="date", name="since", id="since", value=chosen.since)),
        field("To", "until", element("input", type="date", name="until", id="until", value=chosen.until)),
        element("button", "Show", data_without_scripts=True),
        method="get",
        action="/",
        class_="filters",
        role="search",
        data_filters=True,
    )


def _select(text: str, name: str, known: Sequence[str], chosen: str) -> Markup:
    # Keep the chosen value as an option, even if no run has it.
    values = [*known] if not chosen or chosen in known else [*known, chosen]
    return select(text, name, [("", "all"), *((value, value) for value in values)], chosen)


def _compare_form() -> Markup:
    """Return the form that the check boxes of the table belong to."""
    return element(
        "form",
        element("span", "Choose two or more runs to compare", id="chosen", role="status", class_="soft"),
        element("button", "Compare", class_="main", id="compare"),
        element("button", "Clear", type="button", id="clear", hidden=True),
        method="get",
        action="/compare",
        id="comparing",
        class_="chosen",
    )


def _table(lines: Iterable[RunLine]) -> Markup:
    names = ("Run", "Status", "Profile", "Targets", "Results", "Took", "Revision")
    head = [element("th", element("span", "Compare", class_="hidden-text"), scope="col")]
    head += [
        element("th", name, scope="col", class_="n" if name in ("Results", "Took") else None)
        for name in names
    ]
    rows = element("tbody", [_row(line) for line in lines])
    return element("table", element("thead", element("tr", head)), rows, class_="runs cards")


def _row(line: RunLine) -> Markup:
    box = element(
        "input", type="checkbox", name="run", value=line.id, form="comparing", id=f"choose-{line.id}",
        aria_label=f"Compare {line.id}", disabled=line.status == DAMAGED,
    )  # fmt: skip
    when = line.started_at[:16].replace("T", " ") or line.day
    name = (element("a", line.id, href=run_address(line.id)), element("span", when, class_="soft when"))
    took = "" if line.is_running else time_between(line.started_at, line.finished_at)
    status = progress(line) if line.is_running else status_mark(line)
    if line.problem:
        why = line.problem.removeprefix(str(line.folder / RUN_FILE)).strip()
        status = join((status, element("span", f"{RUN_FILE} {why}", class_="soft problem")))
    return element(
        "tr",
        element("td", box, class_="box"),
        element("th", name, scope="row"),
        _cell("Status", status),
        _cell("Profile", line.profile or NOTHING),
        _cell("Targets", ", ".join(line.targets) or NOTHING),
        _cell("Results", str(line.results) if line.status != DAMAGED else NOTHING, "n"),
        _cell("Took", took or NOTHING, "n"),
        _cell(
            "Revision",
            element("code", line.revision[:7] + line.revision[12:]) if line.revision else NOTHING,
        ),
    )


def _cell(name: str, content: str, kind: str | None = None) -> Markup:
    """Return a cell. A narrow screen shows the column's name beside the cell, and hides empty cells."""
    classes = [kind, "nothing" if content == NOTHING else None]
    return element("td", content, class_=" ".join(filter(None, classes)) or None, data_name=name)


def _pager(chosen: RunFilter, page: int, pages: int) -> Markup:
    if pages == 1:
        return Markup()
    links = [
        element("a", "Newer", href=chosen.address(page - 1), rel="prev", class_="button")
        if page > 1
        else "",
        element("span", f"page {page} of {pages}", class_="soft"),
        element("a", "Older", href=chosen.address(page + 1), rel="next", class_="button")
        if page < pages
        else "",
    ]
    return element("nav", links, aria_label="Pages of the list", class_="pager")
