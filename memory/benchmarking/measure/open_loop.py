"""Open loop: operations start on a schedule, whether or not earlier operations are done.

    intended start      start                end
    │◀──── waiting ────▶│◀───── service ────▶│
    │◀────────────── latency ───────────────▶│

A closed loop starts the next operation when the last one is done. It sends less load to a system that
stalls, and so hides the stall ("coordinated omission", Gil Tene). Here a latency counts from the intended
start. An arrival is one scheduled operation. Workers take the arrivals in order. An arrival that no worker
could start within `max_wait_seconds` is dropped, and the number of dropped arrivals is reported. Each
worker has its own HDR histograms, which are merged at the end.
"""

from __future__ import annotations

import random
import threading
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from memory.benchmarking.errors import InvalidResult, needs
from memory.benchmarking.measure.timing import wall_ns

_LONGEST_NS = 3_600 * 10**9
"""The histograms' range: one hour. Longer latencies count as one hour."""
_DIGITS = 3
"""Significant digits of the histograms."""


def poisson_starts(rate: float, seconds: float, seed: int) -> array[float]:
    """Return random arrival times, in seconds from the start, with `rate` arrivals a second on average.

    The callers are independent of each other, so the intervals are exponentially distributed.
    """
    rng = random.Random(f"arrivals {seed}")
    starts = array("d", [rng.expovariate(rate)])
    while starts[-1] < seconds:
        starts.append(starts[-1] + rng.expovariate(rate))
    return starts[:-1] or array("d", [0.0])


class Latencies:
    """An HDR histogram: latencies are recorded in nanoseconds and returned in milliseconds."""

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
            raise InvalidResult("there is no percentile: no latency was recorded")
        return float(self._histogram.get_value_at_percentile(percent)) / 1e6

    def figures(self) -> dict[str, float]:
        """Return the usual percentiles, by metric name."""
        return {
            "p50_ms": self.percentile_ms(50),
            "p99_ms": self.percentile_ms(99),
            "p999_ms": self.percentile_ms(99.9),
            "max_ms": self.percentile_ms(100),
        }


@dataclass
class _WorkerRecord:
    """What one worker recorded."""

    latencies: dict[str, Latencies]
    lateness: Latencies = field(default_factory=Latencies)
    done: int = 0
    dropped: int = 0
    failed: int = 0
    problem: Exception | None = None
    end_ns: int = 0


@dataclass(frozen=True)
class OpenLoop:
    """The outcome of all arrivals."""

    arrivals: int
    done: int
    dropped: int
    """Arrivals that no worker could start within `max_wait_seconds`."""
    failed: int
    """Operations that raised an exception; their latencies are not counted."""
    problem: Exception | None
    """The first exception of a failed operation."""
    seconds: float
    """From the first intended start to the end of the last operation."""
    latencies: Mapping[str, Latencies]
    """Latencies from the intended start, by kind of operation; only kinds with at least one success."""
    lateness: Latencies
    """How late the load generator itself is: how long after the intended time a waiting worker starts."""

    @property
    def all_latencies(self) -> Latencies:
        return _merged(self.latencies.values())


def _merged(parts: Iterable[Latencies]) -> Latencies:
    merged = Latencies()
    for part in parts:
        merged.add(part)
    return merged


class Progress:
    """How many operations are done so far; other threads may read it."""

    def __init__(self) -> None:
        self.done = 0


def run_open_loop(
    operation: Callable[[int], object],
    starts: Sequence[float],
    kinds: Sequence[str],
    *,
    workers: int = 1,
    max_wait_seconds: float = 1.0,
    progress: Progress | None = None,
) -> OpenLoop:
    """Call an operation once for each arrival, at the arrival's intended start.

    Args:
        operation: called with the number of the arrival.
        starts: intended starts in seconds from now, ascending, at least one.
        kinds: the kind of operation of each arrival; latencies are grouped by it.
        workers: how many threads call the operation.
        max_wait_seconds: an arrival that is this late is dropped.
        progress: counts the operations that are done.
    """
    if not starts or len(starts) != len(kinds):
        raise InvalidResult(f"there are {len(starts)} starts and {len(kinds)} kinds: pass one kind a start")
    progress = progress or Progress()
    records = [_WorkerRecord({kind: Latencies() for kind in set(kinds)}) for _ in range(workers)]
    lock = threading.Lock()
    arrivals = iter(range(len(starts)))
    max_wait_ns = round(max_wait_seconds * 1e9)
    origin = wall_ns()

    def work(record: _WorkerRecord) -> None:
        while True:
            with lock:
                number = next(arrivals, None)
            if number is None:
                return
            intended = origin + round(starts[number] * 1e9)
            ahead = intended - wall_ns()
            if ahead > 0:
                # Sleep: a busy wait would hold the GIL while other workers measure.
                time.sleep(ahead / 1e9)
                record.lateness.record(wall_ns() - intended)
            elif -ahead > max_wait_ns:
                record.dropped += 1
                continue
            try:
                operation(number)
            except Exception as problem:
                record.failed += 1
                record.problem = record.problem or problem
                continue
            record.end_ns = wall_ns()
            record.latencies[kinds[number]].record(record.end_ns - intended)
            record.done += 1
            with lock:
                progress.done += 1

    threads = [threading.Thread(target=work, args=(record,), daemon=True) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_kind = {kind: _merged(record.latencies[kind] for record in records) for kind in dict.fromkeys(kinds)}
    first = origin + round(starts[0] * 1e9)
    return OpenLoop(
        arrivals=len(starts),
        done=sum(record.done for record in records),
        dropped=sum(record.dropped for record in records),
        failed=sum(record.failed for record in records),
        problem=next((record.problem for record in records if record.problem is not None), None),
        seconds=max(max(record.end_ns for record in records) - first, 0) / 1e9,
        latencies={kind: latencies for kind, latencies in by_kind.items() if latencies.count},
        lateness=_merged(record.lateness for record in records),
    )
