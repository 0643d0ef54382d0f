"""The codec `binary`: one bit for each dimension, the smallest code."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from memory.compression.vectors._arrays import Codes, Doubles, Floats, product
from memory.compression.vectors._covariance import principal_axes
from memory.compression.vectors._rotation import random_rotation
from memory.compression.vectors.base import VectorCodec, require, require_whole

ROTATION_STEPS = 10
"""Iterations of the fit. In a measurement, 20 iterations did not improve the recall."""
MAX_FIT_ROWS = 16_384
"""The most vectors for fitting the rotation, to limit the time. Of more vectors, a sample is used."""


class BinaryCodec(VectorCodec):
    """The signs of the centred vector, by default after a fitted rotation.

    The rotation comes from iterative quantisation (Gong and Lazebnik, "Iterative quantization: a
    Procrustean approach to learning binary codes", 2011). It alternates between computing the signs and
    rotating the data towards these signs. Decoding multiplies each sign by the mean absolute value of its
    dimension, and adds the mean.

    Args:
        rotate: whether ``fit`` also fits a rotation.
        seed: the seed for the initial rotation and for the sample of the fit.
    """

    name: ClassVar[str] = "binary"

    def __init__(self, dimensions: int, *, rotate: bool = True, seed: int = 0) -> None:
        super().__init__(dimensions)
        require(isinstance(rotate, bool), f"rotate must be true or false, got {rotate!r}")
        require_whole("seed", seed, 0)
        self.rotate = rotate
        self.seed = seed
        self.bytes_per_vector = math.ceil(dimensions / 8)
        self.min_fit_vectors = 2

    def _shapes(self) -> Mapping[str, tuple[int, ...]]:
        # "heights": the mean absolute value of each dimension. The name is part of the saved format.
        shapes = {"mean": (self.dimensions,), "heights": (self.dimensions,)}
        return shapes | ({"rotation": (self.dimensions, self.dimensions)} if self.rotate else {})

    def _fit(self, units: Floats) -> dict[str, Floats]:
        learnt = {"mean": units.mean(axis=0, dtype=np.float64).astype(np.float32)}
        values = (units - learnt["mean"]).astype(np.float64)
        if self.rotate:
            sample = np.random.default_rng(self.seed).permutation(len(units))[:MAX_FIT_ROWS]
            rotation = _rotation_towards_signs(units[sample], self.seed)
            learnt["rotation"] = rotation.astype(np.float32)
            values = product(values, learnt["rotation"])
        learnt["heights"] = np.abs(values).mean(axis=0).astype(np.float32)
        return learnt

    def _encode(self, units: Floats) -> Codes:
        values = units - self._learnt["mean"]
        # The threshold is above 0, so that a rounding error does not decide the sign of a zero component.
        signs = (product(values, self._learnt["rotation"]) if self.rotate else values) > 1e-6
        codes = np.packbits(signs, axis=1)
        # The code without a set bit means the zero vector. The nearest other code has one set bit.
        codes[~codes.any(axis=1), 0] = 128
        return codes

    def _decode(self, codes: Codes) -> NDArray[np.floating]:
        signs = np.unpackbits(codes, axis=1, count=self.dimensions).astype(np.float64) * 2.0 - 1.0
        values: NDArray[np.floating] = signs * self._learnt["heights"]
        centred = product(values, self._learnt["rotation"].T) if self.rotate else values
        return centred + self._learnt["mean"]


def _rotation_towards_signs(units: Floats, seed: int) -> Doubles:
    """Return a rotation after which the vectors lie near the corners of a cube."""
    principal = principal_axes(units)
    values = product(units - principal.mean, principal.axes)
    rotation = random_rotation(units.shape[1], seed)
    for _ in range(ROTATION_STEPS):
        signs = np.where(values @ rotation > 0.0, 1.0, -1.0)
        left, _, right = np.linalg.svd(values.T @ signs)
        rotation = left @ right
    fitted: Doubles = principal.axes @ rotation
    return fitted
