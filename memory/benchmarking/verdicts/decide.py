"""From evidence to verdicts: t tests, Holm's correction over all of them, and an effect floor.

    worse ▲
          │   ┬ regressed: the test excludes what noise alone can do,
          │   ┼            and the effect is beyond the floor
    floor ┼───┴─────────────────────────────────────
          │          ┬
        0 ┼──────────┼─────────────┬────────────────  no change
          │          ┴             │
    floor ┼─────────────────────── ┼ ───────────────
          │      unchanged:        ┴ inconclusive: everything else
          │      the 90 % interval is within the floor

A 95 % interval that excludes "no change" is not enough: of a hundred metrics of identical code, about five
have such an interval. So the p-values are corrected for the number of metrics (Holm 1979).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from memory.benchmarking.measure.statistics import CONFIDENCE, exp_or_infinity, t_critical, t_upper_tail
from memory.benchmarking.metrics import Better
from memory.benchmarking.verdicts.noise import NoiseFloor, metric_key
from memory.benchmarking.verdicts.records import MetricVerdict, Scale, Verdict
from memory.benchmarking.verdicts.thresholds import Thresholds

ALPHA = 0.05
"""The chance of any false alarm in one comparison."""
EQUIVALENCE = 0.9
"""The confidence of the interval that has to be within the floor for "unchanged".

Two one-sided tests at 5 % reject every change beyond the floor exactly if the 90 % interval is within it
(Schuirmann 1987)."""
POWER = 0.8
"""The chance that an effect as large as `MetricVerdict.detectable` is found."""
_ROUNDING = 1 + 1e-9
"""An effect that exceeds the floor by less than this factor is equal to it, up to rounding."""


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The figures of one metric on both sides, and the effect between them.

    `log_ratio`, `error` (its standard error) and `freedom` come from Welch's test over rounds or from a
    t test over pairs. On the scale of differences, `log_ratio` is the plain difference current − base.
    """

    category: str
    benchmark: str
    target: str
    path: str = ""
    """The path of the metric; empty if the evidence is about a whole case."""
    unit: str = ""
    better: Better = "neither"
    base: float | None = None
    current: float | None = None
    log_ratio: float | None = None
    error: float | None = None
    """None if the standard error is unknown: a single round, or figures that have no ratio."""
    freedom: float = math.inf
    gates: bool = True
    """Whether the metric is judged; a metric that is not judged is only shown."""
    reason: str = ""
    scale: Scale = "ratio"
    chance: float | None = None
    """The p-value of a test over questions; None where Student's t decides."""
    limits: tuple[float, float] | None = None
    """The smallest and largest possible figure, on the scale of differences; None where there are none."""
    settled: Verdict | None = None
    """The verdict where there is nothing to test: new, missing, incomparable."""

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
        """Whether all observations agree exactly, so that the effect is not due to chance."""
        return self.is_tested and self.error == 0

    @property
    def is_paired(self) -> bool:
        """Whether the figures were compared question by question."""
        return self.chance is not None

    @property
    def worse(self) -> float:
        """The effect, with its sign set so that positive means worse."""
        assert self.log_ratio is not None
        return -self.log_ratio if self.better == "higher" else self.log_ratio


def decide(
    evidence: Sequence[Evidence], *, threshold: Thresholds, noise: NoiseFloor, alpha: float = ALPHA
) -> list[MetricVerdict]:
    """Return a verdict for each piece of evidence, in the same order.

    `threshold` and `noise` set the floor of each metric; `alpha` is the chance of any false alarm.
    """
    chances = [_chance(each, _bounds(each, threshold, noise).shift) for each in evidence]
    # The level that Holm's correction sets for the smallest p-value: the detectable effect must reach it.
    strictest = [alpha] * len(evidence)
    # Figures compared question by question are a family of their own. Identical code gives identical
    # answers, so they give no false alarm. A hundred timings must not make these figures less sensitive.
    for paired in (False, True):
        # Chance can't change figures that are the same in every round, so the correction leaves them out.
        family = [
            number
            for number, each in enumerate(evidence)
            if each.is_judged and each.is_tested and not each.is_exact and each.is_paired == paired
        ]
        corrected = holm([chances[number] or 0.0 for number in family])
        for number, chance in zip(family, corrected, strict=True):
            chances[number], strictest[number] = chance, alpha / len(family)
    return [
        _verdict(each, _bounds(each, threshold, noise), chance, alpha, limit)
        for each, chance, limit in zip(evidence, chances, strictest, strict=True)
    ]


def holm(chances: Sequence[float]) -> list[float]:
    """Return adjusted p-values that keep the chance of any false alarm below alpha (Holm 1979)."""
    order = sorted(range(len(chances)), key=lambda number: chances[number])
    adjusted = [0.0] * len(chances)
    largest = 0.0
    for rank, number in enumerate(order):
        largest = max(largest, (len(chances) - rank) * chances[number])
        adjusted[number] = min(1.0, largest)
    return adjusted


@dataclass(frozen=True)
class _Bounds:
    """The limits that the effect of one metric has to exceed."""

    threshold: float
    """`threshold` and `floor` are shares, or points on the scale of differences."""
    floor: float
    shift: float
    """The effect that noise alone can have. `shift` and `test_floor` are on the scale of the test."""
    test_floor: float


def _bounds(each: Evidence, thresholds: Thresholds, noise: NoiseFloor) -> _Bounds:
    key = metric_key(each.category, each.benchmark, each.target, each.path)
    name = f"{each.category}.{each.benchmark}"
    threshold = thresholds.of(name, each.path, each.scale, paired=each.is_paired)
    floor = max(threshold, noise.floor(key, each.unit))
    shift = noise.shift(key, each.unit)
    if each.scale == "ratio":
        # In logarithms a time multiplied by 1.1 and a rate divided by 1.1 are the same effect.
        return _Bounds(threshold, floor, math.log1p(shift), math.log1p(floor))
    size = max(1.0, abs(each.base or 0.0), abs(each.current or 0.0))
    return _Bounds(threshold * size, floor * size, shift * size, floor * size)


def _chance(each: Evidence, shift: float) -> float | None:
    """Return the two-sided p-value of the effect. Null hypothesis: the true effect is at most `shift`."""
    if not each.is_tested:
        return None
    assert each.log_ratio is not None
    assert each.error is not None
    size = abs(each.log_ratio)
    if each.error == 0:
        return 0.0 if size > shift else 1.0
    if each.chance is not None and not shift:
        return each.chance
    near, far = (size - shift) / each.error, (size + shift) / each.error
    return min(
        1.0, max(t_upper_tail(near, each.freedom) + t_upper_tail(far, each.freedom), each.chance or 0.0)
    )


def _verdict(
    each: Evidence, bounds: _Bounds, chance: float | None, alpha: float, strictest: float
) -> MetricVerdict:
    low: float | None = None
    high: float | None = None
    detectable: float | None = None
    verdict: Verdict | None = each.settled
    reason = each.reason
    if each.is_tested and each.settled is None:
        assert each.log_ratio is not None
        assert each.error is not None
        half_width = t_critical(each.freedom, CONFIDENCE) * each.error
        ends = (each.log_ratio - half_width, each.log_ratio + half_width)
        detectable = _detectable(each.error, each.freedom, bounds, strictest)
        if each.is_judged:
            near = t_critical(each.freedom, EQUIVALENCE) * each.error
            inner = (each.log_ratio - near, each.log_ratio + near)
            verdict, reason = _judge(each.worse, inner, chance or 0.0, bounds, alpha)
            reason = reason or each.reason
        low, high = ends
        if each.limits is not None and each.base is not None and each.current is not None:
            low, high, detectable = _possible(each, ends, detectable)
        if each.scale == "ratio":
            low, high = exp_or_infinity(low), exp_or_infinity(high)
            detectable = None if detectable is None else exp_or_infinity(detectable) - 1
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


def _possible(
    each: Evidence, ends: tuple[float, float], detectable: float
) -> tuple[float, float, float | None]:
    """Return the interval of the difference, and the detectable effect, for a figure that has limits.

    Student's interval ignores the limits: it may say that a share of 0.9 is lower by up to 1.5. The current
    figure can't be beyond its limits, so the interval is cut off there. An effect that is larger than the
    distance between the limits can never be found: then there is no detectable effect.
    """
    assert each.limits is not None
    assert each.base is not None
    assert each.current is not None
    least, most = (limit - each.base for limit in each.limits)
    difference = each.current - each.base
    low = min(max(ends[0], least), difference)
    high = max(min(ends[1], most), difference)
    return low, high, detectable if detectable <= each.limits[1] - each.limits[0] else None


def _judge(
    worse: float, ends: tuple[float, float], chance: float, bounds: _Bounds, alpha: float
) -> tuple[Verdict, str]:
    """Return the verdict, and the reason if it is inconclusive."""
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
    """Return the effect that passes both the test and the floor in four of five comparisons."""
    if error == 0:
        return max(bounds.test_floor, bounds.shift)
    to_be_clear = bounds.shift + t_critical(freedom, 1 - strictest) * error
    margin = t_critical(freedom, 2 * POWER - 1) * error
    return max(to_be_clear, bounds.test_floor) + margin


def _ratio(each: Evidence) -> float | None:
    if each.scale == "ratio" and each.log_ratio is not None:
        return exp_or_infinity(each.log_ratio)
    if not each.base or each.current is None:
        return None
    return each.current / each.base
