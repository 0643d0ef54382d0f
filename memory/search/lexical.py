"""BM25 over one agent's memories: scores by the query's words.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the idf
of Lucene, which is always positive. Frequencies are counted over the agent's own memories: a name that
is in each of them counts almost nothing, however rare it is elsewhere.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from memory.search._scans import add_words
from memory.search.index import AgentIndex
from memory.search.postings import positions_of
from memory.search.terms import function_terms, term_of

K1 = 0.9
"""BM25's saturation of repeated words. This and `SHORT_B` are Anserini's defaults, `LONG_B` is Lucene's."""
SHORT_B, LONG_B = 0.4, 0.75
"""BM25's normalisation by length, from 0 (none) to 1 (full), for short and for long memories. A longer turn
of a chat says more; a longer passage mostly has more words for the same."""
SHORT_WORDS, LONG_WORDS = 50, 250
"""The average numbers of words of short and of long memories; between them the normalisation grows."""
FUNCTION_SHARE = 0.5
"""The weight of function words such as "about", which can be rarer in notes than the name that is asked
for. Measured: half is better than full weight (LoCoMo R@10 .820, not .815) and than none."""
MAX_WORDS = 256
"""Distinct words of a query that are looked up, a bound on its cost: no question has so many."""

_MAX_COUNT = 255  # A posting is a position times 256, plus the occurrences

Positions = NDArray[np.int64]
Postings = NDArray[np.uint32]


class AttributeMatches:
    """The positions that hold each of some attributes, numbered in the order of their terms."""

    def __init__(self, count: int, terms: int, parts: Sequence[tuple[Positions, Positions]]) -> None:
        self._count = count
        self.numbers: list[int] = []
        """The attributes that some memory holds."""
        if any(len(owners) for _, owners in parts):
            self._positions, self._owners = map(np.concatenate, zip(*parts, strict=True))
            self.numbers = np.bincount(self._owners, minlength=terms).nonzero()[0].tolist()

    def mask(self, number: int) -> NDArray[np.bool_]:
        """Return which memories hold one of the attributes in `numbers`."""
        if len(self.numbers) == 1:
            return _mask(self._count, self._positions)
        return _mask(self._count, self._positions[self._owners == number])


class WordMatches:
    """The postings of each of the query's words.

    They are not copied: they lie in the index, whose sorted postings never change in place."""

    def __init__(self, index: AgentIndex, words: Sequence[str], attributes: Sequence[int] = ()) -> None:
        """Look up words, and terms of attributes, which do not count for the scores."""
        term_of_word = {word: term_of(word) for word in words}
        distinct = {term: word for word, term in term_of_word.items()}
        self._words = dict(islice(distinct.items(), MAX_WORDS))
        self._count = index.count
        self._memories = max(index.count - index.deleted_count, 1)
        terms = list(self._words)
        living = index.living
        is_held = index.is_held
        self._blocks: list[tuple[int, int, list[Postings]]] = []
        """For each block its first position, its number of memories, and the postings of each word."""
        frequencies = [0] * len(terms)
        attribute_parts = []
        for base, count, block in index.blocks():
            found = block.postings.find_each(terms)
            for number, postings in enumerate(found):
                if living is not None:
                    found[number] = postings[living[base : base + count][postings >> np.uint32(8)]]
                elif not is_held:
                    found[number] = postings.copy()  # not to keep the whole block in RAM
                frequencies[number] += len(found[number])
            self._blocks.append((base, count, found))
            if attributes:
                packed, owners = block.postings.find_all(attributes)
                attribute_parts.append((positions_of(packed) + base, owners))
        self.attributes = AttributeMatches(index.count, len(attributes), attribute_parts)
        self._found = sum(frequencies)
        # Must come after `blocks()`, which reads the lengths of memories in blocks outside of RAM.
        self._lengths = index.columns.length[: index.count]
        self._average_length = max(index.word_count / self._memories, 1.0)
        function_words, memories = function_terms(), self._memories
        self._idfs = {}
        for term, frequency in zip(terms, frequencies, strict=True):
            idf = _idf(frequency, memories)
            self._idfs[term] = idf * FUNCTION_SHARE if term in function_words else idf
        content = [
            frequency
            for term, frequency in zip(terms, frequencies, strict=True)
            if term not in function_words
        ]
        self.content_words = len(content)
        """The number of distinct words of the query, without function words."""
        self.known_words = len(content) - content.count(0)
        """How many of these are in some memory."""
        self._unknown = _idf(0, memories)
        self._idf_of_words = {
            word: self._idfs.get(term, self._unknown) for word, term in term_of_word.items()
        }

    def __bool__(self) -> bool:
        return self._found > 0

    def idf(self, word: str) -> float:
        """Return the idf of a word in any case. A word that is in no memory has the highest idf."""
        idf = self._idf_of_words.get(word)
        return self._idfs.get(term_of(word.lower()), self._unknown) if idf is None else idf

    def mask(self, word: str) -> NDArray[np.bool_] | None:
        """Return which memories hold a word of the query, given in lower case; None if none does."""
        term = term_of(word)
        if term not in self._words:
            return None
        number = list(self._words).index(term)
        positions = [positions_of(found[number]) + base for base, _, found in self._blocks]
        return _mask(self._count, np.concatenate(positions)) if any(map(len, positions)) else None

    def scores(self) -> NDArray[np.float32]:
        """Return the BM25 score of every memory."""
        scores = np.zeros(self._count, np.float32)
        length = (self._average_length - SHORT_WORDS) / (LONG_WORDS - SHORT_WORDS)
        b = SHORT_B + (LONG_B - SHORT_B) * min(max(length, 0.0), 1.0)
        slope, offset = K1 * b / self._average_length, K1 * (1 - b)
        weights = [idf * (K1 + 1) for idf in self._idfs.values()]
        for base, count, found in self._blocks:
            block = slice(base, base + count)
            for weight, postings in zip(weights, found, strict=True):
                if len(postings):
                    add_words(scores[block], self._lengths[block], postings, weight, slope, offset)
        return scores

    def words_at(self, positions: NDArray[np.int64]) -> list[tuple[str, ...]]:
        """Return the words of the query that each of these memories holds."""
        if not self:
            return [()] * len(positions)
        words = list(self._words.values())
        return [tuple([words[number] for number in self._words_at(at)]) for at in positions.tolist()]

    def _words_at(self, position: int) -> Iterator[int]:
        """Yield the numbers of the words that a memory holds."""
        # All blocks but the last have the same number of memories.
        first, _, found = self._blocks[position // self._blocks[0][1]]
        place = (position - first) << 8
        for number, postings in enumerate(found):
            # A search in Python: NumPy's would first convert the place, which takes longer.
            at = bisect_left(postings, place)
            if at < len(postings) and int(postings[at]) - place <= _MAX_COUNT:
                yield number


def _mask(count: int, positions: Positions) -> NDArray[np.bool_]:
    mask = np.zeros(count, np.bool_)
    mask[positions] = True
    return mask


def _idf(frequency: int, memories: int) -> float:
    frequency = min(frequency, memories)
    return math.log(1 + (memories - frequency + 0.5) / (frequency + 0.5))
