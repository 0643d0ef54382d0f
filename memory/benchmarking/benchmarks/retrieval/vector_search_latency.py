"""The time of a search by vector, in each tier and over all tiers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import TIMED, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import LineChart, PercentileChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


@declare(
    headline="all/size_*/p50_ms",
    vector_figures="*",
    expected_seconds={"quick": 0.8, "standard": 6.0, "full": 40.0},
    reports=[*TIMED, "growth_exponent"],
    profiles={
        "quick": {"data_volumes": [100, 500], "queries": 20},
        "standard": {"data_volumes": [100, 1000, 10000]},
    },
    charts=[
        LineChart(
            "Time of a vector search, by number of memories",
            "p50_ms",
            "size",
            x_label="memories",
            lines=["tier", "part"],
            fit=True,
        ),
        PercentileChart("Time of a vector search, with the most memories", largest="size"),
    ],
)
def benchmark_vector_search_latency(
    data_volumes: Sizes = (100, 1000, 10000, 100000),
    k: Count = 10,
    queries: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long it takes to find the memories nearest to a vector, in each tier and over all tiers.

    Read it as the time that a similarity search adds to an agent's step. Embedding the question is not
    timed, for any target: all get the same ready-made vectors. `growth_exponent` is how the time grows: 1.0
    means ten times slower with ten times as many memories, 0 means no slower. `all` searches as many
    memories as the size says, whatever the target. Where there are tiers, they are spread evenly over them,
    and `stm`, `im` and `ltm` search one tier that holds them all.

    Args:
        data_volumes: how many memories are searched
        k: how many answers each search requests
        queries: how many different questions there are
    """
    bench = bench or Bench()
    bench.require(bench.no_vector_search(k))
    texts = list(islice(memory_texts(bench.seed), max(data_volumes)))
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    questions = list(islice(question_texts(bench.seed + 1), queries))
    vectors = list(embedded(questions, bench.embedder))
    places, tiers = bench.capabilities.places, bench.capabilities.tiers
    found: dict[str, Any] = {place: {} for place in (*tiers, "all")}
    with bench.target() as target:
        for volume in sorted(data_volumes):
            size, agent = f"size_{volume}", f"agent_with_{volume}"
            for number, place in enumerate(places):
                part = texts[number : volume : len(places)]
                bench.store(target, [Item(agent, text) for text in part], place)
            for tier in tiers:
                items = [Item(f"{agent}_in_{tier}", text) for text in texts[:volume]]
                bench.store(target, items, tier)
            target.flush()
            found["all"][size] = _search_times(bench, target, agent, vectors, k, None)
            for tier in tiers:
                found[tier][size] = _search_times(bench, target, f"{agent}_in_{tier}", vectors, k, tier)
    for place, by_size in found.items():
        costs = {float(size.removeprefix("size_")): timing["p50_ms"] for size, timing in by_size.items()}
        by_size.update(growth_leaves(f"{place} search p50", costs))
    return found


def _search_times(
    bench: Bench,
    target: Target,
    agent: str,
    vectors: Sequence[NDArray[np.float32]],
    k: int,
    place: str | None,
) -> Timing:
    hits = target.search_vector(agent, vectors[0], k, place)
    if not hits:
        raise AssertionError(f"{target.name} found nothing in {place or 'all tiers'}")
    return bench.time(
        lambda vector: target.search_vector(agent, vector, k, place),
        vectors,
        label=f"{place or 'all'}, {agent}",
    )
