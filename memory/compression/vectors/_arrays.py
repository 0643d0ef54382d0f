"""Array helpers for all codecs: validation, unit length, reproducible products."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from memory.errors import InvalidVector

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Codes = NDArray[np.uint8]

SMALL_PRODUCT = 250_000
"""The most multiplications of a matrix product for which OpenBLAS uses only the calling thread. More
threads do not speed up thousands of small products: on a busy machine they were ten times slower."""


def as_vectors(vectors: ArrayLike, dimensions: int) -> Floats:
    """Return ``vectors`` as an (n, dimensions) array of finite float32 values, or raise InvalidVector."""
    try:
        array = np.asarray(vectors, dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidVector(f"vectors must be an array of numbers: {error}") from None
    if array.ndim != 2 or array.shape[1] != dimensions:
        raise InvalidVector(
            f"expected vectors of shape (n, {dimensions}), got {array.shape}; "
            "pass one vector as vector[None, :]"
        )
    finite = np.isfinite(array).all(axis=1)
    if not finite.all():
        raise InvalidVector(
            f"{int((~finite).sum())} of {len(array)} vectors hold NaN or infinity, "
            f"the first in row {int(np.argmin(finite))}"
        )
    return array


def as_codes(codes: NDArray[np.uint8], width: int) -> Codes:
    """Return ``codes`` as an (n, width) array of bytes, or raise InvalidVector."""
    array = np.asarray(codes)
    if array.dtype != np.uint8:
        raise InvalidVector(
            f"expected codes of type uint8, got {array.dtype}; use np.frombuffer(…, np.uint8)"
        )
    if array.ndim != 2 or array.shape[1] != width:
        raise InvalidVector(f"expected codes of shape (n, {width}), got {array.shape}")
    return array


def robust_unit_rows(rows: NDArray[np.floating]) -> Floats:
    """Scale each row to unit length, even if its square would overflow or underflow.

    Zero rows stay zero. Rows of unit length are not changed, so that encoding is repeatable.
    """
    single = rows.astype(np.float32)
    with np.errstate(over="ignore", under="ignore"):
        squared = np.einsum("ij,ij->i", single, single)
    extreme = ~((squared > 1e-20) & (squared < 1e20)) & single.any(axis=1)
    if extreme.any():
        # The squares overflow or underflow: first scale the largest component to one.
        few = rows[extreme].astype(np.float64)
        few /= np.abs(few).max(axis=1, keepdims=True)
        single[extreme] = few
        squared[extreme] = np.einsum("ij,ij->i", few, few)
    keep = (squared == 0.0) | (np.abs(squared - 1.0) <= 1e-6)
    single /= np.sqrt(np.where(keep, np.float32(1.0), squared))[:, None]
    return single


def product(rows: NDArray[np.floating], matrix: NDArray[np.floating]) -> Doubles:
    """Return ``rows @ matrix`` in double precision.

    In single precision, the rounding of a row depends on its position in the batch: in a measurement, a
    quarter of the rows changed in the last bit. So the code of a vector would depend on the other vectors.
    In double precision the difference is 1e-16, which changes no code.
    """
    result: Doubles = rows.astype(np.float64) @ matrix.astype(np.float64)
    return result
