"""Read counts that are not saved yet: one number for each memory that was read.

Read counts only adjust how long a memory is kept. So counting must take almost no time, and uses no lock.
CPython does not switch threads within `counts[agent][seq] += 1`, nor within `pop`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

_MAX_UNSAVED = 50_000
"""The most memories with unsaved counts, about 5 MB. Above this, the oldest counts are dropped."""
_CHECK_EVERY = 1024
"""The number of reads after which `add` checks this limit."""


class ReadCounts:
    """Unsaved read counts by agent and seq."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, defaultdict[int, int]] = defaultdict(partial(defaultdict, int))
        """Read counts by agent and seq, in the order of the first reads."""
        self._added = 0

    @property
    def memories(self) -> int:
        """The number of memories with an unsaved count."""
        return sum(map(len, list(self.counts.values())))

    def add(self, agent: str, seqs: Sequence[int]) -> None:
        """Count one read of each memory. The entry cache adds its own reads to `counts` directly."""
        counts = self.counts[agent]
        for seq in seqs:
            counts[seq] += 1
        self._added += len(seqs)
        if self._added >= _CHECK_EVERY:
            self._check_limit()

    def add_one(self, agent: str, seq: int) -> None:
        """Count one read of one memory, faster than `add`."""
        self.counts[agent][seq] += 1
        self._added += 1
        if self._added >= _CHECK_EVERY:
            self._check_limit()

    def of(self, agent: str) -> dict[int, int]:
        """Return the unsaved read counts of an agent, by seq."""
        return dict(self.counts.get(agent, {}))

    def put_back(self, taken: dict[str, dict[int, int]]) -> None:
        """Add counts that `take` returned, and that could not be saved, to those that came since."""
        for agent, part in taken.items():
            counts = self.counts[agent]
            for seq, count in part.items():
                counts[seq] += count
        self._check_limit()

    def _check_limit(self) -> None:
        self._added = 0
        if self.memories > _MAX_UNSAVED:
            self.take(_MAX_UNSAVED // 8)

    def take(self, limit: int | None = None) -> dict[str, dict[int, int]]:
        """Remove and return all counts, or the counts of the `limit` memories that were read first."""
        taken: dict[str, dict[int, int]] = {}
        for agent, counts in list(self.counts.items()):
            if limit is None or len(counts) <= limit:
                # Copy the dict: a reader may still write to it. `{}`: another thread may have taken it.
                part: dict[int, int] = dict(self.counts.pop(agent, {}))
            else:
                part = {seq: counts.pop(seq, 0) for seq in list(counts)[:limit]}
            if part:
                taken[agent] = part
            if limit is not None:
                limit -= len(part)
                if limit <= 0:  # negative if readers added memories in the meantime
                    break
        return taken
