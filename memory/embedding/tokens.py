"""Texts to the tokens of WordLlama's tokenizer, word by word: most words have been met before.

A word's first token begins with a mark, and no token has that mark further in: the tokens of a text are
those of its words, each by itself. Asking a dictionary for a word's tokens costs a hundredth of finding
them. It is not so where spaces follow each other, or where one of the tokenizer's special texts is: such a
text is taken apart as a whole.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Iterable
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

MAX_CHARACTERS = 20_000
"""A longer text is embedded by its beginning: past this, a mean of tokens says nothing more."""

_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
_SPECIAL = (_MARK, "<unk>", "<s>", "</s>")
_KNOWN_WORDS = 50_000
_KNOWN_LENGTH = 40
_WORD = re.compile(r"[^\W_]+")


class Piece(NamedTuple):
    """What stands between two spaces."""

    text: str
    tokens: list[int]


_load_lock = threading.Lock()
os.register_at_fork(
    before=_load_lock.acquire, after_in_parent=_load_lock.release, after_in_child=_load_lock.release
)
_tokenizer: Tokenizer | None = None
_known: dict[str, Piece] = {}  # never loses a word: a full one is replaced, its readers keep theirs
_counts: dict[str, int] = {}
"""Of the same words the number of tokens: to count is quicker than to list."""
_words: dict[str, list[str | None]] = {}
"""Of those that questions were made of, for each token the word that it is a part of."""


def pieces_of(text: str) -> list[Piece]:
    """A text, taken apart at its spaces; or as one piece where that would give other tokens."""
    text = _clean(text)
    parts = text.split(" ")
    known = _known
    try:
        return [known[part] for part in parts]
    except KeyError:
        pass
    if not text:
        return []
    if "" in parts or any(map(text.__contains__, _SPECIAL)):
        return [_piece(text)]
    fresh = _learn({part for part in parts if part not in known})
    return [known.get(part) or fresh[part] for part in parts]


def count_tokens(text: str) -> int:
    """How many tokens a text has for Llama's tokenizer: a fair measure for what any model will count."""
    if len(text) <= MAX_CHARACTERS and text.isascii():
        try:
            return sum(map(_counts.__getitem__, text.split(" ")))
        except KeyError:
            pass
    parts = [text[start : start + MAX_CHARACTERS] for start in range(0, len(text), MAX_CHARACTERS)]
    return sum([len(piece.tokens) for part in parts for piece in pieces_of(part)])


def words_of_tokens(piece: Piece) -> list[str | None]:
    """For each token the word that it is a part of; None for punctuation."""
    words = _words.get(piece.text)
    if words is None:
        words = _find_words(piece)
        if len(piece.text) <= _KNOWN_LENGTH:
            if len(_words) >= _KNOWN_WORDS:
                _words.clear()
            _words[piece.text] = words
    return words


def _learn(parts: Iterable[str]) -> dict[str, Piece]:
    global _known, _counts
    fresh = {part: _piece(part) for part in parts}
    kept = {part: piece for part, piece in fresh.items() if len(part) <= _KNOWN_LENGTH}
    if len(kept) <= _KNOWN_WORDS:
        if len(_known) + len(kept) > _KNOWN_WORDS:
            _known, _counts = {}, {}
        _known.update(kept)
        _counts.update({part: len(piece.tokens) for part, piece in kept.items()})
    return fresh


def _piece(text: str) -> Piece:
    return Piece(text, _load().encode(text, add_special_tokens=False).ids)


def _find_words(piece: Piece) -> list[str | None]:
    text = piece.text
    if text.isalnum():  # as most are: all its tokens are the word's
        mark = _mark_token()
        return [None if token == mark else text for token in piece.tokens]
    encoding = _load().encode(text, add_special_tokens=False)
    spans = [(*match.span(), match.group()) for match in _WORD.finditer(text)]
    words: list[str | None] = []
    at = 0
    for token, (start, end) in zip(encoding.tokens, encoding.offsets, strict=True):
        while at < len(spans) and spans[at][1] <= start:
            at += 1
        inside = at < len(spans) and spans[at][0] < end and token != _MARK
        words.append(spans[at][2] if inside else None)
    return words


@lru_cache(maxsize=1)
def _mark_token() -> int | None:
    return _load().token_to_id(_MARK)


def _clean(text: str) -> str:
    """The part that is embedded, without the lone surrogates that UTF-8 can't hold."""
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
    # The tokenizer would start a thread pool of its own, which a forked child can't use.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(wheel_folder() / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def wheel_folder() -> Path:
    """Where the package's files are."""
    spec = find_spec("wordllama")  # finds the folder without running the package
    if spec is None or spec.origin is None:
        raise AgentMemoryError(
            "the default embedder's files are missing: pip install wordllama, "
            "or give AgentMemorySystem an embedder of your own"
        )
    return Path(spec.origin).parent
