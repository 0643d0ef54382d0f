"""The charts, goals and sentences that a report shows for a benchmark."""

from __future__ import annotations

from memory.benchmarking.benchmarks import ORDER, built_in
from memory.benchmarking.model.presentation import Presentation, stored_presentation
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.default_charts import default_charts
from memory.benchmarking.report.gather import Gathered
from memory.benchmarking.report.makers import make_chart


def presentation_of(gathered: Gathered) -> Presentation:
    """Return how to present a benchmark: as its run stored it, else as this package declares it."""
    for _, loaded in gathered.results:
        stored = stored_presentation(loaded.result.metadata)
        if stored is not None:
            return stored
    ours = built_in().get(gathered.name)
    return ours.presentation if ours else Presentation()


def pictures(gathered: Gathered) -> list[Chart]:
    """Return the charts of a benchmark, without those that have nothing to show."""
    presentation = presentation_of(gathered)
    charts = (make_chart(spec, gathered, presentation.goals) for spec in presentation.charts)
    # The result may be that of another benchmark of the same name, with other figures.
    return [chart for chart in charts if chart] or default_charts(gathered, presentation.goals)


def order_of(gathered: Gathered) -> tuple[int, str, int]:
    """Return the place of a benchmark on a page: as in the documents, others after them."""
    names = [*built_in()]
    return (
        ORDER.index(gathered.category) if gathered.category in ORDER else len(ORDER),
        gathered.category,
        names.index(gathered.name) if gathered.name in names else len(names),
    )
