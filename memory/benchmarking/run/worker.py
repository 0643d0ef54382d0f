"""One round: a fresh interpreter that runs one case once and writes what it measured.

An executor starts it as `python -m memory.benchmarking.run.worker DESCRIPTOR`. It reads its job as one
JSON line from standard input, and writes its `Round` to the file that the job names. It sends progress as
JSON lines to the descriptor. What the benchmark prints goes to the log. When the executor ends, standard
input ends too, and the worker stops.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from memory.benchmarking.bench import Bench, Score, Sentence
from memory.benchmarking.errors import InvalidResult, NotSupported
from memory.benchmarking.measure.resources import peak_rss_bytes
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.measure.turn_control import TurnControl
from memory.benchmarking.model.benchmark import load_benchmark
from memory.benchmarking.model.files import write_whole
from memory.benchmarking.model.paths import (
    DEEPEST,
    NO_FIGURES,
    SEPARATOR,
    NotAvailable,
    check_count,
    check_tree,
    join,
)
from memory.benchmarking.model.records import Case, Job, Round, Samples
from memory.benchmarking.model.user_files import cause_of
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.embedders import load_embedder

EXIT_EXCEPTION = 3
"""The exit code if the benchmark raised; the last line of the log shows the exception."""

Send = Callable[..., None]
"""Sends an event, given as keyword arguments, to the executor."""


def main(descriptor: int, make_turn_control: Callable[[Send], TurnControl] | None = None) -> None:
    """Run the job that comes on standard input.

    `make_turn_control` is given in lockstep. The object that it makes lets two processes take turns.
    """
    began_at = time.time()
    faulthandler.enable()
    events = os.fdopen(descriptor, "wb", buffering=0)
    commands = os.fdopen(os.dup(0), "rb", buffering=0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    job = msgspec.json.decode(_read_line(commands), type=Job)
    _end_with_parent(commands)
    send = partial(_send, events)
    send(event="began", at=began_at)
    code = 0
    try:
        answer = run_job(job, send, make_turn_control(send) if make_turn_control is not None else None)
        write_whole(Path(job.answer), msgspec.msgpack.encode(answer))
    except BaseException as problem:
        send(event="failed", message=cause_of(problem, _source(job.case)))
        code = EXIT_EXCEPTION
        with suppress(OSError):  # the disk of the log may be full
            traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # the benchmark may have closed or replaced it
            stream.flush()
    # Not `sys.exit`: a thread that the benchmark left behind would keep the process alive.
    os._exit(code)


def _read_line(commands: BinaryIO) -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = commands.read(65536)
        if not piece:
            sys.exit("membench worker: no job on standard input; start it with `membench run`")
        line += piece
    return line


def _end_with_parent(commands: BinaryIO) -> None:
    """Kill this process and its children when the executor ends and closes the pipe."""

    def wait() -> None:
        while commands.read(4096):
            pass
        os.killpg(os.getpgrp(), signal.SIGKILL)

    if hasattr(fcntl, "F_SETSIG"):
        # Linux can kill the processes itself: C code that holds the GIL would block the thread below.
        fcntl.fcntl(commands, fcntl.F_SETOWN, -os.getpgrp())
        fcntl.fcntl(commands, fcntl.F_SETSIG, signal.SIGKILL)
        fcntl.fcntl(commands, fcntl.F_SETFL, os.O_ASYNC)
    threading.Thread(target=wait, daemon=True).start()


def _send(events: BinaryIO, **event: Any) -> None:
    events.write(msgspec.json.encode(event) + b"\n")


def _source(case: Case) -> Path | None:
    return Path(case.source) if case.source else None


def run_job(job: Job, send: Send, turn_control: TurnControl | None = None) -> Round:
    """Load the benchmark and its target, run it once, and return its figures by path."""
    load_start = time.perf_counter()
    benchmark = load_benchmark(job.case)
    if job.case.source:
        sys.path.insert(0, str(Path(job.case.source).parent))  # for imports while it runs
    load_target(job.case.target)
    embedder = load_embedder(job.embedder) if job.embedder else None
    loaded = time.perf_counter()
    send(event="loaded", seconds=loaded - load_start)
    bench = Bench(
        target=job.case.target,
        embedder=embedder,
        seed=job.seed,
        seconds=job.seconds,
        scratch=Path(job.scratch),
        on_timing=lambda label, timing: send(event="timing", label=label, p50_ms=timing["p50_ms"]),
        turn_control=turn_control,
        embedder_name=job.embedder,
        generators=job.generators,
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
    leaves = flatten_result(tree)
    return Round(
        number=job.number,
        seed=job.seed,
        figures=leaves.figures,
        samples={path: pack_timing(timing) for path, timing in leaves.timings.items()},
        other=leaves.other,
        not_available=leaves.not_available,
        intervals=leaves.intervals,
        answers=bench.answers,
        started_at=started_at,
        load_seconds=loaded - load_start,
        seconds=seconds,
        peak_rss_bytes=peak_rss_bytes(),
        wall_to_cpu=wall_to_cpu(leaves.timings.values()),
    )


@dataclass
class Leaves:
    """The leaves of a benchmark's result, by path."""

    figures: dict[str, float] = field(default_factory=dict)
    timings: dict[str, Timing] = field(default_factory=dict)
    other: dict[str, Any] = field(default_factory=dict)
    not_available: dict[str, str] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)


def flatten_result(tree: Any) -> Leaves:
    """Return every leaf of a result by its path; raise InvalidResult for one that can't be recorded.

    A result without any figure is not available, for the reason `NO_FIGURES`.
    """
    leaves = Leaves()
    if not isinstance(tree, Mapping | NotAvailable):
        raise InvalidResult(f"the benchmark returned {type(tree).__name__}: it must return a dictionary")
    seen: set[str] = set()
    for path, leaf in _walk("", tree):
        if path in seen:
            raise InvalidResult(f"{path} is in the result twice: two keys are the same as text")
        seen.add(path)
        check_count(len(leaves.figures) + len(leaves.other))
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
        leaves.not_available[""] = NO_FIGURES
    return leaves


def _finite(path: str, number: Any) -> float:
    if not math.isfinite(number):
        raise InvalidResult(f"{path or 'the result'} is {float(number)}: a figure must be finite")
    return float(number)


def _walk(path: str, node: Any) -> Iterator[tuple[str, Any]]:
    if not isinstance(node, Mapping) or isinstance(node, Timing):
        yield path, node
        return
    if path.count(SEPARATOR) >= DEEPEST:
        raise InvalidResult(f"{path[:60]}… is more than {DEEPEST} levels deep: does it contain itself?")
    for key, value in node.items():
        name = str(key)
        if not name or not name.isprintable():
            raise InvalidResult(f"{key!r} can't be a key of the result: use printable text")
        yield from _walk(join(path, name), value)


def _is_number(leaf: Any) -> bool:
    """Return whether a leaf is a number, also one of NumPy; booleans are not."""
    if isinstance(leaf, bool) or type(leaf).__name__ == "bool":
        return False
    return isinstance(leaf, int | float) or (hasattr(leaf, "__float__") and getattr(leaf, "ndim", 1) == 0)


def _as_json(path: str, leaf: Any) -> Any:
    if hasattr(leaf, "tolist"):
        leaf = leaf.tolist()
    try:
        value = msgspec.to_builtins(leaf)
        check_tree([value])
        return value
    except TypeError:
        raise InvalidResult(
            f"{path or 'the result'} is a {type(leaf).__name__}: use numbers, texts, lists and dictionaries"
        ) from None


def pack_timing(timing: Timing) -> Samples:
    """Return the samples of a timing as they are stored."""

    def little_endian(values: tuple[int, ...]) -> bytes:
        numbers = array("q", values)
        if sys.byteorder == "big":
            numbers.byteswap()
        return numbers.tobytes()

    return Samples(
        wall_ns=little_endian(timing.samples_ns),
        block_samples=little_endian(timing.block_samples),
        block_wall_ns=little_endian(timing.block_wall_ns),
        block_cpu_ns=little_endian(timing.block_cpu_ns),
        calls_per_sample=timing.calls_per_sample,
        work=timing.work,
        turn_blocks=little_endian(timing.turn_blocks),
    )


def wall_to_cpu(timings: Iterable[Timing]) -> float | None:
    """Return wall time ÷ CPU time over all timings; None if they took no CPU time."""
    wall = cpu = 0
    for timing in timings:
        wall += sum(timing.block_wall_ns)
        cpu += sum(timing.block_cpu_ns)
    return wall / cpu if cpu else None


if __name__ == "__main__":
    main(int(sys.argv[1]))
