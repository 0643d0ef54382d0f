"""Compare rounds that had the same data.

A round draws its data from its seed, and some texts take three times as long to search for as others. So
the rounds of one run differ more by their data than by the noise of the machine. Two runs with one seed
have the same data round by round. So each seed is a block (as in a randomised block design): the effect is
the mean over the seeds of the difference within a seed, and what the data make of a figure cancels out.

Rounds that `run --until-decided` adds repeat the data of the first ones. They are averaged within their
seed.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memory.benchmarking.measure.statistics import Effect, variance
from memory.benchmarking.verdicts.moderation import Prior

LEAST_BLOCKS = 4
"""The fewest seeds whose differences are tested. With fewer, pairs cost more degrees of freedom than the
data's share of the variance is worth."""


@dataclass(frozen=True)
class Block:
    """The values of the rounds that had one seed, on both sides."""

    base: tuple[float, ...]
    current: tuple[float, ...]

    @property
    def difference(self) -> float:
        return statistics.fmean(self.current) - statistics.fmean(self.base)


@dataclass(frozen=True)
class Spread:
    """How much the differences of blocks vary."""

    variance: float
    """Of a single round: what is left of its variance within a seed."""
    freedom: int
    share: float
    """The variance of a block's difference, as a multiple of that of a single round."""


def blocks_of(
    base: Sequence[float],
    base_metadata: Mapping[str, Any],
    current: Sequence[float],
    current_metadata: Mapping[str, Any],
) -> list[Block]:
    """Return a block for each seed that both sides have; empty if it is not known which round had which."""
    before, now = _by_seed(base, base_metadata), _by_seed(current, current_metadata)
    return [Block(tuple(values), tuple(now[seed])) for seed, values in before.items() if seed in now]


def one_for_each_seed(values: Sequence[float], metadata: Mapping[str, Any]) -> list[float]:
    """Return the mean of each seed: rounds with the same data are one observation of what data cost.

    Without known seeds, every round is one."""
    return [statistics.fmean(each) for each in _by_seed(values, metadata).values()] or [*values]


def _by_seed(values: Sequence[float], metadata: Mapping[str, Any]) -> dict[Any, list[float]]:
    seeds = metadata.get("seeds")
    found: dict[Any, list[float]] = {}
    if isinstance(seeds, list) and len(seeds) == len(values):
        for seed, value in zip(seeds, values, strict=True):
            found.setdefault(seed, []).append(value)
    return found


def spread_of(blocks: Sequence[Block]) -> Spread:
    """Return how much the differences of at least two blocks vary."""
    share = statistics.fmean(1 / len(block.base) + 1 / len(block.current) for block in blocks)
    return Spread(variance([block.difference for block in blocks]) / share, len(blocks) - 1, share)


def moderated_blocks(blocks: Sequence[Block], prior: Prior) -> Effect:
    """Return the mean difference within a seed, with a moderated variance."""
    spread = spread_of(blocks)
    difference = statistics.fmean(block.difference for block in blocks)
    freedom = spread.freedom + prior.freedom
    of_a_round = (spread.freedom * spread.variance + prior.freedom * prior.variance) / freedom
    error = math.sqrt(of_a_round * spread.share / len(blocks))
    if error == 0:
        return Effect(difference, 0.0, math.inf)
    # As in `moderated_welch`, half of what the prior is worth counts.
    return Effect(difference, error, spread.freedom + prior.freedom / 2)
