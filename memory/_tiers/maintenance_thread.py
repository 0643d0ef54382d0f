"""The background thread that applies the rules of the tiers.

The thread wakes up when an agent has stored many memories. It also wakes up at regular intervals, for
memories that have reached their age limit. It yields between batches, so that readers and writers come
first.
"""

from __future__ import annotations

import _thread
import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from functools import partial
from queue import Empty, SimpleQueue

from memory._base.yielding import BACKGROUND_PAUSE_SECONDS, Flag, low_priority, yield_lock
from memory._tiers.transitions import Transitions
from memory.errors import StoreClosed, StoreError

_log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
"""The interval at which `stop` checks whether the thread has ended."""
_FIRST_RETRY_SECONDS = 0.1
"""How long the thread waits after a round that could not finish its work; then twice as long each time."""
_MANY_READ = 16_384
"""Read counts are saved once in an interval, and when this many memories have some: they take RAM."""
_COPY_LOG_EVERY = 500
"""Memories after which the log is copied into the file: 2 to 10 MB of log. A commit that copies a long log
takes 10 to 70 ms."""


class _Run:
    """One thread. `Thread.join` is not reliable: after an interrupt it can return while the thread runs."""

    def __init__(self) -> None:
        self.thread = 0
        self.active = False
        self.ended: SimpleQueue[None] = SimpleQueue()


class MaintenanceThread:
    """Runs the transitions of one system. Holds no reference to the system, which can be collected."""

    def __init__(
        self,
        transitions: Transitions,
        *,
        interval_seconds: float,
        check_every: int,
        save_reads: Callable[[Callable[[], bool], int], None],
        after_round: Callable[[Callable[[], bool]], None],
        copy_log: Callable[[], None],
        is_writing: Callable[[], bool],
        maintaining: Callable[[], AbstractContextManager[bool]],
    ) -> None:
        """Prepare the thread. The first write starts it.

        `interval_seconds` is the longest time between two rounds. The limits of an agent are checked after
        every `check_every` memories that it stores. `save_reads` saves read counts, if at least so many
        memories have some. `after_round` is called at the end of each round. Both get a function that
        pauses and returns whether to go on.
        `copy_log` is called after every `_COPY_LOG_EVERY` memories, of all agents together.
        `is_writing` returns whether the calling thread holds the write lock. `maintaining` returns a
        context that yields False if another host maintains the memory now.
        """
        self._transitions = transitions
        self._interval = interval_seconds
        self._check_every = check_every
        self._save_reads = save_reads
        self._save_reads_at = 0.0
        self._after_round = after_round
        self._copy_log = copy_log
        self._is_writing = is_writing
        self._maintaining = maintaining
        self._stored: dict[str, int] = {}
        self._due: dict[str, int] = {}
        """By agent whose limits must be checked: how many memories it has stored since the last check."""
        self._not_copied = 0
        """How many memories were stored since the log was copied."""
        self.reset()

    def reset(self) -> None:
        """Set the state to "no thread". A forked child calls this: threads do not survive a fork."""
        # An RLock: a signal handler that closes the memory may run in the thread that holds the lock.
        self._lock = threading.RLock()
        self._checked_all = False
        """Whether the limits of all agents were checked. Later, only those that store memories are."""
        self._wake = Flag()
        self._stopped = Flag()
        self._run: _Run | None = None
        """The current thread. A thread that is not the current one ends."""

    def record_writes(self, agent: str, count: int) -> None:
        """Record that an agent stored `count` memories. Wake the thread if a check of its limits is due."""
        with self._lock:
            total = self._stored.get(agent, 0) + count
            if total < self._check_every:
                self._stored[agent] = total
            else:
                self._stored[agent] = 0
                self._due[agent] = self._due.get(agent, 0) + total
                self._wake.set()
            self._not_copied += count
            if self._not_copied - count < _COPY_LOG_EVERY <= self._not_copied:
                self._wake.set()
            if self._run is None and not self._stopped.is_set:
                self._start()

    def stop(self) -> None:
        """Stop the thread after its current batch, and wait until it has ended."""
        self._stopped.set()
        self._wake.set()
        run = self._run
        # The garbage collector may call this in the maintenance thread, which can't wait for itself. A
        # signal handler may call this during a write. Then do not wait: the thread may need the write lock.
        if run is not None and run.thread != threading.get_ident():
            while run.active and not self._is_writing():
                with suppress(Empty):
                    run.ended.get(timeout=_POLL_SECONDS)

    def _start(self) -> None:
        """Start a thread. The caller holds the lock, and the new thread waits for it."""
        self._run = run = _Run()
        try:
            # An interrupt during `Thread.start` breaks the thread's locks. Interrupts only reach the main
            # thread, so a helper thread calls `Thread.start`.
            _thread.start_new_thread(self._launch, (run,))
        except BaseException:
            self._run = None  # if the thread has started already, it ends by itself
            raise

    def _launch(self, run: _Run) -> None:
        try:
            threading.Thread(
                target=self._work, args=(run,), name="agentmemory-maintenance", daemon=True
            ).start()
        except Exception:
            _log.warning("the maintenance thread did not start; the next write tries again", exc_info=True)
            self._let_start_again(run)

    def _work(self, run: _Run) -> None:
        with self._lock:
            if self._run is not run:
                return
            run.thread, run.active = threading.get_ident(), True
        retry_after = _FIRST_RETRY_SECONDS
        try:
            while not self._stopped.is_set:
                if self._round():
                    retry_after, wait = _FIRST_RETRY_SECONDS, self._interval
                else:
                    wait = min(retry_after, self._interval)
                    retry_after *= 2
                self._wake.wait(wait)
                self._wake.clear()
        finally:
            run.active = False
            run.ended.put(None)
            self._let_start_again(run)

    def _let_start_again(self, run: _Run) -> None:
        """Let the next write start a thread, because this one has ended."""
        with self._lock:
            if self._run is run:
                self._run = None

    def _round(self) -> bool:
        """Do all work that is due. Return whether nothing of it is left."""
        with self._lock:
            stored, self._due = self._due, {}
        left: Mapping[str, int] = stored
        try:
            left = self._maintain(stored)
        except Exception as problem:
            # When a signal handler closes the memory, it can't wait for this thread.
            if not (isinstance(problem, StoreClosed) and self._stopped.is_set):
                # The memories are safe in their old tiers. No error may end the thread.
                _log.warning("maintenance failed; it is tried again soon", exc_info=True)
            return False
        finally:
            self._check_again(left)
        return not left

    def _maintain(self, stored: Mapping[str, int]) -> Mapping[str, int]:
        """Do all work that is due, given how many memories agents have stored. Return what is left."""
        pause = partial(yield_lock, BACKGROUND_PAUSE_SECONDS, self._stopped)
        self._save_reads_if_due(pause)
        if self._not_copied >= _COPY_LOG_EVERY:
            self._not_copied = 0
            self._copy_log()
        with low_priority(), self._maintaining() as is_alone:
            if not is_alone:
                return stored
            _, moved = self._transitions.by_age(pause)
            agents = stored.keys() | moved
            if not self._checked_all:
                agents |= set(self._transitions.agents_to_check())
            _, above = self._transitions.by_capacity(
                sorted(agents), pause, in_background=True, stored=stored
            )
            if not self._stopped.is_set:
                self._checked_all = True
                self._transitions.fit_codecs()
                self._transitions.settle(pause)
                self._transitions.give_back_space(pause, in_background=True)
                self._after_round(pause)
        return {agent: stored.get(agent, 0) for agent in above}

    def _save_reads_if_due(self, pause: Callable[[], bool]) -> None:
        """Save read counts, but rarely: an update of a row for each read would cost more than the read."""
        is_due = time.monotonic() >= self._save_reads_at
        if is_due:
            self._save_reads_at = time.monotonic() + self._interval
        try:
            with low_priority():
                self._save_reads(pause, 0 if is_due else _MANY_READ)
        except StoreClosed:
            raise
        except StoreError:
            _log.warning("read counts are saved later", exc_info=True)

    def _check_again(self, stored: Mapping[str, int]) -> None:
        """Let the next round check the limits of agents that have stored memories."""
        with self._lock:
            for agent, count in stored.items():
                self._due[agent] = self._due.get(agent, 0) + count
