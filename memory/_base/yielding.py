"""Yield the interpreter and the write lock to other threads during long work.

Two things must be given up on purpose, because Python hands over neither of them fairly:

- The GIL, during a batch. A waiting thread gets it when the holder sleeps, or after 5 ms. To release it
  for an instant, as each SQLite call does, is not enough: the waiting thread wakes up too late.
  `yield_gil()` sleeps once a millisecond, but only inside `low_priority()`. So maintenance yields, and the
  same work done for a call that stores or moves memories does not.
- The store's write lock, between two transactions. A thread that takes the lock again at once keeps it.
  `yield_lock()` sleeps, so that a waiting writer gets it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue

_GIL_INTERVAL_SECONDS = 0.001
"""How long low-priority work holds the GIL. A reader waits no longer than this."""
_GIL_SLEEP_SECONDS = 0.00005
"""The shortest sleep that really gives the GIL to a waiting thread."""

CALLER_PAUSE_SECONDS = 0.0002
"""Between two transactions of a call: the shortest pause in which a waiting writer gets the lock."""
BACKGROUND_PAUSE_SECONDS = 0.002
"""Between two transactions that can wait. Ten times longer, so that writers come first."""

_thread = threading.local()


@contextmanager
def low_priority() -> Iterator[None]:
    """Let `yield_gil()` take effect in this thread, inside the `with` block."""
    before = getattr(_thread, "yielded_at", None)
    _thread.yielded_at = time.perf_counter()
    try:
        yield
    finally:
        _thread.yielded_at = before


def yield_gil() -> None:
    """Sleep if this thread has low priority and has run for a millisecond; cheap otherwise."""
    yielded_at = getattr(_thread, "yielded_at", None)
    if yielded_at is not None and time.perf_counter() - yielded_at > _GIL_INTERVAL_SECONDS:
        time.sleep(_GIL_SLEEP_SECONDS)
        _thread.yielded_at = time.perf_counter()


class Flag:
    """A flag that one thread sets and another waits for.

    Unlike `threading.Event`, it has no lock that an interrupt could leave locked: a `SimpleQueue` is not
    Python code. One thread at most may wait."""

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
        """Wait until the flag is set, or for some seconds; return whether it is set."""
        if not self.is_set:
            with suppress(Empty):
                self._queue.get(timeout=seconds)
        return self.is_set


def yield_lock(seconds: float = CALLER_PAUSE_SECONDS, stop: Flag | None = None) -> bool:
    """Sleep between two transactions; return False if `stop` was set, which ends the work."""
    if stop is not None:
        return not stop.wait(seconds)
    time.sleep(seconds)
    return True
