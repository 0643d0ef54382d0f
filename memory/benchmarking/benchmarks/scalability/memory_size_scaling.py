"""One agent with more and more memories: times and space by size."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Acknowledged, Bench, not_available
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.benchmarks._space import disk_growth, ram_growth
from memory.benchmarking.measure.resources import disk_bytes, settled_ram_bytes
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.metrics import SHARE, TIMED, Metric, declare
from memory.benchmarking.model.parameters import Sizes
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.model.presentation import LineChart
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

if TYPE_CHECKING:
    pass

AGENT = "benchmark_agent"
_OTHER_AGENT = "another_agent"

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
    questions = list(islice(question_texts(bench.seed + 1), _QUERIES))
    exact = ExactAnswers(questions, _K, bench.embedder)
    known = _Sample(_READS, bench.seed)
    written = Acknowledged(bench.seed)
    texts = memory_texts(bench.seed)
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
    for what in ("store", "read", "first_search", "text_search", "vector_search"):
        timings = {volume: found[f"size_{volume}"][what] for volume in volumes}
        if any(isinstance(timing, NotAvailable) for timing in timings.values()):
            continue
        costs = {float(volume): timing["p50_ms"] for volume, timing in timings.items()}
        leaves = growth_leaves(f"{what.replace('_', ' ')} p50", costs)
        if leaves:
            grown[what] = leaves
    return grown
