"""Who decides when a timing may measure: nobody in a run, the other side's turn in lockstep.

A timing has samples, which lie in blocks (CPU time is read once a block), which lie in turns:

    turn 1                       turn 2
    block │ block │ block        block │ block │ block        …
    s s s │ s s s │ s s s        s s s │ s s s │ s s s

In a run a turn is one block. In lockstep a turn has several small ones, and between two turns the other
side has its own. `bench.time` asks its pace for both: how to divide the work, and when to go on.
"""

from __future__ import annotations

from typing import Protocol

import msgspec


class Proposal(msgspec.Struct, frozen=True, kw_only=True):
    """What one side would do by itself, after its warm-up."""

    call_ns: float | None
    """Of one call; None where no call was made yet."""
    calls_per_sample: int
    samples: int
    fixed: bool
    """The benchmark said how many calls there are, or meets each item once: that can't be changed."""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """How a timing is divided."""

    calls_per_sample: int
    samples: int
    blocks: int
    turns: int


class Pace(Protocol):
    """What makes two sides take turns."""

    def begin(self) -> None:
        """Wait until the benchmark may start."""

    def agree(self, proposal: Proposal) -> Plan:
        """The plan for both sides; the first turn begins when this returns."""

    def next_turn(self) -> None:
        """Hand over, and wait for the next turn; after the last one, until the benchmark may go on."""
