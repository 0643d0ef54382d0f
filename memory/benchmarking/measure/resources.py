"""What a process uses: RAM, CPU, disk. Read through psutil and tracemalloc."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import needs


def load_psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise needs("psutil", "bench", "measuring memory and CPU") from None
    return psutil


def rss_bytes(pid: int | None = None) -> int:
    """Resident memory of a process now."""
    return int(load_psutil().Process(pid).memory_info().rss)


def peak_rss_bytes() -> int:
    """The most this process ever held."""
    import resource
    import sys

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def disk_bytes(folder: Path) -> int:
    """The size of all files below a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


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
