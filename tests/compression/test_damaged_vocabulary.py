"""A damaged vocabulary of the search terms: searches find the same, and maintenance makes a new one."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable
from pathlib import Path

import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem

OpenMemory = Callable[..., AgentMemorySystem]
Answers = list[list[tuple[str, float]]]
COUNT = 120
TEXTS = [f"memory {n} of the {n * 7919}th {['garden', 'harbour', 'lantern'][n % 3]}" for n in range(COUNT)]
QUERIES = ("memory 77", "the harbour", "ann", "January 2026")


@pytest.fixture
def open_small(open_memory: OpenMemory) -> OpenMemory:
    return lambda **more: open_memory(embedder=small_embedder(), stm={"memory_limit": None}, **more)


def found(memory: AgentMemorySystem) -> Answers:
    """Return ids and scores of some searches, with and without a filter."""
    searches = [memory.search("ann", query, k=COUNT) for query in QUERIES]
    searches.append(memory.search("ann", "memory", k=COUNT, filters={"speaker": "ann"}))
    return [[(hit.id, round(hit.score, 6)) for hit in hits] for hits in searches]


def terms(memory: AgentMemorySystem) -> dict[str, list[int]]:
    """Return the sorted terms of each memory."""
    rows = list(memory._store.all_rows("ann"))
    raw = memory._codecs.raw_terms([(row.terms, row.terms_codec) for row in rows])
    return {row.id: sorted(array("I", each)) for row, each in zip(rows, raw, strict=True)}


def vocabularies(memory: AgentMemorySystem) -> set[int]:
    return {codec.number for codec in memory._store.codecs() if codec.purpose.startswith("search terms")}


@pytest.fixture
def before_and_terms(open_small: OpenMemory, tmp_path: Path) -> tuple[Answers, dict[str, list[int]]]:
    """Damage the vocabulary that all memories use; return the hits and terms before that."""
    with open_small() as memory:
        memory.add_many(
            {
                "agent_id": "ann",
                "content": text,
                "id": str(n),
                "metadata": {"speaker": ("ann", "bob")[n % 2], "session": "s"},
                "timestamp": 1.768e9 + n if n % 4 else None,
            }
            for n, text in enumerate(TEXTS)
        )
        memory.force_transition_to_im()
        memory.force_transition_to_ltm()
        memory.maintain()
        assert {row.terms_codec for row in memory._store.all_rows("ann")} <= vocabularies(memory)
        answers, all_terms = found(memory), terms(memory)
    connection = sqlite3.connect(tmp_path / "memory.db", isolation_level=None)
    for number, data in connection.execute(
        "SELECT number, data FROM codecs WHERE purpose LIKE 'search terms%'"
    ).fetchall():
        wrong = bytearray(data)
        wrong[len(wrong) // 2] ^= 4
        connection.execute("UPDATE codecs SET data = ? WHERE number = ?", (bytes(wrong), number))
    connection.close()
    return answers, all_terms


@pytest.fixture
def before(before_and_terms: tuple[Answers, dict[str, list[int]]]) -> Answers:
    return before_and_terms[0]


def test_searches_find_the_same(open_small: OpenMemory, before: Answers) -> None:
    for read_only in (True, False):
        with open_small(read_only=read_only) as memory:
            assert found(memory) == before
            assert "is damaged" in memory.check().problems[0]


def test_maintenance_makes_a_new_vocabulary(
    open_small: OpenMemory, before_and_terms: tuple[Answers, dict[str, list[int]]]
) -> None:
    before, terms_before = before_and_terms
    with open_small() as memory:
        old = vocabularies(memory)
        memory.maintain()
        new = vocabularies(memory)
        assert new
        assert not new & old, "the damaged one is gone"
        assert {row.terms_codec for row in memory._store.all_rows("ann")} <= new
        assert memory.check().ok
    with open_small() as memory:
        assert memory.check().ok
        # The vectors were encoded again too, so scores may differ in the third digit.
        assert [{id_ for id_, _ in hits} for hits in found(memory)] == [
            {id_ for id_, _ in hits} for hits in before
        ]
        assert [hits[0][0] for hits in found(memory)] == [hits[0][0] for hits in before]
        assert terms(memory) == terms_before


def test_new_memories_are_found_beside_those_of_the_damaged_vocabulary(
    open_small: OpenMemory, before: Answers
) -> None:
    with open_small(maintenance="manual") as memory:
        memory.add("ann", "a zeppelin over the lake", id="new", tier="ltm")
        assert memory.search("ann", "zeppelin")[0].id == "new"
        assert memory.search("ann", "memory 77")[0].id == "77"
        memory.update("ann", "77", content="now a zeppelin too")
        assert {hit.id for hit in memory.search("ann", "zeppelin", k=2)} == {"new", "77"}
