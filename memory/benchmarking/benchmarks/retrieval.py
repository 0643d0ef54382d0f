"""How fast a search is, and how well it finds what it should."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.benchmarks._growing import growth_leaves
from memory.benchmarking.measure.timing import Timing, wall_ns
from memory.benchmarking.metrics import SHARE, TIMED, Metric, declare
from memory.benchmarking.model.parameters import Count, Fractions, Positive, Sizes
from memory.benchmarking.model.presentation import BarChart, LineChart, PercentileChart
from memory.benchmarking.targets.base import Found, Item, Target
from memory.benchmarking.workloads.texts import MEMORIES, QUERIES, sentences

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AGENT = "benchmark_agent"


def _add(bench: Bench, target: Target, agent: str, contents: Sequence[Any], place: str | None) -> list[str]:
    return bench.store(target, [Item(agent, content) for content in contents], place)


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
    texts = list(islice(sentences(MEMORIES, bench.seed), max(data_volumes)))
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    questions = list(islice(sentences(QUERIES, bench.seed + 1), queries))
    vectors = list(embedded(questions, bench.embedder))
    places, tiers = bench.capabilities.places, bench.capabilities.tiers
    found: dict[str, Any] = {place: {} for place in (*tiers, "all")}
    with bench.target() as target:
        for volume in sorted(data_volumes):
            size, agent = f"size_{volume}", f"agent_with_{volume}"
            for number, place in enumerate(places):
                _add(bench, target, agent, texts[number : volume : len(places)], place)
            for tier in tiers:
                _add(bench, target, f"{agent}_in_{tier}", texts[:volume], tier)
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


_PART = Metric("", "neither")


@declare(
    headline="at_cluster_size/recall",
    search_figures="*",
    expected_seconds={"quick": 0.8, "standard": 0.9, "full": 0.9},
    rounds=3,
    reports=["precision", "recall", "f1", "recall_against_exact"],
    charts=[
        LineChart(
            "Precision and recall, by similarity threshold",
            ["precision", "recall", "f1"],
            "threshold",
            x_label="similarity threshold",
            label="share",
            share=True,
        )
    ],
)
def benchmark_search_accuracy(
    clusters: Count = 10,
    items_per_cluster: Count = 20,
    noise: Positive = 0.2,
    similarity_thresholds: Fractions = (0.6, 0.7, 0.8),
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Whether a search with one memory of a cluster finds the others of its cluster.

    Read it as how reliable "similar" is. Each cluster is a situation, and its items are the same situation
    with every value changed by `noise`. `at_cluster_size` requests as many answers as the cluster has.
    `threshold_0.7` takes all answers that are at least that similar. `recall_against_exact` compares with a
    search over all uncompressed vectors: it shows what the target's index and codecs lose. A search by
    words has no similarities, so it has neither of the two.

    Args:
        clusters: how many situations there are
        items_per_cluster: how many memories each situation has
        noise: how much every value is changed
        similarity_thresholds: the least similarities of accepted answers
    """
    bench = bench or Bench()
    bench.require(bench.no_search(items_per_cluster))
    from memory.benchmarking.benchmarks._compression_vectors import embedded

    states, labels = _clustered_states(clusters, items_per_cluster, noise, bench.seed)
    places = bench.capabilities.places
    with bench.target() as target:
        ids: list[str] = [""] * len(states)
        for number, place in enumerate(places):
            mine = list(range(number, len(states), len(places)))
            stored = _add(bench, target, AGENT, [states[i] for i in mine], place)
            for index, id_ in zip(mine, stored, strict=True):
                ids[index] = id_
        target.flush()
        too_few = bench.no_search(len(states))
        k = items_per_cluster if too_few else len(states)
        answers = [target.search(AGENT, state, k) for state in states]
    cluster_of = dict(zip(ids, labels, strict=True))
    found: dict[str, Any] = {
        "at_cluster_size": _accuracy(
            [answer[:items_per_cluster] for answer in answers], labels, cluster_of, items_per_cluster
        )
    }
    by_words = ""
    if bench.capabilities.search_by == "words":
        by_words = f"{bench.system} searches by words: its scores are no similarities"
    for threshold in similarity_thresholds:
        if by_words or too_few:
            found[f"threshold_{threshold:g}"] = not_available(by_words or too_few)
            continue
        near = [[hit for hit in answer if hit.score >= threshold] for answer in answers]
        found[f"threshold_{threshold:g}"] = _accuracy(near, labels, cluster_of, items_per_cluster)
    found["recall_against_exact"] = (
        not_available(by_words)
        if by_words
        else _against_exact(embedded(states, bench.embedder), ids, answers, items_per_cluster)
    )
    return found


_WORDS = {
    "place": ("cellar", "roof", "harbour", "market", "library", "tunnel", "garden", "station", "barn"),
    "weather": ("fog", "hail", "sunshine", "drizzle", "storm", "snow", "heat", "wind", "frost"),
    "task": ("repairing", "guarding", "digging", "trading", "cooking", "mapping", "sailing", "climbing"),
    "mood": ("calm", "nervous", "cheerful", "tired", "angry", "curious", "bored", "proud", "lonely"),
    "tool": ("hammer", "lantern", "compass", "rope", "shovel", "net", "radio", "saw", "mirror"),
}
_NUMBERS = ("energy", "distance", "temperature", "coins", "altitude")


def _clustered_states(
    clusters: int, items: int, noise: float, seed: int
) -> tuple[list[dict[str, Any]], list[int]]:
    """Return states and clusters. `noise`: the chance to replace a word, the share to move a number."""
    rng = random.Random(seed)
    states, labels = [], []
    for label in range(clusters):
        words = {name: rng.choice(choices) for name, choices in _WORDS.items()}
        numbers = {name: rng.uniform(1.0, 100.0) for name in _NUMBERS}
        for _ in range(items):
            state: dict[str, Any] = {
                name: rng.choice(_WORDS[name]) if rng.random() < noise else word
                for name, word in words.items()
            }
            state.update(
                {
                    name: round(value * (1 + rng.uniform(-noise, noise)), 3)
                    for name, value in numbers.items()
                }
            )
            states.append(state)
            labels.append(label)
    return states, labels


def _accuracy(
    answers: Sequence[Sequence[Found]],
    labels: Sequence[int],
    cluster_of: Mapping[str, int],
    size: int,
) -> dict[str, float]:
    """Return mean precision, recall and F1. The memory that is searched with belongs to its cluster."""
    precision = recall = 0.0
    for answer, label in zip(answers, labels, strict=True):
        right = sum(cluster_of[hit.id] == label for hit in answer)
        precision += right / len(answer) if answer else 1.0
        recall += right / size
    precision, recall = precision / len(answers), recall / len(answers)
    f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
    return {"precision": precision, "recall": recall, "f1": f1}


def _against_exact(
    vectors: NDArray[np.float32], ids: Sequence[str], answers: Sequence[Sequence[Found]], k: int
) -> float:
    import numpy as np

    nearest = np.argsort(-(vectors @ vectors.T), axis=1, kind="stable")[:, :k]
    shared = [
        len({ids[place] for place in row} & {hit.id for hit in answer[:k]})
        for row, answer in zip(nearest.tolist(), answers, strict=True)
    ]
    return sum(shared) / (k * len(ids))


@declare(
    headline="all/p50_ms",
    search_figures="*",
    expected_seconds={"quick": 0.5, "standard": 1.0, "full": 1.5},
    reports=TIMED,
    stm_related_found_rate=SHARE,
    im_related_found_rate=SHARE,
    ltm_related_found_rate=SHARE,
    cross_tier_to_slowest_tier=Metric("×", "lower"),
    share_from_stm=_PART,
    share_from_im=_PART,
    share_from_ltm=_PART,
    profiles={"quick": {"stm_memories": 100, "im_memories": 50, "ltm_memories": 20, "related_groups": 5}},
    charts=[
        PercentileChart("Time of a search, over all tiers and in each"),
        BarChart(
            "Related memories that were found",
            metric=[f"{tier}_related_found_rate" for tier in ("stm", "im", "ltm")],
            names=["metric"],
            label="share found",
            share=True,
            renamed={f"{tier} related found rate": tier for tier in ("stm", "im", "ltm")},
        ),
    ],
)
def benchmark_cross_tier_retrieval(
    stm_memories: Count = 1000,
    im_memories: Count = 500,
    ltm_memories: Count = 200,
    related_groups: Count = 50,
    k: Count = 20,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """Whether one question finds related memories in three tiers, and how fast.

    Read `im_related_found_rate` as the share of the im memories about the question's subject that are among
    the `k` answers. Each memory names the subject in a different sentence. `cross_tier_to_slowest_tier` is
    the median time of a search over all tiers ÷ that of the slowest tier alone. Times include embedding
    the question, for every target that embeds it.

    Args:
        stm_memories: how many memories are in stm
        im_memories: how many in im
        ltm_memories: how many in ltm
        related_groups: how many subjects have memories in all tiers
        k: how many answers each search requests
    """
    bench = bench or Bench()
    bench.require(bench.no_search(k))
    tiers = bench.capabilities.tiers
    sizes = {"stm": stm_memories, "im": im_memories, "ltm": ltm_memories}
    per_tier = _related_per_tier(sizes, related_groups, k)
    texts = sentences(MEMORIES, bench.seed)
    subjects = _subjects(related_groups, bench.seed)
    rng = random.Random(bench.seed)
    related: dict[str, dict[int, set[str]]] = {}
    with bench.target() as target:
        for tier, size in sizes.items():
            lines: list[tuple[int | None, str]] = [
                (group, rng.choice(_ABOUT).format(subject=subject, rest=next(texts)))
                for group, subject in enumerate(subjects)
                for _ in range(per_tier[tier])
            ]
            lines += [(None, next(texts)) for _ in range(max(0, size - len(lines)))]
            rng.shuffle(lines)
            ids = _add(bench, target, AGENT, [text for _, text in lines], tier if tiers else None)
            related[tier] = {group: set() for group in range(related_groups)}
            for (group, _), id_ in zip(lines, ids, strict=True):
                if group is not None:
                    related[tier][group].add(id_)
        target.flush()
        questions = [f"What do we know about {subject}?" for subject in subjects]
        answers = [{hit.id for hit in target.search(AGENT, question, k)} for question in questions]
        found: dict[str, Any] = _found_rates(related, answers, tiers)
        found["all"] = bench.time(
            lambda question: target.search(AGENT, question, k), questions, label="all tiers"
        )
        for tier in tiers:
            found[tier] = bench.time(
                lambda question, tier=tier: target.search(AGENT, question, k, tier),
                questions,
                label=tier,
            )
    if tiers:
        slowest = max(found[tier]["p50_ms"] for tier in tiers)
        found["cross_tier_to_slowest_tier"] = found["all"]["p50_ms"] / slowest
    else:
        found["cross_tier_to_slowest_tier"] = not_available(f"{bench.system} has no tiers")
    return found


_ABOUT = (
    "Notes on {subject}: {rest}",
    "{rest} That also concerns {subject}.",
    "About {subject}, somebody said: {rest}",
)
_FIRST = (
    "amber", "silver", "hidden", "northern", "quiet", "broken", "golden", "crooked", "frozen", "distant",
)  # fmt: skip
_SECOND = ("falcon", "lighthouse", "orchard", "glacier", "clockwork", "caravan", "viaduct", "monastery")


def _subjects(count: int, seed: int) -> list[str]:
    """Return names of projects, each a pair of words that no other name has."""
    pairs = [f"project {first} {second}" for first in _FIRST for second in _SECOND]
    random.Random(seed).shuffle(pairs)
    numbered = [f"{pair} {number}" for number in range(2, 2 + count // len(pairs)) for pair in pairs]
    return (pairs + numbered)[:count]


def _related_per_tier(sizes: Mapping[str, int], groups: int, k: int) -> dict[str, int]:
    """Return how many memories of a subject each tier gets: at least one, and at most `k` in all."""
    wanted = {"stm": 8, "im": 4, "ltm": 2}
    fitting = {tier: max(1, min(count, sizes[tier] // groups)) for tier, count in wanted.items()}
    while sum(fitting.values()) > k and fitting["stm"] > 1:
        fitting["stm"] -= 1
    return fitting


def _found_rates(
    related: Mapping[str, Mapping[int, set[str]]], answers: Sequence[set[str]], tiers: Sequence[str]
) -> dict[str, Any]:
    rates: dict[str, Any] = {}
    total = sum(len(answer) for answer in answers) or 1
    for tier, groups in related.items():
        there = sum(len(ids) for ids in groups.values())
        found = sum(len(groups[number] & answer) for number, answer in enumerate(answers))
        # Without tiers the memories are in one place, and the rates still count which were found.
        rates[f"{tier}_related_found_rate"] = found / there
        if tiers:
            rates[f"share_from_{tier}"] = found / total
    return rates


# -- search_delay -----------------------------------------------------------------------------

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
    texts = list(islice(sentences(MEMORIES, bench.seed), _OLDER + memories))
    waits: list[float] = []
    at_once = 0
    with bench.target() as target:
        _add(bench, target, AGENT, texts[:_OLDER], None)
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
    expected_seconds={"quick": 3.0, "standard": 15.0, "full": 120.0},
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
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long a search takes and what share of the right memories it finds, by size and by setting.

    Read `vector/size_10000/ef_100/recall` with the time beside it: a faster search that finds less is no
    better one. `recall` is the share of the `k` nearest memories, by a search over all uncompressed
    vectors, that the target returns. `default` is the target as it is. Where the target has a dial, such as
    `ef` of HNSW, each setting is measured at the largest size. `text` is a search by text, with embedding
    the question. Ten agents share the store: one of them has the memories that the size says and searches,
    the others have a tenth as many together.

    Args:
        data_volumes: how many memories the searching agent has
        k: how many answers each search requests
        queries: how many different questions there are
    """
    from memory.benchmarking.benchmarks._search_by_size import search_by_size

    bench = bench or Bench()
    bench.require(bench.no_search(k))
    return search_by_size(bench, data_volumes, k, queries)


@declare(
    **_BY_SIZE,
    expected_seconds={"quick": 20.0, "standard": 150.0, "full": 150.0},
    rounds=1,
    profiles={"quick": {"data_volumes": [10000], "queries": 20}},
)
def benchmark_search_large(
    data_volumes: Sizes = (100000,),
    k: Count = 10,
    queries: Count = 50,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """The same as `search_by_size` with many memories, in one round: filling the store takes minutes.

    Args:
        data_volumes: how many memories the searching agent has
        k: how many answers each search requests
        queries: how many different questions there are
    """
    from memory.benchmarking.benchmarks._search_by_size import search_by_size

    bench = bench or Bench()
    bench.require(bench.no_search(k))
    return search_by_size(bench, data_volumes, k, queries)
