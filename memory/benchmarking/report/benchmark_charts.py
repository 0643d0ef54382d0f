"""How a report presents a benchmark: its charts, its goals, and its place on the page."""

from __future__ import annotations

from memory.benchmarking.benchmarks import ORDER, built_in
from memory.benchmarking.model.presentation import Presentation, stored_presentation
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.default_charts import default_charts
from memory.benchmarking.report.gather import GatheredResults
from memory.benchmarking.report.makers import make_chart


def presentation_of(gathered: GatheredResults) -> Presentation:
    """Return the presentation of a benchmark: the one stored in its run, else the one of this package."""
    for _, loaded in gathered.results:
        stored = stored_presentation(loaded.result.metadata)
        if stored is not None:
            return stored
    ours = built_in().get(gathered.name)
    return ours.presentation if ours else Presentation()


def charts_of(gathered: GatheredResults) -> list[Chart]:
    """Return the charts of a benchmark, without those that have nothing to show."""
    presentation = presentation_of(gathered)
    charts = (make_chart(spec, gathered, presentation.goals) for spec in presentation.charts)
    # All declared charts may be empty: a stored result can come from another benchmark of the same name.
    return [chart for chart in charts if chart] or default_charts(gathered, presentation.goals)


def order_of(gathered: GatheredResults) -> tuple[int, str, int]:
    """Return a sort key for benchmarks: built-in ones as in the documentation, then others."""
    names = [*built_in()]
    return (
        ORDER.index(gathered.category) if gathered.category in ORDER else len(ORDER),
        gathered.category,
        names.index(gathered.name) if gathered.name in names else len(names),
    )
