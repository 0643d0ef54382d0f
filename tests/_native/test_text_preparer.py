"""TextPreparer: what it stores of a text is what the functions in pure Python store."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory import AgentMemorySystem, ManualClock, MemoryConfig
from memory._base.content import digest_of, encode_body, leaves_of
from memory._base.native import PreparedText, TextPreparer, core
from memory._base.unit_vectors import unit
from memory._write.intake import NewMemory
from memory.embedding import WordLlamaEmbedder
from memory.embedding.tokens import compiled_tokenizer
from memory.embedding.wordllama import _embed_compiled, text_preparer
from memory.search.terms import kind_terms, term_cache, terms_of_memory

pytestmark = pytest.mark.skipif(core is None, reason="there is no compiled core")

NO_METADATA = b"\x80"
ENDING = kind_terms("text")
TEXTS = ["", " ", "a", "Ann likes tea.", "日本 café  x", "<s> odd </s>", "a\0b", "word " * 40, "x" * 30]


@pytest.fixture(scope="module")
def preparer() -> TextPreparer:
    terms = term_cache()
    assert terms is not None
    found = text_preparer(terms)
    assert found is not None
    return found


def by_the_twins(text: str) -> PreparedText:
    tokenizer = compiled_tokenizer()
    assert tokenizer is not None
    vector = _embed_compiled(tokenizer, [text])[0].tobytes()
    terms = terms_of_memory(leaves_of(text), "text", [], [], None)
    return encode_body(text, {}), digest_of(text), vector, terms


@pytest.mark.parametrize("text", TEXTS)
def test_a_text_is_prepared_as_the_twins_do(preparer: TextPreparer, text: str) -> None:
    assert preparer.of_text(text, NO_METADATA, ENDING) == by_the_twins(text)


@settings(max_examples=200)
@given(st.text(max_size=300))
def test_any_text_is_prepared_as_the_twins_do(preparer: TextPreparer, text: str) -> None:
    found = preparer.of_text(text, NO_METADATA, ENDING)
    assert found is None or found == by_the_twins(text)


LENGTHS = [1, 30, 31, 32, 33, 125, 126, 127, 128, 129, 253, 254, 255, 256, 257, 384, 400, 9_000]


@pytest.mark.parametrize("text", ["x " + "y" * length for length in LENGTHS] + ["x " + "😀" * 19_998])
def test_body_and_digest_of_every_length(preparer: TextPreparer, text: str) -> None:
    """The heads of texts change their lengths here, and so does the number of blocks of the digest."""
    found = preparer.of_text(text, NO_METADATA, ENDING)
    assert found is not None
    assert found == by_the_twins(text)


@pytest.mark.parametrize("text", ["\ud800", "w " * 60, "x" * 20_001, 7, None, b"x"])
def test_what_only_the_twins_can_prepare_is_none(preparer: TextPreparer, text: Any) -> None:
    assert preparer.of_text(text, NO_METADATA, ENDING) is None
    assert preparer.of_texts(["a", text, "b"], [NO_METADATA] * 3, [ENDING] * 3, True) == [
        by_the_twins("a"),
        None,
        by_the_twins("b"),
    ]


def test_many_texts_are_prepared_as_one_is(preparer: TextPreparer) -> None:
    endings = [ENDING, b"", ENDING * 500] * 3
    metadata = [NO_METADATA, msgspec.msgpack.encode({"a": "b" * 5000}), b""] * 3
    assert preparer.of_texts(TEXTS, metadata, endings, True) == [
        preparer.of_text(*values) for values in zip(TEXTS, metadata, endings, strict=True)
    ]
    assert preparer.of_texts([], [], [], True) == []


def test_threads_can_share_a_preparer(preparer: TextPreparer) -> None:
    expected = [by_the_twins(text) for text in TEXTS] * 20
    found: list[list[PreparedText | None]] = []

    def prepare() -> None:
        texts = TEXTS * 20
        found.append(preparer.of_texts(texts, [NO_METADATA] * len(texts), [ENDING] * len(texts), True))

    threads = [threading.Thread(target=prepare) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 4


def test_wrong_arguments_are_refused(preparer: TextPreparer) -> None:
    assert core is not None
    calls: list[tuple[Any, ...]] = [(), ("a",), ("a", "b", b"")]
    for arguments in calls:
        with pytest.raises(TypeError):
            preparer.of_text(*arguments)
    with pytest.raises(ValueError, match="every text"):
        preparer.of_texts(["a"], [b""], [], True)
    with pytest.raises(TypeError):
        preparer.of_texts(["a"], [b""], [None], True)  # type: ignore[list-item]
    tokenizer, terms = compiled_tokenizer(), term_cache()
    vectors = np.zeros((32_000, 4), np.float16)
    wrong: list[tuple[Any, ...]] = [
        (terms, vectors, 48, terms),
        (tokenizer, vectors, 48, tokenizer),
        (tokenizer, vectors.astype(np.float32), 48, terms),
        (tokenizer, vectors, 48),
    ]
    for arguments in wrong:
        with pytest.raises(TypeError):
            core.TextPreparer(*arguments)
    for values in (vectors[:-1], vectors[:0]):
        with pytest.raises(ValueError, match="components"):
            core.TextPreparer(tokenizer, values, 48, terms)


def test_a_zero_vector_stays_zero() -> None:
    assert not unit(np.zeros(4, np.float32)).any()
    assert not WordLlamaEmbedder().embed([""]).any()


MEMORIES = [
    NewMemory(agent_id="a", content="Ann likes tea."),
    NewMemory(agent_id="a", content="Ann likes tea.", kind="note", tier="im", importance=2),
    NewMemory(agent_id="a", content="tea", tier="ltm", timestamp=1_600_000_000.0, step=7),
    NewMemory(agent_id="b", content="tea", metadata={"speaker": "Ann", "session_id": 3, "n": [1.5, None]}),
    NewMemory(agent_id="b", content="tea", metadata={"big": 1 << 70}),
    NewMemory(agent_id="b", content="half \ud800", metadata={"speaker": "Bob"}),
    NewMemory(agent_id="b", content="long " * 100, id="given"),
    NewMemory(agent_id="c", content={"text": "tea", "x": 1.5}, metadata={"speaker": "Ann"}),
    NewMemory(agent_id="c", content="tea", vector=[1.0] * 256),
    NewMemory(agent_id="c", content="long " * 100, vector=[1.0] * 256, tier="ltm", metadata={"n": 1}),
    NewMemory(agent_id="c", content="", vector=[2.0] * 256, tier="im", timestamp=1_600_000_000.0),
    NewMemory(agent_id="c", content="half \ud800", vector=[1.0] * 256),
    NewMemory(agent_id="c", content={"x": 1}, vector=[1.0] * 256),
]


def test_rows_are_the_same_with_and_without_the_preparer() -> None:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = ":memory:"
    with AgentMemorySystem(config, clock=ManualClock()) as memory:
        intake = memory._intake
        assert intake._find_preparer() is not None
        with_it = intake.rows(MEMORIES)
        alone = [intake.row(new) for new in MEMORIES]
        intake._preparer, intake._has_preparer = None, False
        without = [intake.row(new) for new in MEMORIES]

    def shown(row: Any) -> Any:
        return msgspec.structs.replace(row, id=row.id if not row.has_new_id else "")

    assert [shown(row) for row in alone] == [shown(row) for row in without]
    assert [shown(row) for row in with_it] == [shown(row) for row in without]
