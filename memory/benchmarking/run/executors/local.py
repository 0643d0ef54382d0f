"""Runs rounds on this machine, each in a fresh interpreter.

Whatever a round does (crash, hang, use too much memory, leave processes behind, send garbage), only that
round is lost: each has its own supervisor, log and scratch folder, and all of these are gone when it has
ended. `supervisor.py` ends the processes that a round started, also when this process is killed.
"""

from __future__ import annotations

import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, Self

import msgspec

from memory.benchmarking.errors import BenchmarkError, ResultNotSaved
from memory.benchmarking.measure.resources import load_psutil
from memory.benchmarking.model.records import Environment, Job, Reason, Round
from memory.benchmarking.model.regular_files import read_regular
from memory.benchmarking.run.events import LONGEST_EVENT, Began, Event, Failed, decode_event
from memory.benchmarking.run.executors import supervisor
from memory.benchmarking.run.executors.base import Outcome
from memory.benchmarking.run.worker import EXIT_EXCEPTION
from memory.benchmarking.targets.interpreters import interpreter_of

_TICK_SECONDS = 0.25
"""How often time and memory limits are checked while no events arrive."""
_TREE_SECONDS = 1.0
"""How often new child processes are looked for while a round runs. A look takes milliseconds."""
_STOP_SECONDS = supervisor.KILL_SECONDS + 5
"""How long a supervisor may take to end a round. One that takes longer was stopped, and is killed."""
_REPLY_SECONDS = 10.0
"""How long a process may leave a reply unread when the pipe is full."""
_READ_BYTES = 1_000_000
"""The most bytes of events that are read at a time. Limits are checked before more is read."""
_LONGEST_MESSAGE = 2_000
"""The most characters of the message that a failed round sends."""
LARGEST_ROUND = 2_000_000_000
"""The most bytes of a round's own result, which holds every sample."""
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
"""Variables that are set to 1: the number of threads must not depend on what else is running."""


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


def default_memory_limit() -> int:
    """Return the memory that a round may use if nothing else is set: 90 % of what is free."""
    return int(load_psutil().virtual_memory().available * 0.9)


def launch_of(target: str) -> Launch:
    """Return how to start a round of a target, in the interpreter that has the target's packages."""
    interpreter = interpreter_of(target)
    return Launch((interpreter.python, *Launch.command[1:]), interpreter.paths)


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    """The supervisor; the round's process is its child."""
    control: socket.socket
    """Closing it makes the supervisor end the round; its report arrives here."""
    events: int
    replies: int | None
    log: IO[bytes]
    started_at: float
    """Seconds since 1970."""
    started: float
    """The start by `perf_counter`; the deadline uses the same clock."""
    deadline: float
    pending: bytes = b""
    """The beginning of an event whose end has not arrived."""
    message: str = ""
    began_at: float | None = None
    killed: tuple[Reason, str] | None = None
    """Why the executor killed it."""
    exit_watch: int | None = None
    """A descriptor that becomes readable when the process ends."""
    members: list[Any] = field(default_factory=list)
    """The round's process and its child processes, for psutil, as of the last look."""
    next_look: float = 0.0
    """When to look for new child processes, by `perf_counter`."""
    cpu_times: Any = None
    """The machine's CPU times when it was started."""


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

    @property
    def environment(self) -> Environment | None:
        """None: rounds run on this machine."""
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing: leaving `run` has ended every round."""

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
                self._write_reply(running, running.replies, msgspec.json.encode(message) + b"\n")

    def _write_reply(self, running: _Running, descriptor: int, data: bytes) -> None:
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except BlockingIOError:  # the pipe is full
                with selectors.DefaultSelector() as selector:
                    selector.register(descriptor, selectors.EVENT_WRITE)
                    if not selector.select(_REPLY_SECONDS):
                        message = f"did not read a reply within {_REPLY_SECONDS:g} s"
                        self._kill(running, "crash", message)
                        return
            except BrokenPipeError:
                return

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
        if shutil.which(launch.command[0]) is None:
            log.close()
            raise BenchmarkError(f"{launch.command[0]} can't be run: there is no such program")
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
        control, supervisor_end = socket.socketpair()
        started_at, started = time.time(), time.perf_counter()
        try:
            process = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", supervisor.__file__),
                    str(supervisor_end.fileno()),
                    ",".join(map(str, inherited)),
                    *(*launch.command, *map(str, inherited)),
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=[supervisor_end.fileno(), *inherited],
                start_new_session=True,
            )
        except OSError as problem:
            for descriptor in (reader, replies):
                if descriptor is not None:
                    os.close(descriptor)
            control.close()
            log.close()
            raise BenchmarkError(f"{sys.executable} can't be run: {problem.strerror}") from problem
        finally:
            supervisor_end.close()
            for descriptor in worker_ends:
                os.close(descriptor)
        os.set_blocking(reader, False)
        if replies is not None:
            os.set_blocking(replies, False)
        deadline = started + self.timeout_seconds
        running = _Running(job, process, control, reader, replies, log, started_at, started, deadline)
        running.cpu_times = load_psutil().cpu_times()
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
        """Handle the events that have arrived; a round that sends anything else is killed."""
        if running.killed is not None:
            return
        pieces, size = [running.pending], 0
        with suppress(BlockingIOError):
            while size < _READ_BYTES and (piece := os.read(running.events, 65536)):
                pieces.append(piece)
                size += len(piece)
        *lines, running.pending = b"".join(pieces).split(b"\n")
        try:
            events = [decode_event(line) for line in lines]
            if len(running.pending) > LONGEST_EVENT:
                raise ValueError(f"a line of more than {LONGEST_EVENT:,} bytes is not an event")
        except ValueError as problem:
            self._kill(running, "crash", f"wrote to the pipe of membench's events: {problem}")
            return
        for event in events:
            self._handle_event(running, event)

    def _handle_event(self, running: _Running, event: Event) -> None:
        if isinstance(event, Began):
            running.began_at = event.at
        elif isinstance(event, Failed):
            running.message = " ".join(event.message.split())[:_LONGEST_MESSAGE]
        else:
            self.on_event(running.job, msgspec.to_builtins(event))

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
            used, processes = self._resident_bytes(running, self.memory_limit_bytes)
            if used > self.memory_limit_bytes:
                limit = f"{self.memory_limit_bytes / 1e6:,.0f} MB"
                where = f" in {processes} processes" if processes > 1 else ""
                message = f"used {used / 1e6:,.0f} MB of RAM{where}, more than {limit} (memory_limit_mb)"
                self._kill(running, "memory", message)

    def _resident_bytes(self, running: _Running, limit: int) -> tuple[int, int]:
        """Return the resident memory of a round's processes, and how many there are."""
        psutil = load_psutil()
        now = time.perf_counter()
        if now >= running.next_look:
            running.next_look = now + _TREE_SECONDS
            with suppress(psutil.Error):  # it has just ended
                running.members = psutil.Process(running.process.pid).children(recursive=True)
        sizes = []
        for member in running.members:
            with suppress(psutil.Error):
                sizes.append(member.memory_info().rss)
        used = sum(sizes)
        if used > limit and len(sizes) > 1 and psutil.LINUX:
            # Pages that several processes share count once; this takes longer, so only near the limit.
            used = sum(map(_proportional_bytes, running.members))
        return used, len(sizes)

    def _kill(self, running: _Running, reason: Reason, message: str) -> None:
        """End a round and everything that it started; return when nothing is left."""
        running.killed = (reason, message)
        with suppress(OSError):  # the supervisor has ended
            running.control.shutdown(socket.SHUT_WR)
        try:
            running.process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:  # the benchmark stopped it
            running.process.kill()
            running.process.wait()

    def _close(self, running: _Running, selector: selectors.BaseSelector) -> Outcome:
        """Clean up after a round that has ended; return how it ended."""
        del self._running[running.process.pid]
        seconds = time.perf_counter() - running.started
        report = _read_report(running)
        for descriptor in (running.events, running.exit_watch):
            if descriptor is not None:
                selector.unregister(descriptor)
                os.close(descriptor)
        running.control.close()
        if running.replies is not None:
            os.close(running.replies)
        assert running.process.stdin is not None
        with suppress(BrokenPipeError):
            running.process.stdin.close()
        running.log.seek(max(0, running.log.seek(0, os.SEEK_END) - LOG_BYTES))
        log = running.log.read().decode(errors="replace")
        running.log.close()
        shutil.rmtree(running.job.scratch, ignore_errors=True)
        record, reason, message = _result_of(running, report)
        if reason is not None and reason != "killed":
            # It may have written its answer before it failed; a resumed run must not use that.
            Path(running.job.answer).unlink(missing_ok=True)
        began = running.began_at
        start_seconds = max(0.0, began - running.started_at) if began is not None else seconds
        busy = _busy_percent(running.cpu_times, load_psutil().cpu_times())
        return Outcome(running.job, record, reason, message, log, start_seconds, seconds, busy)


class _Report(msgspec.Struct, frozen=True):
    """What a supervisor writes when it ends."""

    code: int | None
    """The exit code of the round's process; negative for a signal. None if it could not be ended."""
    error: str
    """Why the process could not be started; empty if it was."""
    left: list[str]
    """Processes that the round left running, and that were killed."""
    stuck: list[str]
    """Processes that could not be ended."""


def _read_report(running: _Running) -> _Report | None:
    """Return the report of a supervisor that has ended; None if it was killed before it wrote one."""
    running.control.setblocking(False)
    try:
        return msgspec.json.decode(running.control.recv(65536), type=_Report)
    except (OSError, msgspec.MsgspecError):
        # The round's process ends with its supervisor. Its children have the scratch folder as TMPDIR.
        _end_marked(running.job.scratch)
        return None


def _busy_percent(before: Any, now: Any) -> float:
    """Return the CPU use of the whole machine between two readings."""
    total = sum(now) - sum(before)
    idle = (now.idle - before.idle) + (getattr(now, "iowait", 0.0) - getattr(before, "iowait", 0.0))
    return round(100 * (1 - idle / total), 1) if total > 0 else 0.0


def _end_marked(scratch: str) -> None:
    """Kill the processes whose folder for temporary files is `scratch` or below; wait until they ended."""
    psutil = load_psutil()
    killed = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if f"{process.environ().get('TMPDIR')}/".startswith(f"{scratch}/"):
                process.kill()
                killed.append(process)
    psutil.wait_procs(killed, timeout=supervisor.KILL_SECONDS)


def _proportional_bytes(process: Any) -> int:
    """Return the memory of a process; a page that n processes share counts for 1/n. 0 if it has ended."""
    try:
        text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    except OSError:
        return 0
    line = next((line for line in text.splitlines() if line.startswith("Pss:")), "Pss: 0")
    return int(line.split()[1]) * 1024


def _result_of(running: _Running, report: _Report | None) -> tuple[Round | None, Reason | None, str]:
    """Return the round's record, or None with the reason and a message."""
    stuck = f"; can't be ended: {', '.join(report.stuck)}" if report is not None and report.stuck else ""
    if running.killed is not None:
        reason, message = running.killed
        return None, reason, message + stuck
    if report is None:
        return None, "killed", "its supervisor was killed: the system ran out of memory, or somebody did it"
    if report.error:
        return None, "crash", report.error
    if stuck or report.code is None:
        return None, "left processes", f"left processes running{stuck}"
    code = report.code
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
        record = msgspec.msgpack.decode(read_regular(running.job.answer, LARGEST_ROUND), type=Round)
    except FileNotFoundError:
        return None, "crash", "exited without writing its result"
    except (OSError, msgspec.MsgspecError, RecursionError) as problem:
        why = getattr(problem, "strerror", None) or problem
        return None, "crash", f"its result can't be read: {why}"
    if report.left:
        left = ", ".join(report.left)
        return None, "left processes", f"left processes running, which would disturb later rounds: {left}"
    return record, None, ""
