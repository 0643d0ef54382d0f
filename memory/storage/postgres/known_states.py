"""What this process knows of the agents: their last states, and a version for what it has cached of them.

The server's counters decide what is current. A call that may return cached entries reads the counters
first, in one round trip, and does not use what was cached under another version. `freshness_seconds` lets
calls skip that query for a short time.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import monotonic
from weakref import WeakValueDictionary

from memory.storage.base import AgentState

_ODD = 1
_MOST_FRESH = 10_000


class KnownState:
    """The last known state of one agent."""

    __slots__ = ("__weakref__", "counters", "fresh_until", "stamp", "state", "writers")

    def __init__(self) -> None:
        self.stamp = 0
        """Even. Another number after every change of existing rows that this process knows of."""
        self.writers = 0
        """Threads of this process that change existing rows now."""
        self.counters = (0, 0)
        """The epoch and the version of the agent's row, when the stamp was set."""
        self.state: AgentState | None = None
        self.fresh_until = 0.0

    def version(self) -> int:
        return self.stamp | _ODD if self.writers else self.stamp


class KnownStates:
    """The known states of the agents that a cache of this process watches."""

    def __init__(self, freshness_seconds: float) -> None:
        self._freshness = freshness_seconds
        self.start_empty()

    def start_empty(self) -> None:
        """Forget everything. A forked child calls this too: another thread may have held the lock."""
        self._states: WeakValueDictionary[str, KnownState] = WeakValueDictionary()
        self._fresh: OrderedDict[str, KnownState] = OrderedDict()
        """Keeps the states of the last agents alive, for `fresh_state`."""
        self._lock = threading.RLock()
        self._stamps = 0
        self._epoch = 0
        self.epochs = 0
        """How often the epoch of the server was another one than before."""

    def watch(self, agent: str) -> Callable[[], int]:
        """Return a function that returns the last known version of the agent's rows."""
        with self._lock:
            return self._known(agent).version

    def _known(self, agent: str) -> KnownState:
        """Return an agent's known state, new if nothing is known. The caller holds the lock."""
        known = self._states.get(agent)
        if known is None:
            known = self._states[agent] = KnownState()
            known.stamp = self._next_stamp()
        return known

    def learn(self, agent: str, state: AgentState, version: int) -> None:
        """Take over a state that was read from the server.

        Answers can arrive in another order than the server gave them: an older one changes nothing."""
        if state.epoch != self._epoch and state.epoch:  # an unknown agent has none
            with self._lock:
                self._epoch = state.epoch
                self.epochs += 1
        known = self._states.get(agent)
        if not self._freshness and (known is None or known.counters == (state.epoch, version)):
            return  # nothing new, which needs no lock
        with self._lock:
            known = self._known(agent)
            epoch, newest = known.counters
            if epoch != state.epoch or version > newest:
                known.counters = state.epoch, version
                known.stamp = self._next_stamp()
            if self._freshness:
                seen = known.state
                if (
                    seen is None
                    or seen.epoch != state.epoch
                    or (state.last_seq >= seen.last_seq and state.last_change >= seen.last_change)
                ):
                    known.state = state
                    known.fresh_until = monotonic() + self._freshness
                    self._fresh[agent] = known
                    self._fresh.move_to_end(agent)
                    if len(self._fresh) > _MOST_FRESH:
                        self._fresh.popitem(last=False)

    def fresh_state(self, agent: str) -> AgentState | None:
        """Return the state that was read at most `freshness_seconds` ago, or None."""
        if not self._freshness:
            return None
        known = self._states.get(agent)
        return known.state if known is not None and monotonic() < known.fresh_until else None

    def is_fresh(self, agent: str) -> bool:
        return bool(self._freshness) and self.fresh_state(agent) is not None

    def spoil(self, agent: str) -> None:
        """Let the next call ask the server: this process has stored something."""
        if self._freshness:
            known = self._states.get(agent)
            if known is not None:
                known.fresh_until = 0.0

    @contextmanager
    def changing(self, agent: str) -> Iterator[None]:
        """Make the version odd while existing rows of an agent change, and another one afterwards."""
        known = self._states.get(agent)
        if known is None:
            yield
            return
        with self._lock:
            known.writers += 1
        try:
            yield
        finally:
            with self._lock:
                known.writers -= 1
                known.stamp = self._next_stamp()
                known.fresh_until = 0.0

    def _next_stamp(self) -> int:
        self._stamps += 2
        return self._stamps
