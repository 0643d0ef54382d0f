"""A fast embedder with few dimensions, for tests that do not need good vectors."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from memory.embedding import FunctionEmbedder

DIMENSIONS = 32


@lru_cache(maxsize=10_000)
def _direction(word: str, dimensions: int) -> NDArray[np.float64]:
    seed = zlib.crc32(word.encode("utf-8", "surrogatepass"))
    return np.random.default_rng(seed).standard_normal(dimensions)


def small_embedder(dimensions: int = DIMENSIONS, name: str = "words-by-hash") -> FunctionEmbedder:
    """Return an embedder: the vector of a text is the sum of one fixed random vector for each word."""

    def embed(texts: Sequence[str]) -> NDArray[np.float64]:
        vectors = np.zeros((len(texts), dimensions))
        for row, text in enumerate(texts):
            for word in text.lower().split()[:200]:
                vectors[row] += _direction(word, dimensions)
        return vectors

    return FunctionEmbedder(embed, name=name, dimensions=dimensions)
