"""`retrieval.search_by_size`: the time of a search and what it finds, by size and by setting."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from memory.benchmarking.bench import Bench, not_available
from memory.benchmarking.benchmarks._exact_answers import ExactAnswers
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

AGENT = "searching_agent"
_SHARE_OF_OTHERS = 10
"""The others have one memory for so many of the searching agent, but at least one each."""
_BATCH = 1000


def search_by_size(
    bench: Bench, volumes: Sequence[int], k: int, queries: int, agents: int
) -> dict[str, Any]:
    """Grow one store from size to size; measure searches by text and by vector at each."""
    questions = list(islice(question_texts(bench.seed + 1), queries))
    exact = ExactAnswers(questions, k, bench.embedder)
    texts = memory_texts(bench.seed)
    no_vector = bench.no_vector_search(k)
    found: dict[str, Any] = {"text": {}, "vector": not_available(no_vector) if no_vector else {}}
    held, held_by_others, largest = 0, 0, max(volumes)
    with bench.target() as target:
        for volume in sorted(set(volumes)):
            _grow(bench, target, exact, islice(texts, volume - held))
            of_others = max(volume // _SHARE_OF_OTHERS, agents - 1) if agents > 1 else 0
            others = [
                Item(f"other_agent_{number % (agents - 1)}", next(texts))
                for number in range(held_by_others, of_others)
            ]
            for start in range(0, len(others), _BATCH):
                bench.store(target, others[start : start + _BATCH])
            held, held_by_others = volume, of_others
            target.flush()
            size = f"size_{volume}"
            found["text"][size] = bench.time(
                lambda question: target.search(AGENT, question, k), questions, label=f"text, {volume:,}"
            )
            if not no_vector:
                # The dial can't be turned back to "as the system sets it", so it is turned at the end only.
                found["vector"][size] = _by_vector(bench, target, exact, volume, turn=volume == largest)
    return found


def _grow(bench: Bench, target: Target, exact: ExactAnswers, texts: Iterable[str]) -> None:
    items = [Item(AGENT, text) for text in texts]
    for start in range(0, len(items), _BATCH):
        part = items[start : start + _BATCH]
        bench.acknowledged(target, target.add(part), part)
        exact.add(part)


def _by_vector(
    bench: Bench, target: Target, exact: ExactAnswers, volume: int, *, turn: bool
) -> dict[str, Any]:
    """Return the figures of the system's own setting and, with `turn`, of each setting of its dial."""
    found = {"default": _at_setting(bench, target, exact, f"vector, {volume:,}")}
    dial = load_target(bench.target_name).dial
    if dial is not None and turn:
        for setting in dial.settings:
            target.turn_dial(setting)
            label = f"vector, {volume:,}, {dial.name} {setting}"
            found[f"{dial.name}_{setting}"] = _at_setting(bench, target, exact, label)
    return found


def _at_setting(bench: Bench, target: Target, exact: ExactAnswers, label: str) -> dict[str, Any]:
    vectors = list(exact.queries)
    answers = [target.search_vector(AGENT, vector, exact.k) for vector in vectors]
    timing = bench.time(lambda vector: target.search_vector(AGENT, vector, exact.k), vectors, label=label)
    return {"recall": exact.recall(answers), "search": timing}
