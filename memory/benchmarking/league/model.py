"""The league as data: systems, axes, and a cell for each pair. Everything that is shown comes from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from memory.benchmarking.metrics import Better
from memory.benchmarking.model.records import Figure, Run

Standing = Literal["", "best", "tied", "worse"]
"""How a cell compares with the best of its axis.

- best: no other figure of the axis, or of its durability class, is better.
- tied: the verdict does not tell it from the best.
- worse: the verdict says that it is worse.
- empty: not compared, for instance because it is the only figure.
"""


@dataclass(frozen=True)
class System:
    """One measured system."""

    target: str
    """As after `--target`."""
    name: str
    version: str
    """The system's own package with its version: `chromadb 1.5.9`."""
    durability: str
    search_by: str
    limits: str = ""
    conformance: str = ""
    run_id: str = ""
    failures: tuple[str, ...] = ()
    """What failed, as `benchmark: message`."""


@dataclass(frozen=True)
class Axis:
    """One column of the table."""

    key: str
    title: str
    group: str
    unit: str
    better: Better
    explanation: str
    """What the figure means, and what it was measured with."""
    at: str = ""
    """The size that it was measured at, such as `10,000 memories`; empty where there is none."""
    by_durability: bool = False
    """Whether figures are ranked only among systems of the same durability."""


@dataclass(frozen=True)
class Cell:
    """The figure of one system on one axis, or the reason why there is none."""

    figure: Figure | None = None
    detail: str = ""
    """What belongs to the figure, such as the recall of a search: it is shown beside it."""
    reason: str = ""
    benchmark: str = ""
    path: str = ""
    standing: Standing = ""
    against_best: str = ""
    """In words: `2.1 × the time of usearch`. Empty for the best itself."""


@dataclass(frozen=True)
class CurvePoint:
    """One setting of a search: what it finds, and how long it takes."""

    setting: str
    recall: float
    milliseconds: Figure


@dataclass(frozen=True)
class CheckOutcome:
    """One check of a promise."""

    promise: str
    check: str
    status: str
    evidence: str
    code: str = ""


@dataclass(frozen=True)
class League:
    """All systems of one machine."""

    runs: tuple[Run, ...]
    systems: tuple[System, ...]
    axes: tuple[Axis, ...]
    cells: Mapping[tuple[str, str], Cell]
    """By target and axis."""
    curves: Mapping[str, tuple[CurvePoint, ...]] = field(default_factory=dict)
    """By target: recall and time at the largest size that all systems have."""
    curve_size: int = 0
    by_size: Mapping[str, Mapping[int, Figure]] = field(default_factory=dict)
    """By target: the median time of a text search, by number of memories."""
    promises: Mapping[str, tuple[CheckOutcome, ...]] = field(default_factory=dict)
    """By target."""

    def cell(self, target: str, axis: str) -> Cell:
        """Return the cell of a system on an axis; an empty one if it was not measured."""
        return self.cells.get((target, axis), Cell(reason="it was not measured"))

    def axis(self, key: str) -> Axis | None:
        """Return an axis by its key; None if no system has it."""
        return next((axis for axis in self.axes if axis.key == key), None)

    def value(self, target: str, axis: str) -> float | None:
        """Return the value of a cell; None without a figure."""
        figure = self.cell(target, axis).figure
        return None if figure is None else figure.value

    @property
    def reasons(self) -> dict[str, int]:
        """The reasons for missing figures, each with its number, in the order of the cells."""
        found = (
            cell.reason
            for system in self.systems
            for axis in self.axes
            if (cell := self.cell(system.target, axis.key)).figure is None
        )
        return {reason: number for number, reason in enumerate(dict.fromkeys(found), 1)}
