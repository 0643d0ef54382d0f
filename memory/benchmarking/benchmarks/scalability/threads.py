"""Threads that search and write the memories of one agent."""

from __future__ import annotations

import random
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import islice
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.measure.resources import ProcessTree
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import LineChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

AGENT = "benchmark_agent"
_K = 10
_ADD_SHARE = 0.25
_PERCENTILES = {"p50_ms": 0.5, "p99_ms": 0.99}


@declare(
    headline="threads_*/to_one_thread|threads_*/operations_per_second",
    write_figures="*/operations_per_second|*/add/*",
    search_figures="*/operations_per_second|*/search/*",
    reports=["operations_per_second", *_PERCENTILES, "cpu_percent"],
    to_one_thread=Metric("×", "higher"),
    worst_wait_ms=Metric("ms", "lower"),
    profiles={
        "quick": {"thread_counts": [1, 4], "memories": 500, "operations": 400, "blocks": 2},
        "standard": {"memories": 8000, "operations": 1000},
    },
    expected_seconds={"quick": 1.8, "standard": 12.0, "full": 40.0},
    charts=[
        LineChart(
            "Operations per second, by number of threads",
            "operations_per_second",
            "threads",
            note="All threads use one agent: three searches for each new memory. Higher is better.",
        ),
        LineChart("The slowest of 100 writes, by number of threads", "p99_ms", "threads", only="*/add"),
    ],
)
def benchmark_threads(
    thread_counts: Sizes = (1, 2, 4, 8),
    memories: Count = 8000,
    operations: Count = 4000,
    blocks: Count = 5,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Whether more threads get more done with one agent: three searches for each memory that they add.

    Read `to_one_thread` as how much more all threads together get done in a second than one thread alone.
    Two cores allow 2 if the target computes outside of Python's global lock (GIL); below 1 the threads
    only hinder each other. All threads use one open store and one agent. They take the operations from one
    list, each as soon as its last one is done. In every block each number of threads does the same
    operations, in random order, and what was added is deleted after it. `to_one_thread` is the median over
    the blocks.

    Args:
        thread_counts: how many threads work at the same time; 1 is always measured
        memories: how many memories the agent has at the start of a block
        operations: operations of one block, all threads together
        blocks: how often each number of threads is measured
    """
    bench = bench or Bench()
    bench.require(bench.no_search(_K))
    counts = sorted({1, *thread_counts})
    found: dict[str, Any] = {}
    if not bench.capabilities.threads:
        reason = f"{bench.system} can't be shared by threads"
        found = {f"threads_{count}": not_available(reason) for count in counts[1:]}
        counts = [1]
    rng = random.Random(bench.seed)
    texts = memory_texts(bench.seed)
    questions = list(islice(question_texts(bench.seed + 1), 500))
    measured: dict[int, list[_Block]] = {count: [] for count in counts}
    with bench.target() as target:
        bench.store(target, [Item(AGENT, text) for text in islice(texts, memories)])
        target.flush()
        for block in range(-1, blocks):  # the first one is a warm-up
            additions = [Item(AGENT, text) for text in islice(texts, round(operations * _ADD_SHARE))]
            asked = rng.choices(questions, k=operations - len(additions))
            planned: list[Item | str] = [*additions, *asked]
            rng.shuffle(planned)
            for count in rng.sample(counts, len(counts)):
                done = _Block(target, planned)
                done.run(count)
                if block >= 0:
                    measured[count].append(done)
    for count, done_blocks in measured.items():
        found[f"threads_{count}"] = _figures(done_blocks, measured[1])
    return dict(sorted(found.items(), key=lambda cell: int(cell[0].removeprefix("threads_"))))


class _Block:
    """One list of operations, done by some threads: what they measured."""

    def __init__(self, target: Target, planned: Sequence[Item | str]) -> None:
        self._target = target
        self._planned = planned
        self._numbers = iter(range(len(planned)))
        self._lock = threading.Lock()
        self._added: list[str] = []
        self._problems: list[BaseException] = []
        self.milliseconds: dict[str, list[float]] = {"add": [], "search": []}
        self.seconds = 0.0
        self.cpu_seconds = 0.0

    def run(self, count: int) -> None:
        """Do all operations with `count` threads, then delete what they added."""
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(count)]
        processes = ProcessTree()
        cpu, begin = processes.cpu_seconds(), time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.seconds = time.perf_counter() - begin
        self.cpu_seconds = processes.cpu_seconds() - cpu
        if self._problems:
            raise self._problems[0]
        additions = sum(isinstance(operation, Item) for operation in self._planned)
        deleted = self._target.delete(AGENT, self._added)
        if not deleted == len(set(self._added)) == additions:
            raise AssertionError(
                f"{self._target.name} acknowledged {len(set(self._added))} of {additions} memories of "
                f"threads, and deleted {deleted} of them"
            )

    @property
    def rate(self) -> float:
        return len(self._planned) / self.seconds

    def _work(self) -> None:
        times: dict[str, list[float]] = {"add": [], "search": []}
        added: list[str] = []
        may_miss = self._target.capabilities.delayed_search
        try:
            while not self._problems:
                with self._lock:
                    number = next(self._numbers, None)
                if number is None:
                    break
                operation = self._planned[number]
                begin = wall_ns()
                if isinstance(operation, Item):
                    added.append(self._target.add_one(operation))
                    times["add"].append((wall_ns() - begin) / 1e6)
                else:
                    hits = self._target.search(AGENT, operation, _K)
                    times["search"].append((wall_ns() - begin) / 1e6)
                    if not hits and not may_miss:
                        raise AssertionError(f"{self._target.name} found nothing")
        except BaseException as problem:
            self._problems.append(problem)
        with self._lock:
            self._added += added
            for kind, values in times.items():
                self.milliseconds[kind] += values


def _figures(blocks: Sequence[_Block], alone: Sequence[_Block]) -> dict[str, Any]:
    cpu, seconds = (sum(getattr(each, name) for each in blocks) for name in ("cpu_seconds", "seconds"))
    found: dict[str, Any] = {
        "operations_per_second": statistics.median(block.rate for block in blocks),
        "to_one_thread": statistics.median(
            block.rate / one.rate for block, one in zip(blocks, alone, strict=True)
        ),
        "cpu_percent": 100 * cpu / seconds,
    }
    for kind in ("add", "search"):
        times = [value for block in blocks for value in block.milliseconds[kind]]
        if times:
            found[kind] = dict(zip(_PERCENTILES, percentiles(times, _PERCENTILES.values()), strict=True))
            found[kind]["worst_wait_ms"] = max(times)
    return found
