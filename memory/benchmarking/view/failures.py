"""The failed rounds of a run, and their logs."""

from __future__ import annotations

import os
from pathlib import Path

from memory.benchmarking.model.files import LOGS
from memory.benchmarking.model.records import Run
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.report.parts import count, table
from memory.benchmarking.text.display import NOTHING
from memory.benchmarking.view.index import RunLine
from memory.benchmarking.view.layout import Page, run_address

UNFOLDED = 5
"""The largest number of failures that are listed openly; a longer list is folded."""
LONGEST_LOG = 200_000
"""The largest number of bytes of a log that are shown. They are its end, where the error usually is."""


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
    if name not in _logs(line.folder):
        return None
    try:
        # Do not follow links: a results folder from another person must not expose files outside of it.
        descriptor = os.open(line.folder / LOGS / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            file.seek(max(0, size - LONGEST_LOG))
            text = file.read(LONGEST_LOG).decode("utf-8", "replace")
    except OSError:
        return None
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
        with os.scandir(folder / LOGS) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()
