"""BM25 over one agent's memories: scores by the query's words.

Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond" (2009), with the idf
of Lucene, which is always positive. Frequencies are counted over the agent's own memories: a name that
is in each of them counts almost nothing, however rare it is elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress, islice
from operator import add, and_, lt, sub
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory.search._lookups import Bounds, Packed, count_living, words_at
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

Positions = NDArray[np.int64]


class _Part(NamedTuple):
    """Postings of some terms in one block."""

    base: int
    """The first position of the block."""
    memories: int
    """The number of memories of the block."""
    packed: Packed
    bounds: Bounds
    """Where in `packed` the postings of each term start and end."""

    def positions(self, number: int) -> Positions:
        """Return the positions that hold one of the terms."""
        start, end = self.bounds[2 * number : 2 * number + 2]
        return positions_of(self.packed[start:end]) + self.base


class Held(NamedTuple):
    """The words of a query that a memory holds."""

    words: tuple[str, ...]
    content_words: int
    """How many of them are no function words."""


NO_WORDS = Held((), 0)


class AttributeMatches:
    """The positions that hold each of some attributes, numbered in the order of their terms."""

    def __init__(self, count: int, terms: int, parts: Sequence[_Part]) -> None:
        self._count = count
        self._parts = parts
        held: set[int] = set()
        for part in parts:
            is_held = [*map(lt, part.bounds[::2], part.bounds[1::2])]
            if True in is_held:  # rarely: most questions name no speaker
                held.update(compress(range(terms), is_held))
        self.numbers = sorted(held)
        """The attributes that some memory holds."""

    def mask(self, number: int) -> NDArray[np.bool_]:
        """Return which memories hold one of the attributes in `numbers`."""
        return _mask(self._count, [part.positions(number) for part in self._parts])


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
        wanted, split = [*terms, *attributes], 2 * len(terms)
        self._living = living = index.living
        is_held = index.is_held
        self._parts: list[_Part] = []
        attribute_parts = []
        frequencies = [0] * len(terms)
        for base, count, block in index.blocks():
            for packed, bounds in block.postings.find_words(wanted):
                if not is_held:  # not to keep the whole block in RAM
                    packed, bounds = _copied(packed, bounds)
                if attributes:
                    attribute_parts.append(_Part(base, count, packed, bounds[split:]))
                    del bounds[split:]
                if living is None:
                    counts: Iterable[int] = map(sub, bounds[1::2], bounds[::2])
                else:
                    counts = count_living(packed, bounds, living[base : base + count])
                frequencies = list(map(add, frequencies, counts))
                self._parts.append(_Part(base, count, packed, bounds))
        self.attributes = AttributeMatches(index.count, len(attributes), attribute_parts)
        self._found = sum(frequencies)
        # Must come after `blocks()`, which reads the lengths of memories in blocks outside of RAM.
        self._lengths = index.columns.length[: index.count]
        self._average_length = max(index.word_count / self._memories, 1.0)
        function_words, memories = function_terms(), self._memories
        self._idfs = {}
        self._is_content = [term not in function_words for term in terms]
        for term, frequency, is_content in zip(terms, frequencies, self._is_content, strict=True):
            idf = _idf(frequency, memories)
            self._idfs[term] = idf if is_content else idf * FUNCTION_SHARE
        self.content_words = sum(self._is_content)
        """The number of distinct words of the query, without function words."""
        self.known_words = sum(map(and_, self._is_content, map(bool, frequencies)))
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
        mask = _mask(self._count, [part.positions(number) for part in self._parts])
        if self._living is not None:
            mask &= self._living
        return mask if mask.any() else None

    def scores(self, out: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return the BM25 score of every memory, in the array `out` if it is given."""
        scores = np.empty(self._count, np.float32) if out is None else out
        scores.fill(0)
        slope, offset = self._normalisation()
        weights = self._weights()
        for base, count, packed, bounds in self._parts:
            block = slice(base, base + count)
            add_words(scores[block], self._lengths[block], packed, bounds, weights, slope, offset)
        return scores

    def for_core(self) -> tuple[Any, ...]:
        """Return what `scores` computes with, in the form that the compiled core takes; for one block."""
        parts = [(packed, bounds) for _, _, packed, bounds in self._parts]
        return (parts, self._weights(), self._lengths, *self._normalisation())

    def _weights(self) -> list[float]:
        return [idf * (K1 + 1) for idf in self._idfs.values()]

    def _normalisation(self) -> tuple[float, float]:
        """Return slope and offset of the normalisation by length."""
        length = (self._average_length - SHORT_WORDS) / (LONG_WORDS - SHORT_WORDS)
        b = SHORT_B + (LONG_B - SHORT_B) * min(max(length, 0.0), 1.0)
        return K1 * b / self._average_length, K1 * (1 - b)

    def held_at(self, positions: list[int]) -> list[Held]:
        """Return which words of the query each of these memories holds."""
        if not self:
            return [NO_WORDS] * len(positions)
        words = [*self._words.values()]
        is_content = self._is_content
        return [
            Held(tuple([words[number] for number in numbers]), sum([is_content[at] for at in numbers]))
            for numbers in self._numbers_at(positions)
        ]

    def _numbers_at(self, positions: list[int]) -> list[list[int]]:
        """Return the numbers of the words that each of these memories holds."""
        held: list[list[int]] = [[] for _ in positions]
        for base, count, packed, bounds in self._parts:
            places = [at for at, position in enumerate(positions) if base <= position < base + count]
            numbers = words_at(packed, bounds, [positions[place] - base for place in places])
            for place, found in zip(places, numbers, strict=True):
                held[place] += found  # a memory is in one part only
        return held


def _copied(packed: Packed, bounds: Bounds) -> tuple[Packed, Bounds]:
    """Return a copy of the postings within the bounds, and their bounds in it."""
    parts = [packed[start:end] for start, end in zip(bounds[::2], bounds[1::2], strict=True)]
    ends = [*accumulate(map(len, parts))]
    copied = [bound for start, end in zip([0, *ends], ends, strict=False) for bound in (start, end)]
    return np.concatenate([packed[:0], *parts]), copied


def _mask(count: int, positions: Sequence[Positions]) -> NDArray[np.bool_]:
    mask = np.zeros(count, np.bool_)
    for some in positions:
        mask[some] = True
    return mask


def _idf(frequency: int, memories: int) -> float:
    frequency = min(frequency, memories)
    return math.log(1 + (memories - frequency + 0.5) / (frequency + 0.5))
