"""The pulse: how a process learns at once that another one changed what it has cached.

A small file beside the database, mapped into every process that has it open. Each agent falls on one
slot for changes to rows that existed, and on one for anything at all, new rows included. Whoever writes
marks the slots before the commit and gives them new numbers after it; a cached record, or an index, is
good as long as the number is the one it was read under.
Reading a slot costs a tenth of a microsecond, where asking SQLite costs several.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from memory.storage._publish import publish

_AGENT_SLOTS = 4096
_BYTES = 2 * _AGENT_SLOTS * 8


def change_slot(agent_no: int) -> int:
    """Where changes to an agent's existing rows show."""
    return agent_no % _AGENT_SLOTS


def any_slot(agent_no: int) -> int:
    """Where every write of an agent's rows shows."""
    return _AGENT_SLOTS + agent_no % _AGENT_SLOTS


class Pulse:
    """Slots of 64-bit numbers, odd while a change is being committed.

    Numbers are random, not counted: two processes can write one slot at the same time, and no two
    changes must ever leave the same number behind.
    """

    def __init__(self, path: Path | None) -> None:
        """`path` None: a pulse for this process alone."""
        if path is None:
            self.slots = memoryview(bytearray(_BYTES)).cast("Q")
            return
        if not path.exists():
            _create(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            if os.fstat(descriptor).st_size < _BYTES:  # cut short: what it said is void
                os.pwrite(descriptor, bytes(_BYTES), 0)
            self.slots = memoryview(mmap.mmap(descriptor, _BYTES)).cast("Q")
        finally:
            os.close(descriptor)

    def begin(self, slot: int) -> int:
        """A change is about to be committed: nothing cached under this slot is good any more."""
        mark = _fresh() | 1
        self.slots[slot] = mark
        return mark

    def end(self, slot: int, mark: int) -> None:
        """The change is committed or taken back.

        Only where another process's change is under way is the slot left alone: that one's end gives
        it the new number. An even number is replaced too: it was written over our mark."""
        now = self.slots[slot]
        if now == mark or not now & 1:
            self.slots[slot] = _fresh() & ~1


def _create(path: Path) -> None:
    """Make the file whole or not at all, unless another process is first: its numbers are in use then.

    It is written, not only made long: on a full disk, the first write to a hole of the map would kill
    the process."""
    draft = path.with_name(f"{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        draft.write_bytes(bytes(_BYTES))
        publish(draft, path)
    finally:
        draft.unlink(missing_ok=True)


def _fresh() -> int:
    return int.from_bytes(os.urandom(8), "little") | 2  # never 0, the number of an untouched slot
