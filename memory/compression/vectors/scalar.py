"""The codec `scalar`: a few bits for each dimension after a random rotation, with nothing to fit.

After a random rotation, the components of any unit vector are close to normally distributed. So one table
of levels, the best one for a normal variable, fits all dimensions of all data. The recall is lower than
with product quantisation, but this codec needs no data and can't become stale.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import NormalDist
from typing import ClassVar

import numpy as np

from memory.compression.vectors._arrays import Codes, Doubles, Floats, product
from memory.compression.vectors._rotation import random_rotation
from memory.compression.vectors.base import VectorCodec, require, require_whole


class ScalarCodec(VectorCodec):
    """``bits`` bits for each dimension of the randomly rotated vector.

    The rotation is saved with the codec, because the same seed can give slightly different numbers on
    another machine.

    Args:
        bits: 1, 2 or 4.
        seed: the seed for the rotation.
    """

    name: ClassVar[str] = "scalar"

    def __init__(self, dimensions: int, *, bits: int = 2, seed: int = 0) -> None:
        super().__init__(dimensions)
        require(bits in (1, 2, 4), f"bits must be 1, 2 or 4, got {bits!r}")
        require_whole("seed", seed, 0)
        self.bits = bits
        self.seed = seed
        self.bytes_per_vector = math.ceil(dimensions * bits / 8)
        self._levels = normal_levels(2**bits)

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        return {"rotation": (self.dimensions, self.dimensions)}

    @property
    def is_fitted(self) -> bool:
        return True

    def save(self) -> bytes:
        self._rotation()
        return super().save()

    def _fit(self, units: Floats) -> dict[str, Floats]:
        return self._learnt

    def _rotation(self) -> Floats:
        """Return the rotation. Create it on first use if it was not loaded."""
        if "rotation" not in self._learnt:
            rotation = random_rotation(self.dimensions, self.seed)
            self._learnt["rotation"] = rotation.astype(np.float32)
        return self._learnt["rotation"]

    def _encode(self, units: Floats) -> Codes:
        values = product(units, self._rotation()) * math.sqrt(self.dimensions)
        boundaries = (self._levels[1:] + self._levels[:-1]) / 2.0
        # With the offset, the rounding error of a zero component does not change its level.
        levels = np.searchsorted(boundaries, values + 1e-9).astype(np.uint8)
        codes = pack_small(levels, self.bits)
        # A code of zero bytes is reserved for the zero vector. Use the nearest other code instead.
        codes[~codes.any(axis=1), 0] = 1
        return codes

    def _decode(self, codes: Codes) -> Doubles:
        levels = unpack_small(codes, self.bits)[:, : self.dimensions]
        return product(self._levels[levels], self._rotation().T)


def normal_levels(count: int) -> Doubles:
    """Return the ``count`` levels with the least squared error for a standard normal variable.

    The levels meet the condition of Lloyd and Max: each level is the mean of its cell, and cells end
    half-way between levels. The last of the 1,000 iterations changes the levels by less than 1e-13.
    """
    normal = NormalDist()
    levels = np.array([normal.inv_cdf((i + 0.5) / count) for i in range(count)])
    for _ in range(1000):
        inner = (levels[1:] + levels[:-1]) / 2.0
        edges = [-math.inf, *inner.tolist(), math.inf]
        density = np.array([0.0 if math.isinf(edge) else normal.pdf(edge) for edge in edges])
        below = np.array([normal.cdf(edge) for edge in edges])
        levels = (density[:-1] - density[1:]) / (below[1:] - below[:-1])
    return levels


def pack_small(values: Codes, bits: int) -> Codes:
    """Pack values of ``bits`` bits into bytes, the first value in the lowest bits."""
    per_byte = 8 // bits
    padded = np.pad(values, ((0, 0), (0, -values.shape[1] % per_byte)))
    packed = np.zeros((len(values), padded.shape[1] // per_byte), dtype=np.uint8)
    for place in range(per_byte):
        packed |= padded[:, place::per_byte] << np.uint8(place * bits)
    return packed


def unpack_small(packed: Codes, bits: int) -> Codes:
    """Return the values that ``pack_small`` packed, and its padding."""
    per_byte = 8 // bits
    values = np.empty((len(packed), packed.shape[1] * per_byte), dtype=np.uint8)
    for place in range(per_byte):
        values[:, place::per_byte] = (packed >> np.uint8(place * bits)) & np.uint8(2**bits - 1)
    return values
