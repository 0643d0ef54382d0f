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
from contextlib import contextmanager

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


def yield_lock(seconds: float = CALLER_PAUSE_SECONDS, stop: threading.Event | None = None) -> bool:
    """Sleep between two transactions; return False if `stop` was set, which ends the work."""
    if stop is not None:
        return not stop.wait(seconds)
    time.sleep(seconds)
    return True
