"""Arrays that grow by half, so that appending one element at a time stays cheap."""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

_Number = TypeVar("_Number", np.float32, np.float64, np.int32, np.int64, np.uint8, np.bool_)


def capacity(needed: int, current: int) -> int:
    """Return the new length of an array of `current` elements that needs at least `needed`."""
    return max(needed, current + current // 2, 16)


def grown(column: NDArray[_Number], length: int, fill: float = 0) -> NDArray[_Number]:
    """Return a copy of the column with `length` elements; the new ones hold `fill`."""
    new = np.full(length, fill, column.dtype)
    new[: len(column)] = column
    return new
