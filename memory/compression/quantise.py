"""Convert vectors to int8: the form that searches use, and the default form in im."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from memory._base.native import core

_FLOAT32 = np.dtype(np.float32)


def to_int8(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Scale each row so that its largest component is ±127, and round. Only the direction is kept."""
    if core is None or vectors.dtype is not _FLOAT32 or not vectors.flags.c_contiguous or not vectors.size:
        return to_int8_pure(vectors)
    codes = np.empty(vectors.shape, np.int8)
    core.to_int8(vectors, codes, vectors.shape[1])
    return codes


def to_int8_pure(vectors: NDArray[np.float32]) -> NDArray[np.int8]:
    """Do what `to_int8` does, without the compiled core."""
    # `ufunc.reduce` takes half the time of the array methods if there are few rows.
    peak = np.maximum.reduce(np.abs(vectors), axis=1, keepdims=True, initial=0.0)
    if not np.logical_and.reduce(peak, axis=None):
        peak[peak == 0] = 1.0
    scaled = vectors / peak
    scaled *= np.float32(127)
    codes: NDArray[np.int8] = np.rint(scaled, out=scaled).astype(np.int8)
    return codes


def to_int8_one(vector: NDArray[np.float32]) -> tuple[NDArray[np.int8], float]:
    """Do nearly what `to_int8` does for one vector, but much faster; also return the length of the result.

    Every search calls this."""
    if core is None or vector.dtype is not _FLOAT32 or not vector.flags.c_contiguous:
        return to_int8_one_pure(vector)
    code = np.empty(len(vector), np.int8)
    return code, core.to_int8_one(vector, code)


def to_int8_one_pure(vector: NDArray[np.float32]) -> tuple[NDArray[np.int8], float]:
    """Do what `to_int8_one` does, without the compiled core."""
    peak = max(float(vector.max()), -float(vector.min()))
    scale = np.float32(127 / peak) if peak > 0 else np.float32(0)
    code: NDArray[np.int8] = np.rint(vector * scale).astype(np.int8)
    wide = code.astype(np.int64)
    return code, math.sqrt(int(wide @ wide))
