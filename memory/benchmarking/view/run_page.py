"""One run: how it stands, what it measured, what failed. While it goes on, how far it is."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import lru_cache
from pathlib import Path

from memory.benchmarking.display import NOTHING, figure_text, interval_text
from memory.benchmarking.earlier import Estimator
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.files import LOGS, read_run
from memory.benchmarking.records import Run
from memory.benchmarking.report.facts import duration_text, moment, run_facts
from memory.benchmarking.report.markup import Markup, element, join
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.tidy import LoadedResult
from memory.benchmarking.view.index import RunLine, rounds_going_on
from memory.benchmarking.view.layout import (
    Page,
    compare_address,
    facts,
    history_address,
    note,
    progress,
    run_address,
    status_mark,
    table,
)

UNFOLDED = 5
"""Failures that are shown at once; the results come after them."""
LONGEST_LOG = 200_000
"""Bytes of a log that are shown: its end says what happened."""


def run_page(line: RunLine, lines: Sequence[RunLine]) -> Page:
    title = f"Run {line.id}"
    try:
        run = read_run(line.folder)
    except (BenchmarkError, ValueError, RecursionError) as problem:
        return Page(title, join((element("h1", title), *_of_damaged(line, str(problem)))), here="Runs")
    results, problems = _results_in(line.folder)
    live = element(
        "section",
        _standing(line, run),
        [note("Left out: ", problem, tone="bad") for problem in problems],
        _failures(line, run),
        _results(line, results),
        id="run",
        data_live=True,
        aria_label="How it stands",
    )
    about = element("section", element("h2", "Environment and command"), facts(run_facts(run)))
    body = (
        element("h1", title, " ", status_mark(line), id="title", data_live=True),
        _ways(line, lines),
        live,
        about,
    )
    return Page(title, join(body), here="Runs", refreshes=line.is_running)


def _of_damaged(line: RunLine, problem: str) -> Iterator[Markup]:
    yield note("This run's own file can't be read: ", problem, tone="bad")
    results, problems = _results_in(line.folder)
    for each in problems:
        yield note("Left out: ", each, tone="bad")
    if results:
        yield element("p", "These results of it can be read:")
    yield _results(line, results)


def _ways(line: RunLine, lines: Sequence[RunLine]) -> Markup:
    """Where one may want to go from here."""
    before = run_before(line, lines)
    links = []
    if before is not None:
        address = compare_address(before.id, line.id)
        links.append(element("a", f"Compare with {before.id}", href=address, class_="button"))
    return element("p", links, class_="ways") if links else Markup()


def run_before(line: RunLine, lines: Sequence[RunLine]) -> RunLine | None:
    """The newest earlier run that is whole and has the same profile and targets."""
    alike = (line.profile, line.targets)
    return next(
        (
            other
            for other in lines
            if other.id < line.id and other.status == "complete" and (other.profile, other.targets) == alike
        ),
        None,
    )


# -- while it goes on -------------------------------------------------------------------------


def _standing(line: RunLine, run: Run) -> Markup:
    if not line.is_running:
        if line.status == "interrupted":
            return note(
                f"Interrupted after {line.done} of {line.total} rounds. Go on with it: ",
                element("code", f"membench run --resume {line.id}"),
                tone="warn",
            )
        return Markup()
    going_on = [_round_text(name) for name in rounds_going_on(line)]
    parts = [progress(line)]
    start = moment(run.started_at)
    if start is not None:
        elapsed = (datetime.now(start.tzinfo) - start).total_seconds()
        parts.append(element("span", f"started {duration_text(elapsed)} ago"))
    left = _seconds_left(line, run)
    if left is not None:
        parts.append(element("span", f"about {duration_text(left)} left"))
    now = element("p", "Now: ", ", ".join(going_on)) if going_on else None
    return element("div", element("p", parts, class_="standing"), now, class_="note")


def _round_text(name: str) -> str:
    """`storage.read_latency@agentmemory.0` for people."""
    case, _, number = name.rpartition(".")
    return f"{case}, round {int(number) + 1}" if number.isdigit() else name


def _seconds_left(line: RunLine, run: Run) -> float | None:
    """As long as its own rounds took so far, else as in earlier runs; None where nothing is known."""
    seen: dict[str, list[float]] = {}
    for each in run.moments:
        seen.setdefault(each.case, []).append(each.seconds)
    failed = [failure.case for failure in run.failures]
    total = 0.0
    for case in run.cases:
        measured = seen.get(case.key, [])
        left = run.rounds_of(case) - len(measured) - failed.count(case.key)
        each_takes = (
            sum(measured) / len(measured)
            if measured
            else _estimator(line.folder.parent, run.id, run.profile).seconds(case)
        )
        if left > 0 and each_takes is None:
            return None
        total += max(left, 0) * (each_takes or 0.0)
    return total / run.parallel


@lru_cache(maxsize=4)
def _estimator(output_dir: Path, run_id: str, profile: str) -> Estimator:
    """Of one run that is looked at: earlier runs don't change while it goes on."""
    return Estimator(output_dir, profile)


# -- what failed ------------------------------------------------------------------------------


def _failures(line: RunLine, run: Run) -> Markup:
    if not run.failures:
        return Markup()
    count = len(run.failures)
    rows = []
    known = _logs(line.folder)
    for failure in run.failures:
        log = failure.log.removeprefix(f"{LOGS}/") if failure.log else ""
        link = element("a", "log", href=run_address(line.id, "log", log)) if log in known else NOTHING
        what = f"{failure.case}, round {failure.round + 1}"
        rows.append(
            element(
                "tr",
                element("th", what, scope="row"),
                element("td", failure.reason),
                element("td", element("pre", failure.message)),
                element("td", link),
            )
        )
    heading = element("h2", f"{count} round{'s' if count > 1 else ''} failed", class_="bad")
    shown = table(("What", "Why", "Message", "Output"), rows, "What failed")
    if count <= UNFOLDED:
        return join((heading, shown))
    summary = element("summary", "What failed, and why")
    return join((heading, element("details", summary, shown, id="failures")))


def log_page(line: RunLine, name: str) -> Page | None:
    """What a failed round printed; None if the run has no such log."""
    if name not in _logs(line.folder):
        return None
    try:
        # A folder that came from somewhere else must not lead to files outside of it.
        descriptor = os.open(line.folder / LOGS / name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with open(descriptor, "rb") as file:
            size = os.fstat(descriptor).st_size
            file.seek(max(0, size - LONGEST_LOG))
            text = file.read(LONGEST_LOG).decode("utf-8", "replace")
    except OSError:
        return None
    cut = (
        element("p", f"The last {LONGEST_LOG:,} of {size:,} bytes.", class_="soft")
        if size > LONGEST_LOG
        else None
    )
    back = element("p", element("a", f"Run {line.id}", href=run_address(line.id)))
    return Page(
        f"Log {name}",
        join((element("h1", name), back, cut, element("pre", text, class_="log"))),
        here="Runs",
    )


def _logs(folder: Path) -> set[str]:
    try:
        with os.scandir(folder / LOGS) as entries:
            return {entry.name for entry in entries if entry.is_file(follow_symlinks=False)}
    except OSError:
        return set()


# -- what it measured -------------------------------------------------------------------------


def _results_in(folder: Path) -> tuple[list[LoadedResult], list[str]]:
    """All results that can be read, by category, and what is wrong with the others."""
    manager = BenchmarkResults(folder)
    try:
        files = sorted(manager.list_results(), key=lambda file: (file.category, file.benchmark))
        loaded = manager.load_results(files)
    except (BenchmarkError, OSError) as problem:
        return [], [str(problem)]
    return loaded, [str(problem) for problem in manager.problems]


def _results(line: RunLine, results: Sequence[LoadedResult]) -> Markup:
    if not results:
        text = (
            "The first results come when all rounds of a benchmark are done."
            if line.is_running
            else "No results."
        )
        return element("p", text, class_="soft")
    several = len({each.target for each in results}) > 1
    rows = []
    for each in results:
        name = f"{each.name} on {each.target}" if several else each.name
        path = each.headline
        if not path:
            why = next(iter(each.not_available.values()), "no figures")
            rows.append(
                element("tr", element("th", name, scope="row"), element("td", f"n/a: {why}", colspan=4))
            )
            continue
        figure, unit = each.result.metrics[path], each.metric(path).unit
        case = (each.result.category, each.result.benchmark, each.target)
        rows.append(
            element(
                "tr",
                element("th", name, scope="row"),
                element("td", figure_text(figure.value, unit), class_="n"),
                element(
                    "td", interval_text(figure.value, figure.low, figure.high, unit) or NOTHING, class_="n"
                ),
                element("td", element("a", path, href=history_address(case, path))),
                element("td", str(len(each.result.metrics)), class_="n"),
            )
        )
    names = ("Benchmark", "Figure", "95 % interval", "Metric (leads to its history)", "Figures")
    return join((element("h2", "Results"), table(names, rows, "Results", numbers=(1, 2, 4))))
