"""Runs rounds on this machine, each in a fresh interpreter.

Whatever a round does (crash, hang, use too much memory, leave processes behind), only that round is lost:
each has its own session, log and scratch folder, and all of these are gone when it has ended.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import msgspec

from memory.benchmarking.errors import BenchmarkError, ResultNotSaved
from memory.benchmarking.measure.resources import load_psutil
from memory.benchmarking.model.records import Job, Reason, Round
from memory.benchmarking.run.worker import EXIT_EXCEPTION

_TICK_SECONDS = 0.25
"""How often time and memory limits are checked while no events arrive."""
_GRACE_SECONDS = 1.0
"""How long a round's child processes may live after it."""
LOG_BYTES = 100_000
"""Keep the last N bytes of what a round prints."""
_THREAD_SETTINGS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Set to 1: the threads of a matrix product must not depend on what else is running."""


@dataclass(frozen=True)
class Outcome:
    """How a round ended: with its record, or with the reason why there is none."""

    job: Job
    round: Round | None
    reason: Reason | None = None
    message: str = ""
    log: str = ""
    """The last LOG_BYTES of what it printed."""
    start_seconds: float = 0.0
    """From starting the process until its first event."""
    seconds: float = 0.0
    """From starting the process until it ended."""


@dataclass(frozen=True)
class Launch:
    """How to start a round's process; the numbers of its descriptors are appended to the command."""

    command: tuple[str, ...] = (sys.executable, "-P", "-m", "memory.benchmarking.run.worker")
    paths: tuple[str, ...] | None = None
    """Its module search path; None for that of this process."""
    replies: bool = False
    """Whether it reads replies (see `LocalExecutor.reply`) from a second descriptor."""
    descriptors: tuple[int, ...] = ()
    """Further descriptors that it inherits; the caller closes them."""


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    events: int
    replies: int | None
    log: IO[bytes]
    started_at: float
    """Seconds since 1970."""
    started: float
    """By `perf_counter`, as the deadline."""
    deadline: float
    pending: bytes = b""
    """The beginning of an event whose end has not arrived."""
    message: str = ""
    began_at: float | None = None
    killed: tuple[Reason, str] | None = None
    """Why the executor killed it."""
    exit_watch: int | None = None
    """A descriptor that becomes readable when the process ends."""


@dataclass
class LocalExecutor:
    """Runs jobs in processes, at most `workers` at a time, each within the time and memory limits."""

    workers: int = 1
    timeout_seconds: float = 600.0
    memory_limit_bytes: int | None = None
    on_start: Callable[[Job], None] = lambda job: None
    """Called when a process has started."""
    on_event: Callable[[Job, Mapping[str, Any]], None] = lambda job, event: None
    """Called with each event that a worker sends."""
    launch: Callable[[Job], Launch] = lambda job: Launch()
    _running: dict[int, _Running] = field(default_factory=dict)
    _stopping: bool = False
    _aborting: bool = False
    _next_check: float = 0.0
    """When limits are checked next, by `perf_counter`."""

    def finish(self) -> None:
        """Start no more jobs; let running ones end."""
        self._stopping = True

    def abort(self) -> None:
        """Kill everything now."""
        self._stopping = self._aborting = True

    def reply(self, job: Job, message: Any) -> None:
        """Send a message to the process of a job; ignored if it has just ended."""
        for running in self._running.values():
            if running.job is job and running.replies is not None:
                with suppress(BrokenPipeError):
                    os.write(running.replies, msgspec.json.encode(message) + b"\n")

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        """Run jobs and yield their outcomes as they end. Closing the generator kills running ones."""
        waiting = iter(jobs)
        with selectors.DefaultSelector() as selector:
            try:
                while True:
                    while not self._stopping and len(self._running) < self.workers:
                        job = next(waiting, None)
                        if job is None:
                            break
                        self._start(job, selector)
                    if not self._running:
                        return
                    for key, _ in selector.select(_TICK_SECONDS):
                        self._read_events(self._running[key.data])
                    yield from self._collect_ended(selector)
            finally:
                for running in list(self._running.values()):
                    self._kill(running, "killed", "the run was stopped")
                    self._close(running, selector)

    # -- one round ----------------------------------------------------------------------------

    def _start(self, job: Job, selector: selectors.BaseSelector) -> None:
        scratch = Path(job.scratch)
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            log = tempfile.TemporaryFile(dir=scratch.parent)  # noqa: SIM115 - closed when the round has ended
        except OSError as problem:
            raise ResultNotSaved(f"{scratch} can't be created: {problem.strerror or problem}") from problem
        launch = self.launch(job)
        reader, writer = os.pipe()
        replies_end, replies = os.pipe() if launch.replies else (None, None)
        worker_ends = [end for end in (writer, replies_end) if end is not None]
        inherited = [*worker_ends, *launch.descriptors]
        paths = sys.path if launch.paths is None else launch.paths
        environment = {
            **os.environ,
            **dict.fromkeys(_THREAD_SETTINGS, "1"),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONHASHSEED": str(job.seed % 2**32),
            "TMPDIR": str(scratch),
            # Absolute paths: the worker's modules must not depend on its working directory.
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in paths),
        }
        started_at, started = time.time(), time.perf_counter()
        try:
            process = subprocess.Popen(
                [*launch.command, *map(str, inherited)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=inherited,
                start_new_session=True,
            )
        except OSError as problem:
            for descriptor in (reader, replies):
                if descriptor is not None:
                    os.close(descriptor)
            log.close()
            raise BenchmarkError(f"{launch.command[0]} can't be run: {problem.strerror}") from problem
        finally:
            for descriptor in worker_ends:
                os.close(descriptor)
        os.set_blocking(reader, False)
        deadline = started + self.timeout_seconds
        running = _Running(job, process, reader, replies, log, started_at, started, deadline)
        self._running[process.pid] = running
        selector.register(reader, selectors.EVENT_READ, process.pid)
        if hasattr(os, "pidfd_open"):
            running.exit_watch = os.pidfd_open(process.pid)
            selector.register(running.exit_watch, selectors.EVENT_READ, process.pid)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has already ended; its exit code is handled later
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        self.on_start(job)

    def _read_events(self, running: _Running) -> None:
        with suppress(BlockingIOError):
            while piece := os.read(running.events, 65536):
                running.pending += piece
        *lines, running.pending = running.pending.split(b"\n")
        for line in lines:
            event = msgspec.json.decode(line)
            if event["event"] == "began":
                running.began_at = event["at"]
            elif event["event"] == "failed":
                running.message = event["message"]
            else:
                self.on_event(running.job, event)

    def _collect_ended(self, selector: selectors.BaseSelector) -> Iterator[Outcome]:
        # In lockstep events arrive all the time; checking limits at each of them would take too long.
        check = time.perf_counter() >= self._next_check
        if check:
            self._next_check = time.perf_counter() + _TICK_SECONDS / 2
        for running in list(self._running.values()):
            if running.process.poll() is None and (check or self._aborting):
                self._check_limits(running)
            if running.process.poll() is not None:
                self._read_events(running)
                yield self._close(running, selector)

    def _check_limits(self, running: _Running) -> None:
        if self._aborting:
            self._kill(running, "killed", "the run was stopped")
        elif time.perf_counter() > running.deadline:
            limit = f"{self.timeout_seconds:g} s"
            self._kill(running, "timeout", f"did not end within {limit} (--timeout)")
        elif self.memory_limit_bytes is not None:
            psutil = load_psutil()
            with suppress(psutil.Error):  # it has just ended
                used = psutil.Process(running.process.pid).memory_info().rss
                if used > self.memory_limit_bytes:
                    limit = f"{self.memory_limit_bytes / 1e6:,.0f} MB"
                    message = f"used {used / 1e6:,.0f} MB of RAM, more than {limit} (memory_limit_mb)"
                    self._kill(running, "memory", message)

    def _kill(self, running: _Running, reason: Reason, message: str) -> None:
        running.killed = (reason, message)
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()

    def _close(self, running: _Running, selector: selectors.BaseSelector) -> Outcome:
        """Clean up after a round that has ended; return how it ended."""
        del self._running[running.process.pid]
        seconds = time.perf_counter() - running.started
        left_processes = _end_group(running.process.pid)
        for descriptor in (running.events, running.exit_watch):
            if descriptor is not None:
                selector.unregister(descriptor)
                os.close(descriptor)
        if running.replies is not None:
            os.close(running.replies)
        assert running.process.stdin is not None
        with suppress(BrokenPipeError):
            running.process.stdin.close()
        running.log.seek(max(0, running.log.seek(0, os.SEEK_END) - LOG_BYTES))
        log = running.log.read().decode(errors="replace")
        running.log.close()
        shutil.rmtree(running.job.scratch, ignore_errors=True)
        record, reason, message = _result_of(running, left_processes)
        if reason is not None and reason != "killed":
            # It may have written its answer before it failed; a resumed run must not use that.
            Path(running.job.answer).unlink(missing_ok=True)
        began = running.began_at
        start_seconds = max(0.0, began - running.started_at) if began is not None else seconds
        return Outcome(running.job, record, reason, message, log, start_seconds, seconds)


def _end_group(group: int) -> bool:
    """Kill the processes that a round left running; return whether there were any.

    Processes that end by themselves within the grace period don't count: Python's own helper for shared
    memory is one.
    """
    deadline = time.perf_counter() + _GRACE_SECONDS
    while running := _is_running(group):
        if time.perf_counter() > deadline:
            break
        time.sleep(0.01)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    return running


def _is_running(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    psutil = load_psutil()
    for process in psutil.process_iter():
        with suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                return True
    return False


def _result_of(running: _Running, left_processes: bool) -> tuple[Round | None, Reason | None, str]:
    """Return the round's record, or None with the reason and a message."""
    code = running.process.returncode
    if running.killed is not None:
        return None, *running.killed
    if code == EXIT_EXCEPTION and running.message:
        return None, "exception", running.message
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        if name == "SIGKILL":
            return None, "killed", "killed by SIGKILL: the system ran out of memory, or somebody killed it"
        return None, "crash", f"crashed with {name}"
    if code:
        return None, "crash", f"exited with code {code}"
    try:
        record = msgspec.msgpack.decode(Path(running.job.answer).read_bytes(), type=Round)
    except FileNotFoundError:
        return None, "crash", "exited without writing its result"
    except (OSError, msgspec.MsgspecError) as problem:
        return None, "crash", f"its result can't be read: {problem}"
    if left_processes:
        return None, "left processes", "left processes running, which would disturb later rounds"
    return record, None, ""
