"""Nearest vectors by scanning: sign bits to find candidates, int8 to rank them.

Up to a few hundred thousand memories of one agent, a scan of small vectors beats an index, needs no
building and forgets at once what is deleted. Each vector is held as 256 signed bytes (its direction,
scaled by its largest component) and as 256 sign bits.
"""

from __future__ import annotations

import numpy as np
import simsimd
from numpy.typing import NDArray

from memory.compression.quantise import to_int8_one

FULL_SCAN_ROWS = 2048
"""Up to so many rows the bytes are scanned straight away: as quick as the bits, and closer."""
_CANDIDATE_SHARE = 100  # of the rows, one in so many is ranked by its bytes …
_CANDIDATES_MIN = 400  # … but not fewer than these
_HISTOGRAM_ROWS = 4096


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
        self._bits = np.zeros((self._words, rows), np.uint64)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._norms.nbytes + self._bits.nbytes

    def set(self, positions: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        """Put in int8 vectors at their positions."""
        self._grow(int(positions.max()) + 1 if len(positions) else 0)
        self._codes[positions] = codes
        wide = codes.astype(np.float32)
        # Never 0, so that a zero vector has the cosine 0 to everything.
        self._norms[positions] = np.maximum(np.sqrt(np.einsum("ij,ij->i", wide, wide)), 1)
        self._bits[:, positions] = self._to_bits(codes)

    def scores(self, query: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """The cosine of the first `count` vectors to a unit query, every one."""
        return self._products(query, self._codes[:count], self._norms[:count])

    @staticmethod
    def _products(
        query: NDArray[np.float32], codes: NDArray[np.int8], norms: NDArray[np.float32]
    ) -> NDArray[np.float32]:
        """Cosines by whole numbers, the query rounded like the vectors."""
        code = to_int8_one(query)
        wide = code.astype(np.float32)
        length = max(float(np.dot(wide, wide)) ** 0.5, 1.0)
        products = np.asarray(simsimd.cdist(codes, code[None, :], metric="inner"))[:, 0]
        cosines: NDArray[np.float32] = products.astype(np.float32)
        cosines /= norms
        cosines *= np.float32(1 / length)
        return cosines

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
        candidates = self._candidates(query, count, k, allowed)
        scores = self.exact(query, candidates)
        best = top(scores, k)
        return candidates[best], scores[best]

    def _candidates(
        self,
        query: NDArray[np.float32],
        count: int,
        k: int,
        allowed: NDArray[np.bool_] | None,
    ) -> NDArray[np.int64]:
        """Positions among which the k nearest are, but for rounding."""
        if allowed is not None:
            positions = np.flatnonzero(allowed[:count])
            if len(positions) <= max(_CANDIDATES_MIN, 4 * k):
                return positions
        if count <= FULL_SCAN_ROWS:
            scores = self.scores(query, count)
            if allowed is not None:
                scores[~allowed[:count]] = -np.inf
            return top(scores, 4 * k)
        distances = self._hamming(query, count)
        if allowed is not None:
            distances[~allowed[:count]] = np.iinfo(distances.dtype).max
        wanted = max(_CANDIDATES_MIN, count // _CANDIDATE_SHARE, 20 * k)
        # A histogram gives the distance that enough rows stay within, far cheaper than a sort;
        # of many rows a part tells it well enough.
        stride = max(count // _HISTOGRAM_ROWS, 1)
        totals = np.cumsum(np.bincount(distances[::stride], minlength=self._dimensions + 2))
        reach = min(int(np.searchsorted(totals, -(-wanted // stride))), self._dimensions)
        candidates = np.flatnonzero(distances <= reach)
        scores = self._products(query, self._codes[candidates], self._norms[candidates])
        return candidates[top(scores, 4 * k)]

    def _hamming(self, query: NDArray[np.float32], count: int) -> NDArray[np.uint8] | NDArray[np.uint16]:
        """In how many signs each vector differs from the query."""
        signs = np.zeros(self._words * 64, np.bool_)
        np.greater(query, 0, out=signs[: self._dimensions])
        bits = np.packbits(signs).view(np.uint64)
        differing = np.bitwise_count(self._bits[:, :count] ^ bits[:, None])
        # 256 differences would wrap round to 0 in a byte: one candidate too many, and ranked last.
        narrow = np.uint8 if self._dimensions <= 256 else np.uint16
        distances: NDArray[np.uint8] = np.add.reduce(differing, axis=0, dtype=narrow)
        return distances

    def _to_bits(self, vectors: NDArray[np.int8]) -> NDArray[np.uint64]:
        """Signs, one column a vector, 64 to a word: the order in which they are scanned."""
        signs = np.zeros((len(vectors), self._words * 64), np.bool_)
        np.greater(vectors, 0, out=signs[:, : self._dimensions])
        return np.ascontiguousarray(np.packbits(signs, axis=1).view(np.uint64).T)

    def _grow(self, needed: int) -> None:
        rows = len(self._codes)
        if needed <= rows:
            return
        rows = max(needed, rows + rows // 2)
        codes = np.zeros((rows, self._dimensions), np.int8)
        codes[: len(self._codes)] = self._codes
        norms = np.ones(rows, np.float32)
        norms[: len(self._norms)] = self._norms
        bits = np.zeros((self._words, rows), np.uint64)
        bits[:, : self._bits.shape[1]] = self._bits
        self._codes, self._norms, self._bits = codes, norms, bits
