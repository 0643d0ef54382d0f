"""A vector's direction in signed bytes: what is searched, and what the middle tier stores."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def to_int8(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """The direction of each row in signed bytes."""
    # Reductions by the ufuncs themselves: of a few rows, half the time would be the methods' wrappings.
    peak = np.maximum.reduce(np.abs(vectors), axis=1, keepdims=True, initial=0.0)
    if not np.logical_and.reduce(peak, axis=None):
        peak[peak == 0] = 1.0
    scaled = vectors / peak
    scaled *= np.float32(127)
    codes: NDArray[np.int8] = np.rint(scaled, out=scaled).astype(np.int8)
    return codes


def to_int8_one(vector: NDArray[np.float32]) -> NDArray[np.int8]:
    """The same for one vector at a fraction of the cost: every search needs it."""
    peak = max(float(vector.max()), -float(vector.min()))
    scale = np.float32(127 / peak) if peak > 0 else np.float32(0)
    code: NDArray[np.int8] = np.rint(vector * scale).astype(np.int8)
    return code
