"""Real extra work in the read path of a target, for testing the gate against itself.

Every read takes some part of its own time longer, spent by the same thread on the same core. Both sides
of such a test are wrapped, the untouched one with no extra work, so that the wrapping itself cancels.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from memory.benchmarking.targets import load_target

READS = ("get", "get_one", "search", "search_vector")
_CLIP = 3.0
"""A call is taken for at most this many times the usual one: what is above it was an interruption."""


def handicap(target_name: str, share: float) -> None:
    """Make every read of a target take `share` longer, in this process."""
    target = load_target(target_name)
    inside = _Inside()
    for name in READS:
        setattr(target, name, _slower(getattr(target, name), share, inside))


class _Inside:
    """Whether a read is going on: one that calls another is made longer once."""

    now = False


def _slower(read: Callable[..., Any], share: float, inside: _Inside) -> Callable[..., Any]:
    clock = time.perf_counter_ns
    usual = 0.0
    owed = 0.0

    def slower(*arguments: Any, **named: Any) -> Any:
        nonlocal usual, owed
        if inside.now:
            return read(*arguments, **named)
        inside.now = True
        start = clock()
        try:
            found = read(*arguments, **named)
        finally:
            inside.now = False
        end = clock()
        took = end - start
        if usual:
            took = min(took, int(_CLIP * usual))
        usual += (took - usual) / 16 if usual else took
        # What a wait is longer than asked for is taken off the next: on average it is exact.
        owed += share * took
        if owed > 0:
            until = end + owed
            now = end
            while now < until:
                now = clock()
            owed -= now - end
        return found

    return slower
