"""Which memories hold which term: a compact sorted part, and a tail that new memories are added to."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import MutableSequence, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory.search.terms import ATTRIBUTE_BIT

_MAX_TF = 255
_POSITION_BITS = 16
_TAIL_SHARE = 4  # the tail is merged when it holds more than a quarter of all memories …
_REPLACED_MAX = 256  # replaced memories are kept aside until there are so many
_TAIL_MIN = 512  # … and at least so many
_LONGEST_LIST = 16

_Found: TypeAlias = tuple[NDArray[np.uint32], NDArray[np.int64]]
"""Postings, and for each the number of its term."""


class Postings:
    """The inverted index of up to 65,536 memories, numbered by their position.

    A posting is position << 8 | occurrences. The sorted part is three flat arrays (terms, where
    each one's postings start, the postings): some 5 bytes a posting, and no object a term.
    """

    def __init__(self) -> None:
        self._terms: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._starts: NDArray[np.int64] = np.zeros(1, np.int64)
        self._packed: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._sorted_memories = 0
        self._tail: dict[int, MutableSequence[int]] = {}
        """Lists, which are quick to begin, or arrays, which are quick to read when they are long."""
        self._tail_memories = 0
        self._tail_postings = 0
        self._replaced: dict[int, Counter[int]] = {}

    def add(self, positions: NDArray[np.int64], terms: list[bytes]) -> NDArray[np.float32]:
        """Take in memories at `positions`, ascending and after all others or new; the words of each."""
        if len(terms) >= _TAIL_MIN:
            return self._add_many(positions, terms)
        lengths = []
        tail = self._tail
        for position, raw in zip(positions.tolist(), terms, strict=True):
            occurrences = array("I", raw).tolist()
            first, most = position << 8 | 1, position << 8 | _MAX_TF
            for term in occurrences:
                held = tail.get(term)
                if held is None:
                    tail[term] = [first]
                elif first <= held[-1] <= most:
                    held[-1] = min(held[-1] + 1, most)
                else:
                    held.append(first)
                    if len(held) == _LONGEST_LIST:
                        tail[term] = array("I", held)
            self._tail_postings += len(occurrences)
            lengths.append(_words(occurrences))
        self._tail_memories += len(terms)
        if self._tail_memories > max(_TAIL_MIN, self._sorted_memories // _TAIL_SHARE):
            self._merge(self._packed[:0], positions[:0], 0)
        return np.array(lengths, np.float32)

    def _add_many(self, positions: NDArray[np.int64], terms: list[bytes]) -> NDArray[np.float32]:
        counts = np.fromiter(map(len, terms), np.int64, len(terms)) // 4
        flat = np.frombuffer(b"".join(terms), np.uint32)
        self._merge(flat, np.repeat(positions, counts), len(terms))
        owners = np.repeat(np.arange(len(terms)), counts)[flat < ATTRIBUTE_BIT]
        return np.bincount(owners, minlength=len(terms)).astype(np.float32)

    def replace(self, position: int, raw: bytes) -> int:
        """Give a memory other terms; the number of its words."""
        occurrences = array("I", raw).tolist()
        self._replaced[position] = Counter(occurrences)
        if len(self._replaced) > _REPLACED_MAX:
            self._merge(self._packed[:0], np.empty(0, np.int64), 0)
        return _words(occurrences)

    def find(self, term: int) -> NDArray[np.int64]:
        """Positions of the memories that hold the term, ascending."""
        packed, _ = self.find_all([term])
        return (packed >> np.uint32(8)).astype(np.int64)

    def find_all(self, terms: Sequence[int]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
        """All postings of all terms, and for each posting the number of its term.

        A term's postings are ascending; those of different terms may be mixed."""
        parts = self._find_sorted(terms)
        if self._tail:
            parts.append(self._find_in_tail(terms))
        if self._replaced:
            parts = [self._corrected(terms, parts)]
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return self._packed[:0], np.empty(0, np.int64)
        packed, owners = zip(*parts, strict=True)
        return np.concatenate(packed), np.concatenate(owners)

    def _find_in_tail(self, terms: Sequence[int]) -> _Found:
        flat = array("I")
        owners: list[int] = []
        sizes: list[int] = []
        for number, term in enumerate(terms):
            held = self._tail.get(term)
            if held is not None:
                flat.extend(held)
                owners.append(number)
                sizes.append(len(held))
        return np.frombuffer(flat, np.uint32), np.array(owners, np.int64).repeat(sizes)

    def _corrected(self, terms: Sequence[int], parts: Sequence[_Found]) -> _Found:
        """Postings with those of replaced memories as they are now."""
        replaced = list(self._replaced)
        packed = np.concatenate([self._packed[:0], *(part for part, _ in parts)])
        owners = np.concatenate([np.empty(0, np.int64), *(numbers for _, numbers in parts)])
        current = ~np.isin(packed >> np.uint32(8), replaced)
        now = [
            (number, position << 8 | min(counts[term], _MAX_TF))
            for number, term in enumerate(terms)
            for position, counts in self._replaced.items()
            if term in counts
        ]
        packed = np.append(packed[current], np.array([posting for _, posting in now], np.uint32))
        owners = np.append(owners[current], np.array([number for number, _ in now], np.int64))
        order = np.lexsort((packed, owners))
        return packed[order], owners[order]

    @property
    def nbytes(self) -> int:
        tail = 160 * len(self._tail) + 12 * self._tail_postings
        return self._terms.nbytes + self._starts.nbytes + self._packed.nbytes + tail

    def _find_sorted(self, terms: Sequence[int]) -> list[_Found]:
        if not len(self._terms):
            return []
        wanted = np.array(terms, np.uint32)
        at = np.minimum(self._terms.searchsorted(wanted), len(self._terms) - 1)
        present = (self._terms[at] == wanted).nonzero()[0]
        if not len(present):
            return []
        at = at[present]
        starts, ends = self._starts[at], self._starts[at + 1]
        slices = [
            self._packed[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)
        ]
        return [(np.concatenate(slices), present.repeat(ends - starts))]

    def _merge(self, flat: NDArray[np.uint32], owners: NDArray[np.int64], memories: int) -> None:
        """Sort everything anew: the sorted part, the tail and what is coming."""
        terms, packed = _pack(flat, owners)
        all_terms = [np.repeat(self._terms, np.diff(self._starts)), terms]
        all_packed = [self._packed, packed]
        for term, held in self._tail.items():
            all_terms.append(np.full(len(held), term, np.uint32))
            all_packed.append(np.array(held, np.uint32))
        keys = np.concatenate(all_terms).astype(np.uint64) << np.uint64(32)
        keys |= np.concatenate(all_packed)
        if self._replaced:
            keys = self._without_stale(keys)
        keys.sort()
        self._packed = keys.astype(np.uint32)
        self._terms, starts = np.unique((keys >> np.uint64(32)).astype(np.uint32), return_index=True)
        self._starts = np.append(starts, len(keys)).astype(np.int64)
        self._sorted_memories += self._tail_memories + memories
        self._tail = {}
        self._tail_memories = 0
        self._tail_postings = 0

    def _without_stale(self, keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """Keys with those of replaced memories as they are now; nothing is replaced any more."""
        positions = (keys & np.uint64(0xFFFFFFFF)) >> np.uint64(8)
        now = [
            term << 32 | position << 8 | min(count, _MAX_TF)
            for position, counts in self._replaced.items()
            for term, count in counts.items()
        ]
        stale = np.isin(positions, list(self._replaced))
        self._replaced = {}
        return np.concatenate((keys[~stale], np.array(now, np.uint64)))


def _words(occurrences: list[int]) -> int:
    """How many of a memory's terms are words, not attributes."""
    return sum([term < ATTRIBUTE_BIT for term in occurrences])


def _pack(
    flat: NDArray[np.uint32], owners: NDArray[np.int64]
) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
    """Occurrences to postings: the distinct (term, position) pairs, each with its count."""
    keys = flat.astype(np.uint64) << np.uint64(_POSITION_BITS)
    keys |= owners.astype(np.uint64)
    pairs, counts = np.unique(keys, return_counts=True)
    positions = (pairs & np.uint64((1 << _POSITION_BITS) - 1)).astype(np.uint32)
    packed = positions << np.uint32(8) | np.minimum(counts, _MAX_TF).astype(np.uint32)
    return (pairs >> np.uint64(_POSITION_BITS)).astype(np.uint32), packed
