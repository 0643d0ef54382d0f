"""A result's figures as rows: one per metric, with what its path says in columns of their own.

complexity_5/batch_100/stm/one_by_one/p50_ms
└ complexity = 5       │   └ part     └ metric
             └ batch_size = 100, tier = stm
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.files import ResultFile
from memory.benchmarking.metrics import Metric, metric_of
from memory.benchmarking.records import SEPARATOR, Figure, Result

COLUMNS = (
    "run_id", "timestamp", "category", "benchmark", "target", "metric", "value", "low", "high", "unit",
    "better", "rounds", "samples", "tier", "part", "path",
)  # fmt: skip
"""Of every row; the parameters found in the paths stand between `tier` and `part`."""
TIERS = ("stm", "im", "ltm", "store")
DEEPEST = 50
_ALIASES = {"batch": "batch_size"}
_PARAMETER = re.compile(r"(?P<name>[^\W\d_]\w*?)_(?P<number>-?\d+(?:\.\d+)?)")


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
        leaf = path.rpartition(SEPARATOR)[2]
        unit = self.result.units.get(leaf)
        return metric_of(leaf) if unit is None else Metric(unit.unit, unit.better)

    @property
    def groups(self) -> dict[str, dict[str, Figure]]:
        """The figures by where they were measured: path without its leaf, then leaf."""
        found: dict[str, dict[str, Figure]] = {}
        for path, figure in self.result.metrics.items():
            where, _, leaf = path.rpartition(SEPARATOR)
            found.setdefault(where, {})[leaf] = figure
        return found


@dataclass(frozen=True)
class Place:
    """What a metric's path says."""

    metric: str
    tier: str | None = None
    part: str = ""
    parameters: dict[str, int | float] = field(default_factory=dict)


def read_path(path: str) -> Place:
    """Take a path apart. What is neither parameter nor tier, or is one for the second time, is a part."""
    *segments, leaf = path.split(SEPARATOR)
    tier = None
    parameters: dict[str, int | float] = {}
    rest = []
    for segment in segments:
        parameter = _PARAMETER.fullmatch(segment)
        name = _ALIASES.get(parameter["name"], parameter["name"]) if parameter else ""
        if parameter and name not in parameters and name not in COLUMNS:
            parameters[name] = _number(parameter["number"])
        elif segment in TIERS and tier is None:
            tier = segment
        else:
            rest.append(segment)
    return Place(leaf, tier, SEPARATOR.join(rest), parameters)


def _number(text: str) -> int | float:
    # What no 64-bit column holds is a float, as in every table library.
    number = float(text) if "." in text else int(text)
    return number if isinstance(number, float) or abs(number) < 2**63 else float(text)


def rows(results: Iterable[LoadedResult]) -> list[dict[str, Any]]:
    """One row per result and metric; parameters only where the path has them."""
    found = []
    for each in results:
        head: dict[str, Any] = {
            "run_id": each.file.run_id,
            "timestamp": time_of(each.result.timestamp),
            "category": each.result.category,
            "benchmark": each.result.benchmark,
            "target": each.target,
        }
        for path, figure in each.result.metrics.items():
            place, metric = read_path(path), each.metric(path)
            found.append(
                head
                | {
                    "metric": place.metric,
                    "value": figure.value,
                    "low": figure.low,
                    "high": figure.high,
                    "unit": metric.unit,
                    "better": metric.better,
                    "rounds": len(figure.rounds),
                    "samples": figure.samples,
                    "tier": place.tier,
                    **place.parameters,
                    "part": place.part,
                    "path": path,
                }
            )
    return found


def columns_of(found: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """The columns of these rows in their order, and which of them are parameters."""
    parameters = dict.fromkeys(name for row in found for name in row if name not in COLUMNS)
    return [*COLUMNS[:-2], *parameters, *COLUMNS[-2:]], [*parameters]


def time_of(timestamp: str) -> datetime | None:
    """None for a time that is not in the specification's form: its figures are still good."""
    try:
        return datetime.strptime(timestamp, "%Y%m%d_%H%M%S")
    except ValueError:
        return None


# -- from a tree to paths ---------------------------------------------------------------------


def plain(value: Any, not_available: dict[str, str], path: str = "") -> Any:
    """What a benchmark returned, as what JSON knows; numbers of NumPy and the like become numbers.

    Leaves that are `n/a` become null, and their reasons are put into `not_available` by their paths.
    """
    where = path or "the result"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise InvalidResult(f"{where} is {value:.3e}: whole numbers must fit in 64 bits; use a float")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidResult(f"{where} is {value}: a figure must be finite; leave out what has none")
        return float(value)
    if path.count(SEPARATOR) >= DEEPEST:
        raise InvalidResult(f"{where[:60]}… is more than {DEEPEST} levels deep: can it contain itself?")
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        for key, inner in value.items():
            if str(key) in found:
                raise InvalidResult(f"{where} has the key {str(key)!r} twice once keys are text")
            found[str(key)] = plain(inner, not_available, join(path, str(key)))
        return found
    if isinstance(value, list | tuple):
        return [plain(inner, not_available, join(path, str(n))) for n, inner in enumerate(value)]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), not_available, path)
    from memory.benchmarking.bench import NotAvailable

    if isinstance(value, NotAvailable):
        not_available[path] = value.reason
        return None
    raise InvalidResult(f"{where} is a {type(value).__name__}: use numbers, texts, lists and dictionaries")


def flatten(tree: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Path to number, for every numeric leaf that is not inside a list."""
    found: dict[str, float] = {}
    for name, value in tree.items():
        inner: dict[str, float] = {}
        if isinstance(value, Mapping):
            inner = flatten(value, join(path, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            inner = {join(path, name): float(value)}
        twice = next((known for known in inner if known in found), None)
        if twice is not None:
            raise InvalidResult(f"two figures have the path {twice!r}: rename one of their keys")
        found.update(inner)
    return found


def join(path: str, name: str) -> str:
    """The path of an entry; a separator inside of its name is replaced by one that looks like it."""
    name = name.replace(SEPARATOR, "∕")
    return f"{path}{SEPARATOR}{name}" if path else name
