"""What happens with more agents, more memories and more time."""

from __future__ import annotations

import math
import os
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Acknowledged, Bench, Score, not_available
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.benchmarks._space import disk_growth, ram_growth
from memory.benchmarking.measure.resources import disk_bytes, give_back_free_memory, settled_ram_bytes
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import SHARE, TIMED, Metric, declare
from memory.benchmarking.model.parameters import Count, Names, Positive, Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import Goal, LineChart, ScatterChart, SeriesChart, TimelineChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.texts import MEMORIES, QUERIES, sentences

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks._scalability_agents import WorkerPool
    from memory.benchmarking.measure.open_loop import OpenLoop
    from memory.benchmarking.measure.timeline import Reading

AGENT = "benchmark_agent"
_OTHER_AGENT = "another_agent"
_MB = 1e6

# -- agent_scaling --------------------------------------------------------------------------------

_MAX_PROCESSES_PER_CORE = 4
"""The most processes per core: more would measure the scheduler."""
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
    from memory.benchmarking.benchmarks._scalability_agents import K

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
    from memory.benchmarking.benchmarks._scalability_agents import TURNS, K

    left_out = "R" * bool(bench.no_get()) + "F" * bool(bench.no_search(K))
    return "".join(turn for turn in TURNS if turn not in left_out)


def _drop_mixed(cells: Mapping[str, Any], reason: str) -> None:
    """Replace the figures of all operations together: another mix can't be compared."""
    for by_count in cells.values():
        for cell in by_count.values() if isinstance(by_count, dict) else ():
            cell |= dict.fromkeys(("operations_per_second", "agents_per_second"), not_available(reason))


def _by_threads(bench: Bench, counts: Sequence[int], workers: Sequence[int]) -> dict[str, Any]:
    from memory.benchmarking.benchmarks._scalability_agents import ThreadPool

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
                    bench.acknowledged(target, *_as_items(pool.stored()))
                cells.setdefault(f"parallel_{parallel}", {})[f"agents_{count}"] = cell
    return cells


def _by_processes(
    bench: Bench, counts: Sequence[int], workers: Sequence[int]
) -> dict[str, Any] | NotAvailable:
    from memory.benchmarking.benchmarks._scalability_agents import ProcessPool

    if not (bench.capabilities.processes and bench.capabilities.persistence):
        return not_available(f"{bench.system} can't be shared by processes")
    most = _MAX_PROCESSES_PER_CORE * _cores()
    fitting = [parallel for parallel in workers if parallel <= min(most, counts[-1])]
    cells: dict[str, Any] = {}
    with ProcessPool(bench.target_name, max(fitting, default=0), _turns(bench)) as pool:
        for parallel in workers:
            if parallel > most:
                reason = f"{parallel} processes are too many for {_cores()} cores"
                cells[f"parallel_{parallel}"] = not_available(reason)
                continue
            for count in counts:
                if count >= parallel:
                    with bench.target_folder() as folder:
                        with pool.opened(folder, parallel):
                            cell = _cell(pool, count, counts[-1] // count, bench.seed)
                            stored = pool.stored()
                        with bench.open_target(folder) as target:
                            bench.acknowledged(target, *_as_items(stored))
                    cells.setdefault(f"parallel_{parallel}", {})[f"agents_{count}"] = cell
    return cells


def _as_items(stored: Iterable[tuple[str, str, str]]) -> tuple[list[str], list[Item]]:
    """Return ids and items of what a pool stored: agent, id and content."""
    memories = list(stored)
    return [id_ for _, id_, _ in memories], [Item(agent, content) for agent, _, content in memories]


def _cell(pool: WorkerPool, count: int, passes: int, seed: int) -> dict[str, Any]:
    from memory.benchmarking.benchmarks._scalability_agents import Measurements

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
                cell["parallel_efficiency"] = own / (alone * min(parallel, _cores()))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


# -- memory_size_scaling --------------------------------------------------------------------------

_TIER_SHARES = {"stm": 0.1, "im": 0.3, "ltm": 0.6}
_BATCH = 2000
_QUERIES = 20
_STORES = 100
"""How many of the memories that a size adds are stored one by one."""
_READS = 500
_K = 10
_BYTES = Metric("B", "lower")


@declare(
    headline="size_*/text_search/p50_ms",
    write_figures="*/store/*",
    search_figures="*/first_search/*|*/text_search/*",
    vector_figures="*/vector_search/*|*/recall_at_10|*/tiers/*|*/cross_tier_to_slowest_tier",
    rounds=3,
    reports=[*TIMED, "growth_exponent"],
    disk_bytes_per_memory=_BYTES,
    rss_bytes_per_memory=_BYTES,
    empty_store_bytes=_BYTES,
    recall_at_10=SHARE,
    cross_tier_to_slowest_tier=Metric("×", "lower"),
    profiles={"quick": {"data_volumes": [100, 500]}, "standard": {"data_volumes": [1000, 10000]}},
    expected_seconds={"quick": 0.8, "standard": 3.5, "full": 900.0},
    charts=[
        LineChart(
            "Time of an operation, by number of memories",
            "p50_ms",
            "size",
            x_label="memories",
            lines=["tier", "part"],
            without="tiers|first_search",
            fit=True,
        ),
        LineChart(
            "Space that one memory takes",
            ["disk_bytes_per_memory", "rss_bytes_per_memory"],
            "size",
            x_label="memories",
            label="space per memory",
        ),
    ],
)
def benchmark_memory_size_scaling(
    data_volumes: Sizes = (1000, 10000, 100000, 1000000),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How storing, reading and searching slow down, and how much space is needed, with more memories.

    Read `growth_exponent` as: with ten times the memories it takes 10^exponent times as long; 0 means no
    slower, 1 means ten times. One store grows from size to size, with 10 % in stm, 30 % in im and 60 % in
    ltm where there are tiers. At each size it is closed and opened again; `first_search` is the first
    search after that. `text_search` and `vector_search` search everything, `tiers` one tier each.
    `recall_at_10` compares the answers of `vector_search` with a search over all uncompressed vectors.
    `text_search` includes embedding the question, `vector_search` does not. `rss_bytes_per_memory` is by
    how much the resident memory of the process and its children grew since the store was empty; growth
    below 3 MB is n/a. `disk_bytes_per_memory` is without the empty store (`empty_store_bytes`).

    Args:
        data_volumes: how many memories the agent has
    """
    from memory.benchmarking.benchmarks._exact_answers import ExactAnswers

    bench = bench or Bench()
    volumes = sorted(set(data_volumes))
    capabilities = bench.capabilities
    questions = list(islice(sentences(QUERIES, bench.seed + 1), _QUERIES))
    exact = ExactAnswers(questions, _K, bench.embedder)
    known = _Sample(_READS, bench.seed)
    written = Acknowledged(bench.seed)
    texts = _texts(bench.seed)
    found: dict[str, Any] = {}
    held = 0
    with bench.folder() as folder, ExitStack() as opened:
        target = opened.enter_context(bench.open_target(folder))
        _load_embedder(target)
        empty_files = 0
        if capabilities.persistence:
            opened.close()
            empty_files = disk_bytes(folder)
            target = opened.enter_context(bench.open_target(folder))
            _load_embedder(target)
        empty = settled_ram_bytes()
        for volume in volumes:
            singles = min(_STORES, math.ceil((volume - held) * _TIER_SHARES["stm"]))
            for place, count in _shares(volume - held, singles, capabilities.places).items():
                for items in _batches(texts, count):
                    ids = target.add(items, place)
                    known.add(ids)
                    written.take(target, ids, items)
                    exact.add(items)
            items = [Item(AGENT, next(texts)) for _ in range(singles)]
            timing, ids = _store(bench, target, items, f"store at {volume:,}")
            cell: dict[str, Any] = {"store": timing}
            known.add(ids)
            written.take(target, ids, items)
            exact.add(items)
            held = volume
            target.flush()
            if capabilities.persistence:
                opened.close()
                grown = disk_bytes(folder) - empty_files
                cell["disk_bytes_per_memory"] = disk_growth(bench, grown, volume)
                target = opened.enter_context(bench.open_target(folder))
                _load_embedder(target)
                written.check(target, "after the store was closed and opened again")
            else:
                cell["disk_bytes_per_memory"] = disk_growth(bench, 0, volume)
                written.check(target)
            cell |= _times(bench, target, questions, exact, known.ids, volume)
            cell["rss_bytes_per_memory"] = ram_growth(bench, settled_ram_bytes() - empty, volume)
            found[f"size_{volume}"] = cell
    return found | {"empty_store_bytes": empty_files, "growth": _growths(found, volumes)}


class _Sample:
    """A uniform random sample of all stored ids (Vitter's algorithm R), shuffled."""

    def __init__(self, most: int, seed: int) -> None:
        self._most = most
        self._rng = random.Random(seed)
        self._seen = 0
        self.ids: list[str] = []

    def add(self, ids: Sequence[str]) -> None:
        for id_ in ids:
            self._seen += 1
            place = self._rng.randrange(self._seen)
            if len(self.ids) < self._most:
                self.ids.insert(place, id_)
            elif place < self._most:
                self.ids[place] = id_


def _texts(seed: int) -> Iterator[str]:
    """Yield sentences without end, in several streams: one stream would keep all of them in RAM."""
    while True:
        yield from islice(sentences(MEMORIES, seed), _BATCH)
        seed += 1_000_003


def _shares(added: int, singles: int, places: Sequence[str]) -> dict[str, int]:
    """Return how many memories each tier gets in batches, besides those stored one by one."""
    if set(places) != set(_TIER_SHARES):
        return {place: (added - singles) // len(places) for place in places[1:]} | {
            places[0]: (added - singles) - (len(places) - 1) * ((added - singles) // len(places))
        }
    counts = {place: int(added * share) for place, share in _TIER_SHARES.items()}
    counts["stm"] = added - counts["im"] - counts["ltm"] - singles
    return counts


def _batches(texts: Iterator[str], count: int) -> Iterator[list[Item]]:
    for start in range(0, count, _BATCH):
        yield [Item(AGENT, text) for text in islice(texts, min(_BATCH, count - start))]


def _store(bench: Bench, target: Target, items: Sequence[Item], label: str) -> tuple[Timing, list[str]]:
    ids: list[str] = []
    timing = bench.time(
        lambda item: ids.append(target.add_one(item)), items, calls=len(items), warm_up=0, label=label
    )
    return timing, ids


def _load_embedder(target: Target) -> None:
    """Load the embedder, so that its RAM is not counted as RAM of the memories."""
    target.add_one(Item(_OTHER_AGENT, "to load the embedder"))
    if target.capabilities.search:
        target.search(_OTHER_AGENT, "the embedder", 1)
    target.delete_all(_OTHER_AGENT)


def _times(
    bench: Bench, target: Target, questions: Sequence[str], exact: Any, reads: Sequence[str], volume: int
) -> dict[str, Any]:
    """Time reading and searching at one size."""
    capabilities = target.capabilities
    found: dict[str, Any] = {}
    if reason := bench.no_get():
        found["read"] = not_available(reason)
    else:
        found["read"] = bench.time(
            lambda id_: target.get_one(AGENT, id_), reads, calls=len(reads), label=f"read at {volume:,}"
        )
    if reason := bench.no_search(_K):
        return found | _without(reason, "first_search", "text_search", *_BY_VECTOR)
    found["first_search"] = bench.time(
        lambda: target.search(AGENT, questions[0], _K), calls=1, warm_up=0, label=f"first at {volume:,}"
    )
    found["text_search"] = bench.time(
        lambda text: target.search(AGENT, text, _K), questions, label=f"text search at {volume:,}"
    )
    if reason := bench.no_vector_search(_K):
        return found | _without(reason, *_BY_VECTOR)
    vectors = list(exact.queries)
    found["vector_search"] = bench.time(
        lambda vector: target.search_vector(AGENT, vector, _K),
        vectors,
        label=f"vector search at {volume:,}",
    )
    if capabilities.exact:
        answers = [target.search_vector(AGENT, vector, _K) for vector in vectors]
        found["recall_at_10"] = exact.recall(answers)
    else:
        reason = f"{target.name} rewrites contents: its answers can't be compared with the exact ones"
        found["recall_at_10"] = not_available(reason)
    if not capabilities.tiers:
        return found | _without(f"{target.name} has no tiers", "cross_tier_to_slowest_tier")
    found["tiers"] = {
        tier: bench.time(
            lambda vector, tier=tier: target.search_vector(AGENT, vector, _K, tier),
            vectors,
            label=f"{tier} search at {volume:,}",
        )
        for tier in capabilities.tiers
    }
    slowest = max(timing["p50_ms"] for timing in found["tiers"].values())
    return found | {"cross_tier_to_slowest_tier": found["vector_search"]["p50_ms"] / slowest}


_BY_VECTOR = ("vector_search", "recall_at_10", "cross_tier_to_slowest_tier")


def _without(reason: str, *names: str) -> dict[str, NotAvailable]:
    return dict.fromkeys(names, not_available(reason))


def _growths(found: Mapping[str, Any], volumes: Sequence[int]) -> dict[str, Any]:
    """Return how each median grows over the sizes, as a figure and as a sentence."""
    grown: dict[str, Any] = {}
    for what in ("store", "read", "text_search", "vector_search"):
        timings = {volume: found[f"size_{volume}"][what] for volume in volumes}
        if any(isinstance(timing, NotAvailable) for timing in timings.values()):
            continue
        costs = {float(volume): timing["p50_ms"] for volume, timing in timings.items()}
        leaves = growth_leaves(f"{what.replace('_', ' ')} p50", costs)
        if leaves:
            grown[what] = leaves
    return grown


# -- writers --------------------------------------------------------------------------------------


@declare(
    headline="processes_*/worst_wait_ms|processes_*/operations_per_second",
    write_figures="*",
    reports=["operations_per_second", "p50_ms", "p99_ms"],
    worst_wait_ms=Metric("ms", "lower"),
    profiles={
        "quick": {"process_counts": [2], "writes": 100},
        "standard": {"process_counts": [1, 4], "writes": 400},
    },
    expected_seconds={"quick": 1.5, "standard": 4.0, "full": 25.0},
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
    from memory.benchmarking.benchmarks._scalability_writers import measure_writers

    most = _MAX_PROCESSES_PER_CORE * _cores()
    return measure_writers(bench or Bench(), sorted(set(process_counts)), writes, most)


# -- resource_utilization -------------------------------------------------------------------------

_LIVE = 500
"""Memories in the store: every store operation has a matching delete."""
_MIX = ("store", "store", "delete", "delete", "read", "read", "read", "read", "search", "search")
_WORKERS = 4
_MAX_WAIT_SECONDS = 1.0
"""An operation that waits longer is dropped."""
_WARM_UP_OPERATIONS = 150_000
"""Operations before the readings count for a leak. The memory's caches are full after 40,000 of them, and
Python's allocations hardly grow after that. But live objects spread over the pages of all malloc arenas. So
resident memory rose for about 60,000 operations with one arena, and for up to 150,000 with those of four
threads; then it stayed level up to operation 700,000."""
_MIN_LEAK_OPERATIONS = 2 * _WARM_UP_OPERATIONS
"""Operations that a run needs before it can measure a leak."""
_MAX_UNDONE_SHARE = 0.001
"""The largest share of arrivals that may be dropped or fail. A store operation whose delete is dropped
leaves a memory: when 100,000 of 120,000 arrivals were dropped, the 500 memories became 406 or 609."""
_READINGS = 300
_SHORTEST_INTERVAL = 0.005
_NOTHING_DROPPED = "No operation failed or was dropped."


@declare(
    headline="latency/all/p99_ms",
    write_figures="latency/all/*|latency/store/*",
    search_figures="latency/all/*|latency/search/*",
    reports=[
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "achieved_rate_per_second",
        "drop_rate",
        "error_rate",
        "generator_late_p50_ms",
        "generator_late_p99_ms",
        "cpu_percent",
        "rss_mb",
    ],
    leak_bytes_per_operation=Metric("B", "lower"),
    achieved_to_offered=Metric("", "higher"),
    arrivals=Metric("", "neither"),
    dropped=Metric("", "lower"),
    operations=Metric("", "neither"),
    profiles={
        "quick": {"duration_seconds": 0.5, "operation_rate": 200.0},
        "standard": {"duration_seconds": 3.0, "operation_rate": 200.0},
    },
    rounds={"full": 2},
    expected_seconds={"quick": 0.7, "standard": 3.3, "full": 706.0},
    goals={
        "error_rate": Goal(0.0, reached=_NOTHING_DROPPED),
        "drop_rate": Goal(0.0, reached=_NOTHING_DROPPED),
        "leak_bytes_per_operation": Goal(
            0.0,
            missed="the process grew by {figure} per operation ({interval}): it may leak",
            whole_interval=True,
        ),
    },
    charts=[
        SeriesChart(
            "Latency from the intended start",
            pattern=r"p(\d+)_ms",
            x_label="share of operations",
            label="latency",
            lines=["part1", "tier"],
            only="latency*",
            percentiles=True,
            note="Includes the time in the queue.",
        ),
        TimelineChart("RAM over time", leaf="timeline", field="rss_mb", label="RSS", unit="MB"),
        TimelineChart(
            "CPU over time", leaf="timeline", field="cpu_percent", label="CPU", unit="%", from_zero=True
        ),
    ],
)
def benchmark_resource_utilization(
    duration_seconds: Positive = 700.0,
    operation_rate: Positive = 1430.0,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long callers wait, and what the process uses, when operations arrive at a steady rate.

    Read `latency/all/p99_ms` as the time that a caller waits in one of a hundred cases. It counts from the
    intended start, so a stall delays every operation that arrives during it. Arrivals are independent (a
    Poisson process), and 4 threads serve them where threads can share the target. Operations that wait
    longer than a second are dropped. Of ten operations two store, two delete, four read and two search. So
    there are always about 500 memories, and resident memory should not grow. `leak_bytes_per_operation` is
    its slope; without a leak the interval contains 0. The first 150,000 operations do not count for it,
    because caches fill. It needs 300,000 operations with hardly any dropped, so that the number of memories
    stays the same. Before each reading the allocator returns its free pages. `generator_late_*` is how late
    the benchmark itself started operations. A search includes embedding its question. RAM and CPU are those
    of the process and its children. `latency/all` is n/a where the target can't do all four operations.

    Args:
        duration_seconds: how long operations arrive
        operation_rate: how many operations arrive per second, on average
    """
    from memory.benchmarking.measure.arrivals import poisson_starts
    from memory.benchmarking.measure.open_loop import Progress, run_open_loop
    from memory.benchmarking.measure.timeline import Timeline

    bench = bench or Bench()
    capabilities = bench.capabilities
    starts = poisson_starts(operation_rate, duration_seconds, bench.seed)
    no_read, no_search = bench.no_get(), bench.no_search(_K)
    kinds = _mixed(len(starts), {"read": no_read, "search": no_search}, bench.seed)
    progress = Progress()
    every = min(max(duration_seconds / _READINGS, _SHORTEST_INTERVAL), 1.0)
    with bench.target() as target:
        operation = _Operations(bench, target, kinds)
        before = give_back_free_memory if len(starts) >= _MIN_LEAK_OPERATIONS else None
        with Timeline(every, lambda: progress.done, before) as timeline:
            loop = run_open_loop(
                operation,
                starts,
                kinds,
                workers=_WORKERS if capabilities.threads else 1,
                max_wait_seconds=_MAX_WAIT_SECONDS,
                progress=progress,
            )
        operation.note_what_is_left()
    if not loop.done:
        raise AssertionError(f"no operation of {loop.arrivals} was done") from loop.problem
    readings = timeline.readings
    late = loop.lateness
    return {
        "arrivals": loop.arrivals,
        "operations": loop.done,
        "dropped": loop.dropped,
        "drop_rate": loop.dropped / loop.arrivals,
        "error_rate": loop.failed / loop.arrivals,
        "achieved_rate_per_second": loop.done / loop.seconds,
        "achieved_to_offered": loop.done / loop.arrivals,
        "latency": {
            "all": not_available(no_read or no_search)
            if no_read or no_search
            else loop.all_latencies.figures(),
            **{kind: latencies.figures() for kind, latencies in loop.latencies.items()},
        },
        "generator_late_p50_ms": late.percentile_ms(50) if late.count else 0.0,
        "generator_late_p99_ms": late.percentile_ms(99) if late.count else 0.0,
        "cpu_percent": readings[-1].cpu_seconds / readings[-1].seconds * 100,
        "rss_mb": readings[-1].rss_bytes / _MB,
        "leak_bytes_per_operation": _leak(loop, readings),
        "timeline": [
            {
                "seconds": round(each.seconds, 3),
                "operations": each.done,
                "rss_mb": round(each.rss_bytes / _MB, 3),
                "cpu_percent": round(cpu, 1),
            }
            for each, cpu in zip(readings[1:], timeline.cpu_percents(), strict=True)
        ],
    }


def _leak(loop: OpenLoop, readings: Sequence[Reading]) -> Score | NotAvailable:
    """Return by how much resident memory rises per operation, after the caches are full."""
    from memory.benchmarking.measure.trend import trend

    steady = [each for each in readings if each.done >= _WARM_UP_OPERATIONS]
    slope = trend([each.done for each in steady], [each.rss_bytes for each in steady], warm_up_share=0)
    if loop.done < _MIN_LEAK_OPERATIONS or slope is None:
        return not_available(
            f"{loop.done} operations are too few to tell a leak from filling caches: raise operation_rate"
            f" or duration_seconds until there are {_MIN_LEAK_OPERATIONS:,}"
        )
    undone = loop.dropped + loop.failed
    if undone > _MAX_UNDONE_SHARE * loop.arrivals:
        return not_available(
            f"{undone} of {loop.arrivals} operations were dropped or failed, so the number of memories"
            " did not stay the same: lower operation_rate"
        )
    return Score(slope.value, slope.low, slope.high)


def _mixed(count: int, impossible: Mapping[str, str], seed: int) -> list[str]:
    """Return the kinds of operations, shuffled in groups of ten so that the store keeps its size.

    `impossible` has the reason for each kind that the target can't do; empty if it can.
    """
    rng = random.Random(f"mix {seed}")
    mix = [kind for kind in _MIX if not impossible.get(kind)]
    kinds: list[str] = []
    while len(kinds) < count:
        kinds += rng.sample(mix, len(mix))
    return kinds[:count]


class _Operations:
    """The operation of each arrival, prepared in advance so that only the target is measured."""

    def __init__(self, bench: Bench, target: Target, kinds: Sequence[str]) -> None:
        rng = random.Random(f"operations {bench.seed}")
        texts = _texts(bench.seed)
        questions = list(islice(sentences(QUERIES, bench.seed + 1), 200))
        self._bench, self._target = bench, target
        items = [Item(AGENT, next(texts)) for _ in range(_LIVE)]
        self._live = deque(zip(target.add(items), items, strict=True))
        target.flush()
        if not bench.no_search(_K):
            target.search(AGENT, questions[0], _K)
        if not bench.no_get():
            target.get_one(AGENT, self._live[0][0])
        # Reads take the newer half, because deletes take the oldest memories.
        draw: dict[str, Callable[[], Any]] = {
            "store": lambda: next(texts),
            "delete": lambda: None,
            "read": lambda: -1 - rng.randrange(_LIVE // 2),
            "search": lambda: rng.choice(questions),
        }
        self._kinds = kinds
        self._arguments = [draw[kind]() for kind in kinds]

    def __call__(self, number: int) -> None:
        kind, argument = self._kinds[number], self._arguments[number]
        if kind == "store":
            item = Item(AGENT, argument)
            self._live.append((self._target.add_one(item), item))
        elif kind == "delete":
            if self._target.delete(AGENT, [self._live.popleft()[0]]) != 1:
                raise AssertionError("a memory that was stored could not be deleted")
        elif kind == "read":
            if self._target.get_one(AGENT, self._live[argument][0]) is None:
                raise AssertionError("a memory that was stored is gone")
        elif not self._target.search(AGENT, argument, _K):
            raise AssertionError("a search found nothing")

    def note_what_is_left(self) -> None:
        """Pass on what must still be in the store: all that was stored and not deleted."""
        ids, items = [id_ for id_, _ in self._live], [item for _, item in self._live]
        self._bench.acknowledged(self._target, ids, items)


# -- saturation -----------------------------------------------------------------------------------


@declare(
    headline="*/knee_per_second",
    write_figures="*/knee_per_second|*/p50_ms|*/p99_ms|*/p999_ms|*/max_ms",
    search_figures="*/knee_per_second|*/p50_ms|*/p99_ms|*/p999_ms|*/max_ms",
    reports=[
        "knee_per_second",
        "closed_loop_per_second",
        "achieved_per_second",
        "p50_ms",
        "p99_ms",
        "p999_ms",
        "max_ms",
        "drop_rate",
        "error_rate",
        "generator_late_p99_ms",
        "generator_cpu_percent",
    ],
    offered_per_second=Metric("/s", "neither"),
    generator_cpu_percent=Metric("%", "neither"),
    cpu_seconds_per_operation=Metric("s", "lower"),
    written_bytes_per_operation=Metric("B", "lower"),
    profiles={
        "quick": {"seconds": 4.0, "clients": ["1x1"], "agents": 4, "memories": 50},
        "standard": {"seconds": 40.0, "clients": ["1x1"]},
    },
    rounds={"quick": 1, "standard": 1, "full": 3},
    expected_seconds={"quick": 5.0, "standard": 42.0, "full": 190.0},
    charts=[
        ScatterChart(
            "Latency over load",
            "offered_per_second",
            "p99_ms",
            "operations offered",
            ["processes", "threads"],
            label="p99 latency",
            joined=True,
            note="Points at 25, 50, 75, 100 and 120 % of the knee. Lower and further right is better.",
        ),
    ],
)
def benchmark_saturation(
    mix: str = "chat",
    clients: Names = ("1x1", "1x4", "2x1"),
    limit_ms: Positive = 10.0,
    seconds: Positive = 60.0,
    agents: Count = 20,
    memories: Count = 200,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How much load the target bears: the highest rate at which 99 % of the operations meet a limit.

    Read `knee_per_second` as the rate up to which callers wait less than `limit_ms` in 99 of 100 cases, and
    nothing is dropped or fails. Operations arrive at random times, whether or not earlier ones are done.
    Latencies count from the intended start. The search begins near the rate of callers that never wait.
    Each probe sends up to 3,000 operations at one rate, and passes or fails. The interval holds the knee
    with a probability of 95 %, by all probes. `confirmed` says whether a last probe at its lower bound
    passed. Then the latencies at 25, 50, 75, 100 and 120 % of the knee are measured. Every probe starts
    with the same memories: what the last one added is deleted. CPU and written bytes are those of the
    clients and of servers that they started. `gave_way_first` is what an overloaded probe lacked: cpu,
    disk, lock (operations waited, but not for CPU or disk), or generator. A failed probe does not count if
    the generator itself was late by more than a tenth of the limit, or used more than 90 % of a core.

    Args:
        mix: chat, ingest, read-heavy, multi-tenant, or shares as in search=60,add=40 (docs/saturation.md)
        clients: client processes and the threads of each: 2x4 is two processes of four threads
        limit_ms: what 99 % of the latencies should not exceed, in milliseconds
        seconds: about how long the search and the curve of one configuration take together
        agents: how many agents there are
        memories: how many memories each agent has when a probe starts
    """
    from memory.benchmarking.benchmarks import _scalability_saturation as saturation
    from memory.benchmarking.workloads.mixes import mix_of

    bench = bench or Bench()
    load = saturation.Load(mix_of(mix), limit_ms, seconds, agents, memories)
    configurations = saturation.configurations_of(clients, len(bench.generators))
    saturation.check_mix(bench, load.mix)
    found: dict[str, Any] = {}
    for each in configurations:
        by_threads = found.setdefault(f"processes_{each.processes}", {})
        by_threads[f"threads_{each.threads}"] = saturation.saturate(bench, each, load)
    return found
