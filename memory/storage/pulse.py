"""The pulse: how a process learns at once that another one changed what it has cached.

A small file beside the database, mapped into every process that has it open. Each agent falls on one
of its slots. Whoever changes or removes rows marks the slot before the commit and gives it a new
number after it; a cached record is good as long as the number is the one it was read under.
Reading a slot costs a tenth of a microsecond, where asking SQLite costs several.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

SLOTS = 4096
_BYTES = SLOTS * 8


class Pulse:
    """Slots of 64-bit numbers, odd while a change is being committed.

    Numbers are random, not counted: two processes can write one slot at the same time, and no two
    changes must ever leave the same number behind.
    """

    def __init__(self, path: Path | None) -> None:
        """`path` None: a pulse for this process alone."""
        self._map: mmap.mmap | None = None
        if path is None:
            self.slots = memoryview(bytearray(_BYTES)).cast("Q")
            return
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            if os.fstat(descriptor).st_size < _BYTES:
                os.ftruncate(descriptor, _BYTES)
            self._map = mmap.mmap(descriptor, _BYTES)
        finally:
            os.close(descriptor)
        self.slots = memoryview(self._map).cast("Q")

    def begin(self, slot: int) -> None:
        """A change is about to be committed: nothing cached under this slot is good any more."""
        self.slots[slot] = _fresh() | 1

    def end(self, slot: int) -> None:
        """The change is committed or taken back."""
        self.slots[slot] = _fresh() & ~1

    def close(self) -> None:
        if self._map is not None:
            self.slots.release()
            self._map.close()


def _fresh() -> int:
    return int.from_bytes(os.urandom(8), "little") | 2  # never 0, the number of an untouched slot
