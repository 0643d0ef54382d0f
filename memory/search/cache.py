"""The cache of search indexes: the most recently used agents, up to a number of bytes."""

from __future__ import annotations

import threading
from collections import OrderedDict

from memory.search.index import AgentIndex, Decode
from memory.storage import MemoryStore


class IndexCache:
    """Search indexes by agent. Drops the least recently used one first."""

    def __init__(self, store: MemoryStore, dimensions: int, decode: Decode, budget_bytes: int) -> None:
        self._store = store
        self._dimensions = dimensions
        self._decode = decode
        self._budget = budget_bytes
        self.start_empty()

    def start_empty(self) -> None:
        """Drop all indexes and make a new lock.

        A forked child calls this too: another thread of the parent may have held the old lock.
        """
        self._indexes: OrderedDict[str, AgentIndex] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._total = 0
        # Not a plain lock: a signal handler that closes the memory may run in a thread that holds it.
        self._lock = threading.RLock()

    def index(self, agent: str) -> AgentIndex:
        """Return the agent's index. The caller must take its lock and call `catch_up` on it."""
        with self._lock:
            index = self._indexes.get(agent)
            if index is None:
                index = AgentIndex(self._store, agent, self._dimensions, self._decode, self._budget)
                self._indexes[agent] = index
            self._indexes.move_to_end(agent)
            return index

    def trim(self, used: str) -> None:
        """Measure the index of agent `used`, then drop others until the total is within the budget."""
        with self._lock:
            index = self._indexes.get(used)
            if index is None or not index.changed_size:
                return
            index.changed_size = False
            size = index.nbytes
            self._total += size - self._sizes.get(used, 0)
            self._sizes[used] = size
            while self._total > self._budget and len(self._indexes) > 1:
                oldest = next(iter(self._indexes))
                if oldest == used:
                    self._indexes.move_to_end(used)
                    continue
                self._remove(oldest)
        if size > self._budget:
            index.shrink(self._budget)
            with self._lock:
                if used in self._sizes:
                    self._total += index.nbytes - self._sizes[used]
                    self._sizes[used] = index.nbytes

    def drop(self, agent: str | None = None) -> None:
        """Drop one agent's index, or all of them. The next search reads it from the store again."""
        with self._lock:
            for name in [agent] if agent is not None else list(self._indexes):
                self._remove(name)

    @property
    def nbytes(self) -> int:
        return self._total

    def _remove(self, agent: str) -> None:
        self._indexes.pop(agent, None)
        self._total -= self._sizes.pop(agent, 0)
