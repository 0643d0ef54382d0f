"""BM25 over one agent's own memories: which hold the query's words, and how much that says.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
always positive idf that Lucene uses. Frequencies are the agent's own: a name that is in every one of
its memories says nothing, however rare it is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memory.search.index import AgentIndex
from memory.search.words import term_of

K1 = 0.9
B = 0.4
MAX_WORDS = 256
"""Distinct words of a query that are looked up; a longer query is a document, not a question."""


class WordMatches:
    """Where each of the query's words is."""

    def __init__(self, index: AgentIndex, words: Sequence[str]) -> None:
        distinct = {term_of(word): word for word in words}
        self._words = dict(list(distinct.items())[:MAX_WORDS])
        self._index = index
        self._memories = max(index.count - index.gone, 1)
        self._found: dict[int, tuple[NDArray[np.int64], NDArray[np.float32]]] = {}
        parts: dict[int, list[tuple[NDArray[np.int64], NDArray[np.float32]]]] = {}
        for base, _, block in index.blocks():
            for term in self._words:
                positions, occurrences = block.postings.find(term)
                if len(positions):
                    parts.setdefault(term, []).append((positions + base, occurrences))
        for term, found in parts.items():
            positions, occurrences = zip(*found, strict=True)
            self._found[term] = (np.concatenate(positions), np.concatenate(occurrences))

    def __bool__(self) -> bool:
        return bool(self._found)

    def idf(self, word: str) -> float:
        """How much a word of any case says; a word that no memory holds says most."""
        return self._idf(term_of(word.lower()))

    def scores(self) -> NDArray[np.float32]:
        """BM25 of every memory."""
        index = self._index
        scores = np.zeros(index.count, np.float32)
        lengths = index.columns.length[: index.count]
        average = max(index.words_in_all / max(index.count, 1), 1.0)
        for term, (positions, occurrences) in self._found.items():
            saturation = K1 * (1 - B + B * lengths[positions] / average)
            gain = occurrences * (K1 + 1) / (occurrences + saturation)
            scores[positions] += np.float32(self._idf(term)) * gain
        return scores

    def words_at(self, position: int) -> tuple[str, ...]:
        """The query's words that one memory holds."""
        held = []
        for term, (positions, _) in self._found.items():
            at = int(np.searchsorted(positions, position))
            if at < len(positions) and positions[at] == position:
                held.append(self._words[term])
        return tuple(held)

    def _idf(self, term: int) -> float:
        found = self._found.get(term)
        frequency = min(len(found[0]), self._memories) if found is not None else 0
        return math.log(1 + (self._memories - frequency + 0.5) / (frequency + 0.5))
