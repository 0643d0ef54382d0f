"""What tells a file from another one at the same path, and an old state of it from a new one."""

from __future__ import annotations

import os

from memory._base.native import core


def file_state_pure(path: bytes) -> tuple[int, int, int]:
    """Return device, inode and the time of the last change in nanoseconds.

    Raises OSError if there is no file."""
    found = os.stat(path)
    return found.st_dev, found.st_ino, found.st_mtime_ns


file_state = file_state_pure if core is None else core.file_state
"""The same, in the compiled core: without giving Python's lock to another thread that waits for it."""
