"""Whose turn it is. Only the side that holds the baton works; the other waits.

A side stops before the benchmark begins, after the warm-up of each timing (with a proposal of how to
divide it) and after its last turn, and each stop is answered once: go on. Between two timings one side
runs at a time, set-up and all (or both do, where nothing is measured then), and two timings meet:

    side A   set up, warm up ▐ stop                  ▐ turn ▐      ▐      ▐ turn ▐ …
    side B                   ▐ set up, warm up, stop ▐      ▐ turn ▐ turn ▐      ▐ …
                                                      one plan for both, and an order that is drawn

Inside a timing the sides hand over to each other (relay.py), because going through this process would
cost as much as a turn.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import msgspec

from memory.benchmarking.lockstep.division import divide
from memory.benchmarking.measure.pace import Plan, Proposal

SIDES = (0, 1)


class Meeting(msgspec.Struct, frozen=True, kw_only=True):
    """A timing of both sides, as one of them is told of it."""

    plan: Plan
    side: int
    order: list[int]
    """Whose turn it is, turn by turn."""
    core: int | None
    """Both are bound to it: cores differ, and what else they do differs more. None where it can't be."""


class Baton:
    """Hears where sides stop, and lets them go on by calling `go`: one, or both to a meeting.

    With `together` both do outside of timings what they do there at the same time.
    """

    def __init__(
        self,
        go: Callable[[int, Meeting | None], None],
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
        self._stopped: dict[int, Proposal | None] = {}
        """The sides that wait, and what they propose if they are about to measure."""

    def stop(self, side: int, proposal: Proposal | None = None) -> None:
        """A side waits."""
        self._stopped[side] = proposal
        self._running.remove(side)
        self._next()

    def end(self, side: int) -> None:
        """A side has returned from the benchmark; the other goes on alone."""
        self._running.remove(side)
        self._next()

    @property
    def running(self) -> frozenset[int]:
        """The sides that don't wait at a stop: one, or both while they load or take turns."""
        return frozenset(self._running)

    def _next(self) -> None:
        if self._running:
            return  # the other still loads, or has its last turn
        behind = [side for side, proposal in self._stopped.items() if proposal is None]
        if behind:
            for side in behind if self._together else [self._rng.choice(behind)]:
                self._let(side)
        else:
            self._meet({side: each for side, each in self._stopped.items() if each is not None})

    def _meet(self, proposals: dict[int, Proposal]) -> None:
        """All sides that are left are about to measure."""
        if not proposals:
            return
        plans = dict(zip(proposals, divide(list(proposals.values())), strict=True))
        order: list[int] = []
        for _ in range(min(plan.turns for plan in plans.values())):
            turn = list(plans)
            self._rng.shuffle(turn)
            order += turn
        core = self._rng.choice(self._cores) if self._cores else None
        for side, plan in plans.items():
            self._let(side, Meeting(plan=plan, side=side, order=order, core=core))

    def _let(self, side: int, meeting: Meeting | None = None) -> None:
        del self._stopped[side]
        self._running.add(side)
        self._go(side, meeting)
