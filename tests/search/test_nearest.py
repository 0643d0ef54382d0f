"""The nearest vectors of an agent with many memories are those of a full scan."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem
from memory.search import index as index_module
from memory.search import nearest as nearest_module

Open = Callable[..., AgentMemorySystem]
COUNT = 6000
MIB = 1 << 20


def unit_vectors(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, 256)) + 0.5 * rng.standard_normal(256)  # with a part in common
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


def store(memory: AgentMemorySystem, vectors: np.ndarray) -> dict[str, int]:
    """Store vectors in im and ltm. Return the number of each by id."""
    ids: list[str] = []
    for first, tier in ((0, "im"), (COUNT // 2, "ltm")):
        part = vectors[first : first + COUNT // 2]
        ids += memory.add_many(
            {"agent_id": "ann", "content": f"note {number}", "tier": tier, "vector": vector}
            for number, vector in enumerate(part, first)
        )
    memory.maintain()
    return {id_: number for number, id_ in enumerate(ids)}


def recall(
    memory: AgentMemorySystem,
    number_of: dict[str, int],
    vectors: np.ndarray,
    left: np.ndarray,
    **scope: str,
) -> float:
    """Return the share of the ten largest cosines among the memories that are left."""
    right = 0
    for query in unit_vectors(40, 2):
        found = [number_of[hit.id] for hit in memory.retrieve_similar_states("ann", query, 10, **scope)]
        assert len(set(found)) == 10
        assert left[found].all()
        cosines = np.where(left, vectors @ query, -1)
        right += len({*found} & {*np.argsort(-cosines)[:10].tolist()})
    return right / 400


@pytest.fixture(params=[MIB, 64 * MIB])
def memory(
    request: pytest.FixtureRequest, open_memory: Open, monkeypatch: pytest.MonkeyPatch
) -> AgentMemorySystem:
    monkeypatch.setattr(index_module, "BLOCK", 512)
    monkeypatch.setattr(nearest_module, "LARGE", 1000)
    return open_memory(embedder=small_embedder(256), cache_bytes=request.param)


def test_vectors_of_several_tiers_are_found(memory: AgentMemorySystem) -> None:
    vectors = unit_vectors(COUNT, 1)
    number_of = store(memory, vectors)
    left = np.ones(COUNT, np.bool_)
    assert recall(memory, number_of, vectors, left) >= 0.95  # ltm has six bits a dimension
    left[COUNT // 2 :] = False
    assert recall(memory, number_of, vectors, left, tier="im") >= 0.98


def test_deleted_and_later_memories_are_known(memory: AgentMemorySystem) -> None:
    vectors = unit_vectors(COUNT, 1)
    number_of = store(memory, vectors)
    assert memory.search("ann", "note")
    left = np.ones(COUNT + 1, np.bool_)
    left[:COUNT:3] = False
    memory.delete_many("ann", [id_ for id_, number in number_of.items() if not left[number]])
    query = unit_vectors(40, 2)[0]
    vectors = np.concatenate((vectors, query[None]))
    number_of[memory.add("ann", "later", vector=query)] = COUNT
    assert recall(memory, number_of, vectors, left) >= 0.97
    hit = memory.retrieve_similar_states("ann", query, 1)[0]
    assert hit.entry.content == "later"
    assert hit.score == pytest.approx(1, abs=1e-6)  # the vector of the store, not the rounded one


def test_vectors_with_the_same_signs_are_told_apart(memory: AgentMemorySystem) -> None:
    rng = np.random.default_rng(3)
    vectors = 0.5 + rng.random((COUNT, 256))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    number_of = store(memory, vectors)
    query = vectors[17]
    found = memory.retrieve_similar_states("ann", query, 3, threshold=0.99)
    assert [number_of[hit.id] for hit in found] == [17]
