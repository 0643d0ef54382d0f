"""The matrix of targets as text for the terminal, in blocks that fit its width."""

from __future__ import annotations

from collections.abc import Sequence

from memory.benchmarking.report.matrix import Cell, Column, Matrix, Row
from memory.benchmarking.text.display import clean, figure_text, shorten, text_width

WIDTH = 100
"""The most columns of a block where the terminal does not say its width."""
_LONGEST_NAME = 18
"""Longer names of targets are cut to this many characters."""


def matrix_text(matrix: Matrix, width: int | None = None) -> str:
    """Return the matrix; if it is too wide, as several blocks with some of the targets each."""
    most = min(width or WIDTH, WIDTH)
    labels = ["", "writes survive", "search by", *(_label(row) for row in matrix.rows)]
    first = max(map(text_width, labels))
    columns = [_column(matrix, number) for number in range(len(matrix.columns))]
    blocks = []
    for chosen in _blocks([max(map(text_width, each)) for each in columns], most - first):
        widths = [max(map(text_width, columns[number])) for number in chosen]
        lines = []
        for place, label in enumerate(labels):
            cells = [
                " " * (space - text_width(columns[number][place])) + columns[number][place]
                for number, space in zip(chosen, widths, strict=True)
            ]
            gap = " " * (first - text_width(label))
            lines.append("  ".join([label + gap, *cells]).rstrip())
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the columns of each block: as many as fit into the room, and at least one."""
    blocks: list[list[int]] = []
    used = 0
    for number, width in enumerate(widths):
        if not blocks or used + width + 2 > room:
            blocks.append([])
            used = 0
        blocks[-1].append(number)
        used += width + 2
    return blocks


def _label(row: Row) -> str:
    arrow = {"higher": " ↑", "lower": " ↓"}.get(row.metric.better, "")
    return clean(f"{row.category}.{row.benchmark}{arrow}")


def _column(matrix: Matrix, number: int) -> list[str]:
    head: Column = matrix.columns[number]
    reasons = matrix.reasons
    return [
        shorten(clean(head.name), _LONGEST_NAME),
        head.durability or "?",
        head.search_by or "none",
        *(_cell(row.cells[number], row, reasons) for row in matrix.rows),
    ]


def _cell(cell: Cell, row: Row, reasons: dict[str, int]) -> str:
    if cell.figure is None:
        return f"{cell.missing} ({reasons[cell.reason]})" if cell.reason else cell.missing
    sign = "★ " if cell.best else "≠ " if cell.unlike else ""
    return sign + figure_text(cell.figure.value, row.metric.unit)
