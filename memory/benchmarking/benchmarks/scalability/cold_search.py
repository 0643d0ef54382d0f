"""The first search after a store was opened."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.errors import NotSupported
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import LineChart
from memory.benchmarking.targets.base import Item
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

AGENT = "benchmark_agent"
_K = 10
_BATCH = 2000
_TIME = Metric("ms", "lower")


@declare(
    headline="size_*/first_search_ms",
    search_figures="*/first_search_ms|*/worst_first_search_ms|*/second_search_ms|*/first_to_second",
    reports=["growth_exponent"],
    open_ms=_TIME,
    first_search_ms=_TIME,
    worst_first_search_ms=_TIME,
    second_search_ms=_TIME,
    first_to_second=Metric("×", "lower"),
    profiles={
        "quick": {"data_volumes": [200, 1000], "openings": 3},
        "standard": {"data_volumes": [1000, 10000]},
    },
    expected_seconds={"quick": 1.0, "standard": 3.0, "full": 120.0},
    rounds=3,
    charts=[
        LineChart(
            "Time of the first search after opening, by number of memories",
            ["first_search_ms", "second_search_ms", "open_ms"],
            "size",
            x_label="memories",
            label="time",
            fit=True,
            note="A program that was just started waits for opening and for the first search.",
        ),
    ],
)
def benchmark_cold_search(
    data_volumes: Sizes = (1000, 10000, 100000, 1000000),
    openings: Count = 7,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long the first search takes after the store was opened, when nothing is in the target's RAM.

    Read `first_search_ms` as what the user of a program that just started waits for, besides `open_ms`. One
    agent has all memories. After its upkeep (`maintain`) the store is closed. Then it is opened `openings`
    times, by a new object each time. The first search after that and the second one are timed, with
    different questions. The figures are medians; `worst_first_search_ms` is the slowest one.
    `first_to_second` is the ratio of the two medians: 1 means that nothing is loaded at the first search.
    The embedder is loaded before, and the files are in the operating system's cache.

    Args:
        data_volumes: how many memories the agent has
        openings: how often each size is opened
    """
    bench = bench or Bench()
    bench.require(bench.no_search(_K))
    if not bench.capabilities.persistence:
        raise NotSupported(f"{bench.system} keeps nothing after it is closed")
    texts = memory_texts(bench.seed)
    questions = question_texts(bench.seed + 1)
    found: dict[str, Any] = {}
    held = 0
    with bench.target_folder() as folder:
        for volume in sorted(set(data_volumes)):
            _grow(bench, folder, islice(texts, volume - held))
            held = volume
            found[f"size_{volume}"] = _openings(bench, folder, questions, openings)
    costs = {float(name.removeprefix("size_")): cell["first_search_ms"] for name, cell in found.items()}
    return found | growth_leaves("first search p50", costs)


def _grow(bench: Bench, folder: Path, texts: Iterator[str]) -> None:
    """Store more memories, and let the target do its upkeep."""
    with bench.open_target(folder) as target:
        while items := [Item(AGENT, text) for text in islice(texts, _BATCH)]:
            bench.store(target, items)
        target.flush()
        target.maintain()


def _openings(bench: Bench, folder: Path, questions: Iterator[str], count: int) -> dict[str, Any]:
    """Open the store several times; return the times of opening and of the first two searches."""
    times: dict[str, list[float]] = {"open_ms": [], "first_search_ms": [], "second_search_ms": []}
    for _ in range(count):
        first, second = islice(questions, 2)
        begin = wall_ns()
        with bench.open_target(folder) as target:
            times["open_ms"].append((wall_ns() - begin) / 1e6)
            target.embed_texts([first])
            for name, question in (("first_search_ms", first), ("second_search_ms", second)):
                begin = wall_ns()
                hits = target.search(AGENT, question, _K)
                times[name].append((wall_ns() - begin) / 1e6)
                if not hits:
                    raise AssertionError(f"{target.name} found nothing after it was opened again")
    medians = {name: percentiles(values, [0.5])[0] for name, values in times.items()}
    return {
        **medians,
        "worst_first_search_ms": max(times["first_search_ms"]),
        "first_to_second": medians["first_search_ms"] / medians["second_search_ms"],
    }
