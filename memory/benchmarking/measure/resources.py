"""RAM and disk that a process uses, read through psutil and tracemalloc."""

from __future__ import annotations

import gc
import os
import stat
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from memory.benchmarking.errors import InvalidResult, needs

_Number = TypeVar("_Number", int, float)
_BLOCK_BYTES = 512  # of st_blocks, on every system that has it


def load_psutil() -> Any:
    try:
        import psutil
    except ImportError:
        raise needs("psutil", "bench", "measuring memory and CPU") from None
    return psutil


def rss_bytes() -> int:
    """Return the resident memory of this process."""
    return int(load_psutil().Process().memory_info().rss)


class ProcessTree:
    """This process and its children, such as the server of a target, found when the object is made.

    Children that have ended count as nothing.
    """

    def __init__(self) -> None:
        self._psutil = load_psutil()
        self._own = self._psutil.Process()
        self._children = self._own.children(recursive=True)

    @property
    def has_children(self) -> bool:
        """Whether there were child processes."""
        return bool(self._children)

    def written_bytes(self) -> int | None:
        """Return the bytes that these processes have written to disks; None where that is not shown."""
        if not hasattr(self._own, "io_counters"):
            return None  # macOS
        try:
            return _written(self._own) + sum(self._of_children(_written))
        except self._psutil.AccessDenied:
            return None

    def rss_bytes(self) -> int:
        """Return the sum of the resident sets. Memory that two processes share counts twice."""
        return int(self._own.memory_info().rss) + sum(self._of_children(_rss))

    def ram_bytes(self) -> int:
        """Return the memory without pages of files, which the system can drop at any time.

        Memory that several processes share, such as the buffers of a database server, counts once
        (proportional set size). Systems other than Linux do not show that: there it is `rss_bytes`.
        """
        return _ram(self._own) + sum(self._of_children(_ram))

    def cpu_seconds(self) -> float:
        """Return the CPU time of all threads of all these processes, since their start."""
        return time.process_time() + sum(self._of_children(_cpu))

    def _of_children(self, read: Callable[[Any], _Number]) -> Iterator[_Number]:
        for child in self._children:
            try:
                yield read(child)
            except self._psutil.NoSuchProcess:
                continue


def _rss(process: Any) -> int:
    return int(process.memory_info().rss)


def _written(process: Any) -> int:
    return int(process.io_counters().write_bytes)


def _cpu(process: Any) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _ram(process: Any) -> int:
    unshared = _ram_without_files(process.pid)
    return _rss(process) if unshared is None else unshared


def _ram_without_files(pid: int) -> int | None:
    """Return anonymous and shared memory from /proc; None where the system does not show it."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_bytes().splitlines()
    except OSError:
        return None
    kinds = dict(line.split()[:2] for line in lines[1:])
    try:
        return (int(kinds[b"Pss_Anon:"]) + int(kinds[b"Pss_Shmem:"])) * 1024
    except KeyError:  # Linux before 5.3
        return None


def settled_ram_bytes() -> int:
    """Return the memory of this process and its children, after garbage collection and `malloc_trim`."""
    gc.collect()
    give_back_free_memory()
    return ProcessTree().ram_bytes()


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

    Of a file with holes, such as one that reserves room for later, only what takes room on the disk counts.
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
                allocated = getattr(status, "st_blocks", status.st_size) * _BLOCK_BYTES
                sizes[status.st_dev, status.st_ino] = min(status.st_size, allocated)
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
