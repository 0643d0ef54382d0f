"""Locks that stay usable in a forked child."""

from __future__ import annotations

import os
import threading


def fork_safe_lock() -> threading.Lock:
    """Return a new lock that no other thread can hold during a fork. Call this at module level only."""
    lock = threading.Lock()
    os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)
    return lock
