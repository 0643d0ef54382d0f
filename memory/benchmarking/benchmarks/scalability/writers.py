"""Processes that write one store: how long they wait for each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import LineChart

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks.scalability._agent_pools import ProcessPool

_PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99}


@declare(
    headline="processes_*/worst_wait_ms|processes_*/operations_per_second",
    write_figures="*",
    reports=["operations_per_second", "p50_ms", "p99_ms"],
    worst_wait_ms=Metric("ms", "lower"),
    profiles={
        "quick": {"process_counts": [2], "writes": 100},
        "standard": {"process_counts": [1, 4], "writes": 400},
    },
    expected_seconds={"quick": 2.2, "standard": 4.0, "full": 25.0},
    charts=[
        LineChart(
            "The longest that one write took, by number of processes that write",
            "worst_wait_ms",
            "processes",
            note="All processes write one store. Lower is better.",
        ),
    ],
)
def benchmark_writers(
    process_counts: Sizes = (1, 2, 4, 8),
    writes: Count = 2000,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any] | NotAvailable:
    """How long processes that write one store wait for each other. Each stores one memory after the other.

    Read `worst_wait_ms` as the longest that any process waited for one write. If the writers come in order,
    it is about the number of processes × the time of one write. There are at most four processes per core:
    more would measure the scheduler.

    Args:
        process_counts: how many processes write at the same time
        writes: memories that each of them stores
    """
    from memory.benchmarking.benchmarks.scalability._agent_pools import ProcessPool, most_processes

    bench = bench or Bench()
    if not (bench.capabilities.processes and bench.capabilities.persistence):
        return not_available(f"{bench.system} can't be shared by processes")
    counts, most = sorted(set(process_counts)), most_processes()
    found: dict[str, Any] = {}
    started = max((count for count in counts if count <= most), default=0)
    with ProcessPool(bench.target_name, started, "S" * writes) as pool:
        for count in counts:
            name = f"processes_{count}"
            if count > most:
                reason = f"{count} processes are too many for this machine: at most {most}"
                found[name] = not_available(reason)
            else:
                found[name] = _write(bench, pool, count)
    return found


def _write(bench: Bench, pool: ProcessPool, count: int) -> dict[str, Any]:
    """Let `count` processes write a new store, and return what they measured."""
    from memory.benchmarking.benchmarks.scalability._agent_pools import Measurements, as_items

    measured = Measurements()
    with bench.target_folder() as folder:
        with pool.opened(folder, count):
            pool.prepare([f"agent_{number}" for number in range(count)], f"{bench.seed}")
            pool.run_pass(measured)
            stored = pool.stored()
        with bench.open_target(folder) as target:
            bench.acknowledged(target, *as_items(stored))
    times = measured.milliseconds()["store"]
    return {
        "operations_per_second": measured.operations / measured.wall_seconds,
        **dict(zip(_PERCENTILES, percentiles(times, _PERCENTILES.values()), strict=True)),
        "worst_wait_ms": max(times),
    }
