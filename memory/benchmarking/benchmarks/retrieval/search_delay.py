"""How soon a search finds a new memory."""

from __future__ import annotations

import statistics
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.metrics import SHARE, Metric, declare
from memory.benchmarking.model.parameters import Count
from memory.benchmarking.model.presentation import BarChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts

if TYPE_CHECKING:
    pass

AGENT = "benchmark_agent"

_OLDER = 200
"""Memories that are there before the first measured one."""


@declare(
    headline="searchable_after_ms",
    search_figures="*",
    expected_seconds={"quick": 0.3, "standard": 0.6, "full": 0.6},
    rounds=3,
    searchable_after_ms=Metric("ms", "lower"),
    slowest_searchable_after_ms=Metric("ms", "lower"),
    found_at_once_rate=SHARE,
    found_rate=SHARE,
    profiles={"quick": {"memories": 20}},
    charts=[
        BarChart(
            "How long a new memory can't be found",
            metric=["searchable_after_ms", "slowest_searchable_after_ms"],
            names=["metric"],
            label="time until it is found",
            renamed={"searchable after": "median", "slowest searchable after": "slowest"},
        )
    ],
)
def benchmark_search_delay(
    memories: Count = 50, bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """How long after a memory was stored a search by the same thread finds it.

    Read `searchable_after_ms` as the time that an agent has to wait before it can search for what it has
    just stored: the median, 0 where the first search finds it. Each memory is stored alone, and then its
    own text is searched for. If the first search misses it, the time runs from the end of `add` to the end
    of `flush`. Only a target that declares `delayed_search` may miss it; another one fails.
    `found_at_once_rate` is the share that the first search finds, `found_rate` the share that is found at
    all.

    Args:
        memories: how many memories are stored, one after the other
    """
    bench = bench or Bench()
    bench.require(bench.no_search())
    k = min(10, bench.capabilities.max_k or 10)
    texts = list(islice(memory_texts(bench.seed), _OLDER + memories))
    waits: list[float] = []
    at_once = 0
    with bench.target() as target:
        bench.store(target, [Item(AGENT, text) for text in texts[:_OLDER]])
        target.flush()
        target.search(AGENT, texts[0], k)
        for text in texts[_OLDER:]:
            item = Item(AGENT, text)
            id_ = target.add_one(item)
            stored = wall_ns()
            bench.acknowledged(target, [id_], [item])
            if _finds(target, id_, text, k):
                at_once += 1
                waits.append(0.0)
                continue
            target.flush()
            waited = (wall_ns() - stored) / 1e6
            if not _finds(target, id_, text, k):
                continue
            if not target.capabilities.delayed_search:
                raise AssertionError(
                    f"{target.name} found a new memory only after flush: it must declare delayed_search"
                )
            waits.append(waited)
    never = not_available(f"{bench.system} found none of the {memories} memories by its own text")
    return {
        "searchable_after_ms": statistics.median(waits) if waits else never,
        "slowest_searchable_after_ms": max(waits) if waits else never,
        "found_at_once_rate": at_once / memories,
        "found_rate": len(waits) / memories,
    }


def _finds(target: Target, id_: str, text: str, k: int) -> bool:
    return any(hit.id == id_ for hit in target.search(AGENT, text, k))
