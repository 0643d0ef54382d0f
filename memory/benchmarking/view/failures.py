"""The failed rounds of a run, and their logs."""

from __future__ import annotations

import os
from pathlib import Path

from memory.benchmarking.model.files import LOGS
from memory.benchmarking.model.records import Run
from memory.benchmarking.model.regular_files import open_folder, open_regular
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.parts import count, table
from memory.benchmarking.text.display import NOTHING
from memory.benchmarking.view.index import RunLine
from memory.benchmarking.view.layout import Page, run_address

UNFOLDED = 5
"""Failures that are shown; a longer list is folded, so that the results stay near."""
LONGEST_LOG = 200_000
"""Bytes of a log that are shown, from its end, which says what happened."""


def failures(line: RunLine, run: Run) -> Markup | None:
    """Return the failed rounds, each with a link to its log."""
    if not run.failures:
        return None
    logs = _logs(line.folder)
    rows = []
    for each in run.failures:
        log = each.log.removeprefix(f"{LOGS}/") if each.log else ""
        link = element("a", "log", href=run_address(line.id, "log", log)) if log in logs else NOTHING
        rows.append(
            element(
                "tr",
                element("th", f"{each.case}, round {each.round + 1}", scope="row"),
                element("td", each.reason),
                element("td", element("pre", each.message)),
                element("td", link),
            )
        )
    shown = table(("Round", "Reason", "Message", "Output"), rows, "Failed rounds")
    if len(rows) > UNFOLDED:
        shown = element("details", element("summary", "All failed rounds"), shown, id="failures")
    heading = element("h2", f"{count(len(rows), 'round')} failed", class_="bad")
    return join((heading, shown))


def log_page(line: RunLine, name: str) -> Page | None:
    """Return the page with the log of a failed round; None if the run has no such log."""
    try:
        # Links are not followed: a folder from elsewhere must not expose files outside of it.
        logs = open_folder(line.folder / LOGS)
    except OSError:
        return None
    try:
        # `name` comes from an address: it is compared with the names that exist before it is opened.
        if name not in _regular_files(logs):
            return None
        with open(open_regular(name, directory=logs), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - LONGEST_LOG))
            text = file.read(LONGEST_LOG).decode("utf-8", "replace")
    except OSError:
        return None
    finally:
        os.close(logs)
    cut = f"The last {LONGEST_LOG:,} of {size:,} bytes." if size > LONGEST_LOG else ""
    body = (
        element("h1", name),
        element("p", element("a", f"Run {line.id}", href=run_address(line.id))),
        element("p", cut, class_="soft") if cut else None,
        element("pre", text, class_="log"),
    )
    return Page(f"Log {name}", join(body), here="Runs")


def _logs(folder: Path) -> set[str]:
    """Return the names of a run's logs."""
    try:
        logs = open_folder(folder / LOGS)
    except OSError:
        return set()
    try:
        return _regular_files(logs)
    finally:
        os.close(logs)


def _regular_files(folder: int) -> set[str]:
    with os.scandir(folder) as entries:
        return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
