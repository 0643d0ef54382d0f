"""A steady load: how long callers wait, and what the process uses."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, Score, not_available
from memory.benchmarking.measure.resources import give_back_free_memory
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Positive
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import Goal, SeriesChart, TimelineChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

if TYPE_CHECKING:
    from memory.benchmarking.measure.open_loop import OpenLoop
    from memory.benchmarking.measure.timeline import Reading

AGENT = "benchmark_agent"
_MB = 1e6
_K = 10

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
        texts = memory_texts(bench.seed)
        questions = list(islice(question_texts(bench.seed + 1), 200))
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
