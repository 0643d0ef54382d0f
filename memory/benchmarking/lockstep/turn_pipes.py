"""Turn taking inside one side's process: stops go to the parent, turns go directly to the other side."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from memory.benchmarking.lockstep.coordinator import Schedule
from memory.benchmarking.measure.turn_control import TimingPlan, TimingProposal


@dataclass(frozen=True)
class SidePipes:
    """File descriptors of one side: the parent's answers, and the pipes from and to the other side."""

    answers: int
    from_other: int
    to_other: int


class PipeTurnControl:
    """The `TurnControl` of one side; `send` sends an event to the parent."""

    def __init__(self, send: Callable[..., None], pipes: SidePipes) -> None:
        self._send = send
        self._answers = os.fdopen(pipes.answers, "rb")
        self._pipes = pipes
        self._schedule: Schedule | None = None
        self._cores_before: set[int] = set()
        """The cores this process could use before the timing bound it to one."""
        self._turns_left: Sequence[int] = ()
        """The sides of the turns that are left, the current one first."""

    def close(self) -> None:
        self._answers.close()

    def begin(self) -> None:
        self._stop()

    def agree(self, proposal: TimingProposal) -> TimingPlan:
        schedule = self._schedule = self._stop(proposal)
        assert schedule is not None
        if schedule.core is not None:
            self._cores_before = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {schedule.core})
        self._turns_left = schedule.order
        self._wait(schedule.side)
        return schedule.plan

    def next_turn(self) -> None:
        assert self._schedule is not None
        side = self._schedule.side
        self._turns_left = self._turns_left[1:]
        if self._turns_left and self._turns_left[0] != side:
            os.write(self._pipes.to_other, b".")
        if side in self._turns_left:
            self._wait(side)
            return
        if self._schedule.core is not None:  # only the turns are bound to one core
            os.sched_setaffinity(0, self._cores_before)
        self._stop()

    def _wait(self, side: int) -> None:
        """Wait until the other side has finished its turns before this side's next turn."""
        if self._turns_left[0] != side:
            os.read(self._pipes.from_other, 1)
            self._turns_left = self._turns_left[self._turns_left.index(side) :]

    def _stop(self, proposal: TimingProposal | None = None) -> Schedule | None:
        """Report a stop to the parent; wait for the parent's answer and return it."""
        self._send(event="stop", proposal=proposal)
        answer: Any = json.loads(self._answers.readline())
        return None if answer is None else msgspec.convert(answer, type=Schedule)
