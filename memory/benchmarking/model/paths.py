"""Metric paths: the only place that joins, splits and walks them.

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
"""The most levels that a result's tree may have."""
ROW_COLUMNS = (
    "run_id", "timestamp", "category", "benchmark", "target", "metric", "value", "low", "high", "unit",
    "better", "rounds", "samples", "tier", "part", "path",
)  # fmt: skip
"""The columns of every table of figures: names that no parameter of a path can have."""
_ALIASES = {"batch": "batch_size"}
_PARAMETER = re.compile(r"(?P<name>[^\W\d_]\w*?)_(?P<number>-?\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class NotAvailable:
    """A leaf that has no figure, and why."""

    reason: str


def leaf_of(path: str) -> str:
    """Return the last segment of a path: the metric's name."""
    return path.rpartition(SEPARATOR)[2]


def where_of(path: str) -> str:
    """Return a path without its leaf: where the figure stands, "" for the top."""
    return path.rpartition(SEPARATOR)[0]


def split_leaf(path: str) -> tuple[str, str]:
    """Return where a figure stands, "" for the top, and its leaf."""
    where, _, leaf = path.rpartition(SEPARATOR)
    return where, leaf


@dataclass(frozen=True)
class Place:
    """What a metric's path says."""

    metric: str
    tier: str | None = None
    part: str = ""
    parameters: dict[str, int | float] = field(default_factory=dict)


def read_path(path: str) -> Place:
    """Take a path apart. What is neither parameter nor tier, or is one for the second time, is a part."""
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
    # What no 64-bit column holds is a float, as in every table library.
    number = float(text) if "." in text else int(text)
    return number if isinstance(number, float) or abs(number) < 2**63 else float(text)


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


def segments_of(path: str) -> list[str]:
    """Return the names along a path, the leaf last."""
    return path.split(SEPARATOR)


def join(path: str, name: str) -> str:
    """The path of an entry; a separator inside of its name is replaced by one that looks like it."""
    name = name.replace(SEPARATOR, "∕")
    return f"{path}{SEPARATOR}{name}" if path else name
