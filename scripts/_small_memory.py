"""A memory with a fast embedder, for the scripts that attack it."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory import AgentMemorySystem, MemoryConfig
from memory.embedding import FunctionEmbedder
from memory.search import cache

DIMENSIONS = 64
cache.LEAST_SAVED = 20
"""Save search indexes of small agents too, so that the scripts attack their files."""


@lru_cache(maxsize=10_000)
def _direction(word: str) -> NDArray[np.float64]:
    return np.random.default_rng(zlib.crc32(word.encode())).standard_normal(DIMENSIONS)


def _embed(texts: Sequence[str]) -> NDArray[np.float64]:
    """Return the sum of one fixed random vector for each word."""
    return np.array([sum(map(_direction, text.split()), np.zeros(DIMENSIONS)) for text in texts])


def open_small(
    path: Path,
    *,
    stm: int | None = None,
    im: int | None = None,
    ltm: int | None = None,
    ltm_codec: str | None = None,
    **settings: Any,
) -> AgentMemorySystem:
    """Open a memory. `stm`, `im` and `ltm` are the limits of the tiers, `settings` other settings."""
    config = MemoryConfig(**{"maintenance": "manual", **settings})
    config.ltm_config.db_path = str(path)
    for part, limit in ((config.stm_config, stm), (config.im_config, im), (config.ltm_config, ltm)):
        part.memory_limit = limit
    if ltm_codec is not None:
        config.ltm_config.codec = ltm_codec
    embedder = FunctionEmbedder(_embed, name="words-by-hash", dimensions=DIMENSIONS)
    return AgentMemorySystem(config, embedder=embedder)
