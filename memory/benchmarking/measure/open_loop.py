"""Open loop: operations arrive on a schedule, whether or not the earlier ones are done.

    intended start      start                end
    │◀── waited for ───▶│◀───── service ────▶│
    │◀────────────── latency ───────────────▶│

A loop that sends the next operation when the last one is done asks less of a system that stalls, and
never sees the stall ("coordinated omission", Gil Tene). Here an arrival's latency counts from the moment
it was meant to start. Workers take the arrivals in order; one that nobody could begin within `patience`
is dropped and counted. Latencies go into HDR histograms, one set a worker, merged at the end.
"""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from memory.benchmarking.errors import InvalidResult, needs
from memory.benchmarking.measure.timing import wall_ns

_LONGEST_NS = 3_600 * 10**9
_DIGITS = 3
"""Each latency is known to a thousandth of itself."""


def poisson_starts(rate: float, seconds: float, seed: int) -> array[float]:
    """Seconds from the beginning at which independent callers arrive, `rate` a second on average."""
    rng = random.Random(f"arrivals {seed}")
    starts = array("d", [rng.expovariate(rate)])
    while starts[-1] < seconds:
        starts.append(starts[-1] + rng.expovariate(rate))
    return starts[:-1] or array("d", [0.0])


class Latencies:
    """An HDR histogram of nanoseconds, read in milliseconds."""

    def __init__(self) -> None:
        try:
            from hdrh.histogram import HdrHistogram
        except ImportError:
            raise needs("hdrhistogram", "bench", "recording latencies") from None
        self._histogram = HdrHistogram(1, _LONGEST_NS, _DIGITS)

    def record(self, nanoseconds: int) -> None:
        self._histogram.record_value(min(max(nanoseconds, 1), _LONGEST_NS))

    def add(self, other: Latencies) -> None:
        self._histogram.add(other._histogram)

    @property
    def count(self) -> int:
        return int(self._histogram.get_total_count())

    def percentile_ms(self, percent: float) -> float:
        if not self.count:
            raise InvalidResult("a percentile of no latencies: nothing was recorded")
        return float(self._histogram.get_value_at_percentile(percent)) / 1e6

    def figures(self) -> dict[str, float]:
        """The usual percentiles, by name."""
        return {
            "p50_ms": self.percentile_ms(50),
            "p99_ms": self.percentile_ms(99),
            "p999_ms": self.percentile_ms(99.9),
            "max_ms": self.percentile_ms(100),
        }


@dataclass
class _Share:
    """What one worker saw."""

    latencies: dict[str, Latencies]
    lateness: Latencies = field(default_factory=Latencies)
    done: int = 0
    dropped: int = 0
    failed: int = 0
    problem: Exception | None = None
    end_ns: int = 0


@dataclass(frozen=True)
class OpenLoop:
    """What became of the arrivals."""

    arrivals: int
    done: int
    dropped: int
    """Nobody could begin them in time."""
    failed: int
    """They raised; their latencies are not counted."""
    problem: Exception | None
    """What the first of the failed raised."""
    seconds: float
    """From the first intended start to the end of the last operation."""
    latencies: Mapping[str, Latencies]
    """From the intended start, by kind of operation; only kinds of which one was done."""
    lateness: Latencies
    """Of the generator itself: how much later than intended a worker began that was waiting for it."""

    @property
    def all_latencies(self) -> Latencies:
        return _merged(self.latencies.values())


def _merged(parts: Any) -> Latencies:
    merged = Latencies()
    for part in parts:
        merged.add(part)
    return merged


class Progress:
    """How many operations are done so far, for whoever watches from beside."""

    def __init__(self) -> None:
        self.done = 0


def run_open_loop(
    operation: Callable[[int], object],
    starts: Sequence[float],
    kinds: Sequence[str],
    *,
    workers: int = 1,
    patience_seconds: float = 1.0,
    progress: Progress | None = None,
) -> OpenLoop:
    """Call `operation` with the number of each arrival at its time.

    `starts` are seconds from now, ascending; `kinds` says for each what it is. Waiting for an arrival
    sleeps: a busy wait would take the interpreter from the operations that are measured.
    """
    if not starts or len(starts) != len(kinds):
        raise InvalidResult(f"{len(starts)} arrivals of {len(kinds)} kinds: give one kind for each of some")
    progress = progress or Progress()
    shares = [_Share({kind: Latencies() for kind in set(kinds)}) for _ in range(workers)]
    lock = threading.Lock()
    arrivals = iter(range(len(starts)))
    patience = round(patience_seconds * 1e9)
    origin = wall_ns()

    def work(share: _Share) -> None:
        while True:
            with lock:
                number = next(arrivals, None)
            if number is None:
                return
            intended = origin + round(starts[number] * 1e9)
            ahead = intended - wall_ns()
            if ahead > 0:
                time.sleep(ahead / 1e9)
                share.lateness.record(wall_ns() - intended)
            elif -ahead > patience:
                share.dropped += 1
                continue
            try:
                operation(number)
            except Exception as problem:
                share.failed += 1
                share.problem = share.problem or problem
                continue
            share.end_ns = wall_ns()
            share.latencies[kinds[number]].record(share.end_ns - intended)
            share.done += 1
            with lock:
                progress.done += 1

    threads = [threading.Thread(target=work, args=(share,), daemon=True) for share in shares]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_kind = {kind: _merged(share.latencies[kind] for share in shares) for kind in dict.fromkeys(kinds)}
    first = origin + round(starts[0] * 1e9)
    return OpenLoop(
        arrivals=len(starts),
        done=sum(share.done for share in shares),
        dropped=sum(share.dropped for share in shares),
        failed=sum(share.failed for share in shares),
        problem=next((share.problem for share in shares if share.problem is not None), None),
        seconds=max(max(share.end_ns for share in shares) - first, 0) / 1e9,
        latencies={kind: latencies for kind, latencies in by_kind.items() if latencies.count},
        lateness=_merged(share.lateness for share in shares),
    )
