"""Whether a search with one memory of a cluster finds the others."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.metrics import declare
from memory.benchmarking.model.parameters import Count, Fractions, Positive
from memory.benchmarking.model.presentation import LineChart
from memory.benchmarking.targets.base import Found, Item

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

AGENT = "benchmark_agent"


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
            stored = bench.store(target, [Item(AGENT, states[i]) for i in mine], place)
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
