"""Split texts into tokens with WordLlama's tokenizer, with a cache of words.

The tokenizer marks the start of a word, and only the first character of a token can be that mark. So the
tokens of a text are the tokens of its words, one after the other. Looking up a word's tokens in a cache
takes a hundredth of the time of tokenizing the word. Texts with repeated spaces or with special tokens are
exceptions: they are tokenized as a whole.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memory._base.locks import fork_safe_lock
from memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

MAX_CHARACTERS = 20_000
"""The most characters of a text that are embedded. More would hardly change the mean of the tokens."""

_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
_SPECIAL = (_MARK, "<unk>", "<s>", "</s>")
_CACHED_PIECES = 50_000  # Pieces in each cache: about 15 MB, more than the vocabulary of most agents
_LONGEST_CACHED = 40  # Characters of the longest piece that is cached: longer ones are rarely repeated
_WORD = re.compile(r"[^\W_]+")


class Piece(NamedTuple):
    """The text between two spaces, with its tokens."""

    text: str
    tokens: list[int]


_load_lock = fork_safe_lock()
_tokenizer: Tokenizer | None = None
_pieces: dict[str, Piece] = {}
"""Pieces by text. A full cache is replaced by an empty one, never cleared, so that readers need no lock."""
_counts: dict[str, int] = {}
"""The number of tokens of the same pieces, by text: faster than taking the length of each list."""
_words: dict[str, list[str | None]] = {}
"""By the text of a query's piece: for each token, the word that contains the token."""


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
    if "" in parts or any(map(text.__contains__, _SPECIAL)):
        return [_tokenize(text)]
    new = _tokenize_and_cache({part for part in parts if part not in cached})
    return [cached.get(part) or new[part] for part in parts]


def count_tokens(text: str) -> int:
    """Return the number of tokens of a text by Llama's tokenizer: an estimate for other models."""
    if len(text) <= MAX_CHARACTERS and text.isascii():
        try:
            return sum(map(_counts.__getitem__, text.split(" ")))
        except KeyError:
            pass
    parts = [text[start : start + MAX_CHARACTERS] for start in range(0, len(text), MAX_CHARACTERS)]
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


def _tokenize_and_cache(parts: Iterable[str]) -> dict[str, Piece]:
    global _pieces, _counts
    new = {part: _tokenize(part) for part in parts}
    short = {part: piece for part, piece in new.items() if len(part) <= _LONGEST_CACHED}
    if len(short) <= _CACHED_PIECES:
        if len(_pieces) + len(short) > _CACHED_PIECES:
            _pieces, _counts = {}, {}
        _pieces.update(short)
        _counts.update({part: len(piece.tokens) for part, piece in short.items()})
    return new


def _tokenize(text: str) -> Piece:
    return Piece(text, _load().encode(text, add_special_tokens=False).ids)


def _find_words(piece: Piece) -> list[str | None]:
    text = piece.text
    if text.isalnum():  # the usual case: the whole piece is one word
        mark = _mark_token()
        return [None if token == mark else text for token in piece.tokens]
    encoding = _load().encode(text, add_special_tokens=False)
    spans = [(*match.span(), match.group()) for match in _WORD.finditer(text)]
    words: list[str | None] = []
    current = 0
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        while current < len(spans) and spans[current][1] <= start:
            current += 1
        inside = current < len(spans) and spans[current][0] < end and token != _MARK
        words.append(spans[current][2] if inside else None)
    return words


@lru_cache(maxsize=1)
def _mark_token() -> int | None:
    return _load().token_to_id(_MARK)


def _clean(text: str) -> str:
    """Return the part of a text that is embedded. Replace lone surrogates, which UTF-8 can't encode."""
    text = text[:MAX_CHARACTERS]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def _load() -> Tokenizer:
    global _tokenizer
    if _tokenizer is None:
        with _load_lock:
            if _tokenizer is None:
                _tokenizer = _read_tokenizer()
    return _tokenizer


def _read_tokenizer() -> Tokenizer:
    # Without this setting the tokenizer starts threads, which do not exist in a forked child.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(wheel_folder() / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def wheel_folder() -> Path:
    """Return the folder of the installed wordllama package."""
    spec = find_spec("wordllama")  # finds the folder without importing the package
    if spec is None or spec.origin is None:
        raise AgentMemoryError(
            "the files of the default embedder are missing: run `pip install wordllama`, "
            "or pass your own embedder to AgentMemorySystem"
        )
    return Path(spec.origin).parent
