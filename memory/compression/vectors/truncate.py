"""The codec `truncate`: only the first dimensions, for Matryoshka embeddings. It needs no fit."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from memory.compression.vectors._arrays import Codes, Floats
from memory.compression.vectors.base import VectorCodec, require_whole, sixteenth
from memory.compression.vectors.int8 import from_int8, to_int8


class TruncateCodec(VectorCodec):
    """The first dimensions as int8; the others decode to zero.

    A vector whose first dimensions are all zero decodes to zero.

    Args:
        keep: the number of dimensions and of bytes; by default 1/16 of the float32 vector.
    """

    name: ClassVar[str] = "truncate"

    def __init__(self, dimensions: int, *, keep: int | None = None) -> None:
        super().__init__(dimensions)
        self.keep = sixteenth(dimensions) if keep is None else keep
        require_whole("keep", self.keep, 1, dimensions)
        self.bytes_per_vector = self.keep

    def _encode(self, units: Floats) -> Codes:
        return to_int8(units[:, : self.keep])

    def _decode(self, codes: Codes) -> Floats:
        return np.pad(from_int8(codes), ((0, 0), (0, self.dimensions - self.keep)))
