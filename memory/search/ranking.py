"""One ranking out of words, meaning and surroundings.

Each score is put on one scale, on which 0 is the average memory and 1 the mean of the ten best; a
score that tells memories apart well then weighs as much as it should, whatever the query and the
collection. To that comes what stands around a memory (see `context.py`).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.embedding import ContentEmbedder, WeightedEmbedder
from memory.search.index import AgentIndex
from memory.search.lexical import WordMatches
from memory.search.terms import words_of
from memory.search.vectors import top

_BEST = 10

Floats = NDArray[np.float32]
QueryVector = Callable[[str, Callable[[str], float]], Floats]
"""A text and the idf of its words to a unit vector."""


class Match(msgspec.Struct, frozen=True, gc=False):
    """One ranked memory, before its content is read."""

    seq: int
    tier: int
    """Where it was when it was ranked."""
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
    found: list[tuple[float, int]] = []
    for base, count, block in index.blocks():
        part = None if allowed is None else allowed[base : base + count]
        positions, cosines = block.vectors.nearest(query, count, k, part)
        found.extend(zip(cosines.tolist(), (positions + base).tolist(), strict=True))
    found.sort(reverse=True)  # of equal scores the newer memory first
    del found[k:]
    best = np.array([position for _, position in found], np.int64)
    seqs, tiers = index.columns.seq[best].tolist(), index.columns.tier[best].tolist()
    return [
        Match(seq, tier, cosine, cosine)
        for seq, tier, (cosine, _) in zip(seqs, tiers, found, strict=True)
        if threshold is None or cosine >= threshold
    ]


class Ranking:
    """Memories that fit a text, best first; why each one does is found out when it is looked at.

    It needs the index no more: memories may come and go meanwhile."""

    def __init__(
        self, index: AgentIndex, best: NDArray[np.int64], total: Floats, cosines: Floats,
        context: Floats | None, words: WordMatches,
    ) -> None:  # fmt: skip
        self._best = best
        self._words = words
        columns = index.columns
        self._seqs: list[int] = columns.seq[best].tolist()
        self._tiers: list[int] = columns.tier[best].tolist()
        self._scores: list[float] = total[best].tolist()
        self._cosines: list[float] = cosines[best].tolist()
        self._around: list[float] = [0.0] * len(best) if context is None else context[best].tolist()

    def __len__(self) -> int:
        return len(self._seqs)

    def matches(self, start: int = 0, stop: int | None = None) -> list[Match]:
        """Those from one place in the ranking up to another."""
        part = slice(start, stop)
        return [
            Match(*fields)
            for fields in zip(
                self._seqs[part],
                self._tiers[part],
                self._scores[part],
                self._cosines[part],
                self._words.words_at(self._best[part]),
                self._around[part],
                strict=True,
            )
        ]


def by_text(
    index: AgentIndex,
    text: str,
    query_vector: QueryVector,
    k: int,
    allowed: NDArray[np.bool_] | None,
) -> Ranking | None:
    """The k memories that fit a text best, by words, meaning and surroundings; None if there are none."""
    if index.count == 0:
        return None
    matches = WordMatches(index, words_of(text))
    cosines = _cosines(index, query_vector(text, matches.idf))
    living = index.living
    alone = _on_one_scale(cosines, living)
    if matches:
        alone += _on_one_scale(matches.scores(), living)
    context = index.chains.context(alone)
    total = alone if context is None else alone + context
    if allowed is not None:
        total = np.where(allowed, total, -np.inf)
    best = top(total, k)
    best = best[np.lexsort((-best, -total[best]))]
    if allowed is not None:
        best = best[allowed[best]]
    return Ranking(index, best, total, cosines, context, matches)


def query_vector_of(embedder: ContentEmbedder) -> QueryVector:
    """How a query's meaning is found: rare words count more where the embedder can weigh them."""
    if isinstance(embedder.embedder, WeightedEmbedder):
        weighted = embedder.embedder.embed_weighted
        return lambda text, idf: weighted(text, idf)[0]
    return lambda text, _: embedder.embed_texts([text])[0]


def _cosines(index: AgentIndex, query: Floats) -> Floats:
    parts = [block.vectors.scores(query, count) for _, count, block in index.blocks()]
    return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _on_one_scale(scores: Floats, living: NDArray[np.bool_] | None) -> Floats:
    """0 for the average memory, 1 for the mean of the best ones; what was deleted counts as average."""
    counted = scores if living is None else scores[living]
    count = len(counted)
    if count == 0:
        return np.zeros_like(scores)
    mean = np.add.reduce(counted) / np.float32(count)
    few = max(1, min(_BEST, count // 10))
    best = np.partition(counted, count - few)[-few:]
    spread = np.add.reduce(best) / np.float32(few) - mean
    if spread <= 1e-9:
        return np.zeros_like(scores)
    scaled: Floats = (scores - mean) * np.float32(1 / spread)
    if living is not None:
        scaled[~living] = 0.0
    return scaled
