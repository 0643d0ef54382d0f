"""Runs one command, and ends every process that it started, however the command ends.

    python -I -S supervisor.py CONTROL DESCRIPTORS COMMAND...

CONTROL is one end of a socket pair; the executor has the other one. DESCRIPTORS, separated by commas, are
for the command. When the executor closes its end, because it stops the round or because it was killed,
everything that the command started is killed. Before this process ends, it writes a report to the socket.

A process can leave its group and its session, but not its ancestors: on Linux this process is a "child
subreaper" (prctl(2)), so a process whose parent has ended becomes its child. That needs no special
permission; a control group would. On other systems only the command's process group is ended.

It runs beside every round, so it imports little: it adds about 30 ms to a round, outside of what is
measured, and takes about 10 MB.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:  # `typing` itself would take milliseconds to import
    from collections.abc import Sequence
    from typing import NoReturn

GRACE_SECONDS = 1.0
"""How long child processes may live after the command. Python's helper for shared memory ends by then."""
KILL_SECONDS = 10.0
"""How long to go on killing. A process that is stuck in the kernel does not end before its system call."""
_MOST_NAMES = 5
"""The most processes that the report names."""
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_EXIT_NOT_STARTED = 127
# Options of prctl(2), from <linux/prctl.h>.
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


class Supervisor:
    """Starts one command and ends what it leaves."""

    def __init__(self, control: int, command: Sequence[str]) -> None:
        self._control = control
        self._command = command
        self._adopts = _set_process_option(_PR_SET_CHILD_SUBREAPER, 1)
        """Whether orphans become children of this process."""
        self._worker = 0
        self._status: int | None = None
        """The exit code of the command; negative for a signal."""
        self._stopping = False
        self._error = ""
        self._woken, wake = os.pipe()
        for end in (self._woken, wake):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *_STOP_SIGNALS):
            signal.signal(number, lambda number, frame: None)  # the byte in the pipe wakes `_wait`
        self._poll = select.poll()
        self._poll.register(self._woken, select.POLLIN)
        self._poll.register(control, select.POLLIN)

    def run(self, descriptors: Sequence[int]) -> None:
        """Run the command to its end, end what it left, and write the report."""
        self._start(descriptors)
        while self._status is None and not self._stopping:
            self._wait(None)
            self._has_children()
        deadline = time.monotonic() + GRACE_SECONDS
        while self._has_children() and not self._stopping and time.monotonic() < deadline:
            self._wait(deadline - time.monotonic())
        left = [] if self._stopping else self._living()
        stuck = self._end_all()
        import json  # now, because the command was not to wait for it

        report = {"code": self._status, "error": self._error, "left": left, "stuck": stuck}
        with suppress(OSError):  # the executor has ended
            os.write(self._control, json.dumps(report).encode())

    def _start(self, descriptors: Sequence[int]) -> None:
        read_end, write_end = os.pipe()  # for the reason if exec fails; a successful exec closes it
        parent = os.getpid()
        self._worker = os.fork()
        if self._worker == 0:
            _execute(self._command, parent, write_end)
        os.close(write_end)
        # The command's ends of the pipes belong to the command alone.
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for descriptor in descriptors:
            os.close(descriptor)
        self._error = os.read(read_end, 1000).decode(errors="replace")
        os.close(read_end)

    def _wait(self, seconds: float | None) -> None:
        """Wait until a child ends, or until this process has to stop."""
        # At least a millisecond: with a short remaining time, poll(0) would be a busy loop.
        ready = self._poll.poll(None if seconds is None else max(1, round(seconds * 1000)))
        for descriptor, _ in ready:
            if descriptor == self._control:  # the executor never sends anything, so it has closed it
                self._stopping = True
                self._poll.unregister(self._control)
            else:
                with suppress(BlockingIOError):
                    self._stopping |= any(number in _STOP_SIGNALS for number in os.read(self._woken, 4096))

    def _has_children(self) -> bool:
        """Reap the children that have ended; return whether processes of the command still live."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return not self._adopts and _group_lives(self._worker)
            if pid == 0:
                return True
            if pid == self._worker:
                self._status = os.waitstatus_to_exitcode(status)

    def _living(self) -> list[str]:
        """Return names and ids of the processes that live, for the message; not all if they are many."""
        if not self._has_children():
            return []
        found = [f"{_name_of(pid)} (process {pid})" for pid in _descendants(os.getpid())]
        return found[:_MOST_NAMES] or [f"process group {self._worker}"]

    def _end_all(self) -> list[str]:
        """Kill until nothing is left; return what could not be ended."""
        deadline = time.monotonic() + KILL_SECONDS
        before: set[int] = set()
        while self._has_children():
            if time.monotonic() > deadline:
                return self._living()
            found = set(_descendants(os.getpid()))
            for pid in found:
                with suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._worker, signal.SIGKILL)
            if found <= before:  # else look again at once: new processes may start more
                self._wait(0.005)
            before = found
        return []


def _execute(command: Sequence[str], parent: int, failure: int) -> NoReturn:
    """Become the command, in a session of its own; it is killed if this process's parent is killed."""
    try:
        os.setsid()
        _set_process_option(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(_EXIT_NOT_STARTED)
        for name in ("SIGPIPE", "SIGXFSZ"):  # Python ignores these, and exec would keep that
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), signal.SIG_DFL)
        os.execvp(command[0], list(command))
    except BaseException as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        os.write(failure, f"{command[0]} can't be run: {reason}".encode())
    finally:
        os._exit(_EXIT_NOT_STARTED)


def _set_process_option(option: int, value: int) -> bool:
    """Call prctl(2); return whether it worked, which it does on Linux only."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        import ctypes
    except ImportError:
        return False
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _descendants(root: int) -> list[int]:
    """Return the children of a process, their children and so on; empty if the system has no /proc."""
    try:
        names = os.listdir("/proc")
    except FileNotFoundError:
        return []
    children: dict[int, list[int]] = {}
    for name in names:
        if name.isdigit():
            with suppress(OSError):
                # The name in brackets may contain anything, so count the fields from its end.
                fields = _read(f"/proc/{name}/stat").rpartition(b")")[2].split()
                # Zombies count: one whose first thread has ended may have others that run.
                children.setdefault(int(fields[1]), []).append(int(name))
    found: list[int] = []
    waiting = [root]
    while waiting:
        below = children.get(waiting.pop(), [])
        found += below
        waiting += below
    return found


def _name_of(pid: int) -> str:
    with suppress(OSError):
        name = _read(f"/proc/{pid}/comm").decode(errors="replace").rstrip("\n")
        return "".join(letter if letter.isprintable() else "�" for letter in name)
    return "?"


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return os.read(descriptor, 1024)
    finally:
        os.close(descriptor)


def main(arguments: Sequence[str]) -> None:
    control = int(arguments[0])
    os.set_inheritable(control, False)
    descriptors = [int(each) for each in arguments[1].split(",") if each]
    Supervisor(control, arguments[2:]).run(descriptors)


if __name__ == "__main__":
    main(sys.argv[1:])
