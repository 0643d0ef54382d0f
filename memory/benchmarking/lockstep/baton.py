"""Whose turn it is. Only the side that holds the baton works; the other waits at a stop.

A side stops before the benchmark begins, after the warm-up of each timing (with a proposal of how to
divide it) and after each turn, and each stop is answered once: go on. So between two stops exactly one
side runs, set-up and all, and two timings meet:

    side A   set up, warm up ▐ stop                 ▐ turn ▐      ▐ turn ▐ …
    side B                   ▐ set up, warm up, stop▐      ▐ turn ▐ turn ▐ …
                                                     one plan for both; who is first is drawn anew each turn
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Sequence

from memory.benchmarking.lockstep.division import divide
from memory.benchmarking.measure.pace import Plan, Proposal

SIDES = (0, 1)


class Baton:
    """Hears where sides stop, and lets one at a time go on by calling `go` with the core to use."""

    def __init__(
        self, go: Callable[[int, int | None, Plan | None], None], rng: random.Random, cores: Sequence[int]
    ) -> None:
        self._go = go
        self._cores = cores
        self._rng = rng
        self._at_start = list(SIDES)
        self._stopped: dict[int, Proposal | None] = {}
        """The sides that wait, and what they propose if they are about to measure."""
        self._turns: deque[tuple[int, int | None, Plan | None]] = deque()
        """Turns of the timing going on: side, core, and the plan before the first of each side."""

    def stop(self, side: int, proposal: Proposal | None = None) -> None:
        """A side waits."""
        self._stopped[side] = proposal
        if side in self._at_start:
            self._at_start.remove(side)
        self._next()

    def end(self) -> None:
        """The side that ran has returned from the benchmark; the other goes on alone."""
        self._next()

    def _next(self) -> None:
        if self._at_start:
            return  # both load before either begins
        if not self._turns:
            behind = [side for side, proposal in self._stopped.items() if proposal is None]
            if behind:
                self._let(self._rng.choice(behind))
                return
            self._plan()
        if self._turns:
            self._let(*self._turns.popleft())

    def _plan(self) -> None:
        """All sides that still run are about to measure."""
        meeting = {side: each for side, each in self._stopped.items() if each is not None}
        if not meeting:
            return
        plans: dict[int, Plan | None] = dict(zip(meeting, divide(list(meeting.values())), strict=True))
        turns = max(plan.turns for plan in plans.values() if plan is not None)
        core = self._rng.choice(self._cores) if self._cores else None
        for _ in range(turns):
            order = list(meeting)
            self._rng.shuffle(order)
            for side in order:
                self._turns.append((side, core, plans[side]))
                plans[side] = None

    def _let(self, side: int, core: int | None = None, plan: Plan | None = None) -> None:
        del self._stopped[side]
        self._go(side, core, plan)
