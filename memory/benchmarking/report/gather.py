"""Gather the figures of a benchmark from all sources of a page.

A source is a run, or one target of a run. A page shows sources side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from memory.benchmarking.metrics import Metric, metric_of
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import TIERS, Place, read_path, segments_of, where_of
from memory.benchmarking.model.records import Figure

Value = str | int | float | None
_COUNTED = {
    "agents": "{} agents",
    "batch_size": "batches of {}",
    "entries": "{} memories",
    "parallel": "{} at a time",
    "sessions": "{} sessions",
    "threads": "{} threads",
    "tools": "{} tools",
}
"""Texts for the values of these parameters; other parameters are written as name and number."""
_METRIC_NAMES = {"p50_ms": "median", "mean_ms": "mean", "min_ms": "fastest", "max_ms": "slowest"}
_UNIT_ENDINGS = (
    "_ops_per_second", "_per_second", "_per_mb", "_seconds", "_ms", "_us", "_ns", "_bytes", "_mb",
)  # fmt: skip


@dataclass(frozen=True)
class FigureRow:
    """One figure, the number of its source, and its path, whole and split into its dimensions."""

    source: int
    path: str
    figure: Figure
    place: Place

    @property
    def metric(self) -> str:
        return self.place.metric

    @property
    def where(self) -> str:
        """The path without its leaf."""
        return where_of(self.path)

    def of(self, dimension: str) -> Value:
        """Return the value of a dimension; see `value_of`."""
        return value_of(self.place, dimension)


def value_of(place: Place, dimension: str) -> Value:
    """Return the value of one dimension of a path; None if the path does not have it.

    A dimension is `metric`, `tier`, `part`, a segment of the part (`part0`, `part1`, …), or the name of a
    parameter. The part is everything in the path that is not metric, tier or parameter.
    """
    if dimension == "metric":
        return place.metric
    if dimension == "tier":
        return place.tier
    if dimension == "part":
        return place.part or None
    if dimension.startswith("part") and dimension[4:].isdigit():
        parts = segments_of(place.part) if place.part else []
        number = int(dimension[4:])
        return parts[number] if number < len(parts) else None
    return place.parameters.get(dimension)


@dataclass(frozen=True)
class GatheredResults:
    """All results of one benchmark, each with the number of its source."""

    category: str
    benchmark: str
    results: tuple[tuple[int, LoadedResult], ...]

    @property
    def name(self) -> str:
        return f"{self.category}.{self.benchmark}"

    @cached_property
    def rows(self) -> tuple[FigureRow, ...]:
        return tuple(
            FigureRow(source, path, figure, read_path(path))
            for source, each in self.results
            for path, figure in each.result.metrics.items()
        )

    def select(self, metric: str, keep: Callable[[Place], bool] | None = None) -> list[FigureRow]:
        return [row for row in self.rows if row.metric == metric and (keep is None or keep(row.place))]

    def metric(self, leaf: str) -> Metric:
        """Return unit and direction of a metric: from the first result that has them, else by its name."""
        for _, each in self.results:
            if leaf in each.result.units:
                return each.metric(leaf)
        return metric_of(leaf)

    @property
    def metrics(self) -> list[str]:
        return [*dict.fromkeys(row.metric for row in self.rows)]

    @property
    def headline(self) -> str:
        return next((each.headline for _, each in self.results if each.headline), "")

    def leaves(self, name: str) -> Iterator[tuple[int, tuple[str, ...], Any]]:
        """Yield source, path and value of each entry of the results with this name, except mappings."""
        for source, each in self.results:
            for path, value in _named(each.result.results, name):
                yield source, path, value


def gather(results: Iterable[tuple[int, LoadedResult]]) -> list[GatheredResults]:
    """Group results by category and benchmark, in the order of their first results."""
    found: dict[tuple[str, str], list[tuple[int, LoadedResult]]] = {}
    for source, each in results:
        found.setdefault((each.result.category, each.result.benchmark), []).append((source, each))
    return [GatheredResults(*key, tuple(members)) for key, members in found.items()]


def sort_values(values: Iterable[Value]) -> list[Value]:
    """Return the distinct values. Sort numbers by size and tiers as in TIERS; keep the order of others."""
    distinct = [*dict.fromkeys(values)]
    if all(isinstance(value, int | float) for value in distinct):
        return sorted(distinct, key=lambda value: float(value or 0))
    return sorted(distinct, key=lambda value: TIERS.index(value) if value in TIERS else len(TIERS))


def words(*values: Value, names: Sequence[str] = ()) -> str:
    """Join the values of dimensions: `stm, one by one`.

    `names` holds the names of the dimensions: with them a number is shown as `5 agents`, not as `5`.
    """
    shown = []
    for value, name in zip(values, names or [""] * len(values), strict=True):
        if value is None or value == "":
            continue
        if isinstance(value, int | float):
            shown.append(_COUNTED.get(name, f"{plain(name)} {{}}").format(f"{value:,}").strip())
        else:
            shown.append(short_name(value) if name == "metric" else plain(value))
    return ", ".join(shown)


def short_name(leaf: str) -> str:
    """Return a metric's name without its unit: `throughput` for `throughput_ops_per_second`."""
    if leaf in _METRIC_NAMES:
        return _METRIC_NAMES[leaf]
    return plain(without_unit(leaf))


def without_unit(leaf: str) -> str:
    """Return a metric's name without the unit at its end: `p50` for `p50_ms`."""
    ending = next((ending for ending in _UNIT_ENDINGS if leaf.endswith(ending)), "")
    return leaf.removesuffix(ending) or leaf


def plain(name: str) -> str:
    """Return a name as words: `one by one` for `one_by_one`."""
    return ", ".join(segments_of(name)).replace("_", " ").strip()


def _named(
    tree: Mapping[str, Any], name: str, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in tree.items():
        if key == name and not isinstance(value, Mapping):
            yield path, value
        elif isinstance(value, Mapping):
            yield from _named(value, name, (*path, key))
