"""Export results for other tools: CSV, Parquet, JSON, pytest-benchmark's and Bencher's formats."""

from __future__ import annotations

import csv
import io
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, UnknownName, nearest, needs
from memory.benchmarking.model.files import encode_json
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.paths import read_path
from memory.benchmarking.model.records import Figure, Run
from memory.benchmarking.model.tables import columns_of, rows

_SECONDS_OF_UNIT = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "s": 1.0}


def export(results: Sequence[LoadedResult], format: str, runs: Mapping[str, Run] | None = None) -> bytes:
    """Return the content of the exported file.

    `runs` holds the runs of the results, by id. Some formats use them to describe machine and revision.
    """
    if format not in WRITERS:
        raise UnknownName(f"there is no format {format!r}: {nearest(format, WRITERS)}")
    if not results:
        raise NothingMeasured("there are no results to export")
    return WRITERS[format](results, runs or {})


def _csv(results: Sequence[LoadedResult], _: Mapping[str, Run]) -> bytes:
    found = rows(results)
    columns, _parameters = columns_of(found)
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, restval="", lineterminator="\n")
    writer.writeheader()
    for row in found:
        writer.writerow(row | {"timestamp": row["timestamp"].isoformat() if row["timestamp"] else ""})
    return text.getvalue().encode()


def _parquet(results: Sequence[LoadedResult], _: Mapping[str, Run]) -> bytes:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise needs("pyarrow", "parquet", "exporting to Parquet") from None
    found = rows(results)
    columns, parameters = columns_of(found)
    known = {
        "timestamp": pa.timestamp("s"),
        **dict.fromkeys(["value", "low", "high"], pa.float64()),
        **dict.fromkeys(["rounds", "samples"], pa.int64()),
        **dict.fromkeys(parameters, pa.float64()),
    }
    for name in parameters:
        if all(isinstance(row.get(name, 0), int) for row in found):
            known[name] = pa.int64()
    arrays = {
        name: pa.array(
            [row.get(name) for row in found], type=known.get(name, pa.string()), from_pandas=False
        )
        for name in columns
    }
    buffer = io.BytesIO()
    pq.write_table(pa.table(arrays), buffer)
    return buffer.getvalue()


def _json(results: Sequence[LoadedResult], runs: Mapping[str, Run]) -> bytes:
    return encode_json(
        {
            "runs": dict(runs),
            "results": [
                {"run_id": each.file.run_id, "file": str(each.file.path), "result": each.result}
                for each in results
            ],
        }
    )


# -- pytest-benchmark -------------------------------------------------------------------------


def _pytest_benchmark(results: Sequence[LoadedResult], runs: Mapping[str, Run]) -> bytes:
    """Write one entry for each figure that is a time. The format has no place for other figures."""
    entries = []
    for each in results:
        for path, figure in each.result.metrics.items():
            metric = each.metric(path)
            if metric.unit in _SECONDS_OF_UNIT and metric.better == "lower":
                entries.append(_pytest_entry(each, path, figure, _SECONDS_OF_UNIT[metric.unit]))
    if not entries:
        raise NothingMeasured("pytest-benchmark's format holds only times, and these results have none")
    newest = max(results, key=lambda each: each.file.timestamp)
    run = runs.get(newest.file.run_id)
    return encode_json(
        {
            "machine_info": _machine_info(run),
            "commit_info": _commit_info(run),
            "benchmarks": entries,
            "datetime": run.started_at if run else newest.result.timestamp,
            "version": "5.2.0",
        }
    )


def _pytest_entry(each: LoadedResult, path: str, figure: Figure, scale: float) -> dict[str, Any]:
    place = read_path(path)
    parameters = {"target": each.target, "tier": place.tier, **place.parameters}
    name = f"{path}@{each.target}" if each.target else path
    return {
        "group": f"{each.name} {place.metric}",
        "name": name,
        "fullname": f"{each.name}::{name}",
        "params": {key: value for key, value in parameters.items() if value not in (None, "")} or None,
        "param": None,
        "extra_info": {"run_id": each.file.run_id, "samples_a_round": figure.samples},
        "options": {},
        "stats": _pytest_stats([value * scale for value in figure.rounds or [figure.value]]),
    }


def _pytest_stats(data: Sequence[float]) -> dict[str, Any]:
    ordered = sorted(data)
    mean = statistics.fmean(data)
    deviation = statistics.stdev(data) if len(data) > 1 else 0.0
    if len(data) > 1:
        q1, median, q3 = statistics.quantiles(data, n=4, method="inclusive")
    else:
        q1 = median = q3 = mean
    low_fence, high_fence = q1 - 1.5 * (q3 - q1), q3 + 1.5 * (q3 - q1)
    inside = [value for value in ordered if low_fence <= value <= high_fence] or ordered
    far_from_mean = sum(abs(value - mean) > deviation for value in data)
    beyond_fences = len(data) - len(inside)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": deviation,
        "rounds": len(data),
        "median": median,
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": beyond_fences,
        "stddev_outliers": far_from_mean,
        "outliers": f"{far_from_mean};{beyond_fences}",
        "ld15iqr": inside[0],
        "hd15iqr": inside[-1],
        "ops": 1 / mean if mean else 0.0,
        "total": math.fsum(data),
        "data": list(data),
        "iterations": 1,
    }


def _machine_info(run: Run | None) -> dict[str, Any]:
    if run is None:
        return {}
    where = run.environment
    implementation, _, version = where.python.partition(" ")
    return {
        "node": where.fingerprint,
        "machine": where.os.rpartition(" ")[2],
        "system": where.os.partition(" ")[0],
        "python_implementation": implementation,
        "python_version": version,
        "cpu": {"brand_raw": where.cpu, "count": where.cores},
        "packages": where.packages,
    }


def _commit_info(run: Run | None) -> dict[str, Any]:
    where = run.environment if run else None
    return {
        "id": where.git_revision if where else "",
        "time": run.started_at if run else "",
        "author_time": run.started_at if run else "",
        "dirty": bool(where and where.git_dirty),
        "project": "agentmemory",
        "branch": "",
    }


# -- Bencher ----------------------------------------------------------------------------------


def _bmf(results: Sequence[LoadedResult], _: Mapping[str, Run]) -> bytes:
    """Write the Bencher Metric Format: https://bencher.dev/docs/reference/bencher-metric-format/"""
    found: dict[str, dict[str, dict[str, float]]] = {}
    for each in results:
        for where, leaves in each.groups.items():
            name = "/".join(filter(None, [each.name, where]))
            name = f"{name}@{each.target}" if each.target else name
            measures = found.setdefault(name, {})
            for leaf, figure in leaves.items():
                if leaf in measures:
                    raise InvalidBenchmarkConfig(
                        f"bmf has one figure per name, but {name} {leaf} is in two results: export one run"
                    )
                bounds = {"lower_value": figure.low, "upper_value": figure.high}
                measures[leaf] = {"value": figure.value} | {
                    bound: value for bound, value in bounds.items() if value is not None
                }
    return encode_json(found)


WRITERS: Mapping[str, Callable[[Sequence[LoadedResult], Mapping[str, Run]], bytes]] = {
    "csv": _csv,
    "parquet": _parquet,
    "json": _json,
    "pytest-benchmark": _pytest_benchmark,
    "bmf": _bmf,
}
