"""The codec `int8`: one byte for each dimension, with almost the same nearest neighbours."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from memory.compression import quantise
from memory.compression.vectors._arrays import Codes, Floats
from memory.compression.vectors.base import VectorCodec


class Int8Codec(VectorCodec):
    """Each vector scaled so that its largest component is ±127, then rounded. The scale is not kept."""

    name: ClassVar[str] = "int8"

    def __init__(self, dimensions: int) -> None:
        super().__init__(dimensions)
        self.bytes_per_vector = dimensions

    def _encode(self, units: Floats) -> Codes:
        return to_int8(units)

    def _decode(self, codes: Codes) -> Floats:
        return from_int8(codes)


def to_int8(rows: Floats) -> Codes:
    """Return rows as signed bytes, each scaled by its largest absolute component."""
    return quantise.to_int8(rows).view(np.uint8)


def from_int8(codes: Codes) -> Floats:
    """Return signed bytes as floats between -127 and 127."""
    return np.ascontiguousarray(codes).view(np.int8).astype(np.float32)
