"""`replace_version` in the compiled core does what its twin does, in one step."""

from __future__ import annotations

from typing import Any

import pytest

from memory._base.native import core
from memory.storage.shared_versions import replace_pure

LARGEST = 2**64 - 1


def slots(*values: int) -> memoryview:
    made = memoryview(bytearray(8 * len(values))).cast("Q")
    for place, value in enumerate(values):
        made[place] = value
    return made


@pytest.mark.skipif(core is None, reason="needs the compiled core")
@pytest.mark.parametrize(("slot", "expected"), [(0, 7), (1, LARGEST), (1, LARGEST - 1), (2, 0), (2, 7)])
@pytest.mark.parametrize("version", [0, 4, LARGEST])
def test_both_ways_do_the_same(slot: int, expected: int, version: int) -> None:
    assert core is not None
    one, two = slots(7, LARGEST, 0), slots(7, LARGEST, 0)
    assert core.replace_version(one, slot, expected, version) is replace_pure(two, slot, expected, version)
    assert one.tolist() == two.tolist()


@pytest.mark.skipif(core is None, reason="needs the compiled core")
@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ((slots(1), 1, 1, 2), ValueError),
        ((slots(1), -1, 1, 2), ValueError),
        ((slots(1), -(2**80), 1, 2), OverflowError),
        ((slots(1), 0, 2**64, 2), OverflowError),
        ((slots(1), 0, 1, -1), OverflowError),
        ((slots(1), 0, "1", 2), TypeError),
        ((slots(1).cast("B"), 0, 1, 2), TypeError),
        ((slots(1).toreadonly(), 0, 1, 2), BufferError),
        ((None, 0, 1, 2), TypeError),
        ((slots(1), 0, 1), TypeError),
    ],
)
def test_wrong_arguments_are_refused(arguments: Any, error: type[Exception]) -> None:
    assert core is not None
    with pytest.raises(error):
        core.replace_version(*arguments)
    assert not arguments[0] or arguments[0][0] == 1
