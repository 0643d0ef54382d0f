"""Look up words in the postings of a block. The compiled core does it; each function has a twin in Python.

The postings of several words are one array, and a list of bounds: the start and the end of each word's
postings, one after the other. The postings of a word are ascending.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping, MutableSequence, Sequence

import numpy as np
from numpy.typing import NDArray

from memory._base.native import core
from memory.search.terms import ATTRIBUTE_BIT

Packed = NDArray[np.uint32]
Bounds = list[int]

_MAX_COUNT = 255  # A posting is a position times 256, plus the occurrences
_LONGEST_LIST = 16  # A term with this many postings in the tail has an array instead of a list


def find_postings(terms: Packed, starts: NDArray[np.int64], wanted: list[int]) -> Bounds:
    """Return the bounds of the wanted terms, given all terms, ascending, and where their postings start."""
    if core is None:
        return find_postings_pure(terms, starts, wanted)
    return core.find_postings(terms, starts, wanted)


def find_postings_pure(terms: Packed, starts: NDArray[np.int64], wanted: list[int]) -> Bounds:
    bounds = [0, 0] * len(wanted)
    if not len(terms) or not wanted:
        return bounds
    needles = np.array(wanted, np.uint32)
    at = np.minimum(terms.searchsorted(needles), len(terms) - 1)
    for number in (terms[at] == needles).nonzero()[0].tolist():
        bounds[2 * number : 2 * number + 2] = starts[at[number]], starts[at[number] + 1]
    return list(map(int, bounds))


def add_to_tail(tail: dict[int, MutableSequence[int]], position: int, terms: bytes) -> int:
    """Add the postings of a memory to the tail. Return the number of its words.

    tail: by term: a list, which is fast to create, or an array, which is fast to read if it is long
    position: larger than all others in the tail
    terms: the stored terms of the memory, 32 bits each
    """
    if core is None:
        return add_to_tail_pure(tail, position, terms)
    return core.add_to_tail(tail, position, terms, _LONGEST_LIST, _to_array)


def add_to_tail_pure(tail: dict[int, MutableSequence[int]], position: int, terms: bytes) -> int:
    once, most = position << 8 | 1, position << 8 | _MAX_COUNT
    words = 0
    for term in array("I", terms):
        words += term < ATTRIBUTE_BIT
        postings = tail.get(term)
        if postings is None:
            tail[term] = [once]
        elif once <= postings[-1] <= most:
            postings[-1] = min(postings[-1] + 1, most)
        else:
            postings.append(once)
            if type(postings) is list and len(postings) == _LONGEST_LIST:
                tail[term] = _to_array(postings)
    return words


def _to_array(postings: list[int]) -> array[int]:
    return array("I", postings)


def find_in_tail(tail: Mapping[int, Sequence[int]], wanted: list[int], most: int) -> tuple[Packed, Bounds]:
    """Return the postings below `most` of the wanted terms, and their bounds.

    tail: by term: ascending postings, in a list or an array of 32-bit numbers
    """
    if core is None:
        return find_in_tail_pure(tail, wanted, most)
    packed, bounds = core.find_in_tail(tail, wanted, most)
    return np.frombuffer(packed, np.uint32), bounds


def find_in_tail_pure(
    tail: Mapping[int, Sequence[int]], wanted: list[int], most: int
) -> tuple[Packed, Bounds]:
    parts = [np.empty(0, np.uint32)]
    bounds: Bounds = []
    end = 0
    for term in wanted:
        start = end
        postings = tail.get(term)
        if postings is not None:
            # A copy, made in one step: while NumPy reads an array, another thread could not append to it.
            found = np.array(postings[:], np.uint32)
            parts.append(found[: found.searchsorted(most)])
            end += len(parts[-1])
        bounds += (start, end)
    return np.concatenate(parts), bounds


def count_living(packed: Packed, bounds: Bounds, living: NDArray[np.bool_]) -> list[int]:
    """Return how many of each word's postings are those of living memories."""
    if core is None:
        return count_living_pure(packed, bounds, living)
    return core.count_living(packed, bounds, living)


def count_living_pure(packed: Packed, bounds: Bounds, living: NDArray[np.bool_]) -> list[int]:
    return [
        int(np.count_nonzero(living[packed[start:end] >> np.uint32(8)]))
        for start, end in zip(bounds[::2], bounds[1::2], strict=True)
    ]


def words_at(packed: Packed, bounds: Bounds, positions: list[int]) -> list[list[int]]:
    """Return the numbers of the words that the memory at each position holds."""
    if core is None:
        return words_at_pure(packed, bounds, positions)
    return core.words_at(packed, bounds, positions)


def words_at_pure(packed: Packed, bounds: Bounds, positions: list[int]) -> list[list[int]]:
    found = []
    for position in positions:
        lowest = position << 8
        held = []
        for number, (start, end) in enumerate(zip(bounds[::2], bounds[1::2], strict=True)):
            at = bisect_left(packed, lowest, start, end)
            if at < end and int(packed[at]) - lowest <= _MAX_COUNT:
                held.append(number)
        found.append(held)
    return found
