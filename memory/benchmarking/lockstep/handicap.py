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
"""A call that took more than this many times the usual one was interrupted; only so much of it counts."""


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
    usual: float = 0
    owed: float = 0
    around: float = 0
    """What the wrapping itself took: it is part of the call that is made longer."""

    def slower(*arguments: Any, **named: Any) -> Any:
        nonlocal usual, owed, around
        if inside.now:
            return read(*arguments, **named)
        inside.now = True
        start = clock()
        try:
            found = read(*arguments, **named)
        finally:
            inside.now = False
        end = clock()
        took: float = end - start
        if took > _CLIP * usual > 0:
            took = _CLIP * usual  # and the usual one grows, in case that calls are longer from now on
        usual += (took - usual) / 16 if usual else took
        extra = share * (took + around)
        owed += extra
        # Nothing but the spin lies between here and its end.
        now = begin = clock()
        until = begin + owed
        while now < until:
            now = clock()
        # What it was longer than asked for is taken off the next, so that it is exact on average; but no
        # more than one spin, because a long one was interrupted, and worked no longer for that.
        owed = max(owed - (now - begin), -extra)
        around = begin - end
        return found

    return slower
