"""The default embedder: WordLlama's 256-d static token vectors, read straight from its wheel.

Weights and tokenizer are inside the wheel, but the package's own loader looks elsewhere and then
tries the network; importing it would also cost a second. A text's vector is the mean of its tokens'.
"""

from __future__ import annotations

import os
import re
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from memory.embedding.base import FloatMatrix, unit, unit_rows
from memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_WEIGHTS = "weights/l2_supercat_256.safetensors"
_TOKENIZER = "tokenizers/l2_supercat_tokenizer_config.json"

MAX_CHARACTERS = 20_000
"""A longer text is embedded by its beginning: past this, a mean of tokens says nothing more."""
_TEXTS_AT_ONCE = 512
_FEW_TOKENS = 64  # up to here, counting the tokens that occur twice costs more than it saves
_WORD = re.compile(r"[^\W_]+")

# A word's first token begins with the mark, and no token has it further in: the tokens of a text are
# those of its words, each by itself. Not so where spaces follow each other, or where one of these is.
_MARK = "\N{LOWER ONE EIGHTH BLOCK}"
_NOT_BY_WORD = (_MARK, "<unk>", "<s>", "</s>")
_WORDS_AT_ONCE = 256
_KNOWN_WORDS = 20_000
_KNOWN_LENGTH = 40

_load_lock = threading.Lock()
os.register_at_fork(
    before=_load_lock.acquire, after_in_parent=_load_lock.release, after_in_child=_load_lock.release
)
_loaded: tuple[NDArray[np.float16], Tokenizer] | None = None
_known: dict[str, list[int]] = {}  # never loses a word: a full one is replaced, its readers keep theirs


class WordLlamaEmbedder:
    """Static vectors: about 0.05 ms a short text, no network, loaded once a process when needed."""

    name = "wordllama-l2-supercat-256"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        if len(texts) == 1:
            return unit(_sums(texts)[0])[None, :]
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = texts[start : start + _TEXTS_AT_ONCE]
            vectors[start : start + len(part)] = _sums(part)
        return unit_rows(vectors)

    def embed_weighted(self, text: str, weight: Callable[[str], float]) -> FloatMatrix:
        rows, tokenizer = _load()
        text = _clean(text)
        encoding = tokenizer.encode(text, add_special_tokens=False)
        if not encoding.ids:
            return np.zeros((1, self.dimensions), dtype=np.float32)
        weights = _weights(text, encoding.offsets, weight)
        if not weights.any():
            weights[:] = 1.0
        return unit(weights @ rows[encoding.ids].astype(np.float32))[None, :]


def _sums(texts: Sequence[str]) -> list[FloatMatrix]:
    """Of each text the sum of its tokens' vectors. Text by text: what a batch gathers at once
    would leave the processor's cache."""
    texts = [_clean(text) for text in texts]
    words_of = [_repeated_words(text) for text in texts]
    whole = iter(_encode([text for text, words in zip(texts, words_of, strict=True) if words is None]))
    tokens_of = _tokens_of(set().union(*filter(None, words_of)))
    return [
        _sum_of(next(whole)) if words is None else _weighted_sum(_count_by_word(words, tokens_of))
        for words in words_of
    ]


def _sum_of(tokens: list[int]) -> FloatMatrix:
    if len(tokens) > _FEW_TOKENS:
        return _weighted_sum(Counter(tokens))
    rows, _ = _load()
    total: FloatMatrix = np.add.reduce(rows[tokens], axis=0, dtype=np.float32)
    return total


def _weighted_sum(counts: Mapping[int, int]) -> FloatMatrix:
    rows, _ = _load()
    times = np.fromiter(counts.values(), dtype=np.float32, count=len(counts))
    total: FloatMatrix = times @ rows[list(counts)].astype(np.float32)
    return total


def _repeated_words(text: str) -> Mapping[str, int] | None:
    """How often each word occurs, if the text says the same words over and over, as a state does;
    None if it is better, or only rightly, taken apart as a whole."""
    words = text.split(" ")
    if 2 * len(set(words)) > len(words) or "" in words or any(map(text.__contains__, _NOT_BY_WORD)):
        return None
    return Counter(words)


def _count_by_word(words: Mapping[str, int], tokens_of: Mapping[str, list[int]]) -> dict[int, int]:
    counts: dict[int, int] = {}
    for word, times in words.items():
        for token in tokens_of[word]:
            counts[token] = counts.get(token, 0) + times
    return counts


def _tokens_of(words: set[str]) -> Mapping[str, list[int]]:
    """The tokens of these words, and maybe of others."""
    global _known
    known = _known
    new = list(words.difference(known))
    if not new:
        return known
    fresh: dict[str, list[int]] = {}
    groups = [new[start : start + _WORDS_AT_ONCE] for start in range(0, len(new), _WORDS_AT_ONCE)]
    for group, tokens in zip(groups, _encode([" ".join(group) for group in groups]), strict=True):
        begins = [at for at, token in enumerate(tokens) if _begins_word(token)]
        ends = [*begins[1:], len(tokens)]
        fresh.update((word, tokens[at:end]) for word, at, end in zip(group, begins, ends, strict=True))
    keep = [word for word in new[:_KNOWN_WORDS] if len(word) <= _KNOWN_LENGTH]
    if len(_known) + len(keep) > _KNOWN_WORDS:
        _known = {}
    _known.update((word, fresh[word]) for word in keep)
    return {word: known.get(word) or fresh[word] for word in words}


def _encode(texts: Sequence[str]) -> list[list[int]]:
    _, tokenizer = _load()
    return [encoding.ids for encoding in tokenizer.encode_batch_fast(texts, add_special_tokens=False)]


@cache
def _begins_word(token: int) -> bool:
    _, tokenizer = _load()
    return str(tokenizer.id_to_token(token)).startswith(_MARK)


def _weights(text: str, offsets: Sequence[tuple[int, int]], weight: Callable[[str], float]) -> FloatMatrix:
    """For each token the weight of the word that it is a piece of; 0 for punctuation."""
    words = [(*match.span(), weight(match.group())) for match in _WORD.finditer(text)]
    weights = []
    at = 0
    for start, end in offsets:
        while at < len(words) and words[at][1] <= start:
            at += 1
        inside = at < len(words) and words[at][0] < end
        weights.append(words[at][2] if inside else 0.0)
    return np.array(weights, dtype=np.float32)


def _clean(text: str) -> str:
    """The part that is embedded, without the lone surrogates that UTF-8 can't hold."""
    text = text[:MAX_CHARACTERS]
    return text if text.isascii() else text.encode("utf-8", "replace").decode("utf-8")


def count_tokens(text: str) -> int:
    """How many tokens a text has for Llama's tokenizer: a fair measure for what any model will count."""
    _, tokenizer = _load()
    parts = (text[start : start + MAX_CHARACTERS] for start in range(0, len(text), MAX_CHARACTERS))
    return sum(len(tokenizer.encode(_clean(part), add_special_tokens=False).ids) for part in parts)


def _load() -> tuple[NDArray[np.float16], Tokenizer]:
    global _loaded
    if _loaded is None:
        with _load_lock:
            if _loaded is None:
                _loaded = _read_files()
    return _loaded


def _read_files() -> tuple[NDArray[np.float16], Tokenizer]:
    # The tokenizer would start a thread pool of its own, which a forked child can't use.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    from safetensors import safe_open
    from tokenizers import Tokenizer

    folder = _wheel_folder()
    with safe_open(folder / _WEIGHTS, framework="numpy") as file:
        (name,) = file.keys()
        weights: NDArray[Any] = file.get_tensor(name)
    tokenizer = Tokenizer.from_file(str(folder / _TOKENIZER))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return weights.astype(np.float16, copy=False), tokenizer


def _wheel_folder() -> Path:
    spec = find_spec("wordllama")  # finds the folder without running the package
    if spec is None or spec.origin is None:
        raise AgentMemoryError(
            "the default embedder's files are missing: pip install wordllama, "
            "or give AgentMemorySystem an embedder of your own"
        )
    return Path(spec.origin).parent
