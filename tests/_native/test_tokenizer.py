"""The compiled tokenizer and its twin give the same tokens and the same vectors, bit for bit."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory._base.native import Tokenizer, core
from memory.embedding import WordLlamaEmbedder, count_tokens, tokens, wordllama
from memory.embedding.files import read_vocabulary

pytestmark = pytest.mark.skipif(core is None, reason="there is no compiled core")

PARTS = [
    "a", "b", " ", "  ", "<s>", "</s>", "<unk>", "\u2581", "<0x0A>", "\n", "\0", "é", "İ", "日本", "한",
    "😀", "\ud800", "www", "the", "-", "_", "'", "12", "\u0301", "<", "s>", "tokenizers", "Unbelievable",
]  # fmt: skip
TEXTS = st.lists(st.sampled_from(PARTS), max_size=40).map("".join) | st.text(max_size=200)
LONG = ["", "w" * 20_000, " " * 20_001, "日本" * 11_000, "ab cd " * 4000, "<s>" * 100, "x " * 49, "x " * 48]


@contextmanager
def pure_python() -> Iterator[None]:
    """Use the twins, with caches of their own."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (tokens, wordllama):
            patch.setattr(module, "core", None)
        patch.setattr(tokens, "_tokenizer", None)
        for cache in ("_pieces", "_counts", "_words"):
            patch.setattr(tokens, cache, {})
        yield


def compiled_and_pure(function: Callable[[], Any]) -> tuple[Any, Any]:
    compiled = function()
    with pure_python():
        return compiled, function()


def tokenizer() -> Tokenizer:
    found = tokens.compiled_tokenizer()
    assert found is not None
    return found


def tokens_of(text: str) -> list[int]:
    found = tokens.compiled_tokenizer()
    if found is not None:
        return found.tokens(text)
    return [token for piece in tokens.pieces_of(text) for token in piece.tokens]


def weight(word: str) -> float:
    return float(len(word) % 4)


@given(TEXTS)
@settings(max_examples=250, deadline=None)
def test_any_text_has_the_same_tokens_and_the_same_vector(text: str) -> None:
    embedder = WordLlamaEmbedder()
    compiled, pure = compiled_and_pure(
        lambda: (
            tokens_of(text),
            count_tokens(text),
            embedder.embed([text]).tobytes(),
            embedder.embed_weighted(text, weight).tobytes(),
        )
    )
    assert compiled == pure


@pytest.mark.parametrize("text", LONG, ids=lambda text: f"{text[:6]!r} x {len(text)}")
def test_long_texts_have_the_same_tokens_and_the_same_vector(text: str) -> None:
    compiled, pure = compiled_and_pure(
        lambda: (tokens_of(text), count_tokens(text), WordLlamaEmbedder().embed([text]).tobytes())
    )
    assert compiled == pure


@given(st.lists(TEXTS, max_size=12))
@settings(max_examples=60, deadline=None)
def test_a_batch_has_the_same_vectors(texts: list[str]) -> None:
    longer = ["x " * 48, "x y " * 30, "", "w" * 200]
    compiled, pure = compiled_and_pure(lambda: WordLlamaEmbedder().embed([*texts, *longer]).tobytes())
    assert compiled == pure


def test_every_token_of_the_vocabulary_is_found_by_its_text() -> None:
    texts = list(read_vocabulary())
    compiled, pure = compiled_and_pure(lambda: [tokens_of(text) for text in texts])
    assert compiled == pure


def test_threads_that_share_the_tokenizer_get_the_same_vectors() -> None:
    texts = [" ".join(f"word{number * other}" for other in range(number % 90)) for number in range(300)]
    expected = WordLlamaEmbedder().embed(texts).tobytes()
    found: list[bytes] = []

    def embed() -> None:
        for _ in range(5):
            found.append(WordLlamaEmbedder().embed(texts).tobytes())
            one = [WordLlamaEmbedder().embed([text])[0] for text in texts]
            assert np.allclose(one, np.frombuffer(expected, np.float32).reshape(len(texts), -1), atol=1e-6)

    threads = [threading.Thread(target=embed) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [expected] * 20


NARROW = np.zeros((32_000, 4), np.float16)
OUT = np.zeros(4, np.float32)


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("text", NARROW, OUT),
        (b"text", NARROW, OUT, 48),
        (None, NARROW, OUT, 48),
        ("text", NARROW.astype(np.float32), OUT, 48),
        ("text", NARROW[:-1], OUT, 48),
        ("text", NARROW[:, :0], OUT, 48),
        ("text", NARROW.T, OUT, 48),
        ("text", NARROW, OUT[:3], 48),
        ("text", NARROW, OUT.astype(np.float64), 48),
        ("text", NARROW, OUT.tobytes(), 48),
        ("text", NARROW, OUT, -1),
        ("text", NARROW, OUT, 2**70),
    ],
)
def test_wrong_arguments_of_a_sum_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises((TypeError, ValueError, BufferError, OverflowError)):
        tokenizer().sum(*arguments)
    if arguments:
        with pytest.raises((TypeError, ValueError, BufferError, OverflowError)):
            tokenizer().sums([arguments[0]], *arguments[1:])


def test_a_batch_that_is_no_list_of_texts_is_refused() -> None:
    for texts in (None, 7, ["a", b"b"], ["a", None]):
        with pytest.raises(TypeError):
            tokenizer().sums(texts, NARROW, np.zeros((2, 4), np.float32), 48)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("texts", "longest"),
    [(["a"] * 300, 10), ([], 10), (None, 10), ([b"a"] * 300, 10), (["\ud800", *map(str, range(300))], 10),
     ([str(number) for number in range(40_000)], 10), ([str(number) for number in range(300)], 0)],
)  # fmt: skip
def test_a_vocabulary_that_can_not_be_used_is_refused(texts: Any, longest: int) -> None:
    assert core is not None
    with pytest.raises((TypeError, ValueError)):
        core.Tokenizer(texts, longest)


@pytest.mark.parametrize(
    "numbers",
    [np.array([4], np.int32), np.array([-1], np.int32), np.array([0], np.int64), np.zeros(2, np.int32)],
)
def test_tokens_without_a_vector_are_refused(numbers: Any) -> None:
    assert core is not None
    with pytest.raises((TypeError, ValueError)):
        core.take_vectors(np.zeros((4, 3), np.float16), numbers, np.zeros(3, np.float32))


def test_every_float16_is_widened_exactly() -> None:
    assert core is not None
    halves = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    halves = np.where(np.isnan(halves), np.float16(1), halves)  # a NaN has no single form
    for width in (1, 32, 37):  # 1 and 37 do not fit the registers: they reach the plain code
        rows = np.ascontiguousarray(halves[: len(halves) // width * width].reshape(-1, width))
        wide = np.empty(rows.shape, np.float32)
        core.take_vectors(rows, np.arange(len(rows), dtype=np.int32), wide)
        assert wide.tobytes() == rows.astype(np.float32).tobytes()
