"""Decides in the parent process which side runs.

A side stops before the benchmark begins, after the warm-up of each timing (with a proposal of how to
divide it), and after its last turn. The parent answers each stop once, and the side continues. Outside
of timings one side runs at a time (or both, if nothing is measured there). Inside a timing both take
turns:

    side A   set up, warm up ▐ stop                  ▐ turn ▐      ▐      ▐ turn ▐ …
    side B                   ▐ set up, warm up, stop ▐      ▐ turn ▐ turn ▐      ▐ …
                                                      one plan for both; the order is random

Inside a timing the sides signal each other directly (turn_pipes.py): a detour through the parent would
take as long as a turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from memory.benchmarking.lockstep.timing_plan import common_plans
from memory.benchmarking.measure.turn_control import TimingPlan, TimingProposal

SIDES = (0, 1)


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """The turns of one timing, as sent to one side."""

    plan: TimingPlan
    side: int
    """The side that receives this."""
    order: list[int]
    """The side of each turn."""
    core: int | None
    """The core that both sides are bound to, because cores differ in speed; None if binding fails here."""


class Coordinator:
    """Tracks which sides have stopped, and lets them continue.

    It calls `go` with a side that may continue, and with its schedule if a timing begins. `cores` are those
    that a timing may be bound to. `together`: both sides may run at the same time outside of timings.
    """

    def __init__(
        self,
        go: Callable[[int, Schedule | None], None],
        rng: random.Random,
        cores: Sequence[int],
        *,
        together: bool = False,
    ) -> None:
        self._go = go
        self._rng = rng
        self._cores = cores
        self._together = together
        self._running = set(SIDES)
        self._stopped: dict[int, TimingProposal | None] = {}
        """The sides that wait, with their proposals if they are about to measure."""

    def stop(self, side: int, proposal: TimingProposal | None = None) -> None:
        """Record that a side waits."""
        self._stopped[side] = proposal
        self._running.remove(side)
        self._next()

    def end(self, side: int) -> None:
        """Record that a side has returned from the benchmark; the other continues alone."""
        self._running.remove(side)
        self._next()

    @property
    def running(self) -> frozenset[int]:
        """The sides that are not stopped: one, or both while they load or take turns."""
        return frozenset(self._running)

    def _next(self) -> None:
        if self._running:
            return  # the other side is still loading, or is in its last turn
        not_measuring = [side for side, proposal in self._stopped.items() if proposal is None]
        if not_measuring:
            for side in not_measuring if self._together else [self._rng.choice(not_measuring)]:
                self._continue(side)
        else:
            self._start_timing({side: one for side, one in self._stopped.items() if one is not None})

    def _start_timing(self, proposals: dict[int, TimingProposal]) -> None:
        if not proposals:
            return
        plans = dict(zip(proposals, common_plans(list(proposals.values())), strict=True))
        order: list[int] = []
        for _ in range(min(plan.turns for plan in plans.values())):
            turn = list(plans)
            self._rng.shuffle(turn)
            order += turn
        core = self._rng.choice(self._cores) if self._cores else None
        for side, plan in plans.items():
            self._continue(side, Schedule(plan=plan, side=side, order=order, core=core))

    def _continue(self, side: int, schedule: Schedule | None = None) -> None:
        del self._stopped[side]
        self._running.add(side)
        self._go(side, schedule)
