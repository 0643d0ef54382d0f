"""A result that was read from its file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memory.benchmarking.metrics import Metric, metric_of
from memory.benchmarking.model.files import ResultFile
from memory.benchmarking.model.paths import leaf_of, split_leaf
from memory.benchmarking.model.records import Figure, Result


@dataclass(frozen=True)
class LoadedResult:
    """A result and its file."""

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
        """The id of its run; a result that was saved outside of a run counts as a run of its own."""
        return self.file.run_id or self.file.path.stem

    @property
    def headline(self) -> str:
        """The path of the figure to show in a summary; empty without figures.

        It is the one that the result names, else the first that has a direction, else the first.
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
        """Path to reason, for what has no figure."""
        reasons = self.result.metadata.get("not_available")
        return (
            {str(path): str(why) for path, why in reasons.items()} if isinstance(reasons, Mapping) else {}
        )

    def metric(self, path: str) -> Metric:
        """Return unit and direction of a figure: from the file, else guessed from its name."""
        leaf = leaf_of(path)
        unit = self.result.units.get(leaf)
        return metric_of(leaf) if unit is None else Metric(unit.unit, unit.better)

    @property
    def groups(self) -> dict[str, dict[str, Figure]]:
        """The figures by group: path without the leaf, then leaf."""
        groups: dict[str, dict[str, Figure]] = {}
        for path, figure in self.result.metrics.items():
            where, leaf = split_leaf(path)
            groups.setdefault(where, {})[leaf] = figure
        return groups
