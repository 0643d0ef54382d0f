"""Vectors as int8: the form that is searched, and the default form in im."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_int8(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Scale each row so that its largest component is ±127, and round. Only the direction is kept."""
    # The reductions of ufuncs: with few rows, the array methods would take twice as long.
    peak = np.maximum.reduce(np.abs(vectors), axis=1, keepdims=True, initial=0.0)
    if not np.logical_and.reduce(peak, axis=None):
        peak[peak == 0] = 1.0
    scaled = vectors / peak
    scaled *= np.float32(127)
    codes: NDArray[np.int8] = np.rint(scaled, out=scaled).astype(np.int8)
    return codes


def to_int8_one(vector: NDArray[np.float32]) -> NDArray[np.int8]:
    """Do the same for one vector, much faster: every search needs it."""
    peak = max(float(vector.max()), -float(vector.min()))
    scale = np.float32(127 / peak) if peak > 0 else np.float32(0)
    code: NDArray[np.int8] = np.rint(vector * scale).astype(np.int8)
    return code
