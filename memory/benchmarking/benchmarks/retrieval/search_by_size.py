"""Time and recall of a search, by number of memories and by setting of the search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.metrics import TIMED, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import LineChart

if TYPE_CHECKING:
    pass


_BY_SIZE: dict[str, Any] = {
    "headline": "text/size_*/p50_ms",
    "search_figures": "text/*",
    "vector_figures": "vector/*",
    "reports": [*TIMED, "recall"],
    "charts": [
        LineChart(
            "Time of a search, by number of memories",
            "p50_ms",
            "size",
            x_label="memories",
            lines=["part"],
            only="text|vector/default/search",
        )
    ],
}


@declare(
    **_BY_SIZE,
    expected_seconds={"quick": 1.0, "standard": 15.0, "full": 120.0},
    rounds={"quick": 2, "standard": 3, "full": 3},
    profiles={
        "quick": {"data_volumes": [1000, 3000], "queries": 20},
        "standard": {"data_volumes": [1000, 10000]},
    },
)
def benchmark_search_by_size(
    data_volumes: Sizes = (1000, 10000, 100000),
    k: Count = 10,
    queries: Count = 50,
    agents: Count = 10,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search takes and what share of the right memories it finds, by size and by setting.

    Read `vector/size_10000/ef_100/recall` with the time beside it: a faster search that finds less is no
    better one. `recall` is the share of the `k` nearest memories, by a search over all uncompressed
    vectors, that the target returns. `default` is the target as it is. Where the target has a dial, such as
    `ef` of HNSW, each setting is measured at the largest size. `text` is a search by text, with embedding
    the question. Several agents share the store: one of them has the memories that the size says and
    searches; the others have a tenth as many together, but at least one each.

    Args:
        data_volumes: how many memories the searching agent has
        k: how many answers each search requests
        queries: how many different questions there are
        agents: how many agents share the store
    """
    from memory.benchmarking.benchmarks.retrieval._by_size import search_by_size

    bench = bench or Bench()
    bench.require(bench.no_search(k))
    return search_by_size(bench, data_volumes, k, queries, agents)


@declare(
    **_BY_SIZE,
    expected_seconds={"quick": 1.5, "standard": 150.0, "full": 150.0},
    rounds={"quick": 1, "standard": 1, "full": 1},
    profiles={"quick": {"data_volumes": [10000], "queries": 20}},
)
def benchmark_search_large(
    data_volumes: Sizes = (100000,),
    k: Count = 10,
    queries: Count = 50,
    agents: Count = 10,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """The same as `search_by_size` with many memories, in one round: filling the store takes minutes.

    Args:
        data_volumes: how many memories the searching agent has
        k: how many answers each search requests
        queries: how many different questions there are
        agents: how many agents share the store
    """
    from memory.benchmarking.benchmarks.retrieval._by_size import search_by_size

    bench = bench or Bench()
    bench.require(bench.no_search(k))
    return search_by_size(bench, data_volumes, k, queries, agents)
