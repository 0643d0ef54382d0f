"""One pair of fresh processes that take turns: what each of the sides measured."""

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

HARNESS = Path(memory.benchmarking.__file__).parent


@dataclass(frozen=True)
class Side:
    """One of the two versions: an interpreter, and where it finds its modules."""

    name: str
    python: str = sys.executable
    paths: tuple[str, ...] | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    def launch(self, pipes: tuple[int, ...]) -> Launch:
        """How it is started; `pipes` are its two ways to the other side."""
        program = str(HARNESS / "lockstep" / "side_process.py")
        command = (self.python, "-P", program, str(HARNESS), json.dumps(dict(self.options)))
        return Launch(command, self.paths, replies=True, descriptors=pipes)


class SideFailed(BenchmarkError):
    """One side gave no figures, so there is nothing to compare."""


@dataclass(frozen=True)
class Pair:
    """What both sides measured in the same turns: base and current."""

    base: Round
    current: Round


@dataclass(frozen=True)
class Limits:
    """Of each process of a pair."""

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
) -> Pair:
    """Run a case of each side, in turns. Whatever happens, nothing is left running.

    `together`: outside of the turns both may run at the same time.
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
        )
        for side, case in zip(SIDES, cases, strict=True)
    ]
    side_of = {id(job): side for side, job in zip(SIDES, jobs, strict=True)}

    def go(side: int, schedule: Schedule | None) -> None:
        executor.reply(jobs[side], schedule)

    def hear(job: Job, event: Mapping[str, Any]) -> None:
        if event["event"] == "stop":
            proposal = event["proposal"]
            coordinator.stop(
                side_of[id(job)],
                None if proposal is None else msgspec.convert(proposal, type=TimingProposal),
            )

    with _pipes() as pipes:
        coordinator = Coordinator(go, rng, _cores(), together=together)
        executor = LocalExecutor(
            workers=len(jobs),
            timeout_seconds=limits.timeout_seconds,
            memory_limit_bytes=limits.memory_bytes,
            on_event=hear,
            launch=lambda job: sides[side_of[id(job)]].launch(pipes[side_of[id(job)]]),
        )
        rounds: dict[int, Round] = {}
        with closing(executor.run(jobs)) as outcomes:
            for outcome in outcomes:
                side = side_of[id(outcome.job)]
                if outcome.round is None:
                    # A side that does not end may be waiting for the other, which is the one that hangs.
                    blamed = coordinator.running if outcome.reason == "timeout" else {side}
                    names = " or ".join(sides[each].name for each in sorted(blamed))
                    raise SideFailed(f"{cases[side].name} on the side {names}: {outcome.message}")
                rounds[side] = outcome.round
                coordinator.end(side)
    return Pair(rounds[0], rounds[1])


@contextmanager
def _pipes() -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """The descriptors of each side, from the other one and to it.

    They stay open here, so that a side whose other one is gone waits to be ended, and does not go on.
    """
    to_base, from_current = os.pipe()
    to_current, from_base = os.pipe()
    try:
        yield (to_base, from_base), (to_current, from_current)
    finally:
        for descriptor in (to_base, from_current, to_current, from_base):
            os.close(descriptor)


def _cores() -> list[int]:
    """Those that a process can be bound to; none where the system has no way to do it."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
