"""One byte a dimension: a quarter of the size, and the neighbours stay where they were."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from memory.compression import quantise
from memory.compression.vectors._arrays import Codes, Floats
from memory.compression.vectors.base import VectorCodec


class Int8Codec(VectorCodec):
    """Each vector scaled so that its largest component is ±127, then rounded.

    The scale is not kept: only the direction matters, and decoding gives it unit length.
    """

    name: ClassVar[str] = "int8"

    @property
    def bytes_per_vector(self) -> int:
        return self.dimensions

    def _encode(self, units: Floats) -> Codes:
        return to_int8(units)

    def _decode(self, codes: Codes) -> Floats:
        return from_int8(codes)


def to_int8(rows: Floats) -> Codes:
    """Rows as signed bytes, each row by its own largest absolute component."""
    return quantise.to_int8(rows).view(np.uint8)


def from_int8(codes: Codes) -> Floats:
    """Signed bytes as floats, up to the scale that was not kept."""
    return np.ascontiguousarray(codes).view(np.int8).astype(np.float32)
