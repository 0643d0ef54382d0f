"""One side's part in the turns: it stops by telling the parent, and hands over to the other side itself."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from memory.benchmarking.lockstep.baton import Meeting
from memory.benchmarking.measure.pace import Plan, Proposal


@dataclass(frozen=True)
class Wires:
    """Descriptors of one side: what the parent answers, and the two ways to the other side."""

    answers: int
    from_other: int
    to_other: int


class Relay:
    """The pace of one side."""

    def __init__(self, tell: Callable[..., None], wires: Wires) -> None:
        self._tell = tell
        self._answers = os.fdopen(wires.answers, "rb")
        self._wires = wires
        self._meeting: Meeting | None = None
        self._cores: set[int] = set()
        """Those of before the timing."""
        self._left: Sequence[int] = ()
        """Whose turns are left in the timing; this side's own is the first while it has it."""

    def close(self) -> None:
        self._answers.close()

    def begin(self) -> None:
        self._stop()

    def agree(self, proposal: Proposal) -> Plan:
        meeting = self._meeting = self._stop(proposal)
        assert meeting is not None
        if meeting.core is not None:
            self._cores = os.sched_getaffinity(0)
            os.sched_setaffinity(0, {meeting.core})
        self._left = meeting.order
        self._wait(meeting.side)
        return meeting.plan

    def next_turn(self) -> None:
        assert self._meeting is not None
        side = self._meeting.side
        self._left = self._left[1:]
        if self._left and self._left[0] != side:
            os.write(self._wires.to_other, b".")
        if side in self._left:
            self._wait(side)
            return
        if self._meeting.core is not None:  # all but turns may run anywhere
            os.sched_setaffinity(0, self._cores)
        self._stop()

    def _wait(self, side: int) -> None:
        """Until the other side has had its turns before this side's next."""
        if self._left[0] != side:
            os.read(self._wires.from_other, 1)
            self._left = self._left[self._left.index(side) :]

    def _stop(self, proposal: Proposal | None = None) -> Meeting | None:
        self._tell(event="stop", proposal=proposal)
        answer: Any = json.loads(self._answers.readline())
        return None if answer is None else msgspec.convert(answer, type=Meeting)
