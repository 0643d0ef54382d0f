"""What moderated variances are worth where a run has few rounds: simulated comparisons.

    python scripts/few_rounds.py [--comparisons 200]

Each comparison has 60 metrics. Their median noise is 5 %, and it differs from metric to metric by the
factor in the second column (one standard deviation). `--data 0.1` adds what the data of a round cost: 10 %,
the same on both sides. "blocks" compares rounds with the same data, from four rounds on. `alarm` is the
share of comparisons of identical code in which any metric is called changed, after the correction for 60
tests. `found` is the share of metrics that would be called changed if they took 35 % longer.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics

from memory.benchmarking.measure.statistics import Effect, t_critical, t_upper_tail, welch
from memory.benchmarking.text.display import table
from memory.benchmarking.verdicts.blocks import LEAST_BLOCKS, Block, moderated_blocks, spread_of
from memory.benchmarking.verdicts.moderation import moderated_welch, prior_of

METRICS = 60
NOISE = 0.05
EFFECT = math.log(1.35)
RULES = ("Welch", "moderated", "blocks")


def chance(effect: Effect, size: float) -> float:
    """Return the two-sided p-value that an effect of this size would have."""
    assert effect.error is not None
    return 2 * t_upper_tail(abs(size) / effect.error, effect.freedom)


def row(rounds: int, differing: float, data: float, comparisons: int) -> list[str]:
    """Return a row of the table.

    differing: the factor by which the noise of metrics differs
    data: the standard deviation of what the data of a round cost
    """
    source = random.Random(f"{rounds} {differing} {data}")
    rules = RULES if rounds >= LEAST_BLOCKS else RULES[:2]
    held, alarms, found = ({rule: 0 for rule in rules} for _ in range(3))
    for _ in range(comparisons):
        sides = []
        for _ in range(METRICS):
            spread = NOISE * math.exp(source.gauss(0, math.log(differing)))
            cost = [source.gauss(0, data) for _ in range(rounds)]
            sides.append(tuple([each + source.gauss(0, spread) for each in cost] for _ in range(2)))
        blocks = [[Block((b,), (n,)) for n, b in zip(*both, strict=True)] for both in sides]
        prior = prior_of([(statistics.variance(side), rounds - 1) for both in sides for side in both])
        spreads = [spread_of(each) for each in blocks]
        prior_of_blocks = prior_of([(each.variance, each.freedom) for each in spreads])
        smallest = {rule: 1.0 for rule in rules}
        for (now, before), pairs in zip(sides, blocks, strict=True):
            effects = (
                welch(now, before),
                moderated_welch(now, before, prior),
                moderated_blocks(pairs, prior_of_blocks),
            )
            for rule, effect in zip(rules, effects, strict=False):
                assert effect.error is not None
                held[rule] += abs(effect.value) <= t_critical(effect.freedom, 0.95) * effect.error
                smallest[rule] = min(smallest[rule], chance(effect, effect.value))
                found[rule] += chance(effect, EFFECT) < 0.05 / METRICS
        for rule in rules:
            alarms[rule] += smallest[rule] < 0.05 / METRICS
    every = comparisons * METRICS
    shares = [
        f"{count[rule] / of:.0%}".replace("%", " %") if rule in rules else ""
        for count, of in ((held, every), (alarms, comparisons), (found, every))
        for rule in RULES
    ]
    return [str(rounds), f"{differing:g}", *shares]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--comparisons", type=int, default=200, help="comparisons in each row (default 200)"
    )
    parser.add_argument(
        "--data", type=float, default=0.0, help="noise of the data, 0.1 for 10 %% (default 0)"
    )
    asked = parser.parse_args()
    count = asked.comparisons
    rows = [
        row(rounds, differing, asked.data, count) for rounds in (2, 3, 5, 8) for differing in (1.5, 3.0)
    ]
    headers = [f"{what}, {rule}" for what in ("95 % holds", "alarm", "found") for rule in RULES]
    print(table(rows, ["rounds", "noise ×÷", *headers], right=range(11)))
    print(f"\n{count} comparisons of {METRICS} metrics each")


if __name__ == "__main__":
    main()
