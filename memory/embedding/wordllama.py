"""The default embedder: WordLlama's 256-d static token vectors, read straight from its wheel.

Weights and tokenizer are inside the wheel, but the package's own loader looks elsewhere and then
tries the network; importing it would also cost a second. A text's vector is the mean of its tokens'.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Sequence
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
_TEXTS_AT_ONCE = 512  # bounds the gathered token rows to a few megabytes
_WORD = re.compile(r"[^\W_]+")

_load_lock = threading.Lock()
os.register_at_fork(
    before=_load_lock.acquire, after_in_parent=_load_lock.release, after_in_child=_load_lock.release
)
_loaded: tuple[NDArray[np.float16], Tokenizer] | None = None


class WordLlamaEmbedder:
    """Static vectors: about 0.05 ms a short text, no network, loaded once a process when needed."""

    name = "wordllama-l2-supercat-256"
    dimensions = 256

    def embed(self, texts: Sequence[str]) -> FloatMatrix:
        if len(texts) == 1:
            return self._embed_one(texts[0])
        vectors = np.empty((len(texts), self.dimensions), dtype=np.float32)
        for start in range(0, len(texts), _TEXTS_AT_ONCE):
            part = texts[start : start + _TEXTS_AT_ONCE]
            vectors[start : start + len(part)] = self._embed_some(part)
        return vectors

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

    def _embed_one(self, text: str) -> FloatMatrix:
        rows, tokenizer = _load()
        ids = tokenizer.encode(_clean(text), add_special_tokens=False).ids
        return unit(np.add.reduce(rows[ids], axis=0, dtype=np.float32))[None, :]

    def _embed_some(self, texts: Sequence[str]) -> FloatMatrix:
        rows, tokenizer = _load()
        encodings = tokenizer.encode_batch_fast([_clean(text) for text in texts], add_special_tokens=False)
        ids = [encoding.ids for encoding in encodings]
        counts = np.fromiter(map(len, ids), dtype=np.intp, count=len(ids))
        vectors = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        filled = counts > 0
        if filled.any():
            tokens = rows[[token for some in ids for token in some]].astype(np.float32)
            starts = np.concatenate(([0], np.cumsum(counts[filled])[:-1]))
            vectors[filled] = np.add.reduceat(tokens, starts, axis=0)
        return unit_rows(vectors)


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
