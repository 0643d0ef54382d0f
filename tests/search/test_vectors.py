"""The vectors of a block, while several threads search it."""

from __future__ import annotations

from typing import Any

import numpy as np

from memory.search.vectors import Query, VectorBlock


class _Interrupted(VectorBlock):
    """Another thread makes the sign bits at the moment at which this one is about to show its own."""

    is_interrupted = False

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "_bits" and self.is_interrupted:
            self.is_interrupted = False
            self._sign(len(self._codes))
        super().__setattr__(name, value)


def test_two_searches_that_make_the_sign_bits_at_once_find_the_same() -> None:
    rng = np.random.default_rng(1)
    codes = rng.integers(-127, 128, (100, 64), dtype=np.int8)
    query = Query(rng.standard_normal(64, dtype=np.float32))
    alone, interrupted = VectorBlock(64, 100), _Interrupted(64, 100)
    for block in (alone, interrupted):
        block.put(0, codes)
    interrupted.is_interrupted = True
    assert np.array_equal(interrupted.differing(query, 100), alone.differing(query, 100))
    assert not interrupted.is_interrupted
