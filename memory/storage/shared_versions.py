"""Version numbers in shared memory: how a process detects that another process changed an agent's rows.

The numbers are slots of a small file beside the database. Every process that has the database open maps
the file into its memory. An agent has two slots: one for changes to existing rows, one for all writes.
A writer marks the slots before the commit and stores new versions after it. A cached entry or an index is
valid as long as the version is the one under which it was read.
Reading a slot takes about 0.1 microseconds; a query to SQLite takes several microseconds.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

from memory.storage._new_files import new_file

_AGENT_SLOTS = 512
"""Agents whose numbers differ by a multiple of this share their slots. Then a write of one also makes the
caches of the other stale: slower, but correct."""
_OLD_AGENT_SLOTS = 4096  # in files of the first versions, which keep their layout
_BYTES_A_SLOT = 8


class SharedVersions:
    """Slots of 64-bit versions, odd while a change is being committed.

    Versions are random, not counted: two processes can write one slot at the same time, and no two
    changes may leave the same version behind.
    """

    def __init__(self, path: Path | None) -> None:
        """Open or create the file at `path`; None keeps the versions in this process only."""
        self._agents = _AGENT_SLOTS
        if path is None:
            self.slots = memoryview(bytearray(_size(_AGENT_SLOTS))).cast("Q")
            return
        if not path.exists():
            with new_file(path) as draft:
                # Written in full, not only extended. On a full disk, the first write to an unallocated
                # part of a mapped file would kill the process.
                draft.write_bytes(bytes(_size(_AGENT_SLOTS)))
        descriptor = os.open(path, os.O_RDWR)
        try:
            found = os.fstat(descriptor).st_size
            if found >= _size(_OLD_AGENT_SLOTS):
                self._agents = _OLD_AGENT_SLOTS
            elif found < _size(_AGENT_SLOTS):  # truncated: start again from zeros
                os.pwrite(descriptor, bytes(_size(_AGENT_SLOTS)), 0)
            self.slots = memoryview(mmap.mmap(descriptor, _size(self._agents))).cast("Q")
        finally:
            os.close(descriptor)

    def changes_slot(self, agent_no: int) -> int:
        """Return the slot whose version changes when existing rows of the agent change."""
        return agent_no % self._agents

    def writes_slot(self, agent_no: int) -> int:
        """Return the slot whose version changes with every write of the agent's rows, new rows included."""
        return self._agents + agent_no % self._agents

    def begin(self, slot: int) -> int:
        """Mark the slot before a commit and return the mark; all that was cached under it is now stale."""
        mark = _random_version() | 1
        self.slots[slot] = mark
        return mark

    def end(self, slot: int, mark: int) -> None:
        """Store a new version after the commit or the rollback.

        The slot keeps the mark of another process that is still committing; that process's `end` stores
        the new version. An even version is replaced too: another process's `end` overwrote our mark."""
        now = self.slots[slot]
        if now == mark or not now & 1:
            self.slots[slot] = _random_version() & ~1


def _size(agents: int) -> int:
    return 2 * agents * _BYTES_A_SLOT


def _random_version() -> int:
    return int.from_bytes(os.urandom(8), "little") | 2  # never 0, the version of an unused slot
