"""Measures the noise of this machine: how much identical code differs from itself.

The noise floor of a metric is the difference that identical code stays below in 95 % of comparisons. Here s
is the standard deviation over observations:

| kind | observation | noise floor |
| --- | --- | --- |
| lockstep | the log-ratio of one pair | t · s ÷ √6, for the mean of six pairs |
| stored | the logarithm of a figure of one run | 2 · √2 · s, for the ratio of two runs |

A few observations estimate s badly. So the estimate of each metric is combined with those of all metrics
(see verdicts/moderation.py): a metric that was quiet by chance does not get too low a floor.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memory.benchmarking.lockstep.evidence import evidence_of
from memory.benchmarking.lockstep.pair import Pair
from memory.benchmarking.lockstep.sequence import FIRST_PAIRS, Subject
from memory.benchmarking.measure.statistics import CONFIDENCE, t_critical
from memory.benchmarking.metrics import is_timed
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.records import Result
from memory.benchmarking.verdicts.moderation import Prior, prior_of
from memory.benchmarking.verdicts.noise import Calibration, metric_key
from memory.benchmarking.verdicts.thresholds import Thresholds

LEAST = 3
"""The fewest observations for a standard deviation."""
_PRIOR_FREEDOM = 4.0
"""Degrees of freedom of the common variance if there are too few metrics to estimate them."""
_TWO_RUNS = 2 * math.sqrt(2)


@dataclass(frozen=True)
class Spread:
    """The standard deviation of one metric's logarithm, and its degrees of freedom."""

    deviation: float
    freedom: float


def lockstep_calibration(
    subjects: Iterable[Subject], pairs: Mapping[str, Sequence[Pair]], made_at: str
) -> Calibration:
    """Calibrate from pairs of identical code; `pairs` maps the key of a case to its pairs."""
    spreads: dict[str, Spread] = {}
    comparisons = 0
    for subject in subjects:
        of_subject = pairs.get(subject.case.key, ())
        comparisons = max(comparisons, len(of_subject))
        for one in evidence_of(subject.case, subject.declaration, of_subject, Thresholds()):
            if one.gates and is_timed(one.unit) and one.error and one.scale == "ratio":
                key = metric_key(one.category, one.benchmark, one.target, one.path)
                spreads[key] = Spread(one.error * math.sqrt(len(of_subject)), one.freedom)

    def log_floor(spread: Spread) -> float:
        return t_critical(spread.freedom, CONFIDENCE) * spread.deviation / math.sqrt(FIRST_PAIRS)

    return _calibration(spreads, log_floor, comparisons, made_at)


def stored_calibration(runs: Sequence[Sequence[Result]], made_at: str) -> Calibration:
    """Calibrate from the results of several runs of identical code."""
    logarithms: dict[str, list[float]] = {}
    for results in runs:
        for result in results:
            target = str(result.metadata.get("target", ""))
            for path, figure in result.metrics.items():
                unit = result.units.get(leaf_of(path))
                if (
                    unit is not None
                    and is_timed(unit.unit)
                    and unit.better != "neither"
                    and figure.value > 0
                ):
                    key = metric_key(result.category, result.benchmark, target, path)
                    value = statistics.geometric_mean(figure.steady) if figure.steady else figure.value
                    logarithms.setdefault(key, []).append(math.log(value))
    spreads = {
        key: Spread(statistics.stdev(values), len(values) - 1)
        for key, values in logarithms.items()
        if len(values) >= LEAST
    }
    return _calibration(spreads, lambda spread: _TWO_RUNS * spread.deviation, len(runs), made_at)


def _calibration(
    spreads: Mapping[str, Spread], log_floor: Callable[[Spread], float], comparisons: int, made_at: str
) -> Calibration:
    floors = {key: round(math.expm1(log_floor(one)), 6) for key, one in _moderated(spreads).items()}
    return Calibration(
        made_at=made_at,
        comparisons=comparisons,
        floors=floors,
        default=max(floors.values(), default=0.0) if len(floors) < 4 else _upper_quartile(floors.values()),
    )


def _upper_quartile(values: Iterable[float]) -> float:
    return statistics.quantiles(values, n=4)[2]


def _moderated(spreads: Mapping[str, Spread]) -> dict[str, Spread]:
    """Combine the variance of each metric with the common variance of all metrics."""
    if not spreads:
        return {}
    prior = prior_of([(spread.deviation**2, int(spread.freedom)) for spread in spreads.values()])
    if not prior.freedom:  # too few metrics to estimate how similar their variances are
        common = statistics.median(spread.deviation**2 for spread in spreads.values())
        prior = Prior(common, _PRIOR_FREEDOM)
    return {
        key: Spread(
            math.sqrt(
                (prior.freedom * prior.variance + spread.freedom * spread.deviation**2)
                / (prior.freedom + spread.freedom)
            ),
            prior.freedom + spread.freedom,
        )
        for key, spread in spreads.items()
    }
