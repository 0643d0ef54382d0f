"""Open loop: operations start on a schedule, whether or not earlier operations are done.

    intended start      start                end
    │◀──── waiting ────▶│◀───── service ────▶│
    │◀────────────── latency ───────────────▶│

A closed loop starts the next operation when the last one is done. It sends less load to a system that
stalls, and so hides the stall ("coordinated omission", Gil Tene). Here a latency counts from the intended
start. An arrival is one scheduled operation. Workers take the arrivals in order. An arrival that no worker
could start within `max_wait_seconds` is dropped. It still counts in the percentiles, with the time that it
waited: without it, an overloaded system would look faster. Each worker has its own histograms, which are
merged at the end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from memory.benchmarking.errors import InvalidResult
from memory.benchmarking.measure.latencies import Latencies, merged
from memory.benchmarking.measure.timing import wall_ns

_CPU_EVERY = 8
"""The generator's CPU time is measured after one operation in 8: reading it takes 0.3 to 2 µs."""


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
    late: int = 0
    serving: bool = False
    """Whether it is inside an operation."""
    service_ns: int = 0
    cpu_ns: int = 0
    served: int = 0
    cpu_mark: int | None = None
    """The thread's CPU time at the end of the last operation, if the time until the next is sampled."""
    between_ns: int = 0
    """The CPU time between operations, of `between` sampled ones."""
    between: int = 0


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
    """Latencies from the intended start, by kind of operation; only kinds with at least one."""
    lateness: Latencies
    """How late the load generator itself is: how long after the intended time a waiting worker starts."""
    skipped: int = 0
    """Arrivals that were not attempted, because `most_late` was passed."""
    service_seconds: float = 0.0
    """The time that the workers spent inside of operations, all together."""
    service_cpu_seconds: float = 0.0
    """The CPU time of the workers inside of operations."""
    generator_cpu_seconds: float = 0.0
    """The CPU time of the workers outside of operations: the cost of the load generator itself."""

    @property
    def all_latencies(self) -> Latencies:
        return merged(self.latencies.values())


class Progress:
    """How many operations are done so far; other threads may read it."""

    def __init__(self) -> None:
        self.done = 0


@dataclass(frozen=True)
class GiveUp:
    """When to stop a loop whose outcome is certain: more than `most_late` latencies above `limit_ms`."""

    limit_ms: float
    most_late: float


def run_open_loop(
    operation: Callable[[int], object],
    starts: Sequence[float],
    kinds: Sequence[str],
    *,
    workers: int = 1,
    max_wait_seconds: float = 1.0,
    progress: Progress | None = None,
    give_up: GiveUp | None = None,
    only_idle_lateness: bool = False,
    origin_ns: int | None = None,
) -> OpenLoop:
    """Call an operation once for each arrival, at the arrival's intended start.

    Args:
        operation: called with the number of the arrival.
        starts: intended starts in seconds from now, ascending, at least one.
        kinds: the kind of operation of each arrival; latencies are grouped by it.
        workers: how many threads call the operation.
        max_wait_seconds: an arrival that is this late is dropped.
        progress: counts the operations that are done.
        give_up: when to skip the remaining arrivals.
        only_idle_lateness: measure the generator's lateness only while no worker is inside an operation.
            Use it where the system under test runs in this process: its operations hold the GIL, and that
            delay is the system's own.
        origin_ns: the time from which `starts` count, by `wall_ns`; now by default.
    """
    if not starts or len(starts) != len(kinds):
        raise InvalidResult(f"there are {len(starts)} starts and {len(kinds)} kinds: pass one kind a start")
    progress = progress or Progress()
    records = [_WorkerRecord({kind: Latencies() for kind in set(kinds)}) for _ in range(workers)]
    lock = threading.Lock()
    arrivals = iter(range(len(starts)))
    max_wait_ns = round(max_wait_seconds * 1e9)
    limit_ns = round(give_up.limit_ms * 1e6) if give_up else 0
    origin = wall_ns() if origin_ns is None else origin_ns

    def work(record: _WorkerRecord) -> None:
        cpu_before = time.thread_time_ns()
        while True:
            with lock:
                number = next(arrivals, None)
            if number is None:
                break
            if give_up is not None and sum(each.late for each in records) > give_up.most_late:
                break
            intended = origin + round(starts[number] * 1e9)
            ahead = intended - wall_ns()
            if ahead > 0:
                # Sleep: a busy wait would hold the GIL while other workers measure.
                time.sleep(ahead / 1e9)
                if not only_idle_lateness or not any(each.serving for each in records):
                    record.lateness.record(wall_ns() - intended)
            elif -ahead > max_wait_ns:
                record.dropped += 1
                record.late += 1
                record.latencies[kinds[number]].record(-ahead)
                continue
            if not _serve(record, operation, number):
                continue
            latency = record.end_ns - intended
            record.latencies[kinds[number]].record(latency)
            record.late += latency > limit_ns
            record.done += 1
            with lock:
                progress.done += 1
        record.cpu_ns = time.thread_time_ns() - cpu_before

    threads = [threading.Thread(target=work, args=(record,), daemon=True) for record in records]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    by_kind = {kind: merged(record.latencies[kind] for record in records) for kind in dict.fromkeys(kinds)}
    first = origin + round(starts[0] * 1e9)
    done, dropped, failed = (
        sum(getattr(record, name) for record in records) for name in ("done", "dropped", "failed")
    )
    generator_cpu = sum(map(_generator_cpu_ns, records))
    return OpenLoop(
        arrivals=len(starts),
        done=done,
        dropped=dropped,
        failed=failed,
        problem=next((record.problem for record in records if record.problem is not None), None),
        seconds=max(max(record.end_ns for record in records) - first, 0) / 1e9,
        latencies={kind: latencies for kind, latencies in by_kind.items() if latencies.count},
        lateness=merged(record.lateness for record in records),
        skipped=len(starts) - done - dropped - failed,
        service_seconds=sum(record.service_ns for record in records) / 1e9,
        service_cpu_seconds=(sum(record.cpu_ns for record in records) - generator_cpu) / 1e9,
        generator_cpu_seconds=generator_cpu / 1e9,
    )


def _serve(record: _WorkerRecord, operation: Callable[[int], object], number: int) -> bool:
    """Call the operation and record its times; return whether it succeeded."""
    if record.cpu_mark is not None:
        record.between_ns += time.thread_time_ns() - record.cpu_mark
        record.between += 1
        record.cpu_mark = None
    record.serving = True
    begin = wall_ns()
    try:
        operation(number)
    except Exception as problem:
        record.failed += 1
        record.problem = record.problem or problem
        return False
    finally:
        record.end_ns = wall_ns()
        record.serving = False
        record.service_ns += record.end_ns - begin
        record.served += 1
        if number % _CPU_EVERY == 0:
            record.cpu_mark = time.thread_time_ns()
    return True


def _generator_cpu_ns(record: _WorkerRecord) -> float:
    """Return the CPU time of a worker between operations, at the rate of the sampled ones."""
    if not record.between:
        return 0.0
    return min(float(record.cpu_ns), record.between_ns / record.between * record.served)
