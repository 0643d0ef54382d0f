"""Rerankers: their order, their bounds, and what a search does when they fail."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem, MemoryConfig, MemoryEntry
from memory.errors import InvalidConfig, InvalidMemory, RerankerUnavailable

Open = Callable[..., AgentMemorySystem]
COUNT = 30
QUERY = "amber birch"


class ByNumber:
    """Prefers the memories with the highest number, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []

    def rerank(self, query: str, candidates: Sequence[MemoryEntry]) -> Sequence[float]:
        assert query == QUERY
        self.asked.append([entry.id for entry in candidates])
        return [entry.content["number"] for entry in candidates]


class Returning:
    def __init__(self, result: object) -> None:
        self.result = result

    def rerank(self, query: str, candidates: Sequence[MemoryEntry]) -> Sequence[float]:
        if isinstance(self.result, BaseException):
            raise self.result
        return self.result  # type: ignore[return-value]


class Hanging(ByNumber):
    """Does not return before it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.released = threading.Event()
        self.ended = threading.Event()

    def rerank(self, query: str, candidates: Sequence[MemoryEntry]) -> Sequence[float]:
        scores = super().rerank(query, candidates)
        self.released.wait(60)
        self.ended.set()
        return scores


@contextmanager
def hanging() -> Iterator[Hanging]:
    reranker = Hanging()
    try:
        yield reranker
    finally:
        reranker.released.set()


def filled(open_memory: Open, **settings: object) -> AgentMemorySystem:
    memory = open_memory(embedder=small_embedder(), **settings)
    memory.add_many(
        {
            "agent_id": "ann",
            "content": {"text": f"amber {'birch ' * (number % 7)}", "number": number},
            "metadata": {"even": number % 2 == 0},
            "id": str(number),
            "tier": ("stm", "im", "ltm")[number % 3],
        }
        for number in range(COUNT)
    )
    return memory


def ids(hits: Sequence[object]) -> list[str]:
    return [hit.id for hit in hits]  # type: ignore[attr-defined]


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_the_order_of_the_reranker_counts(open_memory: Open, seconds: float | None) -> None:
    memory, reranker = filled(open_memory, rerank_seconds=seconds), ByNumber()
    own = {hit.id: hit for hit in memory.search("ann", QUERY, COUNT)}
    hits = memory.agent("ann").search(QUERY, 5, reranker=reranker)
    assert ids(hits) == ["29", "28", "27", "26", "25"]
    assert reranker.asked == [list(own)]
    for hit in hits:
        assert (hit.score, hit.confidence) == (own[hit.id].score, own[hit.id].confidence)
        assert hit.why.reranked == int(hit.id)
        assert str(hit.why).endswith(f"reranked: {hit.id}.00")
    assert all(hit.why.reranked is None for hit in own.values())


@pytest.mark.parametrize("k", [2, 8, 20, COUNT, COUNT + 1])
def test_only_the_best_candidates_are_reranked_and_the_rest_follow(open_memory: Open, k: int) -> None:
    memory, reranker = filled(open_memory, rerank_candidates=8), ByNumber()
    own = ids(memory.search("ann", QUERY, COUNT))
    hits = memory.search("ann", QUERY, k, reranker=reranker)
    assert ids(hits) == [*sorted(own[:8], key=int, reverse=True), *own[8:]][:k]
    assert reranker.asked == [own[:8]]


def test_filters_and_min_confidence_still_hold(open_memory: Open) -> None:
    memory, reranker = filled(open_memory), ByNumber()
    hits = memory.search("ann", QUERY, 20, tier="im", filters={"even": True}, reranker=reranker)
    assert ids(hits) == ["28", "22", "16", "10", "4"]
    assert len(reranker.asked) == 1
    middle = sorted(hit.confidence or 0.0 for hit in hits)[2]
    sure = memory.search(
        "ann", QUERY, 20, tier="im", filters={"even": True}, reranker=reranker, min_confidence=middle
    )
    assert sure == [hit for hit in hits if (hit.confidence or 0.0) >= middle]
    assert 0 < len(sure) < len(hits)


def test_candidates_that_are_not_returned_are_not_counted_as_read(open_memory: Open) -> None:
    memory = filled(open_memory)
    memory.search("ann", QUERY, 3, reranker=ByNumber())
    assert sum(memory.get_access_statistics()["reads"].values()) == 3


def test_without_candidates_the_reranker_is_not_called(open_memory: Open) -> None:
    memory, reranker = filled(open_memory), ByNumber()
    assert memory.search("bob", QUERY, reranker=reranker) == []
    assert memory.search("ann", QUERY, 0, reranker=reranker) == []
    assert reranker.asked == []


def test_a_late_reranker_leaves_the_order_and_takes_one_thread(
    open_memory: Open, caplog: pytest.LogCaptureFixture
) -> None:
    memory = filled(open_memory, rerank_seconds=0.05)
    own = memory.search("ann", QUERY, 5)
    with hanging() as late, caplog.at_level(logging.WARNING):
        assert memory.search("ann", QUERY, 5, reranker=late) == own
        assert "took longer than 0.05 s for 30 candidates" in caplog.text
        assert memory.search("ann", QUERY, 5, reranker=late) == own
        assert "an earlier call that took too long has not ended yet" in caplog.text
        assert len(late.asked) == 1
        (thread,) = [each for each in threading.enumerate() if each.name == "agentmemory-rerank"]
    assert late.ended.wait(60)
    thread.join(60)
    again = ByNumber()
    memory.search("ann", QUERY, 5, reranker=again)
    assert len(again.asked) == 1, "after the late call has ended, searches are reranked again"


def test_an_unavailable_reranker_leaves_the_order(
    open_memory: Open, caplog: pytest.LogCaptureFixture
) -> None:
    memory = filled(open_memory, rerank_seconds=60.0)
    down = Returning(RerankerUnavailable("its server is down"))
    with caplog.at_level(logging.WARNING):
        assert memory.search("ann", QUERY, 5, reranker=down) == memory.search("ann", QUERY, 5)
    assert "the hits of a search are not reranked: its server is down" in caplog.text


@pytest.mark.parametrize("seconds", [None, 60.0])
def test_other_exceptions_of_a_reranker_are_raised(open_memory: Open, seconds: float | None) -> None:
    memory = filled(open_memory, rerank_seconds=seconds)
    for problem in (ZeroDivisionError("a bug"), TimeoutError("its own"), KeyboardInterrupt()):
        with pytest.raises(type(problem)) as raised:
            memory.search("ann", QUERY, reranker=Returning(problem))
        assert raised.value is problem


@pytest.mark.parametrize(
    ("result", "message"),
    [
        ([1.0], "shape"),
        (np.zeros((COUNT, 1)), "shape"),
        ([float("nan")] * COUNT, "NaN"),
        (["high"] * COUNT, "not numbers"),
        (None, "shape|not numbers"),
    ],
)
def test_wrong_scores_are_refused(open_memory: Open, result: object, message: str) -> None:
    with pytest.raises(InvalidMemory, match=message):
        filled(open_memory).search("ann", QUERY, reranker=Returning(result))


def test_an_object_without_the_method_is_refused(open_memory: Open) -> None:
    with pytest.raises(InvalidMemory, match=r"reranker is a int without a method rerank\(\)"):
        filled(open_memory).search("ann", QUERY, reranker=3)  # type: ignore[arg-type]


def test_wrong_bounds_are_refused() -> None:
    for settings in ({"rerank_candidates": 0}, {"rerank_seconds": 0}, {"rerank_seconds": "long"}):
        with pytest.raises(InvalidConfig, match=next(iter(settings))):
            MemoryConfig(**settings).validate()  # type: ignore[arg-type]
