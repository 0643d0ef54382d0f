"""Builds runs and results without running anything."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory.benchmarking.metrics import metric_of
from memory.benchmarking.model.files import encode_json, write_new, write_run
from memory.benchmarking.model.records import (
    Case,
    Environment,
    Failure,
    Figure,
    Result,
    ResultRef,
    Run,
    Unit,
)

ENVIRONMENT = Environment(
    fingerprint="f00d",
    cpu="Test CPU @ 2.0 GHz",
    cores=2,
    memory_gb=7.8,
    os="Linux 6.1",
    python="CPython 3.12.1",
    packages={"numpy": "2.0.0", "msgspec": "0.19.0"},
    file_system="ext4",
    git_revision="7d927a8b1c2d3e4f5a6b7c8d9e0f1a2b3c4d5e6f",
    git_dirty=True,
)
THROUGHPUT = "throughput_ops_per_second"


def tree_of(metrics: Mapping[str, Figure]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for path, figure in metrics.items():
        *segments, leaf = path.split("/")
        here = tree
        for segment in segments:
            here = here.setdefault(segment, {})
        here[leaf] = figure.value
    return tree


def storage_figures(
    scale: float = 1.0,
    tiers: Sequence[str] = ("stm", "ltm"),
    batches: Sequence[int] = (10, 100),
    complexities: Sequence[int] = (1, 5),
) -> dict[str, Figure]:
    """Return figures like those of the write benchmark: small batches are slower."""
    found = {}
    for complexity in complexities:
        for batch in batches:
            for number, tier in enumerate(tiers):
                rate = 1000.0 * scale * batch**0.5 / complexity / (1 + number)
                where = f"complexity_{complexity}/batch_{batch}/{tier}"
                found[f"{where}/{THROUGHPUT}"] = figure(rate, samples=200)
                for leaf, factor in (("mean_ms", 1.0), ("p50_ms", 0.9), ("p95_ms", 1.8), ("p99_ms", 3.0)):
                    found[f"{where}/{leaf}"] = figure(1000 / rate * factor, samples=200)
                found[f"{where}/items_processed"] = Figure(
                    value=batch, low=batch, high=batch, rounds=[batch] * 3
                )
    return found


def figure(value: float, rounds: int = 3, samples: int = 0) -> Figure:
    values = [value * (1 + 0.02 * (number - (rounds - 1) / 2)) for number in range(rounds)]
    return Figure(value=value, low=value * 0.95, high=value * 1.05, rounds=values, samples=samples)


def make_result(
    metrics: Mapping[str, Figure],
    *,
    benchmark: str = "write_throughput",
    category: str = "storage",
    timestamp: str = "20260801_101500",
    **metadata: Any,
) -> Result:
    leaves = {path.rpartition("/")[2] for path in metrics}
    units = {leaf: Unit(unit=metric_of(leaf).unit, better=metric_of(leaf).better) for leaf in leaves}
    return Result(
        benchmark=benchmark,
        category=category,
        timestamp=timestamp,
        results=tree_of(metrics),
        metadata={"target": "agentmemory"} | metadata,
        metrics=dict(metrics),
        units=units,
    )


def make_run(
    output_dir: Path,
    run_id: str = "20260801_101500_ab12",
    results: Sequence[Result] | None = None,
    failures: Sequence[Failure] = (),
    headline: str = f"*/stm/{THROUGHPUT}",
    **changes: Any,
) -> Path:
    """Write a run's folder as the runner does, without the raw samples."""
    timestamp = run_id[:15]
    if results is None:
        results = [make_result(storage_figures(), timestamp=timestamp)]
    folder = output_dir / run_id
    refs, cases = [], []
    for result in results:
        target = str(result.metadata.get("target", ""))
        path = write_new(
            folder / result.category, f"{result.benchmark}_{result.timestamp}", ".json", encode_json(result)
        )
        params = result.metadata.get("params", {})
        cases.append(
            Case(category=result.category, benchmark=result.benchmark, target=target, params=params)
        )
        refs.append(
            ResultRef(
                category=result.category,
                benchmark=result.benchmark,
                target=target,
                params_digest="0",
                file=str(path.relative_to(folder)),
                rounds=3,
                headline=headline,
            )
        )
    run = {
        "id": run_id,
        "status": "failed" if failures else "complete",
        "started_at": f"{timestamp[:4]}-{timestamp[4:6]}-{timestamp[6:8]}T10:15:00",
        "finished_at": f"{timestamp[:4]}-{timestamp[4:6]}-{timestamp[6:8]}T10:18:20",
        "profile": "quick",
        "seed": 7,
        "rounds": 3,
        "seconds": 0.2,
        "parallel": 1,
        "targets": sorted({case.target for case in cases}),
        "cases": cases,
        "environment": ENVIRONMENT,
        "config": {},
        "command": "membench run --profile quick",
        "results": refs,
        "failures": list(failures),
    }
    write_run(folder, Run(**(run | changes)))
    return folder
