"""The codec `float32`: lossless unit vectors, the reference for the other codecs."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from memory.compression.vectors._arrays import Codes, Floats
from memory.compression.vectors.base import VectorCodec


class Float32Codec(VectorCodec):
    """Four bytes for each dimension, little-endian, scaled to unit length."""

    name: ClassVar[str] = "float32"

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.bytes_per_vector = 4 * dimensions

    def _encode(self, units: Floats) -> Codes:
        return np.ascontiguousarray(units, dtype="<f4").view(np.uint8)

    def _decode(self, codes: Codes) -> Floats:
        vectors = np.ascontiguousarray(codes).view("<f4").astype(np.float32)
        # Damaged bytes can be NaN or infinity. Encoded vectors never have such values.
        return np.nan_to_num(vectors, nan=0.0, posinf=0.0, neginf=0.0)
