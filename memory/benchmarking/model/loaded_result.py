"""A result as it was read from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memory.benchmarking.metrics import Metric, metric_of
from memory.benchmarking.model.files import ResultFile
from memory.benchmarking.model.paths import leaf_of, split_leaf
from memory.benchmarking.model.records import Figure, Result


@dataclass(frozen=True)
class LoadedResult:
    """A result and the file that it is from."""

    file: ResultFile
    result: Result

    @property
    def name(self) -> str:
        return f"{self.result.category}.{self.result.benchmark}"

    @property
    def target(self) -> str:
        return str(self.result.metadata.get("target") or "")

    @property
    def run(self) -> str:
        """What tells its run from the others; a result that was saved by hand is a run of its own."""
        return self.file.run_id or self.file.path.stem

    @property
    def headline(self) -> str:
        """The path of the figure for a summary; empty where there are no figures.

        What the result names, else the first figure that has a direction, else the first.
        """
        named = self.result.metadata.get("headline")
        if isinstance(named, str) and named in self.result.metrics:
            return named
        paths = self.result.metrics
        return next(
            (path for path in paths if self.metric(path).better != "neither"), next(iter(paths), "")
        )

    @property
    def not_available(self) -> dict[str, str]:
        """What has no figure, and why."""
        found = self.result.metadata.get("not_available")
        return {str(path): str(why) for path, why in found.items()} if isinstance(found, Mapping) else {}

    def metric(self, path: str) -> Metric:
        """How to read a figure: as the file says, else by its name."""
        leaf = leaf_of(path)
        unit = self.result.units.get(leaf)
        return metric_of(leaf) if unit is None else Metric(unit.unit, unit.better)

    @property
    def groups(self) -> dict[str, dict[str, Figure]]:
        """The figures by where they were measured: path without its leaf, then leaf."""
        found: dict[str, dict[str, Figure]] = {}
        for path, figure in self.result.metrics.items():
            where, leaf = split_leaf(path)
            found.setdefault(where, {})[leaf] = figure
        return found
