"""Split texts into tokens with the vocabulary of WordLlama, with a cache of words.

The tokens of a text are the tokens of its words, one after the other (`byte_pairs`). Looking up a word's
tokens in a cache takes a hundredth of the time of tokenizing the word. Texts with repeated spaces or with
special tokens are one piece: the words of these texts can't be found by splitting at spaces.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from memory._base.locks import fork_safe_lock
from memory._base.native import Tokenizer, core
from memory.embedding.byte_pairs import MARK, SPECIAL, BytePairs, split_words
from memory.embedding.files import read_vocabulary

MAX_CHARACTERS = 20_000
"""The most characters of a text that are embedded. More would hardly change the mean of the tokens."""

_NOT_SPLIT_AT_SPACES = (MARK, *SPECIAL)
_CACHED_PIECES = 50_000  # Pieces in each cache: about 15 MB, more than the vocabulary of most agents
_LONGEST_CACHED = 40  # Characters of the longest piece that is cached: longer ones are rarely repeated
_WORD = re.compile(r"[^\W_]+")


class Piece(NamedTuple):
    """The text between two spaces, with its tokens."""

    text: str
    tokens: list[int]


_load_lock = fork_safe_lock()
_byte_pairs: BytePairs | None = None
_tokenizer: Tokenizer | None = None
_pieces: dict[str, Piece] = {}
"""Pieces by text. A full cache is replaced by an empty one, never cleared, so that readers need no lock."""
_counts: dict[str, int] = {}
"""The number of tokens of the same pieces, by text: faster than taking the length of each list."""
_words: dict[str, list[str | None]] = {}
"""By the text of a query's piece: for each token, the word that contains the token."""


def compiled_tokenizer() -> Tokenizer | None:
    """Return the compiled tokenizer, which needs no cache, or None without the compiled core."""
    if _tokenizer is None and core is not None:
        _load()
    return _tokenizer


def pieces_of(text: str) -> list[Piece]:
    """Split a text at its spaces. If that would change the tokens, return the text as one piece."""
    text = _clean(text)
    parts = text.split(" ")
    cached = _pieces
    try:
        return [cached[part] for part in parts]
    except KeyError:
        pass
    if not text:
        return []
    if "" in parts or any(map(text.__contains__, _NOT_SPLIT_AT_SPACES)):
        return [_one_piece(text)]
    new = _tokenize_and_cache({part for part in parts if part not in cached})
    return [cached.get(part) or new[part] for part in parts]


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text by Llama's tokenizer: an estimate for other models."""
    tokenizer = compiled_tokenizer()
    if tokenizer is not None and len(text) <= MAX_CHARACTERS:
        return tokenizer.count(text)
    if len(text) <= MAX_CHARACTERS and text.isascii():
        try:
            return sum(map(_counts.__getitem__, text.split(" ")))
        except KeyError:
            pass
    parts = [text[start : start + MAX_CHARACTERS] for start in range(0, len(text), MAX_CHARACTERS)]
    if tokenizer is not None:
        return sum(map(tokenizer.count, parts))
    return sum([len(piece.tokens) for part in parts for piece in pieces_of(part)])


def words_of_tokens(piece: Piece) -> list[str | None]:
    """Return, for each token, the word that contains the token; None for punctuation."""
    words = _words.get(piece.text)
    if words is None:
        words = _find_words(piece)
        if len(piece.text) <= _LONGEST_CACHED:
            if len(_words) >= _CACHED_PIECES:
                _words.clear()
            _words[piece.text] = words
    return words


def split_piece(text: str) -> tuple[list[int], list[str | None]]:
    """Return the tokens of the text between two spaces, and the word that contains each; see
    `words_of_tokens`."""
    (piece,) = pieces_of(text)
    return piece.tokens, words_of_tokens(piece)


def _one_piece(text: str) -> Piece:
    cached, words = _pieces, split_words(text)
    new = _tokenize_and_cache({word for word in words if word not in cached})
    return Piece(text, [token for word in words for token in (cached.get(word) or new[word]).tokens])


def _tokenize_and_cache(words: Iterable[str]) -> dict[str, Piece]:
    global _pieces, _counts
    byte_pairs, tokenizer = _load(), _tokenizer
    encode = byte_pairs.encode_word if tokenizer is None else tokenizer.tokens
    # An empty word is a mark; the compiled tokenizer takes it for an empty text.
    new = {word: Piece(word, encode(word) or [byte_pairs.mark]) for word in words}
    # "" and special tokens stay out: between two spaces, they have other tokens than alone.
    cacheable = [word for word in new if 0 < len(word) <= _LONGEST_CACHED and word not in SPECIAL]
    short = {word: new[word] for word in cacheable}
    if len(short) <= _CACHED_PIECES:
        if len(_pieces) + len(short) > _CACHED_PIECES:
            _pieces, _counts = {}, {}
        _pieces.update(short)
        _counts.update({word: len(piece.tokens) for word, piece in short.items()})
    return new


def _find_words(piece: Piece) -> list[str | None]:
    text, byte_pairs = piece.text, _load()
    if text.isalnum():  # the usual case: the whole piece is one word
        return [None if token == byte_pairs.mark else text for token in piece.tokens]
    words_in_text = [(*match.span(), match.group()) for match in _WORD.finditer(text)]
    words: list[str | None] = []
    current = 0
    for token, (start, end) in zip(piece.tokens, byte_pairs.spans(text, piece.tokens), strict=True):
        while current < len(words_in_text) and words_in_text[current][1] <= start:
            current += 1
        inside = (
            current < len(words_in_text) and words_in_text[current][0] < end and token != byte_pairs.mark
        )
        words.append(words_in_text[current][2] if inside else None)
    return words


def _clean(text: str) -> str:
    """Return the part of a text that is embedded. Replace lone surrogates, which UTF-8 can't encode."""
    text = text[:MAX_CHARACTERS]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _load() -> BytePairs:
    global _byte_pairs, _tokenizer
    if _byte_pairs is None:
        with _load_lock:
            if _byte_pairs is None:
                vocabulary = read_vocabulary()
                if core is not None:
                    _tokenizer = core.Tokenizer(list(vocabulary), MAX_CHARACTERS)
                _byte_pairs = BytePairs(vocabulary)
    return _byte_pairs
