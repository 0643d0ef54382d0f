"""Nearest vectors by scanning: sign bits to find candidates, int8 to rank them.

Up to a few hundred thousand memories of one agent, a scan of small vectors beats an index, needs no
building and forgets at once what is deleted. Each vector is held as 256 signed bytes (its direction,
scaled by its largest component) and, from the first scan of them on, as 256 sign bits.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import simsimd
from numpy.typing import NDArray

from memory.compression.quantise import to_int8_one

FULL_SCAN_ROWS = 2048
"""Up to so many rows the bytes are scanned straight away: as quick as the bits, and closer."""
_CANDIDATE_SHARE = 100  # of the rows, at first one in so many is ranked by its bytes …
_CANDIDATES_MIN = 160  # … but not fewer than these
_WORTH_IT = 4  # past a quarter of the rows, scanning all bytes is quicker
_SPREADS = 1.5  # how many standard deviations of the signs are looked at
_ROUNDING = 3  # times k: candidates whose bytes are so near that the rounded query can't order them
_HISTOGRAM_ROWS = 1024
_SIGNED_AT_ONCE = 4096
_FEW = 400  # candidates that are compared with the unrounded query straight away


def top(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Where the k largest are, unordered."""
    if len(scores) <= k:
        return np.arange(len(scores))
    return scores.argpartition(len(scores) - k)[-k:]


class VectorBlock:
    """Vectors numbered by their position; grows as needed."""

    def __init__(self, dimensions: int, rows: int) -> None:
        self._dimensions = dimensions
        self._words = -(-dimensions // 64)
        self._codes = np.zeros((rows, dimensions), np.int8)
        self._norms = np.ones(rows, np.float32)
        self._bits = np.zeros((self._words, 0), np.uint64)
        """Made when they are first looked at: searching by text never does."""
        self._signed = 0
        """How many of the first vectors have their bits."""

    @property
    def nbytes(self) -> int:
        """With the bits of all of them, made or not: whoever makes them asks nobody for room."""
        return self._codes.nbytes + self._norms.nbytes + 8 * self._words * len(self._codes)

    def set(self, positions: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        """Put in int8 vectors at their positions."""
        self.reserve(int(positions.max()) + 1 if len(positions) else 0)
        self._codes[positions] = codes
        wide = codes.astype(np.float32)
        # Never 0, so that a zero vector has the cosine 0 to everything.
        self._norms[positions] = np.maximum(np.sqrt(np.einsum("ij,ij->i", wide, wide)), 1)
        signed = positions < self._signed
        if signed.any():
            self._bits[:, positions[signed]] = self._to_bits(codes[signed])

    def put(self, first: int, codes: NDArray[np.int8]) -> None:
        """The same at consecutive positions, in less than half the time."""
        run = slice(first, first + len(codes))
        self.reserve(run.stop)
        self._codes[run] = codes
        wide = codes.astype(np.float32)
        self._norms[run] = np.maximum(np.sqrt(np.vecdot(wide, wide)), 1)
        self._signed = min(self._signed, first)

    def scores(self, query: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """The cosine of the first `count` vectors to a unit query, every one."""
        code = to_int8_one(query)
        cosines = self._products(code, self._codes[:count], self._norms[:count])
        wide = code.astype(np.float32)
        cosines *= np.float32(1 / max(float(np.dot(wide, wide)) ** 0.5, 1.0))
        return cosines

    @staticmethod
    def _products(
        code: NDArray[np.int8], codes: NDArray[np.int8], norms: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Cosines by whole numbers, up to the length of the query's code."""
        products = np.asarray(simsimd.cdist(codes, code[None, :], metric="inner"))[:, 0]
        return (products / norms).astype(np.float32)

    def exact(self, query: NDArray[np.float32], positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """The cosine of some vectors to a unit query that is not rounded itself."""
        products: NDArray[np.float32] = self._codes[positions].astype(np.float32) @ query
        return products / self._norms[positions]

    def unit(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some vectors at unit length."""
        units: NDArray[np.float32] = self._codes[positions].astype(np.float32)
        units /= self._norms[positions][:, None]
        return units

    def nearest(
        self,
        query: NDArray[np.float32],
        count: int,
        k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Positions and cosines of the k nearest allowed vectors of the first `count`, unordered."""
        if allowed is not None:
            allowed = allowed[:count]
            positions = np.flatnonzero(allowed)
            if len(positions) <= max(_CANDIDATES_MIN, k):
                return self._best(query, positions, self.exact(query, positions), k)
        if count > max(FULL_SCAN_ROWS, 2 * k):
            found = self._nearest_by_bits(query, count, k, allowed)
            if found is not None:
                return found
        scores = self.scores(query, count)
        if allowed is not None:
            scores[~allowed] = -np.inf
        candidates = top(scores, _ROUNDING * k)
        if allowed is not None:
            candidates = candidates[allowed[candidates]]
        return self._best(query, candidates, None, k)

    def _nearest_by_bits(
        self,
        query: NDArray[np.float32],
        count: int,
        k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]] | None:
        """The same by way of the sign bits; None where they do not tell the vectors apart.

        Two vectors at an angle differ in that share of half a turn of their signs, give or take a
        standard deviation of the binomial (Charikar, "Similarity Estimation Techniques from Rounding
        Algorithms", 2002). So the k-th nearest that was found says how far one has to look to miss
        none: where that is further than was looked, it is looked again.
        """
        distances = self._hamming(query, count)
        if allowed is not None:
            distances[~allowed] = np.iinfo(distances.dtype).max
        reach = self._first_reach(distances, k)
        for _ in range(2):
            candidates = np.flatnonzero(distances <= reach)
            if len(candidates) * _WORTH_IT > count:
                return None
            found, scores = self._ranked(query, candidates, k)
            if len(scores) == k:
                needed = self._reach_for(float(scores.min()))
                if needed <= reach:
                    return found, scores
                reach = needed
            else:
                return None
        return found, scores

    def _ranked(
        self,
        query: NDArray[np.float32],
        candidates: NDArray[np.int64],
        k: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k nearest of many candidates: by whole numbers first, where that saves something."""
        if len(candidates) > _FEW:
            code = to_int8_one(query)
            rough = self._products(code, self._codes[candidates], self._norms[candidates])
            candidates = candidates[top(rough, _ROUNDING * k)]
        return self._best(query, candidates, None, k)

    def _first_reach(self, distances: NDArray[np.integer[Any]], k: int) -> int:
        """A distance that some hundred vectors are within."""
        wanted = max(_CANDIDATES_MIN, len(distances) // _CANDIDATE_SHARE, 12 * k)
        # A histogram tells it far cheaper than a sort; of many rows a part tells it well enough.
        stride = max(len(distances) // _HISTOGRAM_ROWS, 1)
        totals = np.cumsum(np.bincount(distances[::stride]))
        return min(int(totals.searchsorted(-(-wanted // stride))), self._dimensions - 1)

    def _reach_for(self, cosine: float) -> int:
        """In how many signs a vector at this cosine, or a nearer one, may well differ."""
        share = math.acos(min(max(cosine, -1.0), 1.0)) / math.pi
        spread = math.sqrt(self._dimensions * share * (1 - share))
        return math.ceil(self._dimensions * share + _SPREADS * spread)

    def _best(
        self,
        query: NDArray[np.float32],
        candidates: NDArray[np.int64],
        scores: NDArray[np.float32] | None,
        k: int,
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """The k nearest of some candidates, by the query that is not rounded."""
        if scores is None:
            scores = self.exact(query, candidates)
        best = top(scores, k)
        return candidates[best], scores[best]

    def _hamming(self, query: NDArray[np.float32], count: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """In how many signs each vector differs from the query."""
        signs = np.zeros(self._words * 64, np.bool_)
        np.greater(query, 0, out=signs[: self._dimensions])
        bits = np.packbits(signs).view(np.uint64)
        if self._signed < count:
            self._sign(count)
        differing = np.bitwise_count(self._bits[:, :count] ^ bits[:, None])
        # 256 differences would wrap round to 0 in a byte: one candidate too many, and ranked last.
        narrow = np.uint8 if self._dimensions <= 256 else np.uint16
        distances: NDArray[np.uint8] = np.add.reduce(differing, axis=0, dtype=narrow)
        return distances

    def _sign(self, count: int) -> None:
        """Make the bits of the first `count` vectors that have none yet."""
        if count > self._bits.shape[1]:
            grown = np.zeros((self._words, len(self._codes)), np.uint64)
            grown[:, : self._signed] = self._bits[:, : self._signed]
            self._bits = grown
        for start in range(self._signed, count, _SIGNED_AT_ONCE):
            run = slice(start, min(start + _SIGNED_AT_ONCE, count))
            self._bits[:, run] = self._to_bits(self._codes[run])
        self._signed = count

    def _to_bits(self, vectors: NDArray[np.int8]) -> NDArray[np.uint64]:
        """Signs, one column a vector, 64 to a word: the order in which they are scanned."""
        if self._dimensions % 64:
            signs = np.zeros((len(vectors), self._words * 64), np.bool_)
            np.greater(vectors, 0, out=signs[:, : self._dimensions])
        else:
            signs = vectors > 0
        return np.ascontiguousarray(np.packbits(signs, axis=1).view(np.uint64).T)

    def reserve(self, needed: int) -> None:
        """Have room for so many, zero vectors until they are put in."""
        rows = len(self._codes)
        if needed <= rows:
            return
        rows = max(needed, rows + rows // 2)
        codes = np.zeros((rows, self._dimensions), np.int8)
        codes[: len(self._codes)] = self._codes
        norms = np.ones(rows, np.float32)
        norms[: len(self._norms)] = self._norms
        self._codes, self._norms = codes, norms
