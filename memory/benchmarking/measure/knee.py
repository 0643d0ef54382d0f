"""Searches the highest rate that a system bears, from probes that can be wrong.

A probe offers load at one rate and passes or fails. Near the knee the outcome is a matter of chance, and
a disturbance of the machine can fail a probe at any rate. A bisection would follow one wrong answer into
the wrong half. This search keeps the probability of every possible knee, and each probe changes it by
Bayes' rule, as in the adaptive tests of hearing (QUEST: Watson and Pelli, 1983):

    P(pass at rate r) = false pass + (1 - false pass - false fail) / (1 + (r / knee)^(1 / width))

The next probe is at the median of what is left, where the outcome says most. The answer is this median
with its 95 % interval. The module does no measuring itself: a probe is a function.

A short probe passes too easily. Late operations come in bursts, and a probe without a burst passes also
above the knee: half of the probes of 1,100 operations still pass 8 % above it, if the limit is 50 times the
service time. `optimism` computes this for a simulated queue, and the search takes it off.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

Outcome = Literal["passed", "failed", "invalid"]
"""Of a probe. An invalid one says nothing about the system, for instance because the generator was late."""

_STEP = 0.005
"""The steps between possible knees: 0.5 %."""
_LOWEST, _HIGHEST = 1 / 128, 4.0
"""The range of possible knees, as multiples of the guess."""
_WIDTHS = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16)
"""How gradually passing turns into failing, in units of the logarithm of the rate."""
_FALSE_FAIL, _FALSE_PASS = 0.05, 0.005
"""How often a disturbance fails a probe far below the knee, and how often one far above it passes."""
_GUESS_WIDTH = 0.5
"""The standard deviation of the guess, in units of the logarithm of the rate."""
_FLAT_SHARE = 0.2
"""The weight of knees anywhere in the range, in case that the guess is far off."""
_PRECISE = 1.05
"""The search ends early when the bounds of its interval are this close, as a ratio."""
_FEWEST = 6
_MOST_OVERTIME = 10
"""After the time is over, the search goes on until it has a pass and a failure, up to so many probes."""
_MOST_INVALID = 3
"""After so many invalid probes in a row the search ends."""
_CONFIRMATIONS = 3
"""How often the answer is confirmed at most: a failed confirmation lowers the answer first."""


_LATE_SHARE = 0.01
"""The share of operations that may take longer than the limit, as the limit is for the p99."""
_BISECTIONS = 11
"""They find a rate to 0.3 %."""
_LONG_SIMULATION, _SIMULATED_PROBES = 300_000, 150
_MOST_STEPS = 5000
"""The most steps of a simulated probe. In longer probes a step is several operations."""
_SHORT_WAIT = 2.0
"""A waiting time below so many service times is simulated: the formula holds for longer ones."""
MOST_OPTIMISM = 1.5
"""A probe that needs a larger correction is too short: the correction would be most of the answer."""


@dataclass(frozen=True)
class Estimate:
    """A rate and its 95 % interval."""

    rate: float
    low: float
    high: float


def expected_knee(capacity: float, service_ms: float, limit_ms: float, workers: int) -> float:
    """Return about where the knee of a queue is, to begin the search there.

    With random arrivals, waiting times above t have a share of about exp(-d t). The share above the limit
    is 1 % where d is ln(100) / limit. For equal service times s, d solves load = d s / (exp(d s) - 1).

    Args:
        capacity: operations a second of workers that never wait.
        service_ms: the time of one operation, below the limit.
        limit_ms: what 99 % of the latencies should not exceed.
        workers: how many operations the system serves at a time.
    """
    exponent = math.log(100) * service_ms / (workers * (limit_ms - service_ms))
    return capacity * max(0.02, exponent / math.expm1(min(exponent, 50.0)))


def optimism(capacity: float, service_ms: float, limit_ms: float, operations: int) -> float:
    """Return how much above the knee half of the probes still pass, as a ratio of at least 1.

    It simulates one server with equal service times and random arrivals (Lindley's recursion). A result
    above MOST_OPTIMISM means that the probes are too short.

    Args:
        capacity: operations a second of workers that never wait.
        service_ms: the time of one operation.
        limit_ms: what 99 % of the latencies should not exceed.
        operations: how many operations a probe has.
    """
    import numpy as np

    rng = np.random.default_rng(1)
    service = 1 / capacity
    # What several workers do at the same time is not waiting: the limit for waiting stays the same.
    longest_wait = max(limit_ms - service_ms, 0.1 * limit_ms) / 1e3

    def late(rate: float, probes: int, size: int) -> NDArray[np.float64]:
        """Return the share of late operations of each probe."""
        together = math.ceil(size / _MOST_STEPS) if longest_wait > _SHORT_WAIT * service else 1
        gaps = rng.gamma(together, 1 / rate, (probes, size // together))
        steps = np.cumsum(together * service - gaps, axis=1)
        lowest = np.minimum(np.minimum.accumulate(steps, axis=1), 0.0)
        shares: NDArray[np.float64] = (steps - lowest > longest_wait).mean(axis=1)
        return shares

    def highest(passes: Callable[[float], bool]) -> float:
        low, high = 0.02 * capacity, 4 * capacity
        for _ in range(_BISECTIONS):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if passes(middle) else (low, middle)
        return math.sqrt(low * high)

    if longest_wait > _SHORT_WAIT * service:
        truth = capacity * _load_at_limit(longest_wait / service)
    else:
        truth = highest(lambda rate: bool(late(rate, 1, _LONG_SIMULATION)[0] <= _LATE_SHARE))
    half = highest(lambda rate: bool(np.median(late(rate, _SIMULATED_PROBES, operations)) <= _LATE_SHARE))
    return max(1.0, half / truth)


def _load_at_limit(wait: float) -> float:
    """Return the load of a server at which 1 % of the operations wait for longer than `wait` service times.

    The share is C exp(-x wait), with load = x / (exp(x) - 1) and C = (1 - load) / (load exp(x) - 1): the
    Cramér-Lundberg approximation of the queue M/D/1. A simulation would need millions of operations if the
    limit is 1,000 times the service time, because the queue then changes that slowly.
    """
    low, high = 1e-6, 50.0
    for _ in range(60):
        x = math.sqrt(low * high)
        load = x / math.expm1(x)
        share = (1 - load) / (load * math.exp(x) - 1) * math.exp(-x * wait)
        low, high = (x, high) if share > _LATE_SHARE else (low, x)
    return low / math.expm1(low)


class KneeBelief:
    """The probability of every possible knee.

    Args:
        guess: the expected knee; the range of possible knees is from 1/128 of it to 4 times.
    """

    def __init__(self, guess: float) -> None:
        import numpy as np

        self._np = np
        span = math.log(_HIGHEST / _LOWEST)
        self._logs = math.log(guess * _LOWEST) + np.arange(0.0, span, _STEP)
        near = np.exp(-0.5 * ((self._logs - math.log(guess)) / _GUESS_WIDTH) ** 2)
        prior = (1 - _FLAT_SHARE) * near / near.sum() + _FLAT_SHARE / len(self._logs)
        self._weights = np.outer(np.full(len(_WIDTHS), 1 / len(_WIDTHS)), prior)

    def record(self, rate: float, passed: bool) -> None:
        """Take the outcome of a probe into account."""
        np = self._np
        distance = (self._logs - math.log(rate))[None, :] / np.array(_WIDTHS)[:, None]
        passes = _FALSE_PASS + (1 - _FALSE_PASS - _FALSE_FAIL) / (1 + np.exp(-np.clip(distance, -50, 50)))
        self._weights *= passes if passed else 1 - passes
        self._weights /= self._weights.sum()

    def estimate(self) -> Estimate:
        """Return the median of the possible knees, with the bounds that hold 95 % of the probability."""
        np = self._np
        sums = np.cumsum(self._weights.sum(axis=0))
        found = [self._logs[int(np.searchsorted(sums, share * sums[-1]))] for share in (0.5, 0.025, 0.975)]
        return Estimate(*(float(np.exp(value)) for value in found))


@dataclass(frozen=True)
class Knee:
    """The result of a search."""

    estimate: Estimate
    confirmed: bool
    """Whether a last probe at the lower bound of the interval passed."""
    passed: int
    failed: int
    invalid: int

    @property
    def found(self) -> bool:
        """Whether there is a knee: at least one rate passed and one failed."""
        return self.passed > 0 and self.failed > 0


def find_knee(
    probe: Callable[[float], Outcome],
    guess: float,
    *,
    may_continue: Callable[[], bool],
    must_stop: Callable[[], bool] = lambda: False,
    first: float | None = None,
    optimism: float = 1.0,
) -> Knee:
    """Search the knee.

    Args:
        probe: offers load at a rate, and says how that went.
        guess: the expected knee.
        may_continue: whether there is time for another probe. Without a pass and a failure the search goes
            on, up to 10 probes. Confirming comes after it.
        must_stop: whether no probe may begin any more, not even to confirm.
        first: the rate of the first probe; the guess by default.
        optimism: how much above the knee half of the probes still pass, as the function of this name says.
    """
    belief = KneeBelief(guess)
    counts: dict[Outcome, int] = {"passed": 0, "failed": 0, "invalid": 0}
    in_a_row = 0

    def attempt(rate: float) -> Outcome:
        nonlocal in_a_row
        outcome = probe(rate)
        counts[outcome] += 1
        in_a_row = in_a_row + 1 if outcome == "invalid" else 0
        if outcome != "invalid":
            belief.record(rate / optimism, outcome == "passed")
        return outcome

    rate = guess if first is None else first
    while in_a_row < _MOST_INVALID and not must_stop():
        has_both = counts["passed"] and counts["failed"]
        if not may_continue() and (has_both or sum(counts.values()) >= _MOST_OVERTIME):
            break
        attempt(rate)
        now = belief.estimate()
        if counts["passed"] + counts["failed"] >= _FEWEST and now.high / now.low <= _PRECISE:
            break
        rate = now.rate * optimism
    confirmed = False
    for _ in range(_CONFIRMATIONS):
        if in_a_row >= _MOST_INVALID or must_stop():
            break
        confirmed = attempt(belief.estimate().low) == "passed"
        if confirmed:
            break
    return Knee(belief.estimate(), confirmed, counts["passed"], counts["failed"], counts["invalid"])
