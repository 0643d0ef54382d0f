"""What moderated variances are worth where a run has few rounds: simulated comparisons.

    python scripts/few_rounds.py [--comparisons 200]

Each comparison has 60 metrics. Their median noise is 5 %, and it differs from metric to metric by the
factor in the second column (one standard deviation). `alarm` is the share of comparisons of identical code
in which any metric is called changed, after the correction for 60 tests. `found` is the share of metrics
that would be called changed if they took 35 % longer.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics

from memory.benchmarking.measure.statistics import Effect, t_critical, t_upper_tail, welch
from memory.benchmarking.text.display import table
from memory.benchmarking.verdicts.moderation import moderated_welch, prior_of

METRICS = 60
NOISE = 0.05
EFFECT = math.log(1.35)
RULES = ("Welch", "moderated")


def chance(effect: Effect, size: float) -> float:
    """Return the two-sided p-value that an effect of this size would have."""
    assert effect.error is not None
    return 2 * t_upper_tail(abs(size) / effect.error, effect.freedom)


def row(rounds: int, differing: float, comparisons: int) -> list[str]:
    """Return a row of the table; `differing` is the factor by which the noise of metrics differs."""
    source = random.Random(f"{rounds} {differing}")
    held, alarms, found = ({rule: 0 for rule in RULES} for _ in range(3))
    for _ in range(comparisons):
        spreads = [NOISE * math.exp(source.gauss(0, math.log(differing))) for _ in range(METRICS)]
        sides = [
            tuple([source.gauss(0, spread) for _ in range(rounds)] for _ in range(2)) for spread in spreads
        ]
        prior = prior_of([(statistics.variance(side), rounds - 1) for both in sides for side in both])
        smallest = {rule: 1.0 for rule in RULES}
        for now, before in sides:
            effects = (welch(now, before), moderated_welch(now, before, prior))
            for rule, effect in zip(RULES, effects, strict=True):
                assert effect.error is not None
                held[rule] += abs(effect.value) <= t_critical(effect.freedom, 0.95) * effect.error
                smallest[rule] = min(smallest[rule], chance(effect, effect.value))
                found[rule] += chance(effect, EFFECT) < 0.05 / METRICS
        for rule in RULES:
            alarms[rule] += smallest[rule] < 0.05 / METRICS
    every = comparisons * METRICS
    shares = [
        count[rule] / of
        for count, of in ((held, every), (alarms, comparisons), (found, every))
        for rule in RULES
    ]
    return [str(rounds), f"{differing:g}", *(f"{share:.0%}".replace("%", " %") for share in shares)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--comparisons", type=int, default=200, help="comparisons in each row (default 200)"
    )
    count = parser.parse_args().comparisons
    rows = [row(rounds, differing, count) for rounds in (2, 3, 5, 8) for differing in (1.5, 3.0)]
    headers = [f"{what}, {rule}" for what in ("95 % holds", "alarm", "found") for rule in RULES]
    print(table(rows, ["rounds", "noise ×÷", *headers], right=range(8)))
    print(f"\n{count} comparisons of {METRICS} metrics each")


if __name__ == "__main__":
    main()
