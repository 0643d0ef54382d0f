"""Waits for the process of a check, and says when it hangs.

Seconds of a clock can't tell a hang from a busy machine, where a check takes up to ten times as long. So
the limit is in CPU seconds of the check and of everything that it started, which hardly depend on other
programs. A check that waits for something that never comes uses none: that is the second sign.
"""

from __future__ import annotations

import subprocess
import time
from contextlib import suppress

from memory.benchmarking.measure.resources import load_psutil

IDLE_SECONDS = 60.0
"""How long a check may do next to nothing. A process that wants to work gets more even at a load of 100."""
_IDLE_SHARE = 0.003
"""The share of one core that counts as nothing: threads that only look at the clock use that much."""
_LOOK_EVERY = 2.0
_MOST_TIMES = 20.0
"""A check may take this many seconds for each CPU second of its limit: the last resort."""


class Patience:
    """Looks at a process from time to time, and says when it hangs.

    Args:
        pid: the process.
        folder: the folder for temporary files of the process, and so of everything that it starts.
        cpu_seconds: how much CPU time all of them may use.
        idle_seconds: how long they may use almost none.
    """

    def __init__(
        self, pid: int, folder: str, cpu_seconds: float, idle_seconds: float = IDLE_SECONDS
    ) -> None:
        self._pid, self._folder = pid, folder
        self._cpu_seconds, self._idle_seconds = cpu_seconds, idle_seconds
        self.every = min(_LOOK_EVERY, idle_seconds / 2)
        """Seconds between two looks."""
        self._used = 0.0
        self.start_again()

    def start_again(self) -> None:
        """Begin to count: the process has done a piece of its work."""
        self._last = time.monotonic()
        self._passed = self._idle = 0.0
        self._used_at_start = self._used_then = self._used

    def look(self) -> str | None:
        """Return in words why the process hangs; None if it does not. Call it after `every` seconds."""
        now = time.monotonic()
        # If the machine, or this process with the other one, was stopped for a while, that does not count.
        step, self._last = min(now - self._last, 2 * self.every), now
        self._used = max(self._used, _cpu_seconds(self._pid, self._folder))
        self._passed += step
        self._idle += step
        if self._used - self._used_then > _IDLE_SHARE * self._idle:
            self._idle, self._used_then = 0.0, self._used
        if self._idle > self._idle_seconds:
            return f"it did nothing for {self._idle_seconds:g} s"
        used = self._used - self._used_at_start
        if used > self._cpu_seconds or self._passed > _MOST_TIMES * self._cpu_seconds:
            return f"it did not end within {self._cpu_seconds:g} s of CPU time"
        return None


def wait_for(
    process: subprocess.Popen[bytes], folder: str, cpu_seconds: float, idle_seconds: float = IDLE_SECONDS
) -> str | None:
    """Wait until a process ends. Return None, or in words why it hangs; it goes on running then."""
    patience = Patience(process.pid, folder, cpu_seconds, idle_seconds)
    while True:
        try:
            process.wait(patience.every)
            return None
        except subprocess.TimeoutExpired:
            hang = patience.look()
            if hang is not None:
                return hang


def _cpu_seconds(pid: int, folder: str) -> float:
    """Return the CPU time of a process, its descendants, and all whose temporary folder this is.

    A server that left the process's family still has its environment.
    """
    psutil = load_psutil()
    found = {}
    with suppress(psutil.Error):
        root = psutil.Process(pid)
        found = {each.pid: each for each in (root, *root.children(recursive=True))}
    for each in psutil.process_iter():
        with suppress(psutil.Error):
            if each.pid not in found and each.environ().get("TMPDIR") == folder:
                found[each.pid] = each
    total = 0.0
    for each in found.values():
        with suppress(psutil.Error):
            times = each.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total
