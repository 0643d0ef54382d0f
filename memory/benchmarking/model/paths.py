"""Metric paths. This is the only module that joins, splits and walks them.

complexity_5/batch_100/stm/one_by_one/p50_ms
└ complexity = 5       │   └ part     └ metric (the leaf)
             └ batch_size = 100, tier = stm
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from memory.benchmarking.errors import InvalidResult

SEPARATOR = "/"
TIERS = ("stm", "im", "ltm", "store")
DEEPEST = 50
"""The most levels that a result may have."""
MOST_FIGURES = 50_000
"""The most figures of one result; it may have twice as many keys. A larger page would take minutes."""
ROW_COLUMNS = (
    "run_id", "timestamp", "category", "benchmark", "target", "metric", "value", "low", "high", "unit",
    "better", "rounds", "samples", "tier", "part", "path",
)  # fmt: skip
"""The columns of every table of figures; a parameter of a path can't have one of these names."""
_ALIASES = {"batch": "batch_size"}
_PARAMETER = re.compile(r"(?P<name>[^\W\d_]\w*?)_(?P<number>-?\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class NotAvailable:
    """A leaf without a figure, and the reason."""

    reason: str


NO_FIGURES = (
    'it returned no figures: return at least one number, as in {"seconds": 0.2}, or bench.time(function)'
)
"""The reason of a result without any figure; a run shows it as a warning."""


def leaf_of(path: str) -> str:
    """Return the last segment of a path: the metric's name."""
    return path.rpartition(SEPARATOR)[2]


def where_of(path: str) -> str:
    """Return a path without its leaf: the group of the figure, "" at the top."""
    return path.rpartition(SEPARATOR)[0]


def split_leaf(path: str) -> tuple[str, str]:
    """Return the group of a figure, "" at the top, and its leaf."""
    where, _, leaf = path.rpartition(SEPARATOR)
    return where, leaf


@dataclass(frozen=True)
class Place:
    """The parts of a metric's path."""

    metric: str
    tier: str | None = None
    part: str = ""
    parameters: dict[str, int | float] = field(default_factory=dict)


def read_path(path: str) -> Place:
    """Split a path into its parts.

    A segment that is neither parameter nor tier, or repeats one, goes into `part`.
    """
    *segments, leaf = segments_of(path)
    tier = None
    parameters: dict[str, int | float] = {}
    rest = []
    for segment in segments:
        parameter = _PARAMETER.fullmatch(segment)
        name = _ALIASES.get(parameter["name"], parameter["name"]) if parameter else ""
        if parameter and name not in parameters and name not in ROW_COLUMNS:
            parameters[name] = _number(parameter["number"])
        elif segment in TIERS and tier is None:
            tier = segment
        else:
            rest.append(segment)
    return Place(leaf, tier, SEPARATOR.join(rest), parameters)


def _number(text: str) -> int | float:
    # A number beyond 64 bits becomes a float, as in table libraries.
    number = float(text) if "." in text else int(text)
    return number if isinstance(number, float) or abs(number) < 2**63 else float(text)


def plain(value: Any, not_available: dict[str, str], path: str = "") -> Any:
    """Convert a benchmark's return value to JSON values; NumPy numbers and arrays become plain ones.

    A `NotAvailable` leaf becomes None, and its reason is added to `not_available` under its path.
    """
    where = path or "the result"
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        if abs(value) >= 2**63:
            raise InvalidResult(f"{where} is {value:.3e}: a whole number must fit in 64 bits; use a float")
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidResult(f"{where} is {value}: a figure must be finite; leave it out otherwise")
        return float(value)
    if path.count(SEPARATOR) >= DEEPEST:
        raise InvalidResult(f"{where[:60]}… is more than {DEEPEST} levels deep: does it contain itself?")
    if isinstance(value, Mapping):
        converted: dict[str, Any] = {}
        for key, inner in value.items():
            if str(key) in converted:
                raise InvalidResult(f"{where} has two keys that are {str(key)!r} as text: rename one")
            converted[str(key)] = plain(inner, not_available, join(path, str(key)))
        return converted
    if isinstance(value, list | tuple):
        return [plain(inner, not_available, join(path, str(n))) for n, inner in enumerate(value)]
    if hasattr(value, "tolist"):
        return plain(value.tolist(), not_available, path)
    if isinstance(value, NotAvailable):
        not_available[path] = value.reason
        return None
    raise InvalidResult(f"{where} is a {type(value).__name__}: use numbers, texts, lists and dictionaries")


def check_count(figures: int) -> None:
    """Raise InvalidResult if a result has more figures than can be read again."""
    if figures > MOST_FIGURES:
        raise InvalidResult(f"it has more than {MOST_FIGURES:,} figures: save fewer, or several results")


def check_tree(tree: Any) -> None:
    """Raise InvalidResult if a tree of dictionaries and lists is too deep or has too many keys.

    It does not recurse, so that it can check any depth.
    """
    keys = 0
    level, waiting = 0, [tree]
    while waiting:
        below: list[Any] = []
        for node in waiting:
            inner = node.values() if isinstance(node, dict) else node
            keys += len(node) if isinstance(node, dict) else 0
            below += [each for each in inner if isinstance(each, dict | list)]
        level, waiting = level + 1, below
        if level > 2 * DEEPEST and waiting:
            raise InvalidResult(f"it is more than {2 * DEEPEST} levels deep")
        if keys > 2 * MOST_FIGURES:
            raise InvalidResult(f"it has more than {2 * MOST_FIGURES:,} keys")


def flatten(tree: Mapping[str, Any], path: str = "") -> dict[str, float]:
    """Return path to number for every numeric leaf that is not inside a list."""
    figures: dict[str, float] = {}
    for name, value in tree.items():
        inner: dict[str, float] = {}
        if isinstance(value, Mapping):
            inner = flatten(value, join(path, name))
        elif isinstance(value, int | float) and not isinstance(value, bool):
            inner = {join(path, name): float(value)}
        for repeated in inner.keys() & figures.keys():
            raise InvalidResult(f"two figures have the path {repeated!r}: rename one of their keys")
        figures.update(inner)
    return figures


def segments_of(path: str) -> list[str]:
    """Return the names along a path, the leaf last."""
    return path.split(SEPARATOR)


def join(path: str, name: str) -> str:
    """Return the path of a name in a group; a "/" in the name becomes a similar character."""
    name = name.replace(SEPARATOR, "∕")
    return f"{path}{SEPARATOR}{name}" if path else name
