"""Thousands of agents with a few memories each, in one store."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.measure.resources import ProcessTree, give_back_free_memory
from memory.benchmarking.measure.statistics import percentiles
from memory.benchmarking.measure.timing import wall_ns
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import BarChart, LineChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

_K = 5
_BATCH = 1000
_MOST_SEARCHED = 500
"""How many agents are searched, each for the first time."""
_WARM_UP = (100, 20)
"""Agents of the warm-up, and the memories of each."""
_ORDERS = ("agent_by_agent", "in_turn")
_PERCENTILES = {"p50_ms": 0.5, "p95_ms": 0.95}
_MB = 1e6


@declare(
    headline="in_turn/agents_*/cold_search/p50_ms|in_turn/agents_*/imported_per_second",
    write_figures="*/imported_per_second|*/written_bytes_per_memory",
    search_figures="*/cold_search/*|*/warm_search/*",
    reports=["imported_per_second", *_PERCENTILES],
    import_rss_growth_mb=Metric("MB", "lower"),
    written_bytes_per_memory=Metric("B", "lower"),
    profiles={
        "quick": {"agent_counts": [50], "memories": 20},
        "standard": {"agent_counts": [100, 1000], "memories": 20},
    },
    expected_seconds={"quick": 1.0, "standard": 10.0, "full": 330.0},
    rounds={"quick": 2, "standard": 2, "full": 1},
    charts=[
        LineChart(
            "The first search of an agent, by number of agents in the store",
            "p50_ms",
            "agents",
            lines=["part0"],
            only="*/cold_search",
        ),
        BarChart(
            "Growth of resident memory during the import",
            metric=["import_rss_growth_mb"],
            names=["part0", "agents"],
            label="growth",
        ),
    ],
)
def benchmark_many_agents(
    agent_counts: Sizes = (1000, 10000),
    memories: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """What many agents in one store cost: the import, the RAM that it takes, and an agent's first search.

    Read `cold_search/p50_ms` as what an agent waits for that was not used for a long time. All memories are
    imported in batches of 1,000: one agent after the other (`agent_by_agent`), or one memory of each agent
    in turn (`in_turn`), so that every batch has many agents. `import_rss_growth_mb` is by how much the
    resident memory of the process and its children grew at most during the import. Then the store gets its
    upkeep and is opened again, if it can be. Up to 500 agents are searched, each once: `cold_search`. All
    of them are searched once more: `warm_search`. `written_bytes_per_memory` is what the processes wrote to
    disk during the import. A search includes embedding its question.

    Args:
        agent_counts: how many agents there are
        memories: how many memories each agent has
    """
    bench = bench or Bench()
    found: dict[str, Any] = {}
    with bench.target_folder() as folder:  # the first import of a process also loads code and fills caches
        _measure(bench, folder, *_WARM_UP, _ORDERS[0])
    for order in _ORDERS:
        for count in sorted(set(agent_counts)):
            with bench.target_folder() as folder:
                cell = _measure(bench, folder, count, memories, order)
            found.setdefault(order, {})[f"agents_{count}"] = cell
    return found


def _measure(bench: Bench, folder: Path, agents: int, memories: int, order: str) -> dict[str, Any]:
    with bench.open_target(folder) as target:
        cell = _import(bench, target, agents, memories, order)
        target.flush()
        target.maintain()
        if not bench.capabilities.persistence:
            return cell | _searches(bench, target, agents)
    with bench.open_target(folder) as target:
        return cell | _searches(bench, target, agents)


def _agents_of(agents: int, memories: int, order: str) -> Iterator[str]:
    """Yield the agent of each memory, in the order of the import."""
    if order == "in_turn":
        return (f"agent_{number}" for _ in range(memories) for number in range(agents))
    return (f"agent_{number}" for number in range(agents) for _ in range(memories))


def _import(bench: Bench, target: Target, agents: int, memories: int, order: str) -> dict[str, Any]:
    """Store all memories; only the calls of the target are timed."""
    target.embed_texts(["to load the embedder"])
    texts = memory_texts(bench.seed)
    owners = _agents_of(agents, memories, order)
    processes = ProcessTree()
    give_back_free_memory()
    before, written = processes.rss_bytes(), processes.written_bytes()
    most, nanoseconds = before, 0
    while names := list(islice(owners, _BATCH)):
        items = [Item(name, next(texts)) for name in names]
        begin = wall_ns()
        ids = target.add(items)
        nanoseconds += wall_ns() - begin
        bench.acknowledged(target, ids, items)
        most = max(most, processes.rss_bytes())
    after = processes.written_bytes()
    count = agents * memories
    return {
        "imported_per_second": count / (nanoseconds / 1e9),
        "import_rss_growth_mb": (most - before) / _MB,
        "written_bytes_per_memory": not_available("this system does not show written bytes")
        if written is None or after is None
        else (after - written) / count,
    }


def _searches(bench: Bench, target: Target, agents: int) -> dict[str, Any]:
    """Search agents in random order, each once, and then all of them once more."""
    if reason := bench.no_search(_K):
        return dict.fromkeys(("cold_search", "warm_search"), not_available(reason))
    chosen = random.Random(bench.seed).sample(range(agents), min(agents, _MOST_SEARCHED))
    questions = list(islice(question_texts(bench.seed + 1), len(chosen)))
    target.embed_texts(questions[:1])
    return {
        name: _times(target, [f"agent_{number}" for number in chosen], questions)
        for name in ("cold_search", "warm_search")
    }


def _times(target: Target, agents: Sequence[str], questions: Sequence[str]) -> dict[str, float]:
    times = []
    for agent, question in zip(agents, questions, strict=True):
        begin = wall_ns()
        hits = target.search(agent, question, _K)
        times.append((wall_ns() - begin) / 1e6)
        if not hits:
            raise AssertionError(f"{target.name} found nothing for {agent}")
    return dict(zip(_PERCENTILES, percentiles(times, _PERCENTILES.values()), strict=True))
