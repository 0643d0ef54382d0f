"""The background thread that applies the rules of the tiers.

It wakes up when an agent has stored many memories, and at regular intervals for memories that have
reached their age limit. It yields between batches, so that readers and writers come first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial

from memory._base.yielding import BACKGROUND_PAUSE_SECONDS, low_priority, yield_lock
from memory._tiers.transitions import Transitions

_log = logging.getLogger(__name__)

_JOIN_SECONDS = 1.0
"""How long `stop` waits before it looks again whether it can wait at all."""


class MaintenanceThread:
    """Runs the transitions of one system. Holds no reference to that system, so it can be collected."""

    def __init__(
        self,
        transitions: Transitions,
        *,
        interval_seconds: float,
        check_every: int,
        before_round: Callable[[], None],
        is_writing: Callable[[], bool],
    ) -> None:
        """Prepare the thread; the first write starts it.

        `interval_seconds` is the longest time between two rounds. The limits of an agent are checked after
        every `check_every` memories that it stores. `before_round` is called at the start of each round.
        `is_writing` returns whether the calling thread holds the write lock.
        """
        self._transitions = transitions
        self._interval = interval_seconds
        self._check_every = check_every
        self._before_round = before_round
        self._is_writing = is_writing
        self._stored: dict[str, int] = {}
        self._due: set[str] = set()
        self.reset()

    def reset(self) -> None:
        """Set up without a thread; a forked child calls it, because threads do not survive a fork."""
        # Not a plain lock: a signal handler that closes the memory may run in a thread that holds it.
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def record_writes(self, agent: str, count: int) -> None:
        """Record that an agent stored `count` memories; wake the thread if its limits are due."""
        with self._lock:
            total = self._stored.get(agent, 0) + count
            if total < self._check_every:
                self._stored[agent] = total
            else:
                self._stored[agent] = 0
                self._due.add(agent)
                self._wake.set()
            if self._thread is None and not self._stopped.is_set():
                self._start()

    def stop(self) -> None:
        """Stop after the current batch and wait for it."""
        self._stopped.set()
        self._wake.set()
        thread = self._thread
        # The garbage collector may call this in the maintenance thread, which can't wait for itself. A
        # signal handler may call it in the middle of a write; then the thread waits for this one.
        if thread is not None and thread is not threading.current_thread():
            while thread.is_alive() and not self._is_writing():
                thread.join(_JOIN_SECONDS)

    def _start(self) -> None:
        thread = threading.Thread(target=self._run, name="agentmemory-maintenance", daemon=True)
        self._thread = thread
        try:
            thread.start()
        except BaseException:
            # It may run all the same, if an interrupt came after its start. `_run` ends it then.
            self._thread = None
            raise

    def _run(self) -> None:
        while not self._stopped.is_set() and self._thread is threading.current_thread():
            self._round()
            self._wake.wait(self._interval)
            self._wake.clear()

    def _round(self) -> None:
        pause = partial(yield_lock, BACKGROUND_PAUSE_SECONDS, self._stopped)
        with self._lock:
            agents, self._due = self._due, set()
        try:
            with low_priority():
                self._before_round()
                _, moved = self._transitions.by_age(pause)
                self._transitions.by_capacity(sorted(agents | moved), pause)
                if not self._stopped.is_set():
                    self._transitions.fit_codecs()
                    self._transitions.settle(pause)
                    self._transitions.give_back_space(pause)
        except Exception:
            # The memories are safe in their old tiers. No error may end the thread.
            _log.warning("maintenance failed; the next round tries again", exc_info=True)
            with self._lock:
                self._due |= agents
