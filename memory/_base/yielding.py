"""Yield the interpreter and the write lock to other threads during long work.

Long work must release two locks explicitly, because Python does not hand over either of them fairly:

- The GIL, during a batch. A waiting thread gets the GIL when the holder sleeps, or after 5 ms. A very short
  release, as in each SQLite call, is not enough: the waiting thread wakes up too late. `yield_gil()` sleeps
  every half millisecond, but only inside `low_priority()`. So maintenance yields. The same work does not
  yield if a caller waits for it.
- The store's write lock, between two transactions. A thread that releases the lock and takes it again at
  once does not let others in. `yield_lock()` sleeps, so that a waiting writer gets the lock.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

_GIL_INTERVAL_SECONDS = 0.0005
"""How long low-priority work holds the GIL. A reader waits no longer than this."""
_GIL_SLEEP_SECONDS = 0.00005
"""The shortest sleep after which a waiting thread really gets the GIL."""

CALLER_PAUSE_SECONDS = 0.0002
"""The pause between two transactions of a call: the shortest in which a waiting writer gets the lock."""
BACKGROUND_PAUSE_SECONDS = 0.002
"""The pause between two transactions of background work. Ten times longer, so that writers come first."""

_thread = threading.local()


@contextmanager
def low_priority() -> Iterator[None]:
    """Make `yield_gil()` sleep in this thread, inside the `with` block."""
    before = getattr(_thread, "yielded_at", None)
    _thread.yielded_at = time.perf_counter()
    try:
        yield
    finally:
        _thread.yielded_at = before


def yield_gil() -> None:
    """Sleep if this thread has low priority and has run for half a millisecond; cheap otherwise."""
    yielded_at = getattr(_thread, "yielded_at", None)
    if yielded_at is not None and time.perf_counter() - yielded_at > _GIL_INTERVAL_SECONDS:
        time.sleep(_GIL_SLEEP_SECONDS)
        _thread.yielded_at = time.perf_counter()


class Flag:
    """A flag that one thread sets and another waits for.

    Unlike `threading.Event`, it has no lock that an interrupt could leave locked, because `SimpleQueue` is
    written in C. At most one thread may wait."""

    def __init__(self) -> None:
        self.is_set = False
        self._queue: SimpleQueue[None] = SimpleQueue()

    def set(self) -> None:
        self.is_set = True
        self._queue.put(None)

    def clear(self) -> None:
        self.is_set = False
        while not self._queue.empty():
            self._queue.get()

    def wait(self, seconds: float) -> bool:
        """Wait until the flag is set, but at most for `seconds`. Return whether the flag is set."""
        if not self.is_set:
            with suppress(Empty):
                self._queue.get(timeout=seconds)
        return self.is_set


def yield_lock(seconds: float = CALLER_PAUSE_SECONDS, stop: Flag | None = None) -> bool:
    """Sleep between two transactions. Return False if `stop` was set: then the caller must end its work."""
    if stop is not None:
        return not stop.wait(seconds)
    time.sleep(seconds)
    return True
