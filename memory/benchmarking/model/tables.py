"""Results as tables: one row per metric, with what its path says in columns of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import ROW_COLUMNS, read_path


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
    parameters = dict.fromkeys(name for row in found for name in row if name not in ROW_COLUMNS)
    return [*ROW_COLUMNS[:-2], *parameters, *ROW_COLUMNS[-2:]], [*parameters]


def time_of(timestamp: str) -> datetime | None:
    """None for a time that is not in the specification's form: its figures are still good."""
    try:
        return datetime.strptime(timestamp, "%Y%m%d_%H%M%S")
    except ValueError:
        return None
