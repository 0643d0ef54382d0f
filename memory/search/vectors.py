"""Nearest vectors by scanning: sign bits find the candidates, int8 codes rank them.

Up to a few hundred thousand memories of one agent, a scan of small vectors is faster than an index. It
needs no building, and a deleted vector costs nothing. Each vector is held as 256 signed bytes (its
direction, scaled by its largest component). The first scan by bits also makes 256 sign bits of each.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memory._base.copies import shallow_copy
from memory._base.native import core
from memory.compression.quantise import to_int8, to_int8_one
from memory.search._scans import cosines, differing_signs
from memory.search.best import top
from memory.search.saved import Parts, held

FULL_SCAN_ROWS = 2048
"""Up to this many rows all int8 codes are scanned: as fast as the bits, and more exact."""
_CANDIDATE_SHARE = 100  # The first pass ranks the nearest 1/100 of the rows by their codes …
_CANDIDATES_MIN = 160  # … but at least this many rows
_MOST_CANDIDATES = 4  # If the candidates are more than 1/4 of the rows, scanning all codes is faster
_DEVIATIONS = 1.5
"""How many standard deviations of the differing signs the search reaches beyond the expected number.
Together with the constants above it gives a recall@10 of 0.995 or more (docs/performance.md)."""
_ROUNDING = 3  # The rounded query selects this many times k candidates, which the exact query then orders
_HISTOGRAM_ROWS = 1024  # Rows that are sampled to estimate the distribution of the distances
_FEW_UNSIGNED = 64  # Rows: the sign bits of so few are made for each scan, not for each new memory
_SIGN_ROWS = 4096  # Rows whose sign bits are made in one step: a bound on the temporary arrays, here 1 MB
_NORM_ROWS = (
    1024  # Rows whose lengths are computed in one step: their floats, 1 MB, fit a processor's cache
)
_MULTIPLIER = 0x9E3779B97F4A7C15  # 2**64 divided by the golden ratio: an odd number with well-mixed bits


class Query:
    """A unit vector that others are compared with, in the forms of the three steps."""

    __slots__ = ("_signs", "code", "exact", "scale")

    def __init__(self, vector: NDArray[np.float32]) -> None:
        self.exact = vector
        self.code, length = to_int8_one(vector)
        self.scale = float(np.float32(1 / max(length, 1.0)))
        """The factor that makes cosines of the products with `code`."""
        self._signs: NDArray[np.uint64] | None = None

    @property
    def signs(self) -> NDArray[np.uint64]:
        """The signs as bits. A search of few memories does not need them."""
        if self._signs is None:
            signs = np.zeros(-(-len(self.exact) // 64) * 64, np.bool_)
            np.greater(self.exact, 0, out=signs[: len(self.exact)])
            self._signs = np.packbits(signs).view(np.uint64)
        return self._signs


def reach_for(cosine: float, dimensions: int, deviations: float = _DEVIATIONS) -> int:
    """Return in how many signs a vector with at least this cosine may differ from the query.

    deviations: how many standard deviations to reach beyond the expected number"""
    share = math.acos(min(max(cosine, -1.0), 1.0)) / math.pi
    spread = math.sqrt(dimensions * share * (1 - share))
    return math.ceil(dimensions * share + deviations * spread)


def row_sums(codes: NDArray[np.int8]) -> NDArray[np.uint32]:
    """Return a checksum of each int8 row, the same on all machines of one byte order."""
    rows, dimensions = codes.shape
    words = -(-dimensions // 8)
    if dimensions % 8:
        codes = np.concatenate((codes, np.zeros((rows, words * 8 - dimensions), np.int8)), axis=1)
    factors = np.cumprod(np.full(words, _MULTIPLIER, np.uint64))  # all odd, so a change of one word counts
    sums = np.ascontiguousarray(codes).view(np.uint64) @ factors
    return (sums >> np.uint64(32)).astype(np.uint32)


def _norms_of(codes: NDArray[np.int8]) -> NDArray[np.float32]:
    """Return the length of each row; at least 1, so that a zero vector has the cosine 0 to every query."""
    wide = codes.astype(np.float32)
    norms: NDArray[np.float32] = np.maximum(np.sqrt(np.vecdot(wide, wide)), 1)
    return norms


class VectorBlock:
    """Vectors by position. Grows as needed."""

    def __init__(self, dimensions: int, rows: int) -> None:
        self.dimensions = dimensions
        self._words = -(-dimensions // 64)
        self._codes = np.zeros((rows, dimensions), np.int8)
        self._norms = np.ones(rows, np.float32)
        self._bits = np.zeros((self._words, 0), np.uint64)
        """The sign bits, made by the first scan that needs them: a search by text does not."""
        self._signed = 0
        """The number of vectors, counted from the first, whose sign bits are made."""

    @property
    def nbytes(self) -> int:
        """The size with the sign bits of all vectors, made or not: making them does not check a budget."""
        bits = (
            0 if len(self._codes) and not self._codes.flags.owndata else 8 * self._words * len(self._codes)
        )
        return held(self._codes, self._norms) + bits

    def parts(self, count: int, deleted: NDArray[np.bool_] | None) -> Parts:
        """Return the first `count` vectors in the form of `saved.py`, without those that are deleted."""
        self._sign(count)
        codes, norms, bits = self._codes[:count], self._norms[:count], self._bits[:, :count]
        if deleted is not None and deleted.any():
            codes, norms, bits = codes.copy(), norms.copy(), bits.copy()
            codes[deleted], norms[deleted], bits[:, deleted] = 0, 1, 0
        return {"codes": codes, "norms": norms, "bits": bits}

    def restore(self, parts: Parts) -> None:
        """Take over vectors that `parts` returned."""
        self._codes, self._norms, self._bits = parts["codes"], parts["norms"], parts["bits"]
        self._signed = len(self._codes)

    def compact_parts(
        self, count: int, deleted: NDArray[np.bool_] | None, stored: NDArray[np.bool_]
    ) -> Parts:
        """Do what `parts` does, without what can be made again: norms, sign bits, and the vectors of those
        rows that `stored` masks, which the store has in a smaller form."""
        codes = self._codes[:count][~stored]
        if deleted is not None:
            codes[deleted[~stored]] = 0
        return {"codes": codes, "stored": stored}

    def restore_compact(self, parts: Parts, codes: NDArray[np.int8]) -> None:
        """Take over vectors that `compact_parts` returned.

        codes: an array of all vectors, with those that it left out"""
        codes[~parts["stored"]] = parts["codes"]
        norms = np.empty(len(codes), np.float32)
        for start in range(0, len(codes), _NORM_ROWS):
            run = slice(start, start + _NORM_ROWS)
            norms[run] = _norms_of(codes[run])
        self._codes, self._norms = codes, norms
        self._bits, self._signed = np.zeros((self._words, 0), np.uint64), 0

    def view(self, count: int) -> VectorBlock:
        """Return a copy of the first `count` vectors that later ones do not change."""
        if count > FULL_SCAN_ROWS and count - self._signed > _FEW_UNSIGNED:
            self._sign(count)
        return shallow_copy(self)

    def only(self, kept: NDArray[np.bool_]) -> VectorBlock:
        """Return the vectors of a mask, at consecutive positions from 0."""
        only = VectorBlock(self.dimensions, 0)
        only._codes = np.compress(kept, self._codes[: len(kept)], axis=0)
        only._norms = np.compress(kept, self._norms[: len(kept)])
        signed = kept[: self._signed]
        only._bits = np.compress(signed, self._bits[:, : len(signed)], axis=1)
        only._signed = only._bits.shape[1]
        return only

    @property
    def arrays(self) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
        """The vectors as signed bytes, and their lengths."""
        return self._codes, self._norms

    def set(self, positions: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        """Store int8 vectors at these positions."""
        self.reserve(int(positions.max()) + 1 if len(positions) else 0)
        self._codes[positions] = codes
        wide = codes.astype(np.float32)
        # At least 1, so that a zero vector has the cosine 0 to every query.
        self._norms[positions] = np.maximum(np.sqrt(np.einsum("ij,ij->i", wide, wide)), 1)
        signed = positions < self._signed
        if signed.any():
            self._bits[:, positions[signed]] = self._to_bits(codes[signed])

    def put(self, first: int, codes: NDArray[np.int8]) -> None:
        """Store int8 vectors at consecutive positions from `first`, in less than half the time of `set`."""
        run = slice(first, first + len(codes))
        self.reserve(run.stop)
        self._codes[run] = codes
        self._norms[run] = _norms_of(codes)
        self._signed = min(self._signed, first)

    def put_one(self, row: int, vector: bytes) -> None:
        """Store one vector, given as float32, in a fifth of the time of `put`."""
        self.reserve(row + 1)
        if core is None:
            code = to_int8(np.frombuffer(vector, np.float32)[None, :])
            self._codes[row], self._norms[row] = code[0], _norms_of(code)[0]
        else:
            core.put_vector(vector, row, self._codes, self._norms)
        self._signed = min(self._signed, row)

    def scores(self, query: Query, count: int) -> NDArray[np.float32]:
        """Return the cosine of each of the first `count` vectors to a query."""
        return cosines(self._codes, self._norms, query.code, None, query.scale, count)

    def scores_at(self, query: Query, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what `scores` has at these positions."""
        return cosines(self._codes, self._norms, query.code, positions, query.scale, 0)

    def exact(self, query: Query, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return the cosines of some vectors to a query, without rounding the query."""
        products: NDArray[np.float32] = self._codes[positions].astype(np.float32) @ query.exact
        return products / self._norms[positions]

    def unit(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return some vectors, scaled to unit length."""
        units: NDArray[np.float32] = self._codes[positions].astype(np.float32)
        units /= self._norms[positions][:, None]
        return units

    def nearest(
        self,
        query: Query,
        count: int,
        k: int,
        allowed: NDArray[np.bool_] | None,
        at_least: float = -1.0,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return positions and cosines of the k vectors nearest to a query, unordered.

        Only the first `count` vectors are searched; `allowed` masks those that may be returned. Vectors
        with a cosine below `at_least` may be left out.
        """
        if allowed is not None:
            allowed = allowed[:count]
            positions = np.flatnonzero(allowed)
            if len(positions) <= max(_CANDIDATES_MIN, k):
                return self._best(query, positions, k)
        if count > max(FULL_SCAN_ROWS, 2 * k):
            found = self._nearest_by_bits(query, count, k, allowed, at_least)
            if found is not None:
                return found
        scores = self.scores(query, count)
        if allowed is not None:
            scores[~allowed] = -np.inf
        candidates = top(scores, _ROUNDING * k)
        if allowed is not None:
            candidates = candidates[allowed[candidates]]
        return self._best(query, candidates, k)

    def _nearest_by_bits(
        self,
        query: Query,
        count: int,
        k: int,
        allowed: NDArray[np.bool_] | None,
        at_least: float,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """Do what `nearest` does, with the sign bits. Return None if too many vectors have similar bits.

        The share of signs in which two vectors differ is about their angle divided by 180 degrees, with
        the deviation of a binomial (Charikar, "Similarity Estimation Techniques from Rounding
        Algorithms", 2002). So the angle of the k-th nearest vector gives a Hamming distance that
        includes all nearer vectors. If it is larger than the searched distance, the search runs again.
        """
        distances = self.differing(query, count)
        if allowed is not None:
            distances[~allowed] = np.iinfo(distances.dtype).max
        farthest = self.dimensions if at_least <= -1.0 else reach_for(at_least, self.dimensions)
        reach = min(self._first_reach(distances, k), farthest)
        for _ in range(2):
            candidates = np.flatnonzero(distances <= reach)
            if len(candidates) * _MOST_CANDIDATES > count:
                return None
            found, scores = self._ranked(query, candidates, k)
            if len(scores) == k:
                needed = min(reach_for(float(scores.min()), self.dimensions), farthest)
            elif farthest < self.dimensions:
                needed = farthest
            else:
                return None
            if needed <= reach:
                break
            reach = needed
        return found, scores

    def _ranked(
        self,
        query: Query,
        candidates: NDArray[np.int64],
        k: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k nearest candidates. They are first reduced by their integer products."""
        if len(candidates) > _ROUNDING * k:
            candidates = candidates[top(self.scores_at(query, candidates), _ROUNDING * k)]
        return self._best(query, candidates, k)

    def _first_reach(self, distances: NDArray[np.integer[Any]], k: int) -> int:
        """Return a Hamming distance that includes about as many vectors as the first pass ranks."""
        # At least 12 × k, so that the k-th nearest is very likely among them.
        wanted = max(_CANDIDATES_MIN, len(distances) // _CANDIDATE_SHARE, 12 * k)
        # A histogram is much cheaper than a sort, and a sample of the rows is exact enough.
        stride = max(len(distances) // _HISTOGRAM_ROWS, 1)
        totals = np.cumsum(np.bincount(distances[::stride]))
        return min(int(totals.searchsorted(-(-wanted // stride))), self.dimensions - 1)

    def _best(
        self, query: Query, candidates: NDArray[np.int64], k: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Return the k nearest candidates by the exact query."""
        scores = self.exact(query, candidates)
        best = top(scores, k)
        return candidates[best], scores[best]

    def differing(self, query: Query, count: int) -> NDArray[np.uint16]:
        """Return in how many signs each vector differs from the query."""
        differing = np.empty(count, np.uint16)
        self.count_differing(query, differing)
        return differing

    def count_differing(self, query: Query, out: NDArray[np.uint16]) -> None:
        """Write into `out` in how many signs each of the first vectors differs from the query."""
        unsigned = len(out) - self._signed
        if unsigned > _FEW_UNSIGNED:
            self._sign(len(out))
            unsigned = 0
        signed = len(out) - max(unsigned, 0)
        differing_signs(self._bits, query.signs, out[:signed])
        if unsigned > 0:  # not stored: this may be a view, whose arrays others write to
            late = self._to_bits(self._codes[signed : len(out)])
            differing_signs(late, query.signs, out[signed:])

    def _sign(self, count: int) -> None:
        """Make the sign bits of those of the first `count` vectors that have none yet."""
        signed, bits = self._signed, self._bits
        if signed >= count:
            return
        if count > bits.shape[1]:
            bits = np.zeros((self._words, len(self._codes)), np.uint64)
            bits[:, :signed] = self._bits[:, :signed]
        for start in range(signed, count, _SIGN_ROWS):
            run = slice(start, min(start + _SIGN_ROWS, count))
            bits[:, run] = self._to_bits(self._codes[run])
        # Only complete bits become visible: two searches of one view may be here at the same time.
        self._bits = bits
        self._signed = count

    def _to_bits(self, vectors: NDArray[np.int8]) -> NDArray[np.uint64]:
        """Return the sign bits, 64 to a word, one column for each vector: the order of the scan."""
        if self.dimensions % 64:
            signs = np.zeros((len(vectors), self._words * 64), np.bool_)
            np.greater(vectors, 0, out=signs[:, : self.dimensions])
        else:
            signs = vectors > 0
        return np.ascontiguousarray(np.packbits(signs, axis=1).view(np.uint64).T)

    def reserve(self, needed: int) -> None:
        """Make room for `needed` vectors. Those that are not stored yet are zero."""
        rows = len(self._codes)
        if needed <= rows:
            return
        rows = max(needed, rows + rows // 2)
        codes = np.zeros((rows, self.dimensions), np.int8)
        codes[: len(self._codes)] = self._codes
        norms = np.ones(rows, np.float32)
        norms[: len(self._norms)] = self._norms
        self._codes, self._norms = codes, norms
