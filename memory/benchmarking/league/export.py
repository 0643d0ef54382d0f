"""The league for other programs: CSV with a row for each cell, and JSON with everything."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict
from typing import Any

import msgspec

from memory.benchmarking.league.model import Cell, League
from memory.benchmarking.league.situations import SITUATIONS, rule_texts, verdicts_of

_COLUMNS = (
    "system", "version", "durability", "search_by", "axis", "value", "low", "high", "unit", "better",
    "detail", "standing", "against_best", "reason", "benchmark", "path",
)  # fmt: skip


def as_csv(league: League) -> bytes:
    """Return one row for each system and axis."""
    buffer = io.StringIO(newline="")
    writer = csv.DictWriter(buffer, _COLUMNS)
    writer.writeheader()
    for system in league.systems:
        for axis in league.axes:
            cell = league.cell(system.target, axis.key)
            figure = cell.figure
            writer.writerow(
                {
                    "system": system.target,
                    "version": system.version,
                    "durability": system.durability,
                    "search_by": system.search_by,
                    "axis": axis.key,
                    "value": "" if figure is None else figure.value,
                    "low": "" if figure is None or figure.low is None else figure.low,
                    "high": "" if figure is None or figure.high is None else figure.high,
                    "unit": axis.unit,
                    "better": axis.better,
                    "detail": cell.detail,
                    "standing": cell.standing,
                    "against_best": cell.against_best,
                    "reason": cell.reason,
                    "benchmark": cell.benchmark,
                    "path": cell.path,
                }
            )
    return buffer.getvalue().encode()


def as_tree(league: League) -> dict[str, Any]:
    """Return everything as JSON values."""
    return {
        "runs": [
            {
                "id": run.id,
                "profile": run.profile,
                "started_at": run.started_at,
                "command": run.command,
                "rounds": run.rounds,
                "environment": msgspec.to_builtins(run.environment),
            }
            for run in league.runs
        ],
        "systems": [asdict(system) for system in league.systems],
        "axes": [asdict(axis) for axis in league.axes],
        "cells": [
            {"system": target, "axis": axis, **_cell(cell)} for (target, axis), cell in league.cells.items()
        ],
        "curves": {
            target: [
                {
                    "setting": point.setting,
                    "recall": point.recall,
                    "milliseconds": msgspec.to_builtins(point.milliseconds),
                }
                for point in points
            ]
            for target, points in league.curves.items()
        },
        "text_search_by_size": {
            target: {str(size): msgspec.to_builtins(figure) for size, figure in sizes.items()}
            for target, sizes in league.by_size.items()
        },
        "promises": {
            target: [asdict(outcome) for outcome in outcomes]
            for target, outcomes in league.promises.items()
        },
        "situations": [
            {
                "key": situation.key,
                "title": situation.title,
                "rule": list(rule_texts(league, situation)),
                "systems": [
                    {
                        "system": verdict.system.target,
                        "fits": verdict.fits,
                        "facts": list(verdict.facts),
                        "misses": list(verdict.misses),
                    }
                    for verdict in verdicts_of(league, situation)
                ],
            }
            for situation in SITUATIONS
        ],
    }


def _cell(cell: Cell) -> dict[str, Any]:
    return {
        "figure": None if cell.figure is None else msgspec.to_builtins(cell.figure),
        "detail": cell.detail,
        "standing": cell.standing,
        "against_best": cell.against_best,
        "reason": cell.reason,
        "benchmark": cell.benchmark,
        "path": cell.path,
    }


def as_json(league: League) -> bytes:
    """Return everything as a JSON document."""
    return json.dumps(as_tree(league), indent=1, ensure_ascii=False).encode() + b"\n"
