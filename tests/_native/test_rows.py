"""The checksum of a row that was read: the compiled function and its twin agree."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memory._base.native import core
from memory.storage._rows import checksum_of, is_row_intact, is_row_intact_pure, with_key

needs_core = pytest.mark.skipif(core is None, reason="the compiled core was not built")
EDGES = [
    edge + step
    for bits in (5, 7, 8, 15, 16, 31, 32, 63)
    for edge in (-(2**bits), 2**bits)
    for step in (-1, 0, 1)
]
INTEGERS = [number for number in EDGES if -(2**63) <= number < 2**63]
LENGTHS = (0, 1, 7, 8, 9, 31, 32, 255, 256, 65535, 65536)
VALUES = st.one_of(
    st.none(),
    st.floats(),
    st.integers(-(2**63), 2**63 - 1),
    st.text(st.characters(exclude_categories=["Cs"])),
    st.binary(max_size=300),
)


def row_of(values: list[Any], key: int) -> tuple[Any, ...]:
    return (key, with_key(checksum_of(tuple(values)), key), *values)


@given(st.lists(VALUES, min_size=2, max_size=14), st.integers(0, 2**62))
@example(INTEGERS[:14], 5)
@example(INTEGERS[14:28], 5)
@example(INTEGERS[28:42], 5)
@example(["x" * length for length in LENGTHS], 0)
@example([b"x" * length for length in LENGTHS], 0)
@example(["ä" * 16, "ä" * 15 + "x", "\U0001f600" * 64], 7)
def test_an_intact_row_is_intact_and_a_changed_one_is_not(values: list[Any], key: int) -> None:
    row = row_of(values, key)
    for check in (is_row_intact, is_row_intact_pure):
        assert check(row)
        assert check((key, row[1], *values[1:]), values[0])
        assert not check((key ^ 1, *row[1:]))
        assert not check((key, row[1] ^ 1, *values))
        assert not check((key, None, *values))
        assert not check((key, row[1], *values[:-1]))


@needs_core
def test_unusual_values_are_not_intact_and_raise_nothing() -> None:
    assert core is not None
    for value in (True, 2**64, -(2**63) - 1, [1], "\ud800", object()):
        assert not core.is_row_intact((1, 2, value))
    assert not core.is_row_intact((2**64, 2, "x"))
    assert not core.is_row_intact((1, 2**64, "x"))
    assert not core.is_row_intact((1.5, "x", "x"))
    for wrong in ((), (1, 2), [1, 2, 3], (1, 2, *range(15))):
        with pytest.raises(TypeError, match="a tuple of a key"):
            core.is_row_intact(wrong)  # type: ignore[arg-type]
