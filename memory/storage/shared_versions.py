"""Version numbers in shared memory: how a process detects that another process changed an agent's rows.

The numbers are slots of a small file beside the database. Every process that has the database open maps
the file into its memory. An agent has two slots: one for changes to existing rows, one for all writes.
A writer marks the slots before the commit and stores new versions after it. A cached entry or an index is
valid as long as the version is the one under which it was read.
Reading a slot takes about 0.1 microseconds; a query to SQLite takes several microseconds.

The file must stay where it is while a process uses it. If somebody deletes, replaces or truncates it all
the same, each process notices it before a write or read that comes more than
CHECK_SECONDS after its last check. Then it maps a new file, and its caches start again. A process that
makes a new file for a database that others have open waits longer than that, so that they have noticed it
before its first write. One case can't be prevented: a process that uses the map within CHECK_SECONDS after
somebody truncated the file ends with SIGBUS, as SQLite does if its -shm file is truncated.
"""

from __future__ import annotations

import errno
import mmap
import os
import stat
import time
from pathlib import Path

from memory._base.locks import fork_safe_lock
from memory._base.native import core
from memory._base.randomness import random_64
from memory.storage._new_files import like_file, new_file

CHECK_SECONDS = 0.01
"""How long a process may use the map without checking that the file is still the one at its path."""
_AGENT_SLOTS = 512
"""Agents whose numbers differ by a multiple of this share their slots. Then a write of one also makes the
caches of the other stale: slower, but correct."""
_OLD_AGENT_SLOTS = 4096  # in files of the first versions, which keep their layout
_BYTES_A_SLOT = 8
_one_at_a_time = fork_safe_lock()
_NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)


class SharedVersions:
    """Slots of 64-bit versions, odd while a change is being committed.

    Versions are random, not counted: two processes can write one slot at the same time, and no two
    changes may leave the same version behind.
    """

    def __init__(self, database: Path | None, *, read_only: bool = False, is_new: bool = False) -> None:
        """Map the file beside the database; create it if it does not exist.

        database: None keeps the versions in this process only
        read_only: create and change nothing; raises FileNotFoundError if there is no file
        is_new: the caller has just created the database, so nobody used it with an earlier file

        Raises OSError if the file can't be created or mapped, or is not a regular file.
        """
        self._agents = _AGENT_SLOTS
        self.marked: list[tuple[int, int]] = []
        """Slots that this process has marked, and its marks. Only the holder of the write lock uses it."""
        self._database = database
        self._read_only = read_only
        self._path = Path(f"{database}-pulse")
        self._name = str(self._path)
        self._descriptor: int | None = None
        self._identity = (0, 0)
        self.generation = 0
        """Changes when another file was mapped: functions that read the old slots are invalid then."""
        self.slots: memoryview
        if database is None:
            self.slots = memoryview(bytearray(_size(_AGENT_SLOTS))).cast("Q")
        else:
            self._map(database, is_new)

    def _map(self, database: Path, is_new: bool = False) -> None:
        created = False
        if not self._read_only and not os.path.lexists(self._path):
            created = True
            with new_file(self._path) as draft:
                # Written in full, not only extended. On a full disk, the first write to an unallocated
                # part of a mapped file would kill the process.
                draft.write_bytes(bytes(_size(self._agents)))
                like_file(draft, database)
        # A symbolic link could lead to any file of the user, which would be overwritten.
        access = os.O_RDONLY if self._read_only else os.O_RDWR
        descriptor = os.open(self._path, access | _NO_FOLLOW)
        try:
            found = os.fstat(descriptor)
            if not stat.S_ISREG(found.st_mode):
                raise OSError(errno.EINVAL, "not a regular file", self._name)
            agents = _OLD_AGENT_SLOTS if found.st_size >= _size(_OLD_AGENT_SLOTS) else _AGENT_SLOTS
            if found.st_size < _size(agents):  # truncated
                if self._read_only:
                    raise OSError(errno.EINVAL, "truncated", self._name)
                os.pwrite(descriptor, _random_slots(agents), 0)
            way = mmap.ACCESS_READ if self._read_only else mmap.ACCESS_WRITE
            slots = memoryview(mmap.mmap(descriptor, _size(agents), access=way)).cast("Q")
        except BaseException:
            os.close(descriptor)
            raise
        self._identity = found.st_dev, found.st_ino
        self.slots, self._agents, self._descriptor = slots, agents, descriptor
        if created and not is_new and os.path.exists(f"{database}-shm"):
            time.sleep(2 * CHECK_SECONDS)  # others may have the database open with the file that is gone

    def check(self) -> None:
        """Map the file again if it is no longer the one at its path; repair it if it was truncated.

        Raises OSError if that is not possible; then nothing may be cached."""
        if self._database is None or self._is_current():
            return
        with _one_at_a_time:
            if self._descriptor is None or self._is_current():
                return
            old, descriptor = self.slots, self._descriptor
            is_whole = os.fstat(descriptor).st_size >= len(old) * _BYTES_A_SLOT
            self._map(self._database)
            self.generation += 1
            if self.marked and len(old) != len(self.slots):
                self.marked = [(slot, 1) for slot in range(len(self.slots))]
            if is_whole and not self._read_only:
                # Odd for ever: a process that still reads the old slots caches nothing.
                old[:] = memoryview(bytes([1, *bytes(_BYTES_A_SLOT - 1)]) * len(old)).cast("Q")
            os.close(descriptor)

    def _is_current(self) -> bool:
        """Return whether the mapped file is the one at the path; repair it if it was truncated."""
        descriptor = self._descriptor
        try:
            found = os.stat(self._name, follow_symlinks=False)
        except FileNotFoundError:
            return descriptor is None
        if descriptor is None or (found.st_dev, found.st_ino) != self._identity:
            return descriptor is None
        if found.st_size < _size(self._agents):
            if self._read_only:
                raise OSError(errno.EINVAL, "truncated", self._name)
            os.pwrite(descriptor, _random_slots(self._agents), 0)
        return True

    def close(self) -> None:
        """Release the file. The map is freed with the last function that reads it."""
        descriptor, self._descriptor = self._descriptor, None
        self.slots = memoryview(bytearray(_size(self._agents))).cast("Q")
        self.generation += 1
        if descriptor is not None:
            os.close(descriptor)

    def changes_slot(self, agent_no: int) -> int:
        """Return the slot whose version changes when existing rows of the agent change."""
        return agent_no % self._agents

    def writes_slot(self, agent_no: int) -> int:
        """Return the slot whose version changes with every write of the agent's rows, new rows included."""
        return self._agents + agent_no % self._agents

    def begin(self, slot: int) -> None:
        """Mark the slot before a commit; all that was cached under it is now stale."""
        mark = random_64() | 3  # never the version of an unused slot, or even
        self.marked.append((slot, mark))
        self.slots[slot] = mark

    def end_all(self) -> list[tuple[int, int]]:
        """Store new versions in all marked slots, after the commit or the rollback.

        Return the slots to which no other process wrote from `begin` to the new version, and that version.
        Without the compiled core this is known only if the slots are not in a file.

        A slot keeps the mark of another process that is still committing; that process's `end_all` stores
        the new version. An even version is replaced too: another process's `end_all` overwrote our mark.
        After an interrupt, call it again: it continues with the slots that are still marked."""
        undisturbed = []
        while self.marked:
            slot, mark = self.marked[-1]
            version = mark ^ 1  # as random as the mark, and even
            if _replace(self.slots, slot, mark, version):
                if core is not None or self._database is None:
                    undisturbed.append((slot, version))
            else:
                while not (now := self.slots[slot]) & 1 and not _replace(self.slots, slot, now, version):
                    pass
            self.marked.pop()
        return undisturbed


def replace_pure(slots: memoryview, slot: int, expected: int, version: int) -> bool:
    """Store a version if the slot has the expected one; return whether it has. Not atomic: another process
    may write the slot in between, and its version is lost then."""
    if slots[slot] != expected:
        return False
    slots[slot] = version
    return True


_replace = replace_pure if core is None else core.replace_version


def _size(agents: int) -> int:
    return 2 * agents * _BYTES_A_SLOT


def _random_slots(agents: int) -> bytes:
    """Return new even versions for all slots: no cache of any process is valid under them."""
    random = bytearray(os.urandom(_size(agents)))
    random[::_BYTES_A_SLOT] = bytes(low & ~1 | 2 for low in random[::_BYTES_A_SLOT])
    return bytes(random)
