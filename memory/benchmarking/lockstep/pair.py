"""Runs one pair of fresh processes that take turns, and returns what each side measured."""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

import memory.benchmarking
from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.lockstep.coordinator import SIDES, Coordinator, Schedule
from memory.benchmarking.measure.turn_control import TimingProposal
from memory.benchmarking.model.records import Case, Job, Round
from memory.benchmarking.run.executors.local import Launch, LocalExecutor
from memory.benchmarking.targets.interpreters import interpreter_of

HARNESS = Path(memory.benchmarking.__file__).parent


@dataclass(frozen=True)
class Side:
    """One of the two versions to compare."""

    name: str
    python: str = sys.executable
    paths: tuple[str, ...] | None = None
    """The module search path of the side; None for the path of this process."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Options for side_process.py: `target` and `extra_work`, or none."""

    def launch(self, pipes: tuple[int, ...], target: str) -> Launch:
        """Return how to start the process; `pipes` are the pipes from and to the other side.

        A side without an interpreter or paths of its own uses the interpreter that has the target.
        """
        program = str(HARNESS / "lockstep" / "side_process.py")
        python, paths = self.python, self.paths
        if python == sys.executable and paths is None:
            own = interpreter_of(target)
            python, paths = own.python, own.paths
        command = (python, "-P", program, str(HARNESS), json.dumps(dict(self.options)))
        return Launch(command, paths, replies=True, descriptors=pipes)


class SideFailed(BenchmarkError):
    """One side gave no figures, so the pair can't be compared."""


@dataclass(frozen=True)
class Pair:
    """The rounds of both sides, measured in turns."""

    base: Round
    current: Round


@dataclass(frozen=True)
class Limits:
    """Limits of each process of a pair."""

    timeout_seconds: float
    memory_bytes: int | None = None


def run_pair(
    sides: Sequence[Side],
    cases: Sequence[Case],
    *,
    number: int,
    seed: int,
    seconds: float,
    scratch: Path,
    limits: Limits,
    together: bool = False,
    embedder: str = "",
) -> Pair:
    """Run one case on each side, in turns; no process is left running, whatever happens.

    `number` is the number of the pair. `together`: both sides may run at the same time outside of timings.
    `embedder`: of both sides, as after `--embedder`.
    Raises `SideFailed` if a side gave no figures.
    """
    rng = random.Random(f"{seed}/{number}/turns")
    jobs = [
        Job(
            case=case,
            number=number,
            seed=seed,
            seconds=seconds,
            scratch=str(scratch / f"side_{side}"),
            answer=str(scratch / f"answer_{side}.msgpack"),
            embedder=embedder,
        )
        for side, case in zip(SIDES, cases, strict=True)
    ]
    side_of = {id(job): side for side, job in zip(SIDES, jobs, strict=True)}

    def go(side: int, schedule: Schedule | None) -> None:
        executor.reply(jobs[side], schedule)

    def on_event(job: Job, event: Mapping[str, Any]) -> None:
        if event["event"] == "stop":
            side = side_of[id(job)]
            proposal = event["proposal"] and msgspec.convert(event["proposal"], type=TimingProposal)
            if side not in coordinator.running or not _is_possible(proposal):
                where = f"{cases[side].name} on the side {sides[side].name}"
                raise SideFailed(f"{where}: wrote to the pipe of membench's events")
            coordinator.stop(side, proposal)

    with _pipes() as pipes:
        coordinator = Coordinator(go, rng, _cores(), together=together)
        executor = LocalExecutor(
            workers=len(jobs),
            timeout_seconds=limits.timeout_seconds,
            memory_limit_bytes=limits.memory_bytes,
            on_event=on_event,
            launch=lambda job: sides[side_of[id(job)]].launch(pipes[side_of[id(job)]], job.case.target),
        )
        rounds: dict[int, Round] = {}
        with closing(executor.run(jobs)) as outcomes:
            for outcome in outcomes:
                side = side_of[id(outcome.job)]
                if outcome.round is None:
                    # After a timeout, the side that was waiting did not fail: the running side hangs.
                    failed = coordinator.running if outcome.reason == "timeout" else {side}
                    names = " or ".join(sides[one].name for one in sorted(failed))
                    raise SideFailed(f"{cases[side].name} on the side {names}: {outcome.message}")
                rounds[side] = outcome.round
                coordinator.end(side)
    return Pair(rounds[0], rounds[1])


def _is_possible(proposal: TimingProposal | None) -> bool:
    """Return whether a proposal is valid: a benchmark itself may have written to the pipe."""
    if proposal is None:
        return True
    return (
        proposal.calls_per_sample > 0
        and proposal.samples > 0
        and (proposal.call_ns is None or proposal.call_ns > 0)
    )


@contextmanager
def _pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Make the pipes of each side: one from the other side, one to it.

    The pipes stay open in this process. So a side waits until it is killed if the other side has ended.
    """
    to_base, from_current = os.pipe()
    to_current, from_base = os.pipe()
    try:
        yield (to_base, from_base), (to_current, from_current)
    finally:
        for descriptor in (to_base, from_current, to_current, from_base):
            os.close(descriptor)


def _cores() -> list[int]:
    """Return the cores that a process can be bound to; empty if the system can't bind processes."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
