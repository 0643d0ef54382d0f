"""What a machine of a cluster does: describe itself, run a round, or run a load generator.

A cluster's engine starts it as `python -m memory.benchmarking.run.executors.node`, with the code that was
sent to the machine. It reads one order as a JSON line from standard input, and writes one answer as msgpack
to standard output. It is a process of its own, so that a round starts by the same code as locally. When
standard input ends, whoever started it has ended, and everything that it started is killed.
"""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from memory.benchmarking.errors import BenchmarkError, MissingDependency
from memory.benchmarking.model.environment import describe
from memory.benchmarking.model.records import Environment, Job, Reason
from memory.benchmarking.run.executors.local import LocalExecutor, default_memory_limit, launch_of
from memory.benchmarking.targets.embedders import embedder_label
from memory.benchmarking.targets.interpreters import environments_in_use, interpreter_of


class RoundOrder(msgspec.Struct, frozen=True, kw_only=True, tag="round"):
    """Run one round."""

    job: Job
    """With paths of this machine."""
    environment_of: str
    """The target with the version that was asked for, whose environment is built if it is missing."""
    timeout_seconds: float
    memory_bytes: int | None
    scratch: str


class DescribeOrder(msgspec.Struct, frozen=True, kw_only=True, tag="describe"):
    """Describe this machine."""

    embedder: str
    scratch: str


class GenerateOrder(msgspec.Struct, frozen=True, kw_only=True, tag="generate"):
    """Run a load generator until standard input ends."""

    target: str
    environment_of: str
    embedder: str
    listen: str
    secret: str


Order = RoundOrder | DescribeOrder | GenerateOrder


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """A machine of the cluster."""

    host: str
    machine: str
    """An id of the machine: two nodes of the cluster can be on the same one."""
    environment: Environment


class RoundAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a round, without its job."""

    record: bytes | None
    """The `Round`, as msgpack."""
    reason: Reason | None = None
    message: str = ""
    log: str = ""
    start_seconds: float = 0.0
    seconds: float = 0.0
    busy_percent: float = 0.0
    host: str = ""
    fingerprint: str = ""


class Problem(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An order that could not be obeyed."""

    problem: str


def _describe(order: DescribeOrder) -> Description:
    environment = describe(Path(order.scratch), embedder=embedder_label(order.embedder))
    return Description(host=socket.gethostname(), machine=_machine_id(), environment=environment)


def _machine_id() -> str:
    for path in ("/etc/machine-id", "/proc/sys/kernel/random/boot_id"):
        try:
            return Path(path).read_text().strip() or socket.gethostname()
        except OSError:
            continue
    return socket.gethostname()


def _run_round(order: RoundOrder, ended: threading.Event) -> RoundAnswer:
    job = order.job
    with _whole_machine(Path(order.scratch)):
        ensure_environment(order.environment_of)
        launch = launch_of(job.case.target)
        Path(job.answer).parent.mkdir(parents=True, exist_ok=True)
        limit = order.memory_bytes or default_memory_limit()
        executor = LocalExecutor(
            timeout_seconds=order.timeout_seconds, memory_limit_bytes=limit, launch=lambda job: launch
        )
        _when(ended, executor.abort)
        with environments_in_use([job.case.target]):
            (outcome,) = executor.run([job])
        environment = describe(Path(order.scratch), embedder=embedder_label(job.embedder))
    record = None
    if outcome.round is not None:
        record = Path(job.answer).read_bytes()
        Path(job.answer).unlink()
    return RoundAnswer(
        record=record,
        reason=outcome.reason,
        message=outcome.message,
        log=outcome.log,
        start_seconds=outcome.start_seconds,
        seconds=outcome.seconds,
        busy_percent=outcome.busy_percent,
        host=socket.gethostname(),
        fingerprint=environment.fingerprint,
    )


@contextmanager
def _whole_machine(scratch: Path) -> Iterator[None]:
    """Wait until no other round runs on this machine, also if two nodes of the cluster are on it."""
    scratch.mkdir(parents=True, exist_ok=True)
    with open(scratch / "round.lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def ensure_environment(target: str) -> None:
    """Build the target's environment unless it is there; once a machine, whoever comes first."""
    try:
        interpreter_of(target)
    except MissingDependency:
        from memory.benchmarking.targets.building import install

        install(target)


def _generate(order: GenerateOrder, ended: threading.Event, answers: BinaryIO) -> None:
    """Start a load generator, answer with its port, and end it when standard input ends."""
    ensure_environment(order.environment_of)
    interpreter = interpreter_of(order.target)
    command = [
        interpreter.python,
        "-m",
        "memory.benchmarking.load.client",
        order.target,
        "--listen",
        order.listen,
    ]
    paths = sys.path if interpreter.paths is None else interpreter.paths
    process = subprocess.Popen(
        [*command, *(["--embedder", order.embedder] if order.embedder else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, paths))},
    )
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(order.secret.encode() + b"\n")
    process.stdin.flush()
    port = process.stdout.readline().strip()
    if not port:
        raise BenchmarkError(f"the load generator ended with code {process.wait()}")
    _send(answers, {"port": int(port), "host": socket.gethostname()})
    _when(ended, process.stdin.close)  # the generator ends with its standard input
    process.wait()


def _when(ended: threading.Event, call: Callable[[], object]) -> None:
    def wait() -> None:
        ended.wait()
        call()

    threading.Thread(target=wait, daemon=True).start()


def _send(answers: BinaryIO, answer: Any) -> None:
    answers.write(msgspec.msgpack.encode(answer))
    answers.flush()


def main() -> None:
    """Obey one order."""
    answers = cast("BinaryIO", os.fdopen(os.dup(1), "wb"))
    os.dup2(2, 1)  # whatever is printed must not mix with the answer
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=Order)
    ended = threading.Event()

    def watch() -> None:
        sys.stdin.buffer.read()
        ended.set()

    threading.Thread(target=watch, daemon=True).start()
    try:
        if isinstance(order, GenerateOrder):
            _generate(order, ended, answers)
        else:
            answer = _describe(order) if isinstance(order, DescribeOrder) else _run_round(order, ended)
            _send(answers, answer)
    except BenchmarkError as problem:
        _send(answers, Problem(problem=str(problem)))
    os._exit(0)


if __name__ == "__main__":
    main()
