"""Embedders: the default one without network, states with numbers, and functions of the user."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import reference_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st
from small_embedder import small_embedder

from memory import AgentMemorySystem
from memory._base.content import leaves_of
from memory.embedding import (
    ContentEmbedder,
    FunctionEmbedder,
    WeightedEmbedder,
    WordLlamaEmbedder,
    count_tokens,
    render,
    tokens,
    wordllama,
)
from memory.embedding.byte_pairs import MARK
from memory.embedding.files import read_vectors
from memory.errors import AgentMemoryError, EmbedderMismatch, InvalidMemory

Open = Callable[..., AgentMemorySystem]
TOKEN_VECTORS = read_vectors()
any_text = st.text(st.characters(exclude_categories=()))


@pytest.fixture(scope="module")
def words() -> WordLlamaEmbedder:
    return WordLlamaEmbedder()


@pytest.fixture(scope="module")
def contents(words: WordLlamaEmbedder) -> ContentEmbedder:
    return ContentEmbedder(words)


def embed_states(contents: ContentEmbedder, *states: Any) -> np.ndarray:
    return contents.embed([render(leaves_of(state)) for state in states])


# -- the default embedder -----------------------------------------------------------------------------


def test_the_default_loads_without_network_and_without_running_its_package() -> None:
    program = """
import socket, sys
def refuse(*args, **options):
    raise AssertionError("the embedder used the network")
socket.socket = socket.create_connection = socket.getaddrinfo = refuse
from memory.embedding import WordLlamaEmbedder
vector = WordLlamaEmbedder().embed(["a cat"])
assert vector.shape == (1, 256)
others = ("wordllama", "tokenizers", "torch", "requests", "huggingface_hub")
print([name for name in others if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[]\n", "")


TEXTS = ["a cat", "The cat sat on the mat.", "x", "日本語", "😀", "a\0b", "word " * 5000, "?!", " "]


def test_rows_have_unit_length_and_are_equal_alone_and_in_a_batch(words: WordLlamaEmbedder) -> None:
    batch = words.embed(TEXTS)
    assert (batch.shape, batch.dtype) == ((len(TEXTS), 256), np.float32)
    lengths = np.linalg.norm(batch, axis=1)
    assert np.all((np.abs(lengths - 1) < 1e-5) | (lengths == 0))
    assert np.all(lengths[:7] > 0)
    for row, text in zip(batch, TEXTS, strict=True):
        assert words.embed([text])[0] == pytest.approx(row, abs=1e-6)
    many = words.embed(TEXTS[:6] * 120)
    assert np.allclose(many, np.tile(batch[:6], (120, 1)), atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(any_text, max_size=4))
def test_any_texts_have_finite_vectors(words: WordLlamaEmbedder, texts: list[str]) -> None:
    vectors = words.embed(texts)
    assert vectors.shape == (len(texts), 256)
    assert np.isfinite(vectors).all()
    for row, text in zip(vectors, texts, strict=True):
        assert np.allclose(words.embed([text])[0], row, atol=1e-6)
        assert np.isfinite(words.embed_weighted(text, lambda word: 2.0)).all()


def expected_vector(text: str) -> np.ndarray:
    """Return the mean of the whole text's tokens, scaled to unit length, in double precision."""
    cleaned = text[: tokens.MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")
    total = TOKEN_VECTORS[reference_tokenizer.encode(cleaned).ids].astype(np.float64).sum(axis=0)
    return total / (np.linalg.norm(total) or 1.0)


def assert_expected_vectors(words: WordLlamaEmbedder, texts: Sequence[str]) -> None:
    batch = words.embed(texts)
    assert batch.shape == (len(texts), 256)
    for row, text in zip(batch, texts, strict=True):
        expected = expected_vector(text)
        assert np.allclose(row, expected, atol=1e-5)
        assert np.allclose(words.embed([text])[0], expected, atol=1e-5)


pieces = st.sampled_from(
    [
        "a", "goal", "goals", "name", "item_7;", "Über", "日本", "\n", "\t", "\0", "\u00a0", "\ud800", 
        "x" * 60, "", " ", "\u2581", "a\u2581", "\u2581b", "<s>", "</s>", "<unk>", "a<s>b", "<", "s>",
    ]
)  # fmt: skip
repetitive = st.builds(
    lambda words, times, glue: glue.join(words * times),
    st.lists(pieces | any_text, max_size=8),
    st.integers(1, 40),
    st.sampled_from([" ", " ", "; ", "  ", ""]),
)


@settings(max_examples=150, deadline=None)
@given(texts=st.lists(repetitive, max_size=5))
def test_a_vector_is_the_mean_of_the_tokens_of_repetitive_texts_too(
    words: WordLlamaEmbedder, texts: list[str]
) -> None:
    assert_expected_vectors(words, texts)


@settings(max_examples=150, deadline=None)
@given(text=repetitive)
def test_tokenizing_word_by_word_equals_tokenizing_the_whole_text(text: str) -> None:
    cleaned = text.encode("utf-8", "replace").decode("utf-8")
    whole = reference_tokenizer.encode(cleaned)
    for _ in range(2):  # not cached, then cached
        if len(text) <= tokens.MAX_CHARACTERS:
            pieces = tokens.pieces_of(text)
            assert [token for piece in pieces for token in piece.tokens] == whole.ids
            assert count_tokens(text) == len(whole.ids)
            assert all(len(piece.tokens) == len(tokens.words_of_tokens(piece)) for piece in pieces)


def test_a_token_belongs_to_its_word_and_punctuation_to_none() -> None:
    pieces = tokens.pieces_of("Ann's saxophone, 2023!")
    words = [word for piece in pieces for word in tokens.words_of_tokens(piece)]
    assert {"Ann", "s", "saxophone", "2023", None} == set(words)
    assert words[-1] is None


@settings(max_examples=150, deadline=None)
@given(word=st.text(st.characters(categories=["L", "N"]), min_size=1, max_size=12))
def test_all_tokens_of_a_plain_word_except_the_mark_belong_to_it(word: str) -> None:
    (piece,) = tokens.pieces_of(word)
    encoding = reference_tokenizer.encode(piece.text)
    expected = [None if token == MARK else piece.text for token in encoding.tokens]
    for _ in range(2):  # not cached, then cached
        assert tokens.words_of_tokens(piece) == expected


def test_long_short_and_empty_texts_in_one_batch_do_not_affect_each_other(
    words: WordLlamaEmbedder,
) -> None:
    different = " ".join(f"word{number}" for number in range(4000))
    repeated = "; ".join(f"goals subgoals sub {number % 7}" for number in range(3000))
    texts = [
        "",
        repeated,
        "a cat",
        different,
        "日本語" * 8000,
        "w" * 30_000,
        "",
        "a " * 9,
        " a" * 9,
        repeated[:400],
    ]
    assert_expected_vectors(words, texts)
    assert np.allclose(words.embed(texts * 60), np.tile(words.embed(texts), (60, 1)), atol=1e-6)


def test_a_full_word_cache_changes_no_vector(
    words: WordLlamaEmbedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "_CACHED_PIECES", 10)
    monkeypatch.setattr(tokens, "_pieces", {})
    for size in (3, 6, 9, 30, 600, 2):
        texts = [" ".join([f"w{number}x{text}" for number in range(size)] * 2) for text in range(3)]
        for _ in range(2):
            assert_expected_vectors(words, texts)
            assert len(tokens._pieces) <= 10


def test_the_table_of_used_tokens_grows_and_keeps_every_vector(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wordllama, "core", None)  # the compiled core needs no table
    monkeypatch.setattr(wordllama, "_FIRST_SIZE", 4)
    monkeypatch.setattr(wordllama, "_wide", wordllama._WideVectors(0, {}))
    numbers = np.random.default_rng(1).permutation(len(TOKEN_VECTORS)).tolist()
    for end in (1, 3, 5, 6, 40, 1_000, 1_001, len(numbers)):
        found = wordllama._vectors_of(numbers[:end])
        assert np.array_equal(found, TOKEN_VECTORS[numbers[:end]].astype(np.float32))
        assert end <= len(wordllama._wide.vectors) <= len(numbers)
    assert len(wordllama._wide.places) == len(numbers)


def test_an_empty_text_is_the_zero_vector(words: WordLlamaEmbedder) -> None:
    assert not words.embed([""]).any()
    batch = words.embed(["", "a cat", ""])
    assert batch.any(axis=1).tolist() == [False, True, False]
    assert not words.embed_weighted("", lambda word: 1.0).any()
    assert words.embed([]).shape == (0, 256)


def test_similar_texts_are_nearer_than_different_ones(words: WordLlamaEmbedder) -> None:
    cat, kitten, tax = words.embed(["a cat sleeps", "the kitten is napping", "income tax of companies"])
    assert cat @ kitten > cat @ tax + 0.1


@pytest.mark.parametrize(
    "text", ["the cat sat", "Unbelievable antidisestablishmentarianism", "Zürich über alles"]
)
def test_equal_weights_give_the_unweighted_vector(words: WordLlamaEmbedder, text: str) -> None:
    plain = words.embed([text])
    for weight in (1.0, 0.25, 7.0):
        assert np.allclose(words.embed_weighted(text, lambda word, weight=weight: weight), plain, atol=1e-5)


def test_a_word_with_more_weight_moves_the_vector_towards_it(words: WordLlamaEmbedder) -> None:
    weighed_words: list[str] = []

    def weight(word: str) -> float:
        weighed_words.append(word)
        return 10.0 if word == "saxophone" else 1.0

    saxophone = words.embed(["saxophone"])[0]
    weighted = words.embed_weighted("Ann plays the saxophone, Ann?", weight)[0]
    assert weighed_words == ["Ann", "plays", "the", "saxophone"]
    assert weighted @ saxophone > words.embed(["Ann plays the saxophone, Ann?"])[0] @ saxophone
    assert np.linalg.norm(weighted) == pytest.approx(1.0, abs=1e-5)


def test_weights_of_zero_give_the_unweighted_vector(words: WordLlamaEmbedder) -> None:
    zero = words.embed_weighted("the cat", lambda word: 0.0)
    assert np.allclose(zero, words.embed(["the cat"]), atol=1e-5)
    assert np.allclose(words.embed_weighted("?!...", lambda word: 1.0), words.embed(["?!..."]), atol=1e-5)


def test_only_the_default_embedder_supports_weights(words: WordLlamaEmbedder) -> None:
    assert isinstance(words, WeightedEmbedder)
    assert not isinstance(small_embedder(), WeightedEmbedder)


# -- states ---------------------------------------------------------------------------------------


def test_near_numbers_have_near_vectors(contents: ContentEmbedder) -> None:
    base, near, far, farther = embed_states(
        contents, *({"x": value, "status": "walking"} for value in (10.0, 10.5, 14.0, 90.0))
    )
    assert base @ near > base @ far > base @ farther
    assert base @ near > 0.95


def test_a_number_counts_at_its_own_path(contents: ContentEmbedder) -> None:
    one, same, swapped = embed_states(
        contents, {"x": 1.0, "y": 50.0}, {"y": 50.0, "x": 1.0}, {"x": 50.0, "y": 1.0}
    )
    assert one @ same > 0.9999
    assert one @ swapped < 0.9


@given(
    state=st.dictionaries(
        st.text(max_size=4), st.integers() | st.text(max_size=5) | st.booleans(), max_size=6
    )
)
@settings(max_examples=40, deadline=None)
def test_the_order_of_keys_does_not_matter(contents: ContentEmbedder, state: dict[str, Any]) -> None:
    turned = dict(reversed(state.items()))
    one, other = embed_states(contents, {"a": state}, {"a": turned})
    assert one == pytest.approx(other, abs=1e-5)


def test_a_vector_is_the_same_in_every_process(contents: ContentEmbedder) -> None:
    program = (
        "from memory._base.content import leaves_of; from memory.embedding import *; import sys;"
        "state = {'x': 1.5, 'words': 'a cat'};"
        "sys.stdout.buffer.write(ContentEmbedder(WordLlamaEmbedder()).embed([render(leaves_of(state))]).tobytes())"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    there = np.frombuffer(done.stdout, np.float32)
    assert there == pytest.approx(embed_states(contents, {"x": 1.5, "words": "a cat"})[0], abs=1e-6)


@pytest.mark.parametrize(
    "state",
    [
        {}, [], None, True, 5, {"x": 10**400}, {"x": -(10**400)}, {"x": 1.797e308}, {"x": 5e-324},
        {"\ud800": 1, "x": "\udfff"}, {"": {"": 0}}, [[[]]], list(range(5000)), {"x": [1, "a", None, {}]},
    ],
    ids=lambda state: repr(state)[:20],
)  # fmt: skip
def test_every_state_has_a_finite_vector_of_length_one_or_zero(
    contents: ContentEmbedder, state: Any
) -> None:
    vector = embed_states(contents, state)[0]
    assert np.isfinite(vector).all()
    length = float(np.linalg.norm(vector))
    assert length == pytest.approx(1.0, abs=1e-4) or length == 0.0
    both = embed_states(contents, state, "another")
    assert both[0] == pytest.approx(vector, abs=1e-5)


def nested(size: int) -> dict[str, Any]:
    return {
        "position": [number / 7 for number in range(3 * size)],
        "inventory": [f"item_{number * size}" for number in range(5 * size)],
        "attributes": {f"attribute_{number}": number**2 / 3 for number in range(10 * size)},
        "goals": [
            {"name": f"goal_{goal}", "subgoals": [f"sub {sub}" for sub in range(size)]}
            for goal in range(size)
        ],
        "status": "active",
    }


def test_states_have_the_same_vector_alone_and_in_a_batch(contents: ContentEmbedder) -> None:
    states = [nested(10), {}, nested(1), "a cat", nested(20), {"x": list(range(3000))}, nested(5), "", 3.5]
    batch = embed_states(contents, *states)
    for row, state in zip(batch, states, strict=True):
        assert row == pytest.approx(embed_states(contents, state)[0], abs=1e-6)


def test_the_numbers_of_a_list_add_up_at_their_path(contents: ContentEmbedder) -> None:
    one, two, both = embed_states(contents, {"x": [1.0]}, {"x": [40.0]}, {"x": [1.0, 40.0]})
    mean = one + two
    assert both @ mean / np.linalg.norm(mean) > 0.95
    turned, repeated = embed_states(contents, {"x": [40.0, 1.0]}, {"x": [1.0, 40.0] * 500})
    assert turned == pytest.approx(both, abs=1e-5)
    assert repeated == pytest.approx(both, abs=1e-5)


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
def test_a_null_does_not_change_the_words(contents: ContentEmbedder) -> None:
    words, with_nan, with_infinity = embed_states(
        contents, {"what": "a cat"}, *({"what": "a cat", "x": value} for value in (np.nan, np.inf))
    )
    assert with_nan == pytest.approx(words, abs=1e-5)
    assert with_infinity == pytest.approx(words, abs=1e-5)


def test_huge_whole_numbers_keep_their_sign(contents: ContentEmbedder) -> None:
    large, larger, negative = embed_states(contents, {"x": 10**400}, {"x": 10**401}, {"x": -(10**400)})
    assert large @ larger > 0.99
    assert large @ negative < 0.9


def test_a_plain_text_is_embedded_unchanged(contents: ContentEmbedder, words: WordLlamaEmbedder) -> None:
    assert embed_states(contents, "a cat")[0] == pytest.approx(words.embed(["a cat"])[0], abs=1e-6)


# -- a function of the user -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "returned",
    [
        lambda texts: np.ones((len(texts), 7)),
        lambda texts: np.ones((len(texts) + 1, 8)),
        lambda texts: np.ones(8),
        lambda texts: [],
        lambda texts: [[1.0], [2.0, 3.0]],
        lambda texts: [["a"] * 8] * len(texts),
        lambda texts: None,
        lambda texts: [[float("nan")] * 8] * len(texts),
        lambda texts: [[float("inf")] * 8] * len(texts),
    ],
)
def test_invalid_vectors_of_an_embedder_are_refused_and_nothing_is_stored(
    open_memory: Open, returned: Callable[[Sequence[str]], Any]
) -> None:
    memory = open_memory(embedder=FunctionEmbedder(returned, name="mine", dimensions=8))
    with pytest.raises(InvalidMemory, match="mine"):
        memory.add("ann", "x")
    with pytest.raises(InvalidMemory, match="mine"):
        memory.add_many([{"agent_id": "ann", "content": "x"}, {"agent_id": "ann", "content": "y"}])
    assert memory.get_memory_statistics()["total"] == 0


def test_an_exception_of_the_embedding_function_is_raised_unchanged(open_memory: Open) -> None:
    def broken(texts: Sequence[str]) -> Any:
        raise ConnectionError("the endpoint is down")

    memory = open_memory(embedder=FunctionEmbedder(broken, name="mine", dimensions=8))
    with pytest.raises(ConnectionError):
        memory.add("ann", "x")
    assert memory.get_memory_statistics()["total"] == 0
    id_ = memory.add("ann", "x", vector=[1.0] * 8)
    assert memory.retrieve_similar_states("ann", np.ones(8))[0].id == id_


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_rows_of_an_embedder_may_have_any_length(open_memory: Open, scale: float) -> None:
    plain = small_embedder()

    def scaled(texts: Sequence[str]) -> Any:
        return np.asarray(plain.embed(texts), np.float64) * scale

    memory = open_memory(embedder=FunctionEmbedder(scaled, name="scaled", dimensions=plain.dimensions))
    for text in ("a cat", "a dog", "two birds"):
        memory.add("ann", text, id=text)
    memory.add("ann", {"x": 1, "what": "a cat"}, id="state")
    for text in ("a cat", "a dog", "two birds"):
        hit = memory.retrieve_similar_states("ann", text, 1)[0]
        assert hit.id == text
        assert hit.score == pytest.approx(1.0, abs=0.01)
        assert memory.search("ann", text, 1)[0].id == text


@pytest.mark.parametrize("dimensions", [1, 3, 63, 64, 65, 384, 1024])
def test_an_embedder_of_any_dimension_works_end_to_end(open_memory: Open, dimensions: int) -> None:
    memory = open_memory(embedder=small_embedder(dimensions), ltm={"codec": "int8"})
    texts = [f"word{number} and something" for number in range(30)]
    ids = memory.add_many([{"agent_id": "ann", "content": text} for text in texts])
    memory.store_agent_state("ann", {"x": 1.0, "y": [2, 3]}, state_id="state")
    memory.force_transition_to_im(60)
    memory.force_transition_to_ltm(50)
    memory.close()
    again = open_memory(embedder=small_embedder(dimensions), ltm={"codec": "int8"})
    for number in (0, 15, 29):
        assert again.search("ann", f"word{number}", 1)[0].id == ids[number]
        if dimensions > 60:
            assert again.retrieve_similar_states("ann", texts[number], 1)[0].id == ids[number]
    assert len(again.retrieve_similar_states("ann", {"x": 1.0, "y": [2, 3]}, 100)) == 31


@pytest.mark.parametrize("dimensions", [48, 300])
def test_the_default_codec_fits_vectors_of_another_dimension(open_memory: Open, dimensions: int) -> None:
    memory = open_memory(embedder=small_embedder(dimensions))
    texts = [f"word{number} word{number + 1} the end" for number in range(2000)]
    ids = memory.add_many([{"agent_id": "ann", "content": text} for text in texts])
    memory.maintain()
    assert memory.get_encoder("ltm").name == "centred"
    memory.force_consolidation()
    assert memory.search("ann", texts[77], 1)[0].id == ids[77]
    memory.drop_caches()
    assert memory.retrieve_similar_states("ann", texts[77], 1)[0].id == ids[77]


@pytest.mark.parametrize(
    "other", [small_embedder(64), small_embedder(name="other"), None], ids=["dimension", "name", "default"]
)
def test_a_file_can_only_be_opened_with_its_embedder(open_memory: Open, other: Any) -> None:
    memory = open_memory(embedder=small_embedder())
    memory.add("ann", "x", id="x")
    memory.close()
    with pytest.raises(EmbedderMismatch, match="words-by-hash") as caught:
        open_memory(embedder=other)
    assert isinstance(caught.value, AgentMemoryError)
    assert open_memory(embedder=small_embedder()).exists("ann", "x")
