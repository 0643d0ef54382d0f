"""Processes that all write one store, each one memory after the other: who waits for whom, and how long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.benchmarks._scalability_agents import Measurements, ProcessPool
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.targets.base import Item

_PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99}


def measure_writers(
    bench: Bench, counts: Sequence[int], writes: int, most: int
) -> dict[str, Any] | NotAvailable:
    """Return the figures by number of processes. More than `most` processes are not started."""
    if not (bench.capabilities.processes and bench.capabilities.persistence):
        return not_available(f"{bench.system} can't be shared by processes")
    found: dict[str, Any] = {}
    started = max((count for count in counts if count <= most), default=0)
    with ProcessPool(bench.target_name, started, "S" * writes) as pool:
        for count in counts:
            name = f"processes_{count}"
            if count > most:
                found[name] = not_available(
                    f"{count} processes are too many for this machine: at most {most}"
                )
                continue
            with bench.target_folder() as folder:
                with pool.opened(folder, count):
                    pool.prepare([f"agent_{number}" for number in range(count)], f"{bench.seed}")
                    measured = Measurements()
                    pool.run_pass(measured)
                    stored = pool.stored()
                with bench.open_target(folder) as target:
                    items = [Item(agent, content) for agent, _, content in stored]
                    bench.acknowledged(target, [id_ for _, id_, _ in stored], items)
            times = measured.milliseconds()["store"]
            found[name] = {
                "operations_per_second": measured.operations / measured.wall_seconds,
                **dict(zip(_PERCENTILES, percentiles(times, _PERCENTILES.values()), strict=True)),
                "worst_wait_ms": max(times),
            }
    return found
