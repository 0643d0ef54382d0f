"""The charts of several runs side by side, as in the page of `membench results compare-report`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlencode

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.model.files import read_run
from memory.benchmarking.report.comparison import comparison_body
from memory.benchmarking.report.gather import gather
from memory.benchmarking.report.markup import element, join
from memory.benchmarking.report.page import environment_section, how_to_read, sort_benchmarks
from memory.benchmarking.report.parts import note
from memory.benchmarking.report.sources import sources_of
from memory.benchmarking.report.svg import shapes
from memory.benchmarking.view.compare_page import choose_first, chosen_runs
from memory.benchmarking.view.index import RunIndex
from memory.benchmarking.view.layout import Page
from memory.benchmarking.view.run_page import load


def side_by_side_page(index: RunIndex, query: Mapping[str, Sequence[str]]) -> Page:
    """Return the page for the query of an address."""
    chosen = chosen_runs(index, query)
    if chosen is None:
        return choose_first()
    results, problems, runs = [], [], {}
    for line in (chosen.base, *chosen.others):
        try:
            runs[line.folder.absolute().name] = read_run(line.folder)
        except BenchmarkError as problem:
            problems.append(note("Left out: ", str(problem), tone="bad"))
            continue
        found, left_out = load(line.folder)
        results += found
        problems += left_out
    sources, numbered = sources_of(results, runs)
    gathered = sort_benchmarks(gather(numbered))
    back = f"/compare?{urlencode(chosen.fields, errors='surrogateescape')}"
    body = (
        shapes(),
        element("h1", "Side by side"),
        element("p", element("a", "All verdicts", href=back, class_="button"), class_="ways"),
        problems,
        comparison_body(gathered, sources, results, runs),
        environment_section(runs.values()),
        how_to_read(),
    )
    return Page("Side by side", join(body), here="Runs")
