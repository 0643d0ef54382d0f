"""One ranking out of words, meaning and surroundings.

Each score is put on one scale, on which 0 is the average memory and 1 the mean of the ten best; a
score that tells memories apart well then weighs as much as it should, whatever the query and the
collection. To that comes what stands around a memory (see `context.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from memory.embedding import Embedder, WeightedEmbedder
from memory.embedding.base import unit_rows
from memory.search.index import GONE, AgentIndex
from memory.search.lexical import WordMatches
from memory.search.vectors import top
from memory.search.words import words_of

_BEST = 10

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class Match:
    """One ranked memory, before its content is read."""

    seq: int
    score: float
    similarity: float | None = None
    words: tuple[str, ...] = ()
    context: float = 0.0


def by_vector(
    index: AgentIndex,
    query: Floats,
    k: int,
    allowed: NDArray[np.bool_] | None,
    threshold: float | None = None,
) -> list[Match]:
    """The k memories nearest to a vector, by cosine."""
    positions, scores = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
    for base, count, block in index.blocks():
        part = None if allowed is None else allowed[base : base + count]
        found, cosines = block.vectors.nearest(query, count, k, part)
        positions.append(found + base)
        scores.append(cosines)
    position, score = np.concatenate(positions), np.concatenate(scores)
    if threshold is not None:
        position, score = position[score >= threshold], score[score >= threshold]
    # Equal scores: the newer memory first.
    order = np.lexsort((-position, -score))[:k]
    seqs = index.columns.seq[position[order]].tolist()
    return [
        Match(seq, cosine, similarity=cosine)
        for seq, cosine in zip(seqs, score[order].tolist(), strict=True)
    ]


def by_text(
    index: AgentIndex,
    text: str,
    embedder: Embedder,
    k: int,
    allowed: NDArray[np.bool_] | None,
) -> list[Match]:
    """The k memories that fit a text best, by words, meaning and surroundings."""
    matches = WordMatches(index, words_of(text))
    cosines = _cosines(index, _query_vector(text, embedder, matches.idf))
    alone = _on_one_scale(cosines)
    if matches:
        alone += _on_one_scale(matches.scores())
    if index.gone:
        alone[index.columns.tier[: index.count] == GONE] = 0.0
    context = index.chains.context(alone)
    total = alone if context is None else alone + context
    if allowed is not None:
        total = np.where(allowed, total, -np.inf)
    best = top(total, k)
    best = best[np.lexsort((-best, -total[best]))]
    return [
        Match(
            int(index.columns.seq[position]),
            float(total[position]),
            similarity=float(cosines[position]),
            words=matches.words_at(position),
            context=0.0 if context is None else float(context[position]),
        )
        for position in best.tolist()
        if total[position] > -np.inf
    ]


def _query_vector(text: str, embedder: Embedder, idf: Callable[[str], float]) -> Floats:
    """The query's meaning, with rare words counting more where the embedder can weigh them."""
    if isinstance(embedder, WeightedEmbedder):
        return embedder.embed_weighted(text, idf)[0]
    vector: Floats = unit_rows(np.asarray(embedder.embed([text]), np.float32))[0]
    return vector


def _cosines(index: AgentIndex, query: Floats) -> Floats:
    parts = [block.vectors.scores(query, count) for _, count, block in index.blocks()]
    return np.concatenate(parts) if parts else np.empty(0, np.float32)


def _on_one_scale(scores: Floats) -> Floats:
    """0 for the average memory, 1 for the mean of the best ones."""
    count = len(scores)
    if count == 0:
        return scores
    mean = scores.mean()
    best = scores[top(scores, max(1, min(_BEST, count // 10)))].mean()
    spread = best - mean
    if spread <= 1e-9:
        return np.zeros_like(scores)
    scaled: Floats = (scores - mean) / spread
    return scaled
