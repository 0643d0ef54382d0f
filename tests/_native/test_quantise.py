"""Vectors as signed bytes: the compiled function and its twin give the same bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from memory._base.native import core
from memory.compression.quantise import to_int8, to_int8_pure
from memory.search.vectors import VectorBlock

SHAPES = st.tuples(st.integers(0, 5), st.integers(1, 70))
FINITE = st.floats(allow_nan=False, allow_infinity=False, width=32)


@given(arrays.arrays(np.float32, SHAPES, elements=FINITE))
@settings(max_examples=300, deadline=None)
def test_any_rows_give_the_same_bytes(rows: NDArray[np.float32]) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        assert to_int8(rows).tobytes() == to_int8_pure(rows).tobytes()


@pytest.mark.parametrize("dimensions", [1, 7, 256, 257])
def test_many_random_rows_give_the_same_bytes(dimensions: int) -> None:
    rows = np.random.default_rng(3).standard_normal((2000, dimensions), dtype=np.float32)
    rows[7] = 0
    assert to_int8(rows).tobytes() == to_int8_pure(rows).tobytes()


def test_halves_are_rounded_to_even() -> None:
    row = np.array([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5, -126.5, 0.0]], np.float32)
    assert to_int8(row).tolist() == to_int8_pure(row).tolist() == [[127, 0, 2, 2, 0, -2, -126, 0]]


def test_rows_that_are_not_contiguous_or_wider_are_taken_too() -> None:
    rows = np.random.default_rng(4).standard_normal((6, 64), dtype=np.float32)
    for other in (rows[::2], rows[:, ::2], rows.T, rows.astype(np.float64)):
        assert to_int8(other).tobytes() == to_int8_pure(other).tobytes()  # type: ignore[arg-type]


def test_what_is_not_finite_does_not_crash() -> None:
    rows = np.array([[np.nan, 1.0], [np.inf, 1.0], [-np.inf, np.nan]], np.float32)
    with np.errstate(invalid="ignore"):
        assert to_int8(rows).shape == rows.shape


@pytest.mark.skipif(core is None, reason="the compiled core was not built")
@pytest.mark.parametrize("dimensions", [1, 32, 256, 1024])
def test_one_stored_vector_equals_a_batch_of_one(dimensions: int) -> None:
    rows = np.random.default_rng(5).standard_normal((20, dimensions), dtype=np.float32)
    rows[3] = 0
    one, many = VectorBlock(dimensions, 0), VectorBlock(dimensions, 0)
    for number, row in enumerate(rows):
        one.put_one(number, row.tobytes())
        many.put(number, to_int8(row[None, :]))
    for left, right in zip(one.arrays, many.arrays, strict=True):
        np.testing.assert_array_equal(left[:20], right[:20])
    codes, norms = one.arrays
    for vector, row_number in ((b"1234", 0), (rows[0].tobytes(), -1), (rows[0].tobytes(), len(norms))):
        if dimensions > 1 or row_number:
            with pytest.raises(ValueError, match="no vector of row"):
                core.put_vector(vector, row_number, codes, norms)  # type: ignore[union-attr]
