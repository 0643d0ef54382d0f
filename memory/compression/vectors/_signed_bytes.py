"""Values between -1 and 1 as signed bytes, with one byte reserved for the zero vector."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memory.compression.vectors._arrays import Codes, Floats

NO_VECTOR = 128
"""Each byte of the zero vector's code: -128 as a signed byte. Other values are from -127 to 127."""
LEVELS = 127.0
"""The signed byte that represents 1.0."""


def to_signed(values: NDArray[np.floating]) -> Codes:
    """Clip values to [-1, 1] and round them to 255 steps."""
    signed: NDArray[np.int8] = np.rint(np.clip(values, -1.0, 1.0) * LEVELS).astype(np.int8)
    return signed.view(np.uint8)


def from_signed(codes: Codes) -> Floats:
    """Return the values that `to_signed` rounded."""
    signed = np.ascontiguousarray(codes).view(np.int8)
    return signed.astype(np.float32) / np.float32(LEVELS)
