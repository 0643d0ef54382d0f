"""One round: a fresh interpreter that runs one case once and writes what it measured.

Started by an executor as `python -m memory.benchmarking.run.worker`. It gets its job as one JSON line on
standard input, writes its `Round` whole to the file that the job names, and tells of its progress in
JSON lines on the descriptor given as its only argument. What the benchmark prints goes to the log.
When the executor is gone, so is the worker: its standard input ends then.
"""

from __future__ import annotations

import faulthandler
import fcntl
import math
import os
import signal
import sys
import threading
import time
import traceback
from array import array
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from memory.benchmarking.bench import Bench, Score, Sentence
from memory.benchmarking.errors import BrokenBenchmark, InvalidResult, NotSupported
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.measure.turn_control import TurnControl
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.paths import NotAvailable, join
from memory.benchmarking.model.records import Case, Job, Round, Samples
from memory.benchmarking.model.user_files import cause_of, load_file
from memory.benchmarking.run.discovery import Benchmark, benchmarks_of
from memory.benchmarking.targets import load_target

EXIT_EXCEPTION = 3
"""The benchmark raised; the last line of the log says what."""


Tell = Callable[..., None]


def main(descriptor: int, make_turn_control: Callable[[Tell], TurnControl] | None = None) -> None:
    """Run the job that standard input holds; in lockstep, in the turns of `make_turn_control`."""
    began_at = time.time()
    faulthandler.enable()
    events = os.fdopen(descriptor, "wb", buffering=0)
    commands = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    job = msgspec.json.decode(_line(commands), type=Job)
    _end_with_parent(commands)
    _tell(events, event="began", at=began_at)
    code = 0
    try:
        tell = partial(_tell, events)
        answer = run_job(job, tell, make_turn_control(tell) if make_turn_control is not None else None)
        write_whole(Path(job.answer), msgspec.msgpack.encode(answer))
    except BaseException as problem:
        _tell(events, event="failed", message=cause_of(problem, _source(job.case)))
        code = EXIT_EXCEPTION
        with suppress(OSError):  # the log may be on the disk that is full
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the benchmark may have closed or replaced it
            stream.flush()
    # Not by the usual way: a thread that the benchmark left behind would keep the process alive.
    os._exit(code)


def _line(commands: BinaryIO) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = commands.read(65536)
        if not piece:
            sys.exit("membench worker: it is started by `membench run`, not by hand")
        line += piece
    return line


def _end_with_parent(commands: BinaryIO) -> None:
    """Be gone, with all that was started here, when nobody holds the other end any more."""

    def wait() -> None:
        while commands.read(4096):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    if hasattr(fcntl, "F_SETSIG"):
        # By the kernel, where it can: a thread waits for ever while C code holds the interpreter.
        fcntl.fcntl(commands, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(commands, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(commands, fcntl.F_SETFL, os.O_ASYNC)
    threading.Thread(target=wait, daemon=True).start()


def _tell(events: BinaryIO, **event: Any) -> None:
    events.write(msgspec.json.encode(event) + b"\n")


def _source(case: Case) -> Path | None:
    return Path(case.source) if case.source else None


def load_benchmark(case: Case) -> Benchmark:
    """The function of a case, in this process."""
    source = _source(case)
    module = load_file(source) if source else import_module(case.module or "")
    for benchmark in benchmarks_of(module, case.category, case.source):
        if benchmark.name == case.benchmark:
            return benchmark
    raise BrokenBenchmark(f"{case.name} is no longer in {case.source or case.module}")


def run_job(job: Job, tell: Tell, turn_control: TurnControl | None = None) -> Round:
    """Load the benchmark and its target, run it once, and take its result apart."""
    load_start = time.perf_counter()
    benchmark = load_benchmark(job.case)
    if job.case.source:
        sys.path.insert(0, str(Path(job.case.source).parent))  # for what it imports while it runs
    load_target(job.case.target)
    loaded = time.perf_counter()
    tell(event="loaded", seconds=loaded - load_start)
    bench = Bench(
        target=job.case.target,
        seed=job.seed,
        seconds=job.seconds,
        scratch=Path(job.scratch),
        on_timing=lambda label, timing: tell(event="timing", label=label, p50_ms=timing["p50_ms"]),
        turn_control=turn_control,
    )
    arguments = {**job.case.params, **({"bench": bench} if benchmark.takes_bench else {})}
    if turn_control is not None:
        turn_control.begin()
    started_at = time.time()
    start = time.perf_counter()
    try:
        tree = benchmark.function(**arguments)
    except NotSupported as reason:
        tree = NotAvailable(str(reason))
    seconds = time.perf_counter() - start
    leaves = take_apart(tree)
    return Round(
        number=job.number,
        seed=job.seed,
        figures=leaves.figures,
        samples={path: _pack(timing) for path, timing in leaves.timings.items()},
        other=leaves.other,
        not_available=leaves.not_available,
        intervals=leaves.intervals,
        started_at=started_at,
        load_seconds=loaded - load_start,
        seconds=seconds,
        peak_rss_bytes=_peak_rss(),
        wall_to_cpu=_contention(leaves.timings.values()),
    )


def _peak_rss() -> int:
    from memory.benchmarking.measure.resources import peak_rss_bytes

    return peak_rss_bytes()


class Leaves:
    """A result's tree, flat."""

    def __init__(self) -> None:
        self.figures: dict[str, float] = {}
        self.timings: dict[str, Timing] = {}
        self.other: dict[str, Any] = {}
        self.not_available: dict[str, str] = {}
        self.intervals: dict[str, tuple[float, float]] = {}


def take_apart(tree: Any) -> Leaves:
    """Every leaf by its path, or InvalidResult that says which leaf can't be recorded."""
    leaves = Leaves()
    if not isinstance(tree, Mapping | NotAvailable):
        raise InvalidResult(f"the benchmark returned {type(tree).__name__}: it must return a dictionary")
    seen: set[str] = set()
    for path, leaf in _walk("", tree):
        if path in seen:
            raise InvalidResult(f"{path} is in the result twice: two keys are the same when written down")
        seen.add(path)
        if isinstance(leaf, NotAvailable):
            leaves.not_available[path] = leaf.reason
        elif isinstance(leaf, Timing):
            leaves.timings[path] = leaf
            for name, value in leaf.items():
                leaves.figures[join(path, name)] = value
        elif isinstance(leaf, Score):
            leaves.figures[path] = _finite(path, leaf.value)
            if leaf.low is not None and leaf.high is not None:
                leaves.intervals[path] = (_finite(path, leaf.low), _finite(path, leaf.high))
        elif _is_number(leaf):
            leaves.figures[path] = _finite(path, leaf)
        elif isinstance(leaf, Sentence):
            leaves.other[path] = leaf.pattern
        else:
            leaves.other[path] = _as_json(path, leaf)
    if not leaves.figures and not leaves.not_available:
        raise InvalidResult("the benchmark returned no figure at all")
    return leaves


def _finite(path: str, number: Any) -> float:
    if not math.isfinite(number):
        raise InvalidResult(f"{path or 'the result'} is {float(number)}: a figure must be finite")
    return float(number)


def _walk(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, Mapping) or isinstance(node, Timing):
        yield path, node
        return
    for key, value in node.items():
        name = str(key)
        if not name or not name.isprintable():
            raise InvalidResult(f"{key!r} can't be a key of the result: use a text that can be printed")
        yield from _walk(join(path, name), value)


def _is_number(leaf: Any) -> bool:
    """Also NumPy's numbers; not booleans, which are statements."""
    if isinstance(leaf, bool) or type(leaf).__name__ == "bool":
        return False
    return isinstance(leaf, int | float) or (hasattr(leaf, "__float__") and getattr(leaf, "ndim", 1) == 0)


def _as_json(path: str, leaf: Any) -> Any:
    if hasattr(leaf, "tolist"):
        leaf = leaf.tolist()
    try:
        return msgspec.to_builtins(leaf)
    except TypeError:
        raise InvalidResult(
            f"{path or 'the result'} is a {type(leaf).__name__}: use numbers, texts, lists and dictionaries"
        ) from None


def _pack(timing: Timing) -> Samples:
    def little(values: tuple[int, ...]) -> bytes:
        numbers = array("q", values)
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()

    return Samples(
        wall_ns=little(timing.samples_ns),
        block_samples=little(timing.block_samples),
        block_wall_ns=little(timing.block_wall_ns),
        block_cpu_ns=little(timing.block_cpu_ns),
        calls_per_sample=timing.calls_per_sample,
        work=timing.work,
        turn_blocks=little(timing.turn_blocks),
    )


def _contention(timings: Any) -> float | None:
    """Wall ÷ CPU over all timings; None where no CPU time was seen."""
    wall = cpu = 0
    for timing in timings:
        wall += sum(timing.block_wall_ns)
        cpu += sum(timing.block_cpu_ns)
    return wall / cpu if cpu else None


if __name__ == "__main__":
    main(int(sys.argv[1]))
