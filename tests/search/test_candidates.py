"""Scoring only the candidates: the same hits as scoring all memories."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem
from memory.search import candidates as candidates_module
from memory.search import ranking
from memory.search.conversations import Conversations
from memory.search.turn_links import TurnLinks
from memory.storage import NO_SESSION

Open = Callable[..., AgentMemorySystem]


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    return open_memory(embedder=small_embedder())


def zipf_text(choose: random.Random, words: int) -> str:
    """Return words of a vocabulary of 5,000, in which the n-th word has a share of about 1/n."""
    return " ".join(f"w{int(5000 ** choose.random())}" for _ in range(words))


def fill(memory: AgentMemorySystem, count: int, interleaved: int) -> list[str]:
    """Store conversations of 12 turns, of which `interleaved` go on at the same time."""
    choose = random.Random(count)
    return memory.add_many(
        {
            "agent_id": "ann",
            "content": zipf_text(choose, 12),
            "metadata": {
                "session": number // (12 * interleaved) * interleaved + number % interleaved,
                "speaker": choose.choice(("Ann", "Bob")),
            },
            "timestamp": 1.6e9 + 3600 * number,
        }
        for number in range(count)
    )


def hits(memory: AgentMemorySystem, questions: list[str], **options: Any) -> list[list[Any]]:
    return [
        [(hit.id, hit.why.words, round(hit.score, 1)) for hit in memory.search("ann", question, **options)]
        for question in questions
    ]


@pytest.mark.parametrize("interleaved", [1, 3])
def test_the_ten_best_are_those_of_scoring_all(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch, interleaved: int
) -> None:
    ids = fill(memory, 6000, interleaved)
    choose = random.Random(1)
    questions = [zipf_text(choose, 5) for _ in range(60)]
    questions += [f"What did Bob say about {zipf_text(choose, 4)}?" for _ in range(20)]
    questions += [f"What about {zipf_text(choose, 4)} in October 2020?" for _ in range(20)]
    for _ in range(2):
        exact = hits(memory, questions)
        with monkeypatch.context() as patch:
            patch.setattr(candidates_module, "EXACT_ROWS", 1000)
            found = hits(memory, questions)
        same = [
            {hit[:2] for hit in ours} == {hit[:2] for hit in theirs}
            for ours, theirs in zip(found, exact, strict=True)
        ]
        assert np.mean(same) >= 0.98
        assert all(ours[0][0] == theirs[0][0] for ours, theirs in zip(found, exact, strict=True))
        memory.delete_many("ann", ids[::20])  # and again with deleted memories


def test_no_deleted_or_excluded_memory_is_a_hit(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates_module, "EXACT_ROWS", 1000)
    ids = fill(memory, 3000, 1)
    deleted = set(ids[::10])
    memory.delete_many("ann", list(deleted))
    choose = random.Random(2)
    for _ in range(30):
        question = zipf_text(choose, 4)
        assert deleted.isdisjoint(hit.id for hit in memory.search("ann", question, 30))
        found = memory.search("ann", question, filters={"speaker": "Bob"})
        assert [hit.entry.metadata["speaker"] for hit in found] == ["Bob"] * 10


def test_a_deletion_does_not_make_a_search_score_all_memories(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(candidates_module, "EXACT_ROWS", 1000)
    ids = fill(memory, 6000, 1)
    memory.search("ann", "w1 w2")  # an index that is read later has no deleted memories
    memory.delete_many("ann", ids[:3])
    scored: list[int] = []
    monkeypatch.setattr(ranking, "rank", lambda index, *_: scored.append(index.count))
    assert memory.search("ann", "w1 w2")
    assert list(memory.iter_search("ann", "w1 w2", most=5))
    assert not scored


@pytest.mark.parametrize("interleaved", [1, 2, 5])
@pytest.mark.parametrize("with_sessions", [True, False])
def test_neighbours_count_for_candidates_as_for_all(interleaved: int, with_sessions: bool) -> None:
    rng = np.random.default_rng(interleaved)
    numbers = np.arange(3000)
    sessions = numbers // (20 * interleaved) * interleaved + numbers % interleaved
    if not with_sessions:
        sessions = np.full(3000, NO_SESSION)
    links = TurnLinks()
    links.extend(sessions)
    scores = rng.standard_normal(3000).astype(np.float32)
    everything = links.context(scores)
    of_all = links.context_of(numbers, sessions, scores)
    np.testing.assert_allclose(of_all, everything, atol=1e-5)
    # Around the best memory of each session, its turns have the same context as among all memories.
    centres = np.array([chain[scores[chain].argmax()] for chain in map(np.flatnonzero, _masks(sessions))])
    positions = links.around(centres, 6)
    some = links.context_of(positions, sessions[positions], scores[positions])
    places = positions.searchsorted(centres)
    np.testing.assert_allclose(some[places], everything[centres], atol=1e-5)


def _masks(sessions: np.ndarray) -> list[np.ndarray]:
    return [sessions == session for session in np.unique(sessions)]


def test_memories_whose_neighbours_do_not_count_have_none_among_candidates() -> None:
    conversations = Conversations(4)
    sessions = np.full(500, NO_SESSION)
    conversations.extend(sessions)  # a chain that is not known to cohere
    scores = np.ones(500, np.float32)
    assert conversations.context(scores) is None
    assert conversations.context_of(np.arange(100), sessions[:100], scores[:100]) is None
