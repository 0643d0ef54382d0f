"""Rounds on this machine: a fresh interpreter each, a few at a time at most.

Whatever a round does (crash, hang, grow, leave processes behind), it costs that round and nothing else:
each has its own session, log and scratch folder, and all of it is gone when the round has ended.
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
"""How often time and memory limits are looked at, while nothing happens."""
_GRACE_SECONDS = 1.0
"""In which what a round started may end after it."""
LOG_BYTES = 100_000
"""Of what a round prints, the last ones are kept."""
_THREADS = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "RAYON_NUM_THREADS",
)
"""Pinned to one: how many threads a matrix product gets must not depend on what else is running."""


@dataclass(frozen=True)
class Outcome:
    """How a round ended: with a record, or with the reason why there is none."""

    job: Job
    round: Round | None
    reason: Reason | None = None
    message: str = ""
    log: str = ""
    """The end of what it printed."""
    start_seconds: float = 0.0
    """From asking for the process until it began."""
    seconds: float = 0.0
    """From asking for the process until it was gone."""


@dataclass(frozen=True)
class Launch:
    """How a round's process is started; its descriptors are added to the command."""

    command: tuple[str, ...] = (sys.executable, "-P", "-m", "memory.benchmarking.run.worker")
    paths: tuple[str, ...] | None = None
    """Where it finds modules; None: where this process does."""
    listens: bool = False
    """Whether it is told things on the way (see `LocalExecutor.reply`), in a second descriptor."""
    descriptors: tuple[int, ...] = ()
    """Others that it gets, and that stay whose they are."""


@dataclass
class _Running:
    job: Job
    process: subprocess.Popen[bytes]
    events: int
    replies: int | None
    log: IO[bytes]
    asked_at: float
    asked: float
    deadline: float
    pending: bytes = b""
    message: str = ""
    began_at: float | None = None
    ended: tuple[Reason, str] | None = None
    """Why we ended it."""
    exit_watch: int | None = None


@dataclass
class LocalExecutor:
    """Runs jobs; `on_event` hears what the workers tell, `on_start` when one is started."""

    workers: int = 1
    timeout_seconds: float = 600.0
    memory_limit_bytes: int | None = None
    on_start: Callable[[Job], None] = lambda job: None
    on_event: Callable[[Job, Mapping[str, Any]], None] = lambda job, event: None
    launch: Callable[[Job], Launch] = lambda job: Launch()
    _running: dict[int, _Running] = field(default_factory=dict)
    _stopping: bool = False
    _aborting: bool = False
    _look_at: float = 0.0
    """When limits are looked at next."""

    def finish(self) -> None:
        """Start nothing more; what runs may end."""
        self._stopping = True

    def abort(self) -> None:
        """End everything now."""
        self._stopping = self._aborting = True

    def reply(self, job: Job, message: Any) -> None:
        """Tell the process of a job something; one that has just ended hears nothing any more."""
        for running in self._running.values():
            if running.job is job and running.replies is not None:
                with suppress(BrokenPipeError):
                    os.write(running.replies, msgspec.json.encode(message) + b"\n")

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        """The outcomes, in the order of ending. Leaving early ends what still runs."""
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
                        self._hear(self._running[key.data])
                    yield from self._reap(selector)
            finally:
                for running in list(self._running.values()):
                    self._kill(running, "killed", "the run was stopped")
                    self._close(running, selector)

    # -- one round ----------------------------------------------------------------------------

    def _start(self, job: Job, selector: selectors.BaseSelector) -> None:
        scratch = Path(job.scratch)
        try:
            scratch.mkdir(parents=True, exist_ok=True)
            log = tempfile.TemporaryFile(dir=scratch.parent)  # noqa: SIM115 - it lives as long as the round
        except OSError as problem:
            raise ResultNotSaved(f"{scratch} can't be made: {problem.strerror or problem}") from problem
        launch = self.launch(job)
        reader, writer = os.pipe()
        told, replies = os.pipe() if launch.listens else (None, None)
        own = [each for each in (writer, told) if each is not None]
        given = [*own, *launch.descriptors]
        paths = sys.path if launch.paths is None else launch.paths
        environment = {
            **os.environ,
            **dict.fromkeys(_THREADS, "1"),
            "TOKENIZERS_PARALLELISM": "false",
            "PYTHONHASHSEED": str(job.seed % 2**32),
            "TMPDIR": str(scratch),
            # The worker finds modules where this process does, and not by where it was started.
            "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in paths),
        }
        asked_at, asked = time.time(), time.perf_counter()
        try:
            process = subprocess.Popen(
                [*launch.command, *map(str, given)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env=environment,
                pass_fds=given,
                start_new_session=True,
            )
        except OSError as problem:
            for descriptor in (reader, replies):
                if descriptor is not None:
                    os.close(descriptor)
            log.close()
            raise BenchmarkError(f"{launch.command[0]} can't be run: {problem.strerror}") from problem
        finally:
            for descriptor in own:
                os.close(descriptor)
        os.set_blocking(reader, False)
        running = _Running(
            job, process, reader, replies, log, asked_at, asked, asked + self.timeout_seconds
        )
        self._running[process.pid] = running
        selector.register(reader, selectors.EVENT_READ, process.pid)
        if hasattr(os, "pidfd_open"):
            running.exit_watch = os.pidfd_open(process.pid)
            selector.register(running.exit_watch, selectors.EVENT_READ, process.pid)
        assert process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already: its exit code says why
            process.stdin.write(msgspec.json.encode(job) + b"\n")
            process.stdin.flush()
        self.on_start(job)

    def _hear(self, running: _Running) -> None:
        """Take in what the worker told."""
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

    def _reap(self, selector: selectors.BaseSelector) -> Iterator[Outcome]:
        # In lockstep something happens all the time: limits are looked at no more often for that.
        looks = time.perf_counter() >= self._look_at
        if looks:
            self._look_at = time.perf_counter() + _TICK_SECONDS / 2
        for running in list(self._running.values()):
            if running.process.poll() is None and (looks or self._aborting):
                self._look_after(running)
            if running.process.poll() is not None:
                self._hear(running)
                yield self._close(running, selector)

    def _look_after(self, running: _Running) -> None:
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
                    message = f"held {used / 1e6:,.0f} MB of RAM, more than {limit} (memory_limit_mb)"
                    self._kill(running, "memory", message)

    def _kill(self, running: _Running, reason: Reason, message: str) -> None:
        running.ended = (reason, message)
        with suppress(ProcessLookupError):
            os.killpg(running.process.pid, signal.SIGKILL)
        running.process.wait()

    def _close(self, running: _Running, selector: selectors.BaseSelector) -> Outcome:
        """Clean up after a round that has ended, and say how."""
        del self._running[running.process.pid]
        seconds = time.perf_counter() - running.asked
        left = _end_group(running.process.pid)
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
        record, reason, message = _judge(running, left)
        if reason is not None and reason != "killed":
            # It may have answered before it went wrong; a resumed run must not take that up.
            Path(running.job.answer).unlink(missing_ok=True)
        began = running.began_at
        start_seconds = max(0.0, began - running.asked_at) if began is not None else seconds
        return Outcome(running.job, record, reason, message, log, start_seconds, seconds)


def _end_group(group: int) -> bool:
    """End what a round left running; whether there was anything.

    What ends by itself right after the round is not counted: Python's own helpers do (the one that looks
    after shared memory), and a process that has ended is still there until somebody asks for it.
    """
    deadline = time.perf_counter() + _GRACE_SECONDS
    while left := _is_running(group):
        if time.perf_counter() > deadline:
            break
        time.sleep(0.01)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
    return left


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


def _judge(running: _Running, left: bool) -> tuple[Round | None, Reason | None, str]:
    code = running.process.returncode
    if running.ended is not None:
        return None, *running.ended
    if code == EXIT_EXCEPTION and running.message:
        return None, "exception", running.message
    if code < 0:
        name = signal.Signals(-code).name if -code in list(signal.Signals) else f"signal {-code}"
        if name == "SIGKILL":
            return None, "killed", "killed by SIGKILL: by the system for lack of memory, or by hand"
        return None, "crash", f"crashed with {name}"
    if code:
        return None, "crash", f"ended by itself with exit code {code}"
    try:
        record = msgspec.msgpack.decode(Path(running.job.answer).read_bytes(), type=Round)
    except FileNotFoundError:
        return None, "crash", "ended by itself, without an answer"
    except (OSError, msgspec.MsgspecError) as problem:
        return None, "crash", f"its answer can't be read: {problem}"
    if left:
        return None, "left processes", "left processes running, which would disturb the rounds after it"
    return record, None, ""
