"""How well `membench history` finds changes: simulated series with no change, and with a known one.

    python scripts/change_points.py [--series 300]

Each series has 60 points. The noise is the standard deviation from run to run, as a share of the level.
Neighbours are not correlated, or correlated by an AR(1) of 0.6, as on a machine with slow hours. The step
is at the 41st point. It is found if a change is reported within three points of it. "Reported after" is the
median number of runs on the new level until then, over the series where it was found.
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Callable, Sequence

import numpy as np
import ruptures

from memory.benchmarking.text.display import table
from memory.benchmarking.verdicts.changes import SHORTEST, find_changes
from memory.benchmarking.verdicts.history import MAGNITUDE

POINTS, PLACE, NEAR = 60, 40, 3
STEPS = (0.05, 0.10, 0.20)
Rule = Callable[[Sequence[float]], list[int]]


def ours(points: Sequence[float]) -> list[int]:
    return find_changes(points, math.log1p(MAGNITUDE))


def as_if_independent(points: Sequence[float]) -> list[int]:
    """PELT with the BIC penalty; the variance is estimated from the differences of neighbours."""
    signal = np.asarray(points).reshape(-1, 1)
    variance = float(np.var(np.diff(signal[:, 0]))) / 2
    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST, jump=1).fit(signal)
    return [int(end) for end in search.predict(pen=2 * variance * math.log(len(signal)))[:-1]]


def newest_against_the_last_ten(points: Sequence[float]) -> list[int]:
    """A dashboard's alarm: a run that differs by 10 % from the mean of the ten before it."""
    return [
        place
        for place in range(10, len(points))
        if abs(points[place] - statistics.fmean(points[place - 10 : place])) > math.log(1.1)
    ]


RULES: dict[str, Rule] = {
    "membench history": ours,
    "PELT, BIC, as if independent": as_if_independent,
    "a run 10 % off the last ten": newest_against_the_last_ten,
}


def series(random: np.random.Generator, noise: float, phi: float, step: float) -> list[float]:
    """Return the logarithms of the figures of one series."""
    shocks = random.normal(size=POINTS)
    points = [shocks[0]]
    for shock in shocks[1:]:
        points.append(phi * points[-1] + math.sqrt(1 - phi * phi) * shock)
    return [
        noise * point + (math.log1p(step) if place >= PLACE else 0) for place, point in enumerate(points)
    ]


def is_found(places: Sequence[int]) -> bool:
    return any(abs(place - PLACE) <= NEAR for place in places)


def reported_after(rule: Rule, points: Sequence[float]) -> int | None:
    """Return how many runs on the new level it takes until the change is reported."""
    for end in range(PLACE + 1, POINTS + 1):
        if is_found(rule(points[:end])):
            return end - PLACE
    return None


def row(name: str, noise: float, phi: float, count: int) -> list[str]:
    rule = RULES[name]
    random = np.random.default_rng([int(100 * noise), int(10 * phi), 7])
    cells = [f"{noise:.0%}", "none" if phi == 0 else f"AR(1) {phi}"]
    false = sum(bool(rule(series(random, noise, phi, 0.0))) for _ in range(count))
    cells.append(f"{false / count:.0%}")
    for step in STEPS:
        found = sum(is_found(rule(series(random, noise, phi, step))) for _ in range(count))
        cells.append(f"{found / count:.0%}")
    after = [reported_after(rule, series(random, noise, phi, 0.10)) for _ in range(max(1, count // 10))]
    known = [number for number in after if number is not None]
    cells.append(f"{statistics.median(known):.0f}" if known else "—")
    return [name, *(cell.replace("%", " %") for cell in cells)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--series", type=int, default=300, help="series in each cell (default 300)")
    count = parser.parse_args().series
    rows = [row(name, noise, phi, count) for name in RULES for noise in (0.02, 0.05) for phi in (0.0, 0.6)]
    steps = [f"+{step:.0%}".replace("%", " %") for step in STEPS]
    headers = [
        "rule",
        "noise",
        "correlation",
        "false",
        *(f"{step} found" for step in steps),
        "+10 % reported after",
    ]
    print(table(rows, headers, right=(3, 4, 5, 6, 7)))
    print(f"\n{count} series of {POINTS} points each")


if __name__ == "__main__":
    main()
