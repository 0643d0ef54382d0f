"""The league for the terminal: one table with a row a system, in blocks that fit the width."""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.league.model import Axis, League, System
from memory.benchmarking.league.situations import SITUATIONS, verdicts_of
from memory.benchmarking.text.display import clean, figure_text, paragraph, shorten, table, text_width

SIGNS = {"best": "★ ", "tied": "≈ ", "worse": "", "": ""}
WIDTH = 100
"""Columns where the terminal does not say its width."""
_LONGEST_NAME = 20
LEGEND = (
    "★ is the best of its column, ≈ is not distinguishable from it (95 %, Holm over the whole table). "
    "Writes and load are ranked among systems of the same durability."
)


def league_text(league: League, width: int | None = None) -> str:
    """Return the table, the reasons for missing figures, and who each situation fits."""
    most = width or WIDTH
    reasons: dict[str, int] = {}
    blocks = []
    first = max(text_width(_name(system)) for system in league.systems) + 2
    for axes in _blocks(league, most - first):
        headers = ("system", *(f"{axis.title} {_arrow(axis)}".strip() for axis in axes))
        rows = [
            (_name(system), *(_cell(league, system, axis, reasons) for axis in axes))
            for system in league.systems
        ]
        blocks.append(table(rows, headers, right=range(1, len(headers))))
    classes = "; ".join(f"{_name(system)} {system.durability or '?'}" for system in league.systems)
    parts = ["\n\n".join(blocks), paragraph(LEGEND, most), paragraph(f"Writes survive: {classes}.", most)]
    for reason, number in reasons.items():
        parts.append(paragraph(clean(f"({number}) {reason}"), most, "", "    "))
    parts.append("")
    for situation in SITUATIONS:
        fitting = [_name(each.system) for each in verdicts_of(league, situation) if each.fits]
        parts.append(paragraph(f"{situation.title}: {', '.join(fitting) or 'none fits'}.", most, "", "  "))
    return "\n".join(parts)


def _name(system: System) -> str:
    return shorten(clean(system.name if ":" in system.target else system.target), _LONGEST_NAME)


def _arrow(axis: Axis) -> str:
    return {"higher": "↑", "lower": "↓"}.get(axis.better, "")


def _cell(league: League, system: System, axis: Axis, reasons: dict[str, int]) -> str:
    cell = league.cell(system.target, axis.key)
    if cell.figure is None:
        number = reasons.setdefault(cell.reason, len(reasons) + 1)
        return f"n/a ({number})"
    return f"{SIGNS[cell.standing]}{figure_text(cell.figure.value, axis.unit)}"


def _blocks(league: League, room: int) -> list[list[Axis]]:
    """Return the axes of each block; a block has at least one."""
    blocks: list[list[Axis]] = []
    used = 0
    for axis in league.axes:
        needed = _column_width(league, axis) + 2
        if not blocks or used + needed > room:
            blocks.append([])
            used = 0
        blocks[-1].append(axis)
        used += needed
    return blocks


def _column_width(league: League, axis: Axis) -> int:
    cells: Sequence[str] = [_cell(league, system, axis, {}) for system in league.systems]
    return max(text_width(f"{axis.title} ↑"), *(text_width(cell) for cell in cells))
