"""BM25 over one agent's own memories: which hold the query's words, and how much that says.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the
always positive idf that Lucene uses. Frequencies are the agent's own: a name that is in every one of
its memories says nothing, however rare it is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import islice

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
        self._words = dict(islice(distinct.items(), MAX_WORDS))
        self._index = index
        self._memories = max(index.count - index.gone, 1)
        terms = list(self._words)
        postings: list[list[NDArray[np.uint32]]] = [[] for _ in terms]
        bases: list[list[int]] = [[] for _ in terms]
        living = index.living
        for base, count, block in index.blocks():
            for number, found in enumerate(block.postings.find_all(terms)):
                if living is not None:
                    found = found[living[base : base + count][found >> np.uint32(8)]]
                if len(found):
                    postings[number].append(found)
                    bases[number].append(base)
        self._positions: dict[int, NDArray[np.int64]] = {}
        self._occurrences: list[NDArray[np.uint32]] = []
        for term, parts, starts in zip(terms, postings, bases, strict=True):
            if parts:
                self._positions[term] = np.concatenate(
                    [
                        (part >> np.uint32(8)) + np.int64(start)
                        for part, start in zip(parts, starts, strict=True)
                    ]
                )
                self._occurrences.extend(parts)
        self._idfs = {
            term: self._idf(len(self._positions[term]) if term in self._positions else 0) for term in terms
        }
        self._unknown = self._idf(0)

    def __bool__(self) -> bool:
        return bool(self._positions)

    def idf(self, word: str) -> float:
        """How much a word of any case says; a word that no memory holds says most."""
        return self._idfs.get(term_of(word.lower()), self._unknown)

    def scores(self) -> NDArray[np.float32]:
        """BM25 of every memory."""
        index = self._index
        positions = np.concatenate(list(self._positions.values()))
        occurrences = np.concatenate(self._occurrences) & np.uint32(255)
        tf = occurrences.astype(np.float32)
        weights = np.repeat(
            np.array([self._idfs[term] * (K1 + 1) for term in self._positions], np.float32),
            [len(found) for found in self._positions.values()],
        )
        average = max(index.words_in_all / self._memories, 1.0)
        saturation = index.columns.length[positions]
        saturation *= np.float32(K1 * B / average)
        saturation += np.float32(K1 * (1 - B))
        saturation += tf
        tf *= weights
        tf /= saturation
        return np.bincount(positions, tf, index.count).astype(np.float32)

    def words_at(self, positions: NDArray[np.int64]) -> list[tuple[str, ...]]:
        """For each of some memories the query's words that it holds."""
        held: list[list[str]] = [[] for _ in positions]
        for term, found in self._positions.items():
            at = np.minimum(found.searchsorted(positions), len(found) - 1)
            for number in np.flatnonzero(found[at] == positions).tolist():
                held[number].append(self._words[term])
        return [tuple(words) for words in held]

    def _idf(self, frequency: int) -> float:
        frequency = min(frequency, self._memories)
        return math.log(1 + (self._memories - frequency + 0.5) / (frequency + 0.5))
