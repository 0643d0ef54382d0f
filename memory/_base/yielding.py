"""Letting other threads run in the middle of long work.

A thread that waits for Python's interpreter gets it when the one that has it sleeps, or after five
milliseconds. Releasing it for an instant, as every call of SQLite does, is not enough: whoever waits wakes
up too late. So maintenance, which works for seconds, sleeps for an instant every millisecond, whether the
background does it or a call of `maintain`; the same work done for a call that stores or moves does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_LONGEST_SECONDS = 0.001
_BREATH_SECONDS = 0.00005

_thread = threading.local()


@contextmanager
def breathing() -> Iterator[None]:
    """This thread's work is nobody's hurry: `breathe` is heard."""
    before = getattr(_thread, "breathed_at", None)
    _thread.breathed_at = time.perf_counter()
    try:
        yield
    finally:
        _thread.breathed_at = before


def breathe() -> None:
    """A place in long work where it may rest; costs next to nothing where it need not."""
    breathed_at = getattr(_thread, "breathed_at", None)
    if breathed_at is not None and time.perf_counter() - breathed_at > _LONGEST_SECONDS:
        time.sleep(_BREATH_SECONDS)
        _thread.breathed_at = time.perf_counter()
