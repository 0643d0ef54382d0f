"""Results as tables: one row per metric, with the parts of its path in columns."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import ROW_COLUMNS, read_path


def rows(results: Iterable[LoadedResult]) -> list[dict[str, Any]]:
    """Return one row per result and metric; parameters are columns only where the path has them."""
    table = []
    for loaded in results:
        of_result: dict[str, Any] = {
            "run_id": loaded.file.run_id,
            "timestamp": time_of(loaded.result.timestamp),
            "category": loaded.result.category,
            "benchmark": loaded.result.benchmark,
            "target": loaded.target,
        }
        for path, figure in loaded.result.metrics.items():
            place, metric = read_path(path), loaded.metric(path)
            table.append(
                of_result
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
    return table


def columns_of(table: Iterable[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """Return the columns of these rows in order, and those of them that are parameters."""
    parameters = dict.fromkeys(name for row in table for name in row if name not in ROW_COLUMNS)
    return [*ROW_COLUMNS[:-2], *parameters, *ROW_COLUMNS[-2:]], [*parameters]


def time_of(timestamp: str) -> datetime | None:
    """Return the time of a result's timestamp; None if it has another form than the specification's."""
    try:
        return datetime.strptime(timestamp, "%Y%m%d_%H%M%S")
    except ValueError:
        return None
