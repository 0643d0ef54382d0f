"""The background thread that keeps the tiers in order without being asked.

It wakes when an agent has stored a fair number of memories, and every now and then for those whose
time is up. Between batches it steps back, so that readers and writers get the interpreter first.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from memory._base.yielding import breathing
from memory._tiers.transitions import STEP_BACK_SECONDS, Transitions

_log = logging.getLogger(__name__)


class Keeper:
    """Runs transitions for one system, and holds no reference that would keep that alive."""

    def __init__(
        self,
        transitions: Transitions,
        *,
        interval_seconds: float,
        check_every: int,
        before_round: Callable[[], None],
    ) -> None:
        """`check_every`: after how many memories of one agent its limits are looked at."""
        self._transitions = transitions
        self._interval = interval_seconds
        self._check_every = check_every
        self._before_round = before_round
        self._stored: dict[str, int] = {}
        self._due: set[str] = set()
        self.start_afresh()

    def start_afresh(self) -> None:
        """No thread yet; also what a forked child does, which has none of its parent's."""
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def stored(self, agent: str, count: int) -> None:
        """Tell that an agent has stored memories."""
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
        """Stop after the batch at hand and wait for it."""
        self._stopped.set()
        self._wake.set()
        with self._lock:
            thread = self._thread
        # The collector may run a finaliser in the keeper's own thread, which can't wait for itself.
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="agentmemory-keeper", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopped.is_set():
            self._round()
            self._wake.wait(self._interval)
            self._wake.clear()

    def _round(self) -> None:
        with self._lock:
            agents, self._due = self._due, set()
        try:
            with breathing():
                self._before_round()
                _, touched = self._transitions.by_age(self._pause)
                self._transitions.by_capacity(sorted(agents | touched), self._pause)
                if not self._stopped.is_set():
                    self._transitions.fit_codecs()
                    self._transitions.give_back_space(self._pause)
        except Exception:
            # The memories are safe where they are. Whatever it was must not end the thread: the next
            # round tries again.
            _log.warning("maintenance failed, will try again", exc_info=True)
            with self._lock:
                self._due |= agents

    def _pause(self) -> bool:
        return not self._stopped.wait(STEP_BACK_SECONDS)
