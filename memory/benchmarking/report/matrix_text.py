"""The matrix of targets as text for the terminal, in blocks that fit its width."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from memory.benchmarking.report.matrix import Cell, Column, Matrix, Row
from memory.benchmarking.text.display import clean, figure_text, shorten, text_width

WIDTH = 100
"""The most columns of a block where the terminal does not say its width."""
_LONGEST_NAME = 18
"""Longer names of targets are cut to this many characters."""


def matrix_text(matrix: Matrix, width: int | None = None) -> str:
    """Return the matrix; if it is too wide, as several blocks with some of the targets each."""
    most = min(width or WIDTH, WIDTH)
    names = Counter(row.benchmark for row in matrix.rows)
    labels = ["", "writes survive", "search by", *(_label(row, names) for row in matrix.rows)]
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
    """Return the columns of each block: as few blocks as fit into the room, and about equally wide ones."""
    fewest = len(_filled(widths, room))
    return next(
        found for most in range(1, room + max(widths) + 3) if len(found := _filled(widths, most)) <= fewest
    )


def _filled(widths: Sequence[int], room: int) -> list[list[int]]:
    """Fill one block after the other; a block has at least one column."""
    blocks: list[list[int]] = []
    used = 0
    for number, width in enumerate(widths):
        if not blocks or used + width + 2 > room:
            blocks.append([])
            used = 0
        blocks[-1].append(number)
        used += width + 2
    return blocks


def _label(row: Row, names: Mapping[str, int]) -> str:
    """Return the name of a benchmark, with its category only if two have the same name."""
    arrow = {"higher": " ↑", "lower": " ↓"}.get(row.metric.better, "")
    category = f"{row.category}." if names[row.benchmark] > 1 else ""
    return clean(f"{category}{row.benchmark}{arrow}")


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
