"""Random numbers are used once: by no two threads, and not by a child that was forked."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from memory._base.randomness import random_64


def test_no_number_comes_twice() -> None:
    with ThreadPoolExecutor(8) as threads:
        parts = list(threads.map(lambda _: [random_64() for _ in range(2000)], range(8)))
    numbers = [number for part in parts for number in part]
    assert len(set(numbers)) == 16_000
    assert min(numbers) >= 0
    assert max(numbers) < 1 << 64
    assert max(numbers) >= 1 << 63  # all bits are used


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a fork")
def test_a_forked_child_draws_other_numbers() -> None:
    random_64()
    out, into = os.pipe()
    child = os.fork()
    if not child:
        os.write(into, b"".join(random_64().to_bytes(8) for _ in range(100)))
        os._exit(0)
    os.waitpid(child, 0)
    written = os.read(out, 800)
    os.close(out)
    os.close(into)
    theirs = {int.from_bytes(written[at : at + 8]) for at in range(0, 800, 8)}
    assert len(theirs) == 100
    assert not theirs & {random_64() for _ in range(600)}
