"""The matrix of a run with several targets: a row for each headline figure, a column for each target.

This module decides what stands in a cell and which figure of a row is the best. `matrix_html.py` makes a
table for pages of it, and `matrix_text.py` one for the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from memory.benchmarking.metrics import Metric
from memory.benchmarking.model.figure_kinds import durability_of, search_by_of
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import leaf_of, read_path
from memory.benchmarking.model.records import Figure, Run, TargetInfo, target_info_of
from memory.benchmarking.report.gather import GatheredResults
from memory.benchmarking.report.sources import Source

FAILED = "failed"
NOT_AVAILABLE = "n/a"
NOT_RUN = "—"


@dataclass(frozen=True)
class Column:
    """A target, or a target of one of several runs."""

    name: str
    durability: str = ""
    search_by: str = ""
    version: str = ""
    """The first package of the target with its version: `chromadb 1.5.9`."""


@dataclass(frozen=True)
class Cell:
    """One figure of one target, or the reason why there is none."""

    figure: Figure | None = None
    path: str = ""
    missing: str = ""
    """What is shown in place of a figure: `NOT_AVAILABLE`, `FAILED` or `NOT_RUN`."""
    reason: str = ""
    durability: str = ""
    """Of a write figure, else empty."""
    search_by: str = ""
    """Of a search figure, else empty."""
    unlike: bool = False
    """The figure has other parameters, such as another number of memories, than the others of its row."""
    best: bool = False
    """It is the best of the row, or of its durability class, and its interval excludes that of the next."""


@dataclass(frozen=True)
class Row:
    """The headline figure of one benchmark."""

    category: str
    benchmark: str
    path: str
    """The path of the first figure. Those of other targets may have another tier."""
    metric: Metric
    cells: tuple[Cell, ...]


@dataclass(frozen=True)
class Matrix:
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def reasons(self) -> dict[str, int]:
        """The reasons for missing figures, each with its number, in the order of the cells."""
        found = (cell.reason for row in self.rows for cell in row.cells if cell.reason)
        return {reason: number for number, reason in enumerate(dict.fromkeys(found), 1)}

    @property
    def has_classes(self) -> bool:
        """Whether a row has write figures of several durability classes, which are not ranked together."""
        return any(len({cell.durability for cell in row.cells} - {""}) > 1 for row in self.rows)


def compares_targets(sources: Sequence[Source]) -> bool:
    """Return whether sources are different targets: then a matrix shows them better than before and now."""
    return len({source.target for source in sources}) > 1


def make_matrix(gathered: Sequence[GatheredResults], sources: Sequence[Source]) -> Matrix:
    """Return the matrix of all sources and benchmarks, in their order."""
    columns = [_column(source, number, gathered) for number, source in enumerate(sources)]
    failures = {
        (number, *case): message
        for number, source in enumerate(sources)
        for case, message in _failures(source)
    }
    rows = [row for each in gathered if (row := _row(each, len(sources), failures)) is not None]
    return Matrix(tuple(columns), tuple(rows))


def _column(source: Source, number: int, gathered: Iterable[GatheredResults]) -> Column:
    results = (result for each in gathered for source, result in each.results if source == number)
    known = (target_info_of(result.result) for result in results)
    info = next((info for info in known if info.name), TargetInfo())
    version = next((f"{name} {version}" for name, version in info.versions.items()), "")
    # A target of a user's file has a long name: the class has a short one.
    name = info.name if ":" in source.target and source.name == source.target and info.name else source.name
    return Column(name, info.durability, info.search_by, version)


def _failures(source: Source) -> Iterator[tuple[tuple[str, str], str]]:
    """Yield category and benchmark of the failed rounds of a source's target, with the message."""
    run = source.run
    if run is None:
        return
    cases = {case.key: case for case in run.cases if case.target == source.target}
    for failure in run.failures:
        if failure.case in cases:
            case = cases[failure.case]
            lines = failure.message.strip().splitlines() or [failure.reason]
            yield (case.category, case.benchmark), lines[-1]


def _row(each: GatheredResults, columns: int, failures: Mapping[tuple[int, str, str], str]) -> Row | None:
    results = dict(each.results)
    headlines = [result.headline for result in results.values() if result.headline]
    if not headlines:
        return None
    leaf = Counter(map(leaf_of, headlines)).most_common(1)[0][0]
    path = next(path for path in headlines if leaf_of(path) == leaf)
    cells = []
    for number in range(columns):
        failed = failures.get((number, each.category, each.benchmark), "")
        cells.append(_cell(results.get(number), path, failed))
    metric = each.metric(leaf)
    return Row(each.category, each.benchmark, path, metric, tuple(_with_best(cells, metric)))


def _cell(result: LoadedResult | None, path: str, failed: str) -> Cell:
    if result is None:
        return Cell(missing=FAILED, reason=failed) if failed else Cell(missing=NOT_RUN)
    own = result.headline
    if not is_same_figure(own, path):
        return Cell(missing=NOT_AVAILABLE, reason=_reason(result, path))
    return Cell(
        result.result.metrics[own],
        own,
        durability=durability_of(result.result, own),
        search_by=search_by_of(result.result, own),
        unlike=read_path(own).parameters != read_path(path).parameters,
    )


def is_same_figure(one: str, other: str) -> bool:
    """Return whether two headlines are the same figure, whatever the tier and the parameters.

    A result without the declared headline has another one in its place, which must not be compared.
    """
    first, second = read_path(one), read_path(other)
    return (first.metric, first.part) == (second.metric, second.part)


def _reason(result: LoadedResult, path: str) -> str:
    """Return the reason that fits a path best: of the path, of a group around it, of the same metric."""
    reasons = result.not_available
    around = [why for where, why in reasons.items() if not where or path == where or f"{where}/" in path]
    alike = [why for where, why in reasons.items() if leaf_of(where) == leaf_of(path)]
    other = f"its headline is another figure: {result.headline}" if result.headline else "it has no figures"
    return next(iter([*around, *alike]), other)


# -- the best ---------------------------------------------------------------------------------


def _with_best(cells: Sequence[Cell], metric: Metric) -> list[Cell]:
    """Mark the best figure of each durability class; figures without a class are one class."""
    found = [*cells]
    by_class: dict[str, list[int]] = {}
    for number, cell in enumerate(cells):
        if cell.figure is not None and not cell.unlike:
            by_class.setdefault(cell.durability, []).append(number)
    for numbers in by_class.values():
        best = _best([(number, cells[number].figure) for number in numbers], metric)
        if best is not None:
            found[best] = replace(found[best], best=True)
    return found


def _best(figures: Sequence[tuple[int, Figure | None]], metric: Metric) -> int | None:
    """Return the number of the best figure; None if the intervals do not separate it from all others."""
    bounds = [
        (number, figure.low, figure.high)
        for number, figure in figures
        if figure is not None and figure.low is not None and figure.high is not None
    ]
    if metric.better == "neither" or len(bounds) < 2 or len(bounds) < len(figures):
        return None
    if metric.better == "higher":
        first = max(bounds, key=lambda each: each[1])
        separate = all(first[1] > high for number, _, high in bounds if number != first[0])
    else:
        first = min(bounds, key=lambda each: each[2])
        separate = all(first[2] < low for number, low, _ in bounds if number != first[0])
    return first[0] if separate else None


def matrix_notes(matrix: Matrix, run: Run | None = None) -> list[str]:
    """Return sentences on how to read the matrix."""
    found = ["★ is the best of its row, where the 95 % intervals separate it from all others."]
    if matrix.has_classes:
        found[0] = (
            "★ is the best of its row, where the 95 % intervals separate it from all others; writes are "
            "ranked only against writes of the same durability."
        )
    if any(cell.unlike for row in matrix.rows for cell in row.cells):
        found.append("≠ is a figure with other parameters, such as another size: it is not ranked.")
    if run is not None and run.rounds == 1:
        found.append("One round gives no interval: use --rounds 3 or more.")
    return found
