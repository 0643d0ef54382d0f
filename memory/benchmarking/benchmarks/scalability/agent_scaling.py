"""Many agents that store, read and search in one store, by threads and by processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.environment import available_cores
from memory.benchmarking.model.parameters import Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import LineChart

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks.scalability._agent_pools import WorkerPool

_MB = 1e6

_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95, "p99_ms": 0.99}


@declare(
    headline="threads/parallel_1/agents_*/scaling_efficiency|threads/*/operations_per_second",
    write_figures="*/store/*|*/operations_per_second|*/agents_per_second",
    search_figures="*/search/*|*/operations_per_second|*/agents_per_second",
    reports=["operations_per_second", "agents_per_second", *_PERCENTILES, "cpu_percent", "rss_mb"],
    scaling_efficiency=Metric("", "higher"),
    parallel_efficiency=Metric("", "higher"),
    profiles={
        "quick": {"agent_counts": [1, 5], "parallel_operations": [1]},
        "standard": {"agent_counts": [1, 10, 40], "parallel_operations": [1, 4]},
    },
    expected_seconds={"quick": 1.2, "standard": 5.0, "full": 150.0},
    charts=[
        LineChart(
            "Operations per second, by number of agents",
            "operations_per_second",
            "agents",
            lines=["parallel"],
            panels=["part0"],
            note="Lines: how many agents work at the same time. Higher is better.",
        ),
        LineChart(
            "Scaling efficiency, by number of agents",
            "scaling_efficiency",
            "agents",
            label="efficiency",
            lines=["parallel"],
            panels=["part0"],
            note="1 means that each agent gets as much done as one agent alone.",
        ),
    ],
)
def benchmark_agent_scaling(
    agent_counts: Sizes = (1, 10, 50, 100, 500),
    parallel_operations: Sizes = (1, 4, 8, 16),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How many agents can share one store. Each agent makes 10 stores, 5 reads and 3 searches, in turns.

    Read `scaling_efficiency` as how the throughput changes with more agents: operations per second with
    this many agents ÷ with the fewest agents, for the same number of workers; 1 means no loss.
    `parallel_efficiency` is what more workers gain: throughput ÷ (throughput of one worker × workers that
    have a core). Workers are threads of one process, or processes that open the same file. Every cell does
    the same number of operations: with fewer agents there are more passes, and each pass starts without
    memories. There are never more workers than agents, and at most four processes per core. `rss_mb` is the
    sum over the processes and their children. A search includes embedding its question. A target that can't
    do all three kinds of operation has no figures that mix them.

    Args:
        agent_counts: how many agents there are
        parallel_operations: how many threads or processes work at the same time
    """
    from memory.benchmarking.benchmarks.scalability._agent_pools import K

    bench = bench or Bench()
    counts, workers = sorted(set(agent_counts)), sorted(set(parallel_operations))
    found: dict[str, Any] = {
        "threads": _by_threads(bench, counts, workers),
        "processes": _by_processes(bench, counts, workers),
    }
    for cells in found.values():
        if isinstance(cells, dict):
            _add_efficiencies(cells, counts, workers)
            if reason := bench.no_get() or bench.no_search(K):
                _drop_mixed(cells, reason)
    return found


def _turns(bench: Bench) -> str:
    """Return the operations of an agent that the target can do."""
    from memory.benchmarking.benchmarks.scalability._agent_pools import TURNS, K

    left_out = "R" * bool(bench.no_get()) + "F" * bool(bench.no_search(K))
    return "".join(turn for turn in TURNS if turn not in left_out)


def _drop_mixed(cells: Mapping[str, Any], reason: str) -> None:
    """Replace the figures of all operations together: another mix can't be compared."""
    for by_count in cells.values():
        for cell in by_count.values() if isinstance(by_count, dict) else ():
            cell |= dict.fromkeys(("operations_per_second", "agents_per_second"), not_available(reason))


def _by_threads(bench: Bench, counts: Sequence[int], workers: Sequence[int]) -> dict[str, Any]:
    from memory.benchmarking.benchmarks.scalability._agent_pools import ThreadPool, as_items

    cells: dict[str, Any] = {}
    for parallel in workers:
        if parallel > 1 and not bench.capabilities.threads:
            reason = f"{bench.system} can't be shared by threads"
            cells[f"parallel_{parallel}"] = not_available(reason)
            continue
        for count in counts:
            if count >= parallel:
                with bench.target() as target:
                    pool = ThreadPool(target, parallel, _turns(bench))
                    cell = _cell(pool, count, counts[-1] // count, bench.seed)
                    bench.acknowledged(target, *as_items(pool.stored()))
                cells.setdefault(f"parallel_{parallel}", {})[f"agents_{count}"] = cell
    return cells


def _by_processes(
    bench: Bench, counts: Sequence[int], workers: Sequence[int]
) -> dict[str, Any] | NotAvailable:
    from memory.benchmarking.benchmarks.scalability._agent_pools import (
        ProcessPool,
        as_items,
        most_processes,
    )

    if not (bench.capabilities.processes and bench.capabilities.persistence):
        return not_available(f"{bench.system} can't be shared by processes")
    most = most_processes()
    fitting = [parallel for parallel in workers if parallel <= min(most, counts[-1])]
    cells: dict[str, Any] = {}
    with ProcessPool(bench.target_name, max(fitting, default=0), _turns(bench)) as pool:
        for parallel in workers:
            if parallel > most:
                reason = f"{parallel} processes are too many for {available_cores()} cores"
                cells[f"parallel_{parallel}"] = not_available(reason)
                continue
            for count in counts:
                if count >= parallel:
                    with bench.target_folder() as folder:
                        with pool.opened(folder, parallel):
                            cell = _cell(pool, count, counts[-1] // count, bench.seed)
                            stored = pool.stored()
                        with bench.open_target(folder) as target:
                            bench.acknowledged(target, *as_items(stored))
                    cells.setdefault(f"parallel_{parallel}", {})[f"agents_{count}"] = cell
    return cells


def _cell(pool: WorkerPool, count: int, passes: int, seed: int) -> dict[str, Any]:
    from memory.benchmarking.benchmarks.scalability._agent_pools import Measurements

    agents = [f"agent_{number}" for number in range(count)]
    measured = Measurements()
    for number in range(passes):
        if number:
            pool.clean()
        pool.prepare(agents, f"{seed} {number}")
        pool.run_pass(measured)
    times = {
        kind: dict(zip(_PERCENTILES, percentiles(samples, _PERCENTILES.values()), strict=True))
        for kind, samples in measured.milliseconds().items()
    }
    return {
        "operations_per_second": measured.operations / measured.wall_seconds,
        "agents_per_second": count * passes / measured.wall_seconds,
        **times,
        "cpu_percent": measured.cpu_seconds / measured.wall_seconds * 100,
        "rss_mb": measured.rss_bytes / _MB,
    }


def _add_efficiencies(cells: dict[str, Any], counts: Sequence[int], workers: Sequence[int]) -> None:
    """Add the two efficiencies to each cell."""

    def rate(parallel: int, count: int) -> float | None:
        cell = cells.get(f"parallel_{parallel}")
        if not isinstance(cell, dict) or f"agents_{count}" not in cell:
            return None
        return float(cell[f"agents_{count}"]["operations_per_second"])

    for parallel in workers:
        fewest = next((count for count in counts if count >= parallel), None)
        for count in counts:
            own = rate(parallel, count)
            if own is None or fewest is None:
                continue
            cell = cells[f"parallel_{parallel}"][f"agents_{count}"]
            cell["scaling_efficiency"] = own / (rate(parallel, fewest) or own)
            alone = rate(1, count)
            if alone is not None:
                cell["parallel_efficiency"] = own / (alone * min(parallel, available_cores()))
