"""When operations arrive: the schedule of an open loop."""

from __future__ import annotations

import random
from array import array


def poisson_starts(rate: float, seconds: float, seed: int | str) -> array[float]:
    """Return random arrival times, in seconds from the start, with `rate` arrivals a second on average.

    The callers are independent of each other, so the intervals are exponentially distributed. The schedules
    of several generators with different seeds add up to one such schedule of the sum of their rates.
    """
    rng = random.Random(f"arrivals {seed}")
    starts = array("d", [rng.expovariate(rate)])
    while starts[-1] < seconds:
        starts.append(starts[-1] + rng.expovariate(rate))
    return starts[:-1] or array("d", [0.0])
