"""What a process uses: RAM, CPU, disk. Read through psutil and tracemalloc."""

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


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a process now."""
    return int(load_psutil().Process(pid).memory_info().rss)


def give_back_free_memory() -> None:
    """Have glibc return to the system what it holds free; half a millisecond.

    Without it resident memory never falls: it is the highest that the heap ever was, and the highest of
    many readings goes up for ever, leak or not. Other C libraries have no such call: there it does nothing.
    """
    import ctypes

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def peak_rss_bytes() -> int:
    """The most this process ever held.

    On Linux not from `getrusage`: a process inherits that figure from the one that started it, so a small
    worker of a large parent would report the parent's.
    """
    try:
        status = Path("/proc/self/status").read_bytes()
    except OSError:
        import resource  # macOS, where it is in bytes

        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    line = next(line for line in status.splitlines() if line.startswith(b"VmHWM:"))
    return int(line.split()[1]) * 1024


def disk_bytes(folder: Path) -> int:
    """The size of all files below a folder; what is deleted while it looks does not count.

    Links are not followed, and a file with several names counts once.
    """
    if not folder.is_dir():
        raise InvalidResult(f"{folder} is not a folder: there is no size on disk to measure")
    sizes: dict[tuple[int, int], int] = {}
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.lstat(os.path.join(parent, name))
            except FileNotFoundError:
                continue
            if stat.S_ISREG(found.st_mode):
                sizes[found.st_dev, found.st_ino] = found.st_size
    return sum(sizes.values())


def traced_peak_bytes(operation: Callable[[], object]) -> int:
    """The most that Python's allocators handed out above the start, while the operation ran once.

    Tracing makes everything slower, so never time what is traced.
    """
    gc.collect()
    ours = not tracemalloc.is_tracing()
    if ours:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        start, _ = tracemalloc.get_traced_memory()
        operation()
        return max(0, tracemalloc.get_traced_memory()[1] - start)
    finally:
        if ours:
            tracemalloc.stop()
