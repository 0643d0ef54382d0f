"""The page of a run of `membench league`: which system fits whom."""

from __future__ import annotations

from memory.benchmarking.league.gather import league_of
from memory.benchmarking.league.page import TITLE, league_body
from memory.benchmarking.model.files import read_run
from memory.benchmarking.report.markup import element, join
from memory.benchmarking.report.svg import shapes
from memory.benchmarking.view.index import RunLine
from memory.benchmarking.view.layout import Page, run_address


def league_view(line: RunLine) -> Page:
    """Return the league of a run, finished or not."""
    league = league_of([(line.folder, read_run(line.folder))])
    back = element("p", element("a", f"Run {line.id}", href=run_address(line.id)))
    return Page(TITLE, join((shapes(), back, league_body(league))), here="Runs", is_league=True)
