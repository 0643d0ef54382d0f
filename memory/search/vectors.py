"""Nearest vectors by scanning: sign bits to find candidates, int8 to rank them.

Up to a few hundred thousand memories of one agent, a scan of small vectors beats an index, needs no
building and forgets at once what is deleted. Each vector is held as 256 signed bytes (its direction,
scaled by its largest component) and as 256 sign bits.
"""

from __future__ import annotations

import numpy as np
import simsimd
from numpy.typing import NDArray

from memory.compression.quantise import to_int8

FULL_SCAN_ROWS = 2048
"""Up to so many rows the bytes are scanned straight away: as quick as the bits, and closer."""
_CANDIDATE_SHARE = 100  # of the rows, one in so many is ranked by its bytes …
_CANDIDATES_MIN = 500  # … but not fewer than these


def top(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Where the k largest are, unordered."""
    if len(scores) <= k:
        return np.arange(len(scores))
    return np.argpartition(scores, len(scores) - k)[-k:]


class VectorBlock:
    """Vectors numbered by their position; grows as needed."""

    def __init__(self, dimensions: int, rows: int) -> None:
        self._dimensions = dimensions
        self._words = -(-dimensions // 64)
        self._codes = np.zeros((rows, dimensions), np.int8)
        self._norms = np.zeros(rows, np.float32)
        self._bits = np.zeros((self._words, rows), np.uint64)

    @property
    def nbytes(self) -> int:
        return self._codes.nbytes + self._norms.nbytes + self._bits.nbytes

    def set(self, positions: NDArray[np.int64], codes: NDArray[np.int8]) -> None:
        """Put in int8 vectors at their positions."""
        self._grow(int(positions.max()) + 1 if len(positions) else 0)
        self._codes[positions] = codes
        wide = codes.astype(np.float32)
        self._norms[positions] = np.sqrt(np.einsum("ij,ij->i", wide, wide))
        self._bits[:, positions] = self._to_bits(codes)

    def scores(self, query: NDArray[np.float32], count: int) -> NDArray[np.float32]:
        """The cosine of the first `count` vectors to a unit query, every one."""
        code = to_int8(query[None, :])
        products = np.asarray(simsimd.cdist(self._codes[:count], code, metric="inner"))[:, 0]
        norms = self._norms[:count] * np.float32(np.linalg.norm(code.astype(np.float32)))
        scores = np.zeros(count, np.float32)
        np.divide(products, norms, out=scores, where=norms > 0, casting="unsafe")
        return scores

    def exact(
        self, query: NDArray[np.float32], positions: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """The cosine of some vectors to a unit query that is not rounded itself."""
        norms = self._norms[positions]
        products = self._codes[positions].astype(np.float32) @ query
        return np.divide(products, norms, out=np.zeros_like(norms), where=norms > 0)

    def unit(self, positions: NDArray[np.int64]) -> NDArray[np.float32]:
        """Some vectors at unit length."""
        norms = self._norms[positions][:, None]
        wide = self._codes[positions].astype(np.float32)
        return np.divide(wide, norms, out=np.zeros_like(wide), where=norms > 0)

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
            distances[~allowed[:count]] = self._dimensions + 1
        wanted = max(_CANDIDATES_MIN, count // _CANDIDATE_SHARE, 20 * k)
        # A histogram gives the distance that enough rows stay within, far cheaper than a sort.
        totals = np.cumsum(np.bincount(distances, minlength=self._dimensions + 2))
        reach = min(int(np.searchsorted(totals, wanted)), self._dimensions)
        return np.flatnonzero(distances <= reach)

    def _hamming(self, query: NDArray[np.float32], count: int) -> NDArray[np.uint16]:
        """In how many signs each vector differs from the query."""
        bits = self._to_bits(query[None, :])[:, 0]
        distances = np.zeros(count, np.uint16)
        for word in range(self._words):
            distances += np.bitwise_count(self._bits[word, :count] ^ bits[word])
        return distances

    def _to_bits(self, vectors: NDArray[np.int8] | NDArray[np.float32]) -> NDArray[np.uint64]:
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
        norms = np.zeros(rows, np.float32)
        norms[: len(self._norms)] = self._norms
        bits = np.zeros((self._words, rows), np.uint64)
        bits[:, : self._bits.shape[1]] = self._bits
        self._codes, self._norms, self._bits = codes, norms, bits
