"""What every codec does to arrays: checking what came in, unit length, stable products."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.errors import InvalidVector

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Codes = NDArray[np.uint8]

SMALL_PRODUCT = 250_000
"""OpenBLAS works on a product of fewer multiplications in the calling thread alone. Waking others
for each of these thousands of small products gains nothing, and on a busy machine waiting for
them was measured to take ten times as long."""


def as_vectors(vectors: ArrayLike, dimensions: int) -> Floats:
    """``vectors`` as an (n, dimensions) array of finite float32 values, or InvalidVector."""
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidVector(f"vectors must be an array of numbers: {error}") from None
    if array.ndim != 2 or array.shape[1] != dimensions:
        raise InvalidVector(
            f"expected vectors of shape (n, {dimensions}), got {array.shape}; "
            "give one vector as vector[None, :]"
        )
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise InvalidVector(
            f"{int((~finite).sum())} of {len(array)} vectors hold NaN or infinity, "
            f"the first in row {int(np.argmin(finite))}"
        )
    return array


def as_codes(codes: NDArray[np.uint8], width: int) -> Codes:
    """``codes`` as an (n, width) array of bytes, or InvalidVector."""
    array = np.asarray(codes)
    if array.dtype != np.uint8:
        raise InvalidVector(f"codes are uint8 bytes, got {array.dtype}; use np.frombuffer")
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidVector(f"expected codes of shape (n, {width}), got {array.shape}")
    return array


def unit_rows(rows: NDArray[np.floating]) -> Floats:
    """Rows scaled to length one; zero rows stay zero, and rows of unit length stay as they are."""
    single = rows.astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        squared = np.einsum("ij,ij->i", single, single)
    extreme = ~((squared > 1e-20) & (squared < 1e20)) & single.any(axis=1)
    if extreme.any():
        # Their squares leave the range of a float: first bring the largest component to one.
        few = rows[extreme].astype(np.float64)
        few /= np.abs(few).max(axis=1, keepdims=True)
        single[extreme] = few
        squared[extreme] = np.einsum("ij,ij->i", few, few)
    keep = (squared == 0.0) | (np.abs(squared - 1.0) <= 1e-6)
    single /= np.sqrt(np.where(keep, np.float32(1.0), squared))[:, None]
    return single


def product(rows: NDArray[np.floating], matrix: NDArray[np.floating]) -> Doubles:
    """``rows @ matrix`` in double precision.

    In single precision BLAS rounds a row differently by its place in the batch (measured: a
    quarter of the rows change in the last bit), so that a vector's code would depend on its
    neighbours. In double precision the difference is 1e-16, far below any code's step.
    """
    result: Doubles = rows.astype(np.float64) @ matrix.astype(np.float64)
    return result
