"""The exact answers of a vector search, to compare a target's answers with."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.benchmarking.targets.base import Found, Item
from memory.benchmarking.targets.memory_content import leaves_of
from memory.embedding import ContentEmbedder, WordLlamaEmbedder, render

_ROUNDING = 1e-6
"""Two texts can have the same vector: any answer as near as the last exact one is right."""


class ExactAnswers:
    """The `k` largest cosines between each question and all items; it does not keep the vectors."""

    def __init__(self, questions: Sequence[str], k: int, embedder: ContentEmbedder | None = None) -> None:
        self._embedder = embedder or ContentEmbedder(WordLlamaEmbedder())
        self.k = k
        self.queries = self._embed(questions)
        self._best = np.full((len(questions), k), -np.inf, np.float32)

    def add(self, items: Sequence[Item]) -> None:
        """Compare more items with the questions."""
        cosines = self.queries @ self._embed([item.content for item in items]).T
        both = np.concatenate((self._best, cosines), axis=1)
        self._best = np.partition(both, both.shape[1] - self.k, axis=1)[:, -self.k :]

    def recall(self, answers: Sequence[Sequence[Found]]) -> float:
        """Return the share of the exact answers that were given; `answers` has a list for each question."""
        right = wanted = 0
        for query, best, hits in zip(self.queries, self._best, answers, strict=True):
            least = float(best.min()) if np.isfinite(best).all() else -1.0
            wanted += int(np.isfinite(best).sum())
            distinct = {hit.id: hit.content for hit in hits[: self.k]}
            if distinct:
                cosines = self._embed(list(distinct.values())) @ query
                right += int((cosines >= least - _ROUNDING).sum())
        return right / wanted

    def _embed(self, contents: Sequence[object]) -> NDArray[np.float32]:
        return self._embedder.embed([render(leaves_of(content)) for content in contents])
