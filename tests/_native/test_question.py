"""A search by text in one native call: the same matches as the other way, for every kind of question."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from typing import Any

import numpy as np
import pytest

from memory import AgentMemorySystem
from memory._base.native import core
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts
from memory.search import ranking
from memory.search.index import AgentIndex
from memory.search.question import pieces_of_question
from memory.search.ranking import Match, by_text

needs_core = pytest.mark.skipif(core is None, reason="the compiled core was not built")
Open = Callable[..., AgentMemorySystem]
NOW = 1_700_000_000.0
ODD_QUESTIONS = [
    "",
    " ",
    "?",
    "the of and",
    "Zebra",
    "zebra zebras ZEBRA zebra",
    "What did I say in May 2023?",
    "What is my plan, and what did Caroline say last week?",
    "what did caroline think of Carolin's plan?",
    "What happened on November 11th, or on the 2nd?",
    "two  spaces",
    " a space before",
    "a space after ",
    "a\ttab and\na new line",
    "naïve café, 日本語 and Zürich",
    "<s> special </s>",
    "semi-detached well-known state-of-the-art o'clock don't",
    "x" * 3000,
    " ".join(f"word{number}" for number in range(63)),
    " ".join(f"word{number}" for number in range(300)),
    "a-" * 300,
    "\ud800 lone",
]


def view_of(memory: AgentMemorySystem) -> AgentIndex:
    index = memory._searcher._indexes.index("ann")
    with index.lock:
        index.catch_up()
        return index.view()


def both_ways(memory: AgentMemorySystem, question: str, k: int = 10) -> tuple[list[Match], list[Match]]:
    index, query_vector = view_of(memory), memory._searcher._query_vector
    assert query_vector.token_vectors is not None
    found = []
    for way in (query_vector, query_vector._replace(token_vectors=None)):
        matches = by_text(index, question, way, k, index.living, NOW)
        assert matches is not None
        assert len(matches) == len(matches.features(0))
        found.append(matches.matches())
    return found[0], found[1]


def metadata_of(number: int, kind: str) -> dict[str, Any]:
    if kind == "sessions":
        return {"session": number // 12}
    if kind == "speakers":
        return {"session": number // 12, "speaker": ("Caroline Meyer", "Bob", "user")[number % 3]}
    return {}


@needs_core
@pytest.mark.parametrize("kind", ["plain", "sessions", "speakers"])
@pytest.mark.parametrize("count", [1, 7, 300, 2500])
def test_one_call_finds_what_many_calls_find(open_memory: Open, count: int, kind: str) -> None:
    memory, texts = open_memory(), memory_texts(count)
    questions = [*ODD_QUESTIONS, *islice(question_texts(count + 1), 60)]
    ids = memory.add_many(
        {"agent_id": "ann", "content": text, "metadata": metadata_of(number, kind)}
        for number, text in enumerate(islice(texts, count))
    )
    for round_number in range(3):
        for question in questions:
            assert both_ways(memory, question)[0] == both_ways(memory, question)[1], question
        # Next: memories in the tail of the postings; then also deleted ones.
        ids += [memory.add("ann", text, metadata=metadata_of(0, kind)) for text in islice(texts, 20)]
        if round_number:
            memory.delete_many("ann", random.Random(count).sample(ids, len(ids) // 20))


@needs_core
def test_replaced_memories_are_found_by_their_new_words(open_memory: Open) -> None:
    memory = open_memory()
    ids = [memory.add("ann", f"number {number} of the apples") for number in range(40)]
    memory.search("ann", "apples")
    memory.update("ann", ids[3], content="a purple giraffe")
    one, other = both_ways(memory, "who is purple?")
    assert one == other
    assert one[0].words == ("purple",)


@needs_core
def test_usual_questions_take_the_short_way(open_memory: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = open_memory()
    memory.add_many(
        {"agent_id": "ann", "content": text, "metadata": {"role": "user"}}
        for text in islice(memory_texts(3), 50)
    )
    monkeypatch.setattr(ranking, "rank", lambda *_: pytest.fail("the long way"))
    for question in (*islice(question_texts(4), 50), "What is my name?", "What did the user say in May?"):
        assert memory.search("ann", question)


def test_pieces_are_the_same_with_and_without_the_cache() -> None:
    question = "Where did Ann's sister-in-law go on the 3rd?"
    assert pieces_of_question(question) == pieces_of_question(question)
    assert pieces_of_question("a  b") is None


@needs_core
def test_pieces_of_another_form_are_refused(open_memory: Open) -> None:
    assert core is not None
    memory = open_memory()
    memory.add("ann", "an apple")
    index = view_of(memory)
    block = index.only_block
    assert block is not None
    vectors = memory._searcher._query_vector.token_vectors
    assert vectors is not None
    good = (("apple",), b"1234", b"\1", b"", b"\1\0\0\0", b"1234")
    columns = index.columns
    parts = [block.vectors.arrays, block.postings.for_core(), (columns.seq, columns.tier, columns.length)]

    def ranked(piece: Any, count: int = 1, k: int = 10, parts: list[Any] = parts) -> Any:
        return core.rank_question(
            [piece], True, k, (count, 1, 2.0, *parts, None, None), vectors(), None, None, ranking._CONSTANTS
        )

    assert ranked(good) is not None
    for bad in (
        (),
        ("apple",),
        (["apple"], *good[1:]),
        (*good[:1], b"123", *good[2:]),
        (*good[:1], b"12345678", *good[2:]),
        (*good[:4], b"\xff\xff\xff\x7f", good[5]),
        (*good[:4], b"\xff\xff\xff\xff", good[5]),
        (*good[:5], b""),
    ):
        with pytest.raises((ValueError, TypeError)):
            ranked(bad)
    for count, k in ((0, 1), (1 << 17, 1), (1, 0), (2, 1)):
        with pytest.raises(ValueError, match=r"memories|elements"):
            ranked(good, count, k)
    terms, far = np.array([7], np.uint32), np.array([5 << 8 | 1], np.uint32)
    piece = (("apple",), terms.tobytes(), b"\1", b"", b"", b"")
    for starts, message in (([0, 1], "outside of 1 memories"), ([0, 9], "outside of the postings")):
        outside = (terms, np.array(starts), far, None, 1 << 24)
        with pytest.raises(ValueError, match=message):
            ranked(piece, parts=[parts[0], outside, parts[2]])
