"""RAM and disk that a process uses, read through psutil and tracemalloc."""

from __future__ import annotations

import gc
import os
import stat
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import InvalidResult, needs


def load_psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise needs("psutil", "bench", "measuring memory and CPU") from None
    return psutil


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    return int(load_psutil().Process().memory_info().rss)


def give_back_free_memory() -> None:
    """Make glibc return its free memory to the system; takes about half a millisecond.

    Without this call, resident memory stays at the peak of the heap, and rises even without a leak. Other C
    libraries have no such function; with them this function does nothing.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_rss_bytes() -> int:
    """Return the peak resident memory of this process.

    On Linux it is read from /proc, because the value of `getrusage` includes the parent's peak.
    """
    try:
        status = Path("/proc/self/status").read_bytes()
    except OSError:
        import resource  # on macOS, where the unit is bytes

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.splitlines() if line.startswith(b"VmHWM:"))
    return int(line.split()[1]) * 1024


def disk_bytes(folder: Path) -> int:
    """Return the size of all files in a folder and its subfolders.

    Symbolic links are not followed. A file with several names counts once. A file that is deleted during
    the scan does not count.
    """
    if not folder.is_dir():
        raise InvalidResult(f"{folder} is not a folder: pass the folder whose size to measure")
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue
            if stat.S_ISREG(status.st_mode):
                sizes[status.st_dev, status.st_ino] = status.st_size
    return sum(sizes.values())


def traced_peak_bytes(operation: Callable[[], object]) -> int:
    """Run an operation once; return the peak of Python's allocations above those at its start.

    Tracing makes everything slower, so never time a traced operation.
    """
    gc.collect()
    start_tracing = not tracemalloc.is_tracing()
    if start_tracing:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        start, _ = tracemalloc.get_traced_memory()
        operation()
        return max(0, tracemalloc.get_traced_memory()[1] - start)
    finally:
        if start_tracing:
            tracemalloc.stop()
