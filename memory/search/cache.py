"""The cache of search indexes: the most recently used agents, up to a number of bytes."""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from functools import partial

from memory.errors import StoreCorrupt, StoreError
from memory.search.index import AgentIndex, Decode
from memory.search.saved import write
from memory.storage import MemoryStore

_log = logging.getLogger(__name__)

LEAST_SAVED = 4096
"""Memories of an agent from which its index is saved: fewer are read from the store in about 30 ms."""
_NEW_SHARE = 8
"""An index is saved again when more than 1/8 of its memories came since …"""
_NEW_MIN = 1024  # … and more than this number,
_MAX_CHANGES = 512
"""or after this many changes. The log of changes has twice as many; older indexes are useless."""
_SAVE_SHARE = 100
"""In the background, at most a hundredth of the time is spent on saving one agent's index."""


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
        self._save_again_at: dict[str, float] = {}
        """By agent: when its index may be saved again in the background, on the monotonic clock."""
        # Not a plain lock: a signal handler that closes the memory may run in a thread that holds it.
        self._lock = threading.RLock()

    def index(self, agent: str) -> AgentIndex:
        """Return the agent's index. The caller must take its lock and call `catch_up` on it."""
        with self._lock:
            index = self._indexes.get(agent)
            if index is None:
                index = self._new_index(agent)
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

    def save(self, pause: Callable[[], bool], *, in_background: bool = False) -> None:
        """Save the indexes of agents with many memories, if they have changed much since the last time.

        pause: is called after each index; False stops
        in_background: save only indexes that are in RAM, and each of them rarely
        """
        for agent in self._store.agents_above(LEAST_SAVED):
            cached = self._indexes.get(agent)
            if in_background and (cached is None or time.monotonic() < self._save_again_at.get(agent, 0.0)):
                continue
            if self._is_due(agent):
                start = time.monotonic()
                try:
                    self._save(agent, cached)
                except StoreCorrupt as problem:  # the memory is damaged; searches raise the same error
                    _log.warning("the search index of an agent is not saved: %s", problem)
                end = time.monotonic()
                self._save_again_at[agent] = end + (end - start) * _SAVE_SHARE
                if not pause():
                    return

    def save_too_large(self, agent: str) -> bool:
        """Save an index that does not fit into the cache, and use the saved one, which is mapped.

        Return whether the agent has another index now. If it can't be saved, this is tried rarely."""
        cached = self._indexes.get(agent)
        is_early = time.monotonic() < self._save_again_at.get(agent, 0.0)
        if cached is None or is_early or self._store.is_remote:
            return False
        if agent not in self._store.agents_above(LEAST_SAVED):  # too few memories, or a read-only store
            return False
        start = time.monotonic()
        try:
            self._save(agent, cached)
        except StoreError as problem:  # as a lock that another process holds; the search goes on without
            _log.info("the search index of an agent is not saved: %s", problem)
        end = time.monotonic()
        self._save_again_at[agent] = end + (end - start) * _SAVE_SHARE
        return self._indexes.get(agent) is not cached

    def _is_due(self, agent: str) -> bool:
        saved, now = self._store.saved_index_state(agent), self._store.state(agent)
        if saved is None:
            return True
        new = now.last_seq - saved.last_seq
        return (
            new > max(_NEW_MIN, saved.last_seq // _NEW_SHARE)
            or now.last_change - saved.last_change > _MAX_CHANGES
        )

    def _save(self, agent: str, cached: AgentIndex | None) -> None:
        """Save an agent's index. Then use the saved one, which is mapped, in place of the one in RAM.

        What a server has saved would be read back into RAM, so the index stays as it is."""
        index = cached or self._new_index(agent)
        with index.lock:
            index.catch_up()
            if index.count - index.deleted_count < LEAST_SAVED:
                return
        coded = index.coded_sums()  # without the lock: searches go on while it reads all rows
        with index.lock:
            index.catch_up()
            state, parts = index.parts(coded)
        writer = partial(write, parts, compact=parts["is_compact"])
        is_saved = self._store.save_index(agent, state, writer)
        if not is_saved or cached is None or self._store.is_remote:
            return
        del parts
        fresh = self._new_index(agent)
        with fresh.lock:
            fresh.catch_up()
        with self._lock:
            if self._indexes.get(agent) is cached:
                self._indexes[agent] = fresh
        self.trim(agent)

    @property
    def nbytes(self) -> int:
        return self._total

    def _new_index(self, agent: str) -> AgentIndex:
        return AgentIndex(self._store, agent, self._dimensions, self._decode, self._budget)

    def _remove(self, agent: str) -> None:
        self._indexes.pop(agent, None)
        self._total -= self._sizes.pop(agent, 0)
