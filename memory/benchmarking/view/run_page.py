"""The page of one run: its report, or its progress while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.files import read_run
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Run
from memory.benchmarking.report.gather import GatheredResults, gather
from memory.benchmarking.report.markup import Child, Markup, element, join
from memory.benchmarking.report.page import (
    headline_figures,
    how_to_read,
    insights_section,
    links,
    run_paragraph,
    sections,
    sort_benchmarks,
)
from memory.benchmarking.report.parts import about_run, note
from memory.benchmarking.report.sources import sources_of
from memory.benchmarking.report.svg import shapes
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.view.failures import failures
from memory.benchmarking.view.index import RunLine
from memory.benchmarking.view.layout import Page, compare_address, history_address, run_address, status_mark
from memory.benchmarking.view.run_progress import progress_note, results_so_far


def run_page(line: RunLine, lines: Sequence[RunLine], version: int) -> Page:
    """Return the page of a run. `version` is the version of the index, a key of the cached report."""
    title = f"Run {line.id}"
    run: Run | None = None
    parts: list[Child] = [element("h1", title, " ", status_mark(line))]
    try:
        run = read_run(line.folder)
    except (BenchmarkError, ValueError, RecursionError) as problem:
        parts.append(note("The file of this run can't be read: ", str(problem), tone="bad"))
    if run is not None and line.is_running:
        results, problems = load(line.folder)
        parts += [progress_note(line, run), problems, failures(line, run), results_so_far(results)]
    elif run is not None:
        found = _report(line.folder, version)
        parts += [
            _league_link(line, run),
            _compare_link(line, lines),
            progress_note(line, run),
            failures(line, run),
            found,
        ]
        parts += [element("h2", "Environment and command", id="environment"), about_run(run), how_to_read()]
    else:
        parts.append(_report(line.folder, version))
    # live.js replaces this whole element, so that the report replaces the progress when the run ends.
    body = element("div", parts, id="run", data_live=True)
    return Page(title, join((shapes(), body)), here="Runs", refreshes=line.is_running)


def _league_link(line: RunLine, run: Run) -> Markup | None:
    """Return a link to the league, if the run is one."""
    if run.suite != "league":
        return None
    link = element(
        "a", "Which system fits whom: the league", href=run_address(line.id, "league"), class_="button main"
    )
    return element("p", link, class_="ways")


def _compare_link(line: RunLine, lines: Sequence[RunLine]) -> Markup | None:
    """Return a link to the comparison with the previous run, if there is one."""
    before = previous_run(line, lines)
    if before is None:
        return None
    text = f"Compare with {before.id}, the previous run"
    link = element("a", text, href=compare_address(before.id, line.id), class_="button")
    return element("p", link, class_="ways")


def previous_run(line: RunLine, lines: Sequence[RunLine]) -> RunLine | None:
    """Return the newest complete run before this one with the same profile and targets."""
    alike = (line.profile, line.targets)
    return next(
        (
            other
            for other in lines
            if other.id < line.id and other.status == "complete" and (other.profile, other.targets) == alike
        ),
        None,
    )


def load(folder: Path) -> tuple[list[LoadedResult], list[Markup]]:
    """Return the readable results of a run, and notes about results that can't be read."""
    manager = BenchmarkResults(folder.absolute())
    try:
        loaded = manager.load_results(manager.list_results())
    except (BenchmarkError, OSError) as problem:
        return [], [note("Left out: ", str(problem), tone="bad")]
    return loaded, [note("Left out: ", str(problem), tone="bad") for problem in manager.problems]


@lru_cache(maxsize=4)
def _report(folder: Path, version: int) -> Markup:
    """Return the report of a run, cached until any run changes."""
    results, problems = load(folder)
    try:
        runs = {folder.absolute().name: read_run(folder)}
    except (BenchmarkError, ValueError, RecursionError):
        runs = {}
    sources, numbered = sources_of(results, runs)
    gathered = sort_benchmarks(gather(numbered))
    places = [
        element("a", text, href=address) for address, text in links(gathered, runs, has_baseline=False)
    ]
    parts: list[Child] = [
        [run_paragraph(run, len(results)) for run in runs.values()],
        element("nav", places, class_="places", aria_label="Parts of this page") if places else None,
        problems,
        insights_section(gathered, sources),
    ]
    if gathered:
        parts += [
            element("h2", "The headline figures", id="headlines"),
            headline_figures(gathered, sources, _history_of),
            sections(gathered, sources),
        ]
    else:
        parts.append(element("p", "No results.", class_="soft"))
    return join(parts)


def _history_of(each: GatheredResults) -> str:
    """Return the address of the history of a benchmark's headline, on its first target."""
    target = each.results[0][1].target
    return history_address((each.category, each.benchmark, target), each.headline)
