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
from memory.search.terms import function_terms, term_of

K1 = 0.9
B = 0.4
FUNCTION_SHARE = 0.5
"""What a word like "about" counts: in notes it can be rarer than the name that the question is about."""
MAX_WORDS = 256
"""Distinct words of a query that are looked up; a longer query is a document, not a question."""
_TF_BITS = np.uint32(8)


class WordMatches:
    """Where each of the query's words is.

    All postings of all words lie in flat arrays: the words of a query are few and their postings many, so
    that work is done on all of them at once.
    """

    def __init__(self, index: AgentIndex, words: Sequence[str]) -> None:
        of_words = {word: term_of(word) for word in words}
        distinct = {term: word for word, term in of_words.items()}
        self._words = dict(islice(distinct.items(), MAX_WORDS))
        self._count = index.count
        self._memories = max(index.count - index.gone, 1)
        terms = list(self._words)
        living = index.living
        parts = []
        for base, count, block in index.blocks():
            packed, owners = block.postings.find_all(terms)
            positions = (packed >> _TF_BITS).astype(np.int64)
            if living is not None:
                kept = living[base : base + count][positions]
                packed, owners, positions = packed[kept], owners[kept], positions[kept]
            if base:
                positions += base
            parts.append((positions, packed & np.uint32(255), owners))
        if len(parts) == 1:
            self._positions, self._occurrences, self._owners = parts[0]
        else:
            self._positions, self._occurrences, self._owners = map(np.concatenate, zip(*parts, strict=True))
        # Only now: reading a block that was not in RAM is when the lengths of its memories become known.
        self._lengths = index.columns.length
        self._average_length = max(index.words_in_all / self._memories, 1.0)
        frequencies = np.bincount(self._owners, minlength=len(terms)).tolist()
        idle, memories = function_terms(), self._memories
        self._idfs = {}
        for term, frequency in zip(terms, frequencies, strict=True):
            idf = _idf(frequency, memories)
            self._idfs[term] = idf * FUNCTION_SHARE if term in idle else idf
        self._unknown = _idf(0, memories)
        self._idf_of_words = {word: self._idfs.get(term, self._unknown) for word, term in of_words.items()}

    def __bool__(self) -> bool:
        return len(self._positions) > 0

    def idf(self, word: str) -> float:
        """How much a word of any case says; a word that no memory holds says most."""
        idf = self._idf_of_words.get(word)
        return self._idfs.get(term_of(word.lower()), self._unknown) if idf is None else idf

    def scores(self) -> NDArray[np.float32]:
        """BM25 of every memory."""
        positions = self._positions
        tf = self._occurrences.astype(np.float32)
        idfs = np.array(list(self._idfs.values()), np.float32)
        idfs *= np.float32(K1 + 1)
        saturation = self._lengths[positions]
        saturation *= np.float32(K1 * B / self._average_length)
        saturation += np.float32(K1 * (1 - B))
        saturation += tf
        tf *= idfs[self._owners]
        tf /= saturation
        return np.bincount(positions, tf, self._count).astype(np.float32)

    def words_at(self, positions: NDArray[np.int64]) -> list[tuple[str, ...]]:
        """For each of some memories the query's words that it holds."""
        held: dict[int, list[str]] = {position: [] for position in positions.tolist()}
        if self and held:
            words = list(self._words.values())
            wanted = np.zeros(self._count, np.bool_)
            wanted[positions] = True
            found = wanted[self._positions].nonzero()[0]
            places, owners = self._positions[found].tolist(), self._owners[found].tolist()
            for position, owner in zip(places, owners, strict=True):
                held[position].append(words[owner])
        return list(map(tuple, held.values()))


def _idf(frequency: int, memories: int) -> float:
    frequency = min(frequency, memories)
    return math.log(1 + (memories - frequency + 0.5) / (frequency + 0.5))
