"""Parts that all pages of the view use: frame, links, form fields, status and progress of a run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from memory.benchmarking.report.markup import Markup, asset, element, join
from memory.benchmarking.report.parts import count, mark
from memory.benchmarking.view.index import DAMAGED, RunLine

_TONES = {"complete": "good", "running": "accent", "interrupted": "warn", "failed": "bad", DAMAGED: "bad"}


@dataclass(frozen=True)
class Page:
    """The page for one address."""

    title: str
    body: Markup
    here: str = ""
    """The entry in the bar at the top that is marked as the current page."""
    refreshes: bool = False
    """Whether live.js fetches the page again every two seconds."""
    status: int = 200
    is_league: bool = False
    """Whether it is the page of a league, which has a style and a script of its own."""


def document(page: Page) -> bytes:
    """Return the whole HTML page. It loads everything from this server."""
    bar = element(
        "header",
        element("a", "Skip to the content", class_="skip", href="#content"),
        element("a", "membench", class_="name", href="/"),
        element("nav", _entry("Runs", "/", page), _entry("History", "/history", page), aria_label="Pages"),
        element("button", "Dark", type="button", class_="end", data_theme_switch=True, hidden=True),
        class_="top",
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", f"{page.title} · membench"),
        element("link", rel="icon", href="data:,"),
        element("link", rel="stylesheet", href="/style.css"),
        element("script", src="/theme.js"),
        element("script", src="/charts.js", defer=True),
        element("script", src="/live.js", defer=True),
        element("link", rel="stylesheet", href="/league.css") if page.is_league else None,
        element("script", src="/league.js", defer=True) if page.is_league else None,
    )
    main = element("main", page.body, id="content", tabindex="-1")
    body = element("body", bar, main, data_refreshes=page.refreshes)
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n".encode("utf-8", "replace")


def stylesheet() -> str:
    """Return the stylesheets of the report and of the view as one text."""
    return "".join(map(asset, ("style.css", "charts.css", "report.css", "../view/view.css")))


def _entry(text: str, href: str, page: Page) -> Markup:
    return element("a", text, href=href, aria_current="page" if page.here == text else None)


def run_address(run_id: str, *more: str) -> str:
    """Return the address of a run, or of a part of it such as a log."""
    parts = [quote(part, safe="", errors="surrogateescape") for part in ("run", run_id, *more)]
    return "/" + "/".join(parts)


def compare_address(*run_ids: str) -> str:
    """Return the address of the comparison of runs."""
    return f"/compare?{urlencode([('run', run_id) for run_id in run_ids], errors='surrogateescape')}"


def history_address(case: tuple[str, str, str], path: str) -> str:
    """Return the address of the history of a figure. `case` is category, benchmark and target."""
    fields = {"case": case_text(case), "metric": path}
    return f"/history?{urlencode(fields, errors='surrogateescape')}"


def case_text(case: tuple[str, str, str]) -> str:
    """Return `storage.read_latency@agentmemory`."""
    category, benchmark, target = case
    return f"{category}.{benchmark}@{target}"


def status_mark(line: RunLine) -> Markup:
    """Return the status of a run with the number of its failed rounds."""
    rounds = count(line.failures, "round")
    if not line.failures:
        text = line.status
    else:
        text = f"failed: {rounds}" if line.status == "failed" else f"{line.status}, {rounds} failed"
    return mark(text, _TONES.get(line.status, ""))


def progress(line: RunLine) -> Markup:
    """Return the progress of a run, as a bar and as text."""
    words = f"{line.done} of {line.total} rounds"
    bar = element("progress", max=max(line.total, 1), value=min(line.done, line.total), aria_label=words)
    return element("span", bar, " ", words, class_="progress")


def field(text: str, name: str, control: Markup) -> Markup:
    """Return a form control with its label."""
    return element("div", element("label", text, for_=name), control, class_="field")


def select(text: str, name: str, options: Iterable[tuple[str, str]], chosen: str) -> Markup:
    """Return a drop-down list. `options` are pairs of value and text."""
    made = [element("option", shown, value=value, selected=value == chosen) for value, shown in options]
    return field(text, name, element("select", made, name=name, id=name))


def problem_page(status: int, title: str, text: str) -> Page:
    """Return a page with an error message and a link to the list of runs."""
    back = element("p", element("a", "All runs", href="/"))
    return Page(title, join((element("h1", title), element("p", text), back)), status=status)
