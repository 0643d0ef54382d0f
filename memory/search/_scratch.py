"""Arrays that searches of many memories use again and again.

New arrays of this size come from the operating system, page by page: for a million memories this takes as
long as the scan that fills them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_KEPT = 2
"""Sets of arrays that are kept for later searches: 6 bytes for each memory of a large agent."""
_STEP = 1 << 16  # the memories in a block of an index


class Scratch(NamedTuple):
    """Arrays with one element for each memory, whose contents are undefined."""

    scores: NDArray[np.float32]
    differing: NDArray[np.uint16]


_free: list[Scratch] = []


@contextmanager
def scratch(count: int) -> Iterator[Scratch]:
    """Lend arrays with `count` elements. Do not use them after the `with` block."""
    try:
        lent = _free.pop()
    except IndexError:
        lent = _new(count)
    if len(lent.scores) < count:
        lent = _new(count)
    yield Scratch(lent.scores[:count], lent.differing[:count])
    if len(_free) < _KEPT:  # after an exception they are not kept: a traceback may hold them
        _free.append(lent)


def _new(count: int) -> Scratch:
    size = -(-count // _STEP) * _STEP
    return Scratch(np.empty(size, np.float32), np.empty(size, np.uint16))
