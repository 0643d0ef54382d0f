"""How often which memory was read, until that is saved: one number a memory, not one entry a reading.

Readings only adjust what is kept longer, so they may cost a reader next to nothing: there is no lock.
`counts[agent][seq] += 1` is one step for Python's threads, and so is taking numbers out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from functools import partial

_MOST_WAITING = 50_000
"""Memories; about 5 MB. Past this, nothing having been saved for so long, those first read go."""
_LOOK_EVERY = 1024
"""Readings after which `add` looks how many there are."""


class Uses:
    """Readings that are not saved yet."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, defaultdict[int, int]] = defaultdict(partial(defaultdict, int))
        """By agent and seq, in the order of the first readings."""
        self._added = 0

    @property
    def memories(self) -> int:
        """How many were read."""
        return sum(map(len, list(self.counts.values())))

    def add(self, agent: str, seqs: Sequence[int]) -> None:
        """Readings of memories that had to be fetched from the store."""
        counts = self.counts[agent]
        for seq in seqs:
            counts[seq] += 1
        self._added += len(seqs)
        if self._added >= _LOOK_EVERY:
            self._added = 0
            if self.memories > _MOST_WAITING:
                self.take(_MOST_WAITING // 8)

    def take(self, most: int | None = None) -> dict[str, dict[int, int]]:
        """Readings by agent and seq: all of them, or those of the `most` memories that were first read."""
        taken: dict[str, dict[int, int]] = {}
        for agent, counts in list(self.counts.items()):
            if most is None or len(counts) <= most:
                # A copy: a reader may still be counting in it. Another thread may have taken it, too.
                found: dict[int, int] = dict(self.counts.pop(agent, {}))
            else:
                found = {seq: counts.pop(seq, 0) for seq in list(counts)[:most]}
            if found:
                taken[agent] = found
            if most is not None:
                most -= len(found)
                if most <= 0:  # below it if readers went on meanwhile
                    break
        return taken
