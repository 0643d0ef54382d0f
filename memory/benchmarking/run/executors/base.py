"""What every executor does: it takes jobs and yields their outcomes, each round in a fresh process.

`tests/benchmarking/run/executor_conformance.py` checks an executor.

- Every job gets exactly one outcome: its record, or the reason why there is none.
- A round that crashes, hangs, uses too much memory or leaves processes behind loses only itself.
- The record is in the file that the job names before the outcome is yielded, so that a run can be resumed.
- `finish` starts no more rounds, `abort` kills running ones. After the executor nothing is left running.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.model.records import Environment, Job, Reason, Round

LOCAL = "local"
"""The name of the executor of this machine."""
RAY = "ray"


@dataclass(frozen=True)
class Outcome:
    """How a round ended: with its record, or with the reason why there is none."""

    job: Job
    round: Round | None
    reason: Reason | None = None
    message: str = ""
    log: str = ""
    """The last LOG_BYTES of what it printed."""
    start_seconds: float = 0.0
    """From starting the process until its first event."""
    seconds: float = 0.0
    """From starting the process until it ended."""
    busy_percent: float = 0.0
    """The CPU use of the whole machine during the round, including the round itself."""
    host: str = ""
    """The machine that it ran on; empty for this one."""
    fingerprint: str = ""
    """The fingerprint of that machine; empty for this one."""


@dataclass(frozen=True)
class Limits:
    """What every round has to keep to."""

    timeout_seconds: float = 600.0
    memory_bytes: int | None = None
    """The most resident memory of a round's processes; None for 90 % of what its machine has free."""


@dataclass(frozen=True)
class Callbacks:
    """What an executor calls while rounds run."""

    on_start: Callable[[Job], None] = lambda job: None
    """A process has started."""
    on_event: Callable[[Job, Mapping[str, Any]], None] = lambda job, event: None
    """A worker sent an event. Executors on other machines do not pass events on."""
    on_problem: Callable[[str], None] = lambda text: None
    """Something happened that the user should know, such as the loss of a node."""


class Executor(Protocol):
    """Runs rounds. It is used as a context manager."""

    @property
    def environment(self) -> Environment | None:
        """The machines that rounds run on, which are all alike; None for this machine."""

    def run(self, jobs: Iterable[Job]) -> Generator[Outcome, None, None]:
        """Run jobs and yield their outcomes as they end. Closing the generator kills running ones."""

    def finish(self) -> None:
        """Start no more jobs; let running ones end."""

    def abort(self) -> None:
        """Kill everything now."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


def check_executor(executor: str, workers: int = 1, generators: int = 0) -> None:
    """Raise InvalidBenchmarkConfig for an executor that does not exist, or that can't do what is asked."""
    name, equals, address = executor.partition("=")
    if name not in (LOCAL, RAY) or (equals and (name == LOCAL or not address)):
        raise InvalidBenchmarkConfig(f"--executor is {executor!r}: use local, ray, or ray=ADDRESS")
    if name == RAY and workers > 1:
        raise InvalidBenchmarkConfig(
            "--parallel has no effect with --executor ray, which runs one round at a time on each node: "
            "leave it out"
        )
    if generators < 0:
        raise InvalidBenchmarkConfig(f"--generators is {generators}: use a whole number ≥ 1")
    if generators and name == LOCAL:
        raise InvalidBenchmarkConfig(
            "--generators needs other hosts: add --executor ray, or use --set scalability.clients=8x1 for "
            "processes of this machine"
        )
