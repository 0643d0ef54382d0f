"""The default embedder: WordLlama's static token vectors (256 dimensions).

The vector of a text is the mean of its tokens' vectors. The package wordllama is not used: its import takes
a second, and its loader tries the network.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from memory._base.locks import fork_safe_lock
from memory._base.native import TermCache, TextPreparer, Tokenizer, core
from memory._base.unit_vectors import FloatMatrix, unit, unit_rows
from memory.embedding.files import read_vectors
from memory.embedding.tokens import Piece, compiled_tokenizer, pieces_of, words_of_tokens

_FEW_TEXTS = 8
"""The most short texts that are embedded with one `take`: more do not fit the CPU's cache."""
_FEW_PIECES = 48  # The most pieces of a short text, for which counting repeated tokens is too slow
_FIRST_SIZE = 4096  # Token vectors in the first table of float32, 1 KB each

_load_lock = fork_safe_lock()
_loaded: NDArray[np.float16] | None = None


class WordLlamaEmbedder:
    """Static vectors: about 0.02 ms for a short text. The first use loads the weights."""

    name = "wordllama-l2-supercat-256"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        """Return one unit vector for each text; zero for an empty text."""
        tokenizer = compiled_tokenizer()
        if tokenizer is not None:
            return _embed_compiled(tokenizer, texts)
        if len(texts) == 1:
            return unit(_sum_of(pieces_of(texts[0])))[None, :]
        if len(texts) <= _FEW_TEXTS:
            parts = [pieces_of(text) for text in texts]
            if all(map(_is_short, parts)):
                return unit_rows(_sums_of(parts))
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        # Embed one text at a time: the token vectors of all texts would not fit the CPU's cache.
        for row, text in enumerate(texts):
            vectors[row] = _sum_of(pieces_of(text))
        return unit_rows(vectors)

    def embed_weighted(self, text: str, weight: Callable[[str], float]) -> FloatMatrix:
        """Return one unit vector: the mean of the token vectors, weighted by the tokens' words."""
        tokens: list[int] = []
        weights: list[float] = []
        known: dict[str | None, float] = {None: 0.0}
        for piece in pieces_of(text):
            tokens += piece.tokens
            for word in words_of_tokens(piece):
                if word not in known:
                    known[word] = weight(word or "")
                weights.append(known[word])
        if not tokens:
            return np.zeros((1, self.dimensions), dtype=np.float32)
        if not any(weights):
            weights = [1.0] * len(tokens)
        # Sums of float64 hardly ever depend on their order, so the compiled core finds the same.
        total = np.array(weights) @ _vectors_of(tokens).astype(np.float64)
        return unit(total.astype(np.float32))[None, :]

    @staticmethod
    def token_vectors() -> NDArray[np.float16]:
        """Return the vectors of all tokens, which the compiled core embeds questions with."""
        return _load()


def text_preparer(terms: TermCache) -> TextPreparer | None:
    """Return a compiled preparer of texts with this embedder; None without the compiled core."""
    tokenizer = compiled_tokenizer()
    if tokenizer is None or core is None:
        return None
    return core.TextPreparer(tokenizer, _load(), _FEW_PIECES, terms)


def _embed_compiled(tokenizer: Tokenizer, texts: Sequence[str]) -> FloatMatrix:
    """Do what `embed` does, with the compiled core: the same bits."""
    narrow = _load()
    sums: FloatMatrix = np.empty((len(texts), WordLlamaEmbedder.dimensions), np.float32)
    if len(texts) == 1:
        long = tokenizer.sum(texts[0], narrow, sums, _FEW_PIECES)
        return unit(sums[0] if long is None else _sum_of_counted(*long))[None, :]
    for row in tokenizer.sums(texts, narrow, sums, _FEW_PIECES):
        long = tokenizer.sum(texts[row], narrow, sums[row], _FEW_PIECES)
        if long is not None:
            sums[row] = _sum_of_counted(*long)
    return unit_rows(sums)


def _sum_of_counted(times: bytes, vectors: bytes) -> FloatMatrix:
    rows = np.frombuffer(vectors, np.float32).reshape(-1, WordLlamaEmbedder.dimensions)
    total: FloatMatrix = np.frombuffer(times, np.float32) @ rows
    return total


def _is_short(pieces: Sequence[Piece]) -> bool:
    return 0 < len(pieces) <= _FEW_PIECES and (len(pieces) > 1 or len(pieces[0].tokens) <= _FEW_PIECES)


def _sums_of(texts: Sequence[Sequence[Piece]]) -> FloatMatrix:
    """Return the sum of the token vectors of each of a few short texts, with one `take`."""
    tokens: list[int] = []
    starts = []
    for pieces in texts:
        starts.append(len(tokens))
        for piece in pieces:
            tokens += piece.tokens
    sums: FloatMatrix = np.add.reduceat(_vectors_of(tokens), starts, axis=0)
    return sums


def _sum_of(pieces: Sequence[Piece]) -> FloatMatrix:
    """Return the sum of the token vectors of one text."""
    if pieces and not _is_short(pieces):
        return _weighted_sum(_token_counts(pieces))
    tokens = [token for piece in pieces for token in piece.tokens]
    total: FloatMatrix = np.add.reduce(_vectors_of(tokens), axis=0)
    return total


def _vectors_of(tokens: list[int]) -> FloatMatrix:
    """Return the vectors of tokens as float32, because NumPy is slow with float16."""
    if core is not None:
        rows = np.empty((len(tokens), WordLlamaEmbedder.dimensions), np.float32)
        core.take_vectors(_load(), np.array(tokens, np.int32), rows)
        return rows
    wide = _wide
    try:
        places = [wide.places[token] for token in tokens]
    except KeyError:
        wide = _widen(tokens)
        places = [wide.places[token] for token in tokens]
    return wide.vectors.take(places, axis=0)


class _WideVectors:
    """The vectors of all tokens that were used, as float32. Converting them each time is half the cost.

    Vectors are only added, and each vector is written before its entry in `places`. So readers need no
    lock. They are stored in the order of their first use, not by their numbers: the texts of an agent use
    a fifth of the tokens, but these are on most pages of a table by numbers.
    """

    def __init__(self, size: int, places: dict[int, int]) -> None:
        self.places = places
        self.vectors: FloatMatrix = np.empty((size, WordLlamaEmbedder.dimensions), np.float32)


_wide = _WideVectors(0, {})


def _widen(tokens: Sequence[int]) -> _WideVectors:
    """Return the table with these tokens added. If it is full, a larger one replaces it."""
    global _wide
    narrow = _load()
    with _load_lock:
        missing = [token for token in dict.fromkeys(tokens) if token not in _wide.places]
        first = len(_wide.places)
        needed = first + len(missing)
        if needed > len(_wide.vectors):
            larger = _WideVectors(min(max(2 * needed, _FIRST_SIZE), len(narrow)), dict(_wide.places))
            larger.vectors[:first] = _wide.vectors[:first]
            _wide = larger
        _wide.vectors[first:needed] = narrow[missing]
        _wide.places.update({token: first + number for number, token in enumerate(missing)})
        return _wide


def _load() -> NDArray[np.float16]:
    global _loaded
    if _loaded is None:
        with _load_lock:
            if _loaded is None:
                _loaded = read_vectors()
    return _loaded


def _token_counts(pieces: Sequence[Piece]) -> Counter[int]:
    """Count each token, because the rendering of a state repeats the same words many times."""
    distinct = {id(piece): piece for piece in pieces}
    counts: Counter[int] = Counter()
    for key, times in Counter(map(id, pieces)).items():
        for token in distinct[key].tokens:
            counts[token] += times
    return counts


def _weighted_sum(counts: Mapping[int, int]) -> FloatMatrix:
    times = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
    total: FloatMatrix = times @ _vectors_of(list(counts))
    return total
