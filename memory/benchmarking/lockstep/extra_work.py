"""Add real extra work to the read path of a target, to test the gate with a known slowdown.

Every read takes a given share of its own time longer, on the same thread and core. Both sides of such a
test are wrapped, the unchanged one with a share of 0, so that the cost of the wrapper cancels out.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from memory.benchmarking.targets import load_target

READS = ("get", "get_one", "search", "search_vector")
_CLIP = 3.0
"""A call longer than this many usual calls was interrupted: the time above this limit is not counted."""
_SMOOTHING = 16
"""The usual call is a moving average over about this many calls."""


def add_extra_work(target_name: str, share: float) -> None:
    """Make every read of a target take `share` longer, in this process."""
    target = load_target(target_name)
    nesting = _Nesting()
    for name in READS:
        setattr(target, name, _slower(getattr(target, name), share, nesting))


class _Nesting:
    """Whether a read is in progress: a read that calls another one is made longer once."""

    in_read = False


def _slower(read: Callable[..., Any], share: float, nesting: _Nesting) -> Callable[..., Any]:
    clock = time.perf_counter_ns
    usual: float = 0
    owed: float = 0
    wrapper: float = 0
    """Nanoseconds that the wrapper itself took in the last call. They count as time of the read."""

    def slower(*arguments: Any, **named: Any) -> Any:
        nonlocal usual, owed, wrapper
        if nesting.in_read:
            return read(*arguments, **named)
        nesting.in_read = True
        start = clock()
        try:
            answer = read(*arguments, **named)
        finally:
            nesting.in_read = False
        end = clock()
        took: float = end - start
        if took > _CLIP * usual > 0:
            took = _CLIP * usual  # `usual` still grows, in case calls stay this long
        usual += (took - usual) / _SMOOTHING if usual else took
        extra = share * (took + wrapper)
        owed += extra
        # The time from here to the end of the loop must contain nothing but the loop.
        now = begin = clock()
        until = begin + owed
        while now < until:
            now = clock()
        # If this loop ran too long, the next call runs a shorter loop, so that the average is exact.
        # At most one loop is subtracted: a much longer loop was interrupted and did no more work.
        owed = max(owed - (now - begin), -extra)
        wrapper = begin - end
        return answer

    return slower
