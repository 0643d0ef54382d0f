"""Random numbers, drawn from the operating system in advance.

To ask the operating system releases Python's lock. If another thread waits for the lock, it takes it, and
the caller waits for many times as long as a random number takes.
"""

from __future__ import annotations

import os
import struct

_AT_ONCE = 512
_drawn: list[int] = []
"""Numbers that nobody has used yet. To take one is a single operation, so no two threads get the same."""
# A child would use the same numbers as its parent.
os.register_at_fork(after_in_child=_drawn.clear)


def random_64() -> int:
    """Return a random number from 0 to 2**64 - 1."""
    try:
        return _drawn.pop()
    except IndexError:
        first, *others = struct.unpack(f"{_AT_ONCE}Q", os.urandom(8 * _AT_ONCE))
        _drawn.extend(others)
        return int(first)
