"""From evidence to verdicts: t tests, Holm's correction over all of them, and an effect floor.

    worse ▲
          │   ┬ regressed: the test excludes what noise alone can do,
          │   ┼            and the effect is beyond the floor
    floor ┼───┴─────────────────────────────────────
          │          ┬
        0 ┼──────────┼─────────────┬────────────────  no change
          │          ┴             │
    floor ┼─────────────────────── ┼ ───────────────
          │      unchanged:        ┴ inconclusive: neither can be said
          │      all of the interval within the floor

The test asks for more than an interval that excludes no change: with a hundred metrics five of those
would do so on identical code, so the chances are corrected for their number (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memory.benchmarking.measure.statistics import CONFIDENCE, beyond, student
from memory.benchmarking.metrics import Better
from memory.benchmarking.verdicts.noise import NoiseFloor, metric_key
from memory.benchmarking.verdicts.records import MetricVerdict, Scale, Verdict
from memory.benchmarking.verdicts.thresholds import Thresholds

ALPHA = 0.05
POWER = 0.8
"""How often an effect of the size called detectable would be found."""
_ROUNDING = 1 + 1e-9


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """What was measured of one metric on both sides.

    `log_ratio`, `error` (its standard error) and `freedom` come from Welch's test over rounds or from a
    t test over pairs. On the scale of differences, `log_ratio` is the plain difference current − base.
    """

    category: str
    benchmark: str
    target: str
    path: str
    unit: str
    better: Better
    base: float | None
    current: float | None
    log_ratio: float | None = None
    error: float | None = None
    """None where it can't be known: a single round, or figures that have no ratio."""
    freedom: float = math.inf
    gates: bool = True
    """Whether it is judged; what is not is shown all the same."""
    reason: str = ""
    scale: Scale = "ratio"
    settled: Verdict | None = None
    """Where there is nothing to test: new, missing, incomparable."""

    @property
    def is_judged(self) -> bool:
        return self.gates and self.better != "neither" and self.settled is None

    @property
    def is_tested(self) -> bool:
        return (
            self.log_ratio is not None
            and self.error is not None
            and math.isfinite(self.log_ratio)
            and math.isfinite(self.error)
        )

    @property
    def is_exact(self) -> bool:
        """Whether every observation said the same: chance has no part in it."""
        return self.is_tested and self.error == 0

    @property
    def worse(self) -> float:
        """The effect, above 0 where it is for the worse."""
        assert self.log_ratio is not None
        return -self.log_ratio if self.better == "higher" else self.log_ratio


def decide(
    evidence: Sequence[Evidence], *, threshold: Thresholds, noise: NoiseFloor, alpha: float = ALPHA
) -> list[MetricVerdict]:
    """A verdict for each, in the same order."""
    # Figures that are the same in every round can't be wrong by chance, so they cost the others nothing.
    family = [
        number
        for number, each in enumerate(evidence)
        if each.is_judged and each.is_tested and not each.is_exact
    ]
    chances = [_chance(each, _bounds(each, threshold, noise).shift) for each in evidence]
    for number, corrected in zip(family, holm([chances[number] or 0.0 for number in family]), strict=True):
        chances[number] = corrected
    strictest = alpha / max(len(family), 1)
    return [
        _verdict(each, _bounds(each, threshold, noise), chance, alpha, strictest)
        for each, chance in zip(evidence, chances, strict=True)
    ]


def holm(chances: Sequence[float]) -> list[float]:
    """Adjusted p-values that keep the chance of any false alarm at all below alpha (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    adjusted = [0.0] * len(chances)
    largest = 0.0
    for rank, number in enumerate(order):
        largest = max(largest, (len(chances) - rank) * chances[number])
        adjusted[number] = min(1.0, largest)
    return adjusted


@dataclass(frozen=True)
class _Bounds:
    """Thresholds of one metric, as shares or points, and on the scale of the test."""

    threshold: float
    floor: float
    shift: float
    test_floor: float


def _bounds(each: Evidence, thresholds: Thresholds, noise: NoiseFloor) -> _Bounds:
    key = metric_key(each.category, each.benchmark, each.target, each.path)
    threshold = thresholds.of(f"{each.category}.{each.benchmark}", each.path, each.scale)
    floor = max(threshold, noise.floor(key, each.unit))
    shift = noise.shift(key, each.unit)
    if each.scale == "ratio":
        # A time that is 10 % longer and a rate that is divided by 1.1 are the same effect.
        return _Bounds(threshold, floor, math.log1p(shift), math.log1p(floor))
    size = max(1.0, abs(each.base or 0.0), abs(each.current or 0.0))
    return _Bounds(threshold * size, floor * size, shift * size, floor * size)


def _chance(each: Evidence, shift: float) -> float | None:
    """The two-sided p of an effect like this where the true one is no larger than the shift."""
    if not each.is_tested:
        return None
    assert each.log_ratio is not None
    assert each.error is not None
    size = abs(each.log_ratio)
    if each.error == 0:
        return 0.0 if size > shift else 1.0
    near, far = (size - shift) / each.error, (size + shift) / each.error
    return min(1.0, beyond(near, each.freedom) + beyond(far, each.freedom))


def _verdict(
    each: Evidence, bounds: _Bounds, chance: float | None, alpha: float, strictest: float
) -> MetricVerdict:
    low = high = detectable = None
    verdict: Verdict | None = each.settled
    reason = each.reason
    if each.is_tested and each.settled is None:
        assert each.log_ratio is not None
        assert each.error is not None
        reach = student(each.freedom, CONFIDENCE) * each.error
        ends = (each.log_ratio - reach, each.log_ratio + reach)
        detectable = _detectable(each.error, each.freedom, bounds, strictest)
        if each.is_judged:
            verdict, reason = _judge(each.worse, ends, chance or 0.0, bounds, alpha)
            reason = reason or each.reason
        low, high = ends
        if each.scale == "ratio":
            low, high, detectable = _exp(low), _exp(high), _exp(detectable) - 1
    elif each.is_judged:
        verdict = "inconclusive"
    return MetricVerdict(
        category=each.category,
        benchmark=each.benchmark,
        target=each.target,
        path=each.path,
        unit=each.unit,
        better=each.better,
        base=each.base,
        current=each.current,
        scale=each.scale,
        ratio=_ratio(each),
        low=low,
        high=high,
        p=chance,
        threshold=bounds.threshold,
        floor=bounds.floor,
        detectable=detectable,
        verdict=verdict,
        reason=reason,
    )


def _judge(
    worse: float, ends: tuple[float, float], chance: float, bounds: _Bounds, alpha: float
) -> tuple[Verdict, str]:
    """The verdict, and why where it does not speak for itself."""
    is_large = abs(worse) > bounds.test_floor * _ROUNDING
    is_clear = chance < alpha
    if is_large and is_clear:
        return ("regressed" if worse > 0 else "improved"), ""
    if max(map(abs, ends)) <= bounds.test_floor * _ROUNDING:
        return "unchanged", ""
    if is_large:
        return "inconclusive", "noise alone could do it"
    if is_clear:
        return "inconclusive", "perhaps too small to matter"
    return "inconclusive", "the interval is too wide"


def _detectable(error: float, freedom: float, bounds: _Bounds, strictest: float) -> float:
    """Large enough for the test and the floor, and then some, so that four out of five are found."""
    if error == 0:
        return max(bounds.test_floor, bounds.shift)
    to_be_clear = bounds.shift + student(freedom, 1 - strictest) * error
    luck = student(freedom, 2 * POWER - 1) * error
    return max(to_be_clear, bounds.test_floor) + luck


def _ratio(each: Evidence) -> float | None:
    if each.scale == "ratio" and each.log_ratio is not None:
        return _exp(each.log_ratio)
    if not each.base or each.current is None:
        return None
    return each.current / each.base


def _exp(value: float) -> float:
    try:
        return math.exp(value)
    except OverflowError:
        return math.inf
