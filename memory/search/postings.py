"""The inverted index: a compact sorted part, and a tail to which new memories are added."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import MutableSequence, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory._base.copies import shallow_copy
from memory.search._lookups import Bounds, add_to_tail, find_in_tail, find_postings
from memory.search.saved import Parts, held
from memory.search.terms import ATTRIBUTE_BIT

_MAX_COUNT = 255
"""The most occurrences of a term in a memory that are counted: they have 8 bits in a posting."""
_COUNT_BITS = 8
_POSITION_BITS = 16
# A merge sorts all postings again. These bounds make merges rare while the slower tail stays small.
_TAIL_SHARE = 4  # The tail is merged when it has more than 1/4 of the memories of the sorted part …
_TAIL_MIN = 512  # … and more memories than this. A call with as many memories skips the tail.
_FIRST_MIN = 16  # The first memories skip the tail from this number on: a small agent has no tail then
_REPLACED_MAX = 256
"""The most memories replaced since the last merge: a search corrects them one by one."""


class Postings:
    """The inverted index of up to 65,536 memories, numbered by their position.

    A posting is a number: position << 8 | occurrences. The sorted part is three flat arrays: the terms,
    where the postings of each term start, and the postings. That is about 5 bytes a posting.
    """

    def __init__(self) -> None:
        self._terms: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._starts: NDArray[np.int64] = np.zeros(1, np.int64)
        self._packed: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._sorted_memories = 0
        self._tail: dict[int, MutableSequence[int]] = {}
        """By term: a list, which is fast to create, or an array, which is fast to read if it is long."""
        self._tail_memories = 0
        self._tail_postings = 0
        self._replaced: dict[int, Counter[int]] = {}
        self._most = 1 << _COUNT_BITS + _POSITION_BITS
        """The postings in the tail that are not below this number came later than this view."""

    def view(self, count: int) -> Postings:
        """Return a copy of the first `count` memories that later ones do not change."""
        view = shallow_copy(self)
        view._most = count << _COUNT_BITS
        return view

    def add(self, positions: NDArray[np.int64], terms: list[bytes]) -> NDArray[np.float32]:
        """Add memories with their stored terms, and return the number of words of each.

        The positions are ascending and not in the index yet.
        """
        is_empty = not self._sorted_memories and not self._tail_memories
        if len(terms) >= (_FIRST_MIN if is_empty else _TAIL_MIN):
            return self._add_many(positions, terms)
        lengths = [self.add_one(*each) for each in zip(positions.tolist(), terms, strict=True)]
        return np.array(lengths, np.float32)

    def add_one(self, position: int, terms: bytes) -> int:
        """Add one memory with its stored terms, and return the number of its words."""
        words = add_to_tail(self._tail, position, terms)
        self._tail_postings += len(terms) // 4
        self._tail_memories += 1
        if self._tail_memories > max(_TAIL_MIN, self._sorted_memories // _TAIL_SHARE):
            self._merge(self._packed[:0], np.empty(0, np.int64), 0)
        return words

    def _add_many(self, positions: NDArray[np.int64], terms: list[bytes]) -> NDArray[np.float32]:
        counts = np.fromiter(map(len, terms), np.int64, len(terms)) // 4
        flat = np.frombuffer(b"".join(terms), np.uint32)
        self._merge(flat, np.repeat(positions, counts), len(terms))
        owners = np.repeat(np.arange(len(terms)), counts)[flat < ATTRIBUTE_BIT]
        return np.bincount(owners, minlength=len(terms)).astype(np.float32)

    def replace(self, position: int, raw: bytes) -> int:
        """Replace the terms of a memory and return the number of its words."""
        occurrences = array("I", raw).tolist()
        self._replaced = {**self._replaced, position: Counter(occurrences)}  # a view keeps the old one
        if len(self._replaced) > _REPLACED_MAX:
            self._merge(self._packed[:0], np.empty(0, np.int64), 0)
        return _word_count(occurrences)

    def find(self, term: int) -> NDArray[np.int64]:
        """Return the positions of the memories that hold the term, ascending."""
        parts = [positions_of(packed[start:end]) for packed, (start, end) in self.find_words([term])]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def find_words(self, terms: list[int]) -> list[tuple[NDArray[np.uint32], Bounds]]:
        """Return the postings of all terms in up to two parts, each with the bounds of each term.

        The postings of a term are ascending, and those in the second part come after those in the first.
        They are not copied if they are in the sorted part, which never changes in place."""
        found = []
        if len(self._terms):
            found.append((self._packed, find_postings(self._terms, self._starts, terms)))
        if self._tail:
            found.append(find_in_tail(self._tail, terms, self._most))
        return [self._with_replacements(terms, found)] if self._replaced else found

    @property
    def has_replaced(self) -> bool:
        """Whether memories were replaced since the last merge. Then `for_core` lacks their new terms."""
        return bool(self._replaced)

    def for_core(self) -> tuple[Any, ...]:
        """Return what `find_words` looks at, in the form that the compiled core takes."""
        return (self._terms, self._starts, self._packed, self._tail or None, self._most)

    def _with_replacements(
        self, terms: list[int], parts: Sequence[tuple[NDArray[np.uint32], Bounds]]
    ) -> tuple[NDArray[np.uint32], Bounds]:
        """Return the postings found, with the current ones of replaced memories."""
        replaced = list(self._replaced)
        chosen: list[NDArray[np.uint32]] = []
        bounds: Bounds = []
        end = 0
        for number, term in enumerate(terms):
            found = [packed[known[2 * number] : known[2 * number + 1]] for packed, known in parts]
            old = np.concatenate([self._packed[:0], *found])
            new = [
                position << _COUNT_BITS | min(counts[term], _MAX_COUNT)
                for position, counts in self._replaced.items()
                if term in counts
            ]
            current = old[~np.isin(old >> np.uint32(_COUNT_BITS), replaced)]
            chosen.append(np.sort(np.append(current, np.array(new, np.uint32))))
            bounds += (end, end + len(chosen[-1]))
            end = bounds[-1]
        return np.concatenate([self._packed[:0], *chosen]), bounds

    @property
    def nbytes(self) -> int:
        # Estimates for CPython: 160 bytes for the key and list of a term, 12 bytes for each posting.
        tail = 160 * len(self._tail) + 12 * self._tail_postings
        return held(self._terms, self._starts, self._packed) + tail

    def parts(self, deleted: NDArray[np.bool_] | None) -> Parts:
        """Return all postings in the form of `saved.py`, without those of deleted memories."""
        if self._tail or self._replaced:
            self._merge(self._packed[:0], np.empty(0, np.int64), 0)
        terms, starts, packed = self._terms, self._starts, self._packed
        if deleted is not None and deleted.any() and len(packed):
            kept = ~deleted[positions_of(packed)]
            counts = np.add.reduceat(kept, starts[:-1], dtype=np.int64)
            terms, packed = terms[counts > 0], packed[kept]
            starts = np.concatenate(([0], np.cumsum(counts[counts > 0]))).astype(np.int64)
        return {"terms": terms, "starts": starts, "packed": packed, "memories": self._sorted_memories}

    def restore(self, parts: Parts) -> None:
        """Take over postings that `parts` returned."""
        self._terms, self._starts, self._packed = parts["terms"], parts["starts"], parts["packed"]
        self._sorted_memories = parts["memories"]

    def only(self, kept: NDArray[np.bool_]) -> Postings:
        """Return the postings of the memories of a mask, which get consecutive positions from 0."""
        parts = self.parts(~kept)
        packed = parts["packed"]
        places = (np.cumsum(kept) - 1).astype(np.uint32) << np.uint32(_COUNT_BITS)
        moved = places[packed >> np.uint32(_COUNT_BITS)] | packed & np.uint32(_MAX_COUNT)
        only = Postings()
        only.restore({**parts, "packed": moved, "memories": int(np.count_nonzero(kept))})
        return only

    def _merge(self, flat: NDArray[np.uint32], owners: NDArray[np.int64], memories: int) -> None:
        """Sort the sorted part, the tail and some new memories into one sorted part.

        `flat` holds all terms of the new memories, `owners` the position of the memory of each term.
        """
        terms, packed = _pack(flat, owners)
        all_terms = [np.repeat(self._terms, np.diff(self._starts)), terms]
        all_packed = [self._packed, packed]
        if self._tail:
            # One array of all: an array for each of a thousand terms would take milliseconds.
            tail = self._tail
            counts = np.fromiter(map(len, tail.values()), np.int64, len(tail))
            all_terms.append(np.repeat(np.fromiter(tail, np.uint32, len(tail)), counts))
            all_packed.append(np.fromiter(chain.from_iterable(tail.values()), np.uint32, int(counts.sum())))
        keys = np.concatenate(all_terms).astype(np.uint64) << np.uint64(32)
        keys |= np.concatenate(all_packed)
        if self._replaced:
            keys = self._replace_stale(keys)
        keys.sort()  # fast if they are sorted already
        self._packed = keys.astype(np.uint32)
        terms = (keys >> np.uint64(32)).astype(np.uint32)
        is_first = np.ones(len(keys), np.bool_)
        np.not_equal(terms[1:], terms[:-1], out=is_first[1:])
        starts = is_first.nonzero()[0]
        self._terms = terms[starts]
        self._starts = np.append(starts, len(keys))
        self._sorted_memories += self._tail_memories + memories
        self._tail = {}
        self._tail_memories = 0
        self._tail_postings = 0

    def _replace_stale(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Return the keys with the current ones of replaced memories, and clear the replacements."""
        positions = (keys & np.uint64(0xFFFFFFFF)) >> np.uint64(_COUNT_BITS)
        new = [
            term << 32 | position << _COUNT_BITS | min(count, _MAX_COUNT)
            for position, counts in self._replaced.items()
            for term, count in counts.items()
        ]
        stale = np.isin(positions, list(self._replaced))
        self._replaced = {}
        return np.concatenate((keys[~stale], np.array(new, np.uint64)))


def positions_of(postings: NDArray[np.uint32]) -> NDArray[np.int64]:
    """Return the position in each posting."""
    return (postings >> np.uint32(_COUNT_BITS)).astype(np.int64)


def _word_count(occurrences: list[int]) -> int:
    """Return how many of a memory's terms are words, not attributes."""
    return sum([term < ATTRIBUTE_BIT for term in occurrences])


def _pack(
    flat: NDArray[np.uint32], owners: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Count the distinct (term, position) pairs. Return the term and the posting of each."""
    keys = flat.astype(np.uint64) << np.uint64(_POSITION_BITS)
    keys |= owners.astype(np.uint64)
    pairs, counts = np.unique(keys, return_counts=True)
    positions = (pairs & np.uint64((1 << _POSITION_BITS) - 1)).astype(np.uint32)
    packed = positions << np.uint32(_COUNT_BITS) | np.minimum(counts, _MAX_COUNT).astype(np.uint32)
    return (pairs >> np.uint64(_POSITION_BITS)).astype(np.uint32), packed
