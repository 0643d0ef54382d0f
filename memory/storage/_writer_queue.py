"""A queue of the processes that write one file, so that each waits for the others once.

SQLite itself lets a process that finds the file locked sleep for up to 100 ms, and another may be first
again and again. With the queue, such a process first takes a place in the queue, then its turn:

- Two bytes of the versions' file are locked: the first place in the queue, and the turn.
- A writer whose turn it is gives its place in the queue away at once, but keeps the turn until it has
  committed. So the next turn is never that of the process that has just written, if another one waits.
- A process that has met no other writer for a while does not queue: that would only take time.

The queue makes writers fair. It does not protect the file: SQLite's own lock does. A writer that has waited
too long writes without its turn, for example because the process whose turn it is was stopped. The kernel
releases the locks of a process that ends, whatever ends it.
"""

from __future__ import annotations

import os
import struct
import sys
import time

try:
    from fcntl import F_OFD_SETLK, F_UNLCK, F_WRLCK, fcntl
except ImportError:  # other systems have no locks that belong to an open file
    HAS_QUEUE = False
else:
    HAS_QUEUE = sys.platform == "linux" and struct.calcsize("l") == 8
    """Whether writers queue on this system."""

    def _request(kind: int, first: int, count: int) -> bytes:
        """Return a `struct flock` of 64-bit Linux: type, whence, start, length, process."""
        return struct.pack("hhqqi0q", kind, os.SEEK_SET, first, count, 0)

    _PLACE = 1 << 40  # far behind the versions, which nobody locks
    _TURN = _PLACE + 1
    _TAKE_PLACE, _TAKE_TURN = _request(F_WRLCK, _PLACE, 1), _request(F_WRLCK, _TURN, 1)
    _TAKE_BOTH, _GIVE_BOTH = _request(F_WRLCK, _PLACE, 2), _request(F_UNLCK, _PLACE, 2)
    _GIVE_PLACE = _request(F_UNLCK, _PLACE, 1)

_MAX_WAIT_SECONDS = 1.0
"""How long a writer waits for its turn before it writes without one."""
_CONTENDED_SECONDS = 1.0
"""How long a process queues after it has last met another writer."""
_FIRST_SLEEPS, _FIRST_SLEEP_SECONDS = 100, 0.00005
"""A write takes about as long as the shortest sleep."""
_SLEEP_SECONDS = 0.001


class WriterQueue:
    """The place of one store in the queue. The holder of the process's write lock uses it."""

    def __init__(self, path: str | None) -> None:
        """`path` is the file of the versions; None if writers only wait for SQLite's lock."""
        self._path = path if HAS_QUEUE else None
        self._descriptor = -1
        self._process = 0
        self.contended_until = 0.0
        """Until when this process queues; 0.0 if it has never met another writer."""
        self.has_turn = False

    def is_contended(self) -> bool:
        """Return whether another process has written at the same time lately."""
        return time.monotonic() < self.contended_until

    def enter(self) -> None:
        """Wait for the turn of this process. Call `leave` after the write, also if this raised."""
        self.contended_until = time.monotonic() + _CONTENDED_SECONDS
        if self._path is None:
            return
        try:
            if self._process != os.getpid():
                self._open(self._path)
            self.has_turn = True
            self._wait()
        except FileNotFoundError:
            pass  # somebody has deleted the file: it is made again before the next write

    def leave(self) -> None:
        """End the turn, if there is one. May be called again."""
        if self.has_turn:
            if self._process == os.getpid():
                fcntl(self._descriptor, F_OFD_SETLK, _GIVE_BOTH)
            self.has_turn = False

    def close(self) -> None:
        descriptor, self._descriptor, self._process = self._descriptor, -1, 0
        if descriptor >= 0:
            os.close(descriptor)

    def _wait(self) -> None:
        # If nobody waits and nobody writes, take both at once.
        if self._take(_TAKE_BOTH):
            fcntl(self._descriptor, F_OFD_SETLK, _GIVE_PLACE)
            return
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        sleeps = 0
        for request in (_TAKE_PLACE, _TAKE_TURN):
            while not self._take(request):
                sleeps += 1
                sleep(sleeps)
                if time.monotonic() > deadline:
                    self.leave()
                    return
        fcntl(self._descriptor, F_OFD_SETLK, _GIVE_PLACE)

    def _open(self, path: str) -> None:
        """Open the file: a forked child would share the locks of its parent."""
        self.close()
        self._descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._process = os.getpid()

    def _take(self, request: bytes) -> bool:
        try:
            fcntl(self._descriptor, F_OFD_SETLK, request)
        except (BlockingIOError, PermissionError):  # another process has it
            return False
        return True


def sleep(sleeps: int) -> None:
    """Sleep before the next attempt to get a lock; `sleeps` is the number of attempts so far."""
    time.sleep(_FIRST_SLEEP_SECONDS if sleeps < _FIRST_SLEEPS else _SLEEP_SECONDS)
