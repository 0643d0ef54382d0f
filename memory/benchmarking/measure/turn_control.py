"""The interface by which two processes take turns inside a timing.

A timing consists of turns, a turn of blocks, and a block of samples (s). CPU time is read once a block.

    turn 1                       turn 2
    block │ block │ block        block │ block │ block        …
    s s s │ s s s │ s s s        s s s │ s s s │ s s s

In a normal run a turn is one block. In lockstep two processes, the sides, take turns, and a turn has
several short blocks. A `TurnControl` then decides how a timing is divided, and when it continues.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class TimingProposal(msgspec.Struct, frozen=True, kw_only=True):
    """How one side would divide a timing if it ran alone. The side proposes it after its warm-up."""

    call_ns: float | None
    """Nanoseconds of one call; None if no call was made yet."""
    calls_per_sample: int
    samples: int
    fixed: bool
    """The number of calls can't change: the benchmark set it, or each item may be used only once."""


class TimingPlan(msgspec.Struct, frozen=True, kw_only=True):
    """How a timing is divided: `samples`, `blocks` and `turns` are totals of the whole timing."""

    calls_per_sample: int
    samples: int
    blocks: int
    turns: int


class TurnControl(Protocol):
    """Makes one side wait for its turns."""

    def begin(self) -> None:
        """Wait until the benchmark may start."""

    def agree(self, proposal: TimingProposal) -> TimingPlan:
        """Return the plan for this side, and wait for its first turn."""

    def next_turn(self) -> None:
        """End a turn and wait for the next turn; after the last, wait until the benchmark may continue."""
