"""The confidence of hits: the chance that they are relevant."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memory import AgentMemorySystem
from memory.benchmarking.measure.ranking import separation
from memory.benchmarking.workloads.conversations import synthetic_collections
from memory.errors import InvalidMemory
from memory.search import _rank
from memory.search.confidence import Evidence, Features, confidence

Open = Callable[..., AgentMemorySystem]
NOTES = (
    "Rex hates flying, so my sister looks after the dog in June.",
    "The rent of the flat in Leeds is due on the first of the month.",
    "Bring the cello to the rehearsal on Thursday.",
)


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    memory = open_memory()
    for note in NOTES:
        memory.add("ann", note, id=note)
    return memory


def test_a_question_about_something_never_stored_has_a_low_confidence(memory: AgentMemorySystem) -> None:
    right = memory.search("ann", "who looks after the dog?")
    wrong = memory.search("ann", "what is the capital of Mongolia?")
    assert right[0].id == NOTES[0]
    assert right[0].confidence is not None
    assert wrong[0].confidence is not None
    assert right[0].confidence > 0.3 > 0.1 > wrong[0].confidence
    assert all(hit.confidence is not None and 0 <= hit.confidence <= 1 for hit in right + wrong)


def test_min_confidence_leaves_out_what_is_below_it(memory: AgentMemorySystem) -> None:
    every = memory.search("ann", "who looks after the dog?")
    middle = every[1].confidence or 0.0
    kept = memory.search("ann", "who looks after the dog?", min_confidence=middle)
    assert kept == [hit for hit in every if (hit.confidence or 0.0) >= middle]
    assert len(kept) < len(every)
    assert memory.agent("ann").search("the capital of Mongolia?", min_confidence=0.5) == []
    for wrong in ("high", math.nan, None):
        with pytest.raises(InvalidMemory, match="min_confidence"):
            memory.search("ann", "dog", min_confidence=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("is_native", [True, False])
def test_a_deleted_memory_does_not_change_the_confidence(
    memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch, is_native: bool
) -> None:
    if not is_native:
        monkeypatch.setattr(_rank, "core", None)
    question = "what is the capital of Mongolia?"
    before = [hit.confidence for hit in memory.search("ann", question)]
    memory.add("ann", "The capital of Mongolia is Ulaanbaatar.", id="deleted")
    assert memory.search("ann", question)[0].id == "deleted"
    memory.delete_many("ann", ["deleted"])
    assert [hit.confidence for hit in memory.search("ann", question)] == pytest.approx(before)


def test_hits_have_the_same_confidence_one_by_one_and_together(memory: AgentMemorySystem) -> None:
    for number in range(20):
        memory.add("ann", f"note {number} about the dog")
    together = memory.search("ann", "who looks after the dog?", 23)
    assert list(memory.iter_search("ann", "who looks after the dog?", 23)) == together


def test_a_search_by_vector_has_no_confidence(memory: AgentMemorySystem) -> None:
    assert [hit.confidence for hit in memory.retrieve_similar_states("ann", "dog", 2)] == [None, None]


counts = st.integers(0, 50)


@given(counts, counts, st.floats(-1, 1), st.floats(-20, 20), st.integers(0, 10**7), st.integers(0, 100))
def test_every_search_gives_a_chance(
    words: int, known: int, nearest: float, score: float, memories: int, rank: int
) -> None:
    evidence = Evidence(words, min(known, words), nearest, 20.0, memories)
    chance = confidence(evidence.features(rank, score, min(known, words)))
    assert 0 <= chance <= 1
    better = confidence(evidence.features(rank, score, words))
    assert better >= chance


def test_a_chance_is_the_logistic_of_the_weighted_features() -> None:
    features = Features(1.0, 0.5, 0.5, math.log(0.2), 0.0, 0.0, math.log(10), 0.5 * math.log(10))
    expected = 1.05 + 2.17 * 0.5 - 0.78 * 0.5 + 0.86 * math.log(0.2) - (0.91 - 0.71 * 0.5) * math.log(10)
    assert confidence(features) == pytest.approx(1 / (1 + math.exp(-expected)))
    assert confidence([-1e6] * 8) in (0.0, 1.0)


def test_confidence_tells_questions_of_another_conversation_better_than_the_score(
    open_memory: Open,
) -> None:
    collections = synthetic_collections(4, 8, seed=3)
    first: dict[str, dict[bool, list[float]]] = {
        name: {True: [], False: []} for name in ("confidence", "score")
    }
    memory = open_memory()
    for number, collection in enumerate(collections):
        memory.add_many(
            {
                "agent_id": collection.id,
                "content": passage.text,
                "metadata": dict(passage.metadata),
                "timestamp": passage.timestamp,
            }
            for passage in collection.passages
        )
        for other, source in enumerate(collections):
            for question in source.questions:
                if question.grades:
                    hit = memory.search(collection.id, question.text, 1)[0]
                    first["confidence"][number == other].append(hit.confidence or 0.0)
                    first["score"][number == other].append(hit.score)
    auc = {name: separation(values[True], values[False]) for name, values in first.items()}
    assert auc["confidence"] > auc["score"]
    assert auc["confidence"] > 0.75
    assert np.mean(first["confidence"][True]) > 2 * np.mean(first["confidence"][False])
