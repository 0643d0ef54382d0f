"""Values between -1 and 1 as signed bytes, with one byte left over for "no vector"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memory.compression.vectors._arrays import Codes, Floats

NO_VECTOR = 128
"""As a signed byte -128: rounding values in [-1, 1] to ±127 never gives it."""

LEVELS = 127.0


def to_signed(values: NDArray[np.floating]) -> Codes:
    """Clipped to [-1, 1] and rounded to 255 steps."""
    signed: NDArray[np.int8] = np.rint(np.clip(values, -1.0, 1.0) * LEVELS).astype(np.int8)
    return signed.view(np.uint8)


def from_signed(codes: Codes) -> Floats:
    signed = np.ascontiguousarray(codes).view(np.int8)
    return signed.astype(np.float32) / np.float32(LEVELS)
