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
from memory.search.words import function_terms, term_of

K1 = 0.9
B = 0.4
FUNCTION_SHARE = 0.5
"""What a word like "about" counts: in notes it can be rarer than the name that the question is about."""
MAX_WORDS = 256
"""Distinct words of a query that are looked up; a longer query is a document, not a question."""
_TF_BITS = np.uint32(8)


class WordMatches:
    """Where each of the query's words is.

    All postings of all words lie in one flat array, word by word and ascending: the words of a query are
    few and their postings many, so that work is done on all of them at once.
    """

    def __init__(self, index: AgentIndex, words: Sequence[str]) -> None:
        distinct = {term_of(word): word for word in words}
        self._words = dict(islice(distinct.items(), MAX_WORDS))
        self._index = index
        self._memories = max(index.count - index.gone, 1)
        terms = list(self._words)
        living = index.living
        by_word: list[list[tuple[int, NDArray[np.uint32]]]] = [[] for _ in terms]
        """For each word its postings with the first position of their block, ascending."""
        for base, count, block in index.blocks():
            for number, part in block.postings.find_parts(terms):
                if living is not None:
                    part = part[living[base : base + count][part >> _TF_BITS]]
                if len(part):
                    by_word[number].append((base, part))
        parts = [part for pairs in by_word for _, part in pairs]
        bases = [base for pairs in by_word for base, _ in pairs]
        self._owners = [number for number, pairs in enumerate(by_word) for _ in pairs]
        """For each part the number of its word."""
        frequencies = [sum([len(part) for _, part in pairs]) for pairs in by_word]
        self._sizes = [len(part) for part in parts]
        packed = np.concatenate(parts) if parts else np.empty(0, np.uint32)
        self._occurrences = packed & np.uint32(255)
        self._positions = (packed >> _TF_BITS).astype(np.int64)
        if any(bases):
            self._positions += np.repeat(bases, self._sizes)
        idle = function_terms()
        self._idfs = {
            term: self._idf(frequency) * (FUNCTION_SHARE if term in idle else 1.0)
            for term, frequency in zip(terms, frequencies, strict=True)
        }
        self._unknown = self._idf(0)

    def __bool__(self) -> bool:
        return bool(self._sizes)

    def idf(self, word: str) -> float:
        """How much a word of any case says; a word that no memory holds says most."""
        return self._idfs.get(term_of(word.lower()), self._unknown)

    def scores(self) -> NDArray[np.float32]:
        """BM25 of every memory."""
        index, positions = self._index, self._positions
        tf = self._occurrences.astype(np.float32)
        idfs = list(self._idfs.values())
        weights = np.repeat(
            np.array([idfs[owner] * (K1 + 1) for owner in self._owners], np.float32), self._sizes
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
        held: dict[int, list[str]] = {position: [] for position in positions.tolist()}
        if self._sizes and held:
            words = list(self._words.values())
            wanted = np.zeros(self._index.count, np.bool_)
            wanted[positions] = True
            found = wanted[self._positions].nonzero()[0]
            parts = np.add.accumulate(self._sizes).searchsorted(found, side="right").tolist()
            for position, part in zip(self._positions[found].tolist(), parts, strict=True):
                held[position].append(words[self._owners[part]])
        return list(map(tuple, held.values()))

    def _idf(self, frequency: int) -> float:
        frequency = min(frequency, self._memories)
        return math.log(1 + (self._memories - frequency + 0.5) / (frequency + 0.5))
