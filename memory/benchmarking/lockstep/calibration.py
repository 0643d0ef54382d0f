"""How far identical code lies apart from itself here, from pairs in lockstep and from runs at other times.

| way | what varies, with standard deviation s | floor of a metric: identical code stays below it in 95 % |
| --- | --- | --- |
| lockstep | the log-ratio of a pair | of the means of six pairs |
| stored | the logarithm of a run's centre | of the ratios of two runs: 2·√2·s |

A handful of observations knows a standard deviation badly, so each metric's is drawn towards that of all
of them (see verdicts/moderation.py): a metric that was quiet by luck is not taken for a quiet one.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from memory.benchmarking.lockstep.evidence import evidence_of
from memory.benchmarking.lockstep.pair import Pair
from memory.benchmarking.lockstep.sequence import FIRST_PAIRS, Subject
from memory.benchmarking.measure.statistics import CONFIDENCE, student
from memory.benchmarking.metrics import is_timed
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.model.records import Result
from memory.benchmarking.verdicts.moderation import Prior, prior_of
from memory.benchmarking.verdicts.noise import Calibration, metric_key
from memory.benchmarking.verdicts.thresholds import Thresholds

LEAST = 3
"""Observations that a standard deviation needs at all."""
_PRIOR_FREEDOM = 4.0
"""What the spread of a few metrics counts for beside a metric's own."""
_TWO_RUNS = 2 * math.sqrt(2)


@dataclass(frozen=True)
class Spread:
    """The standard deviation of one metric's logarithm."""

    deviation: float
    freedom: float


def lockstep_calibration(
    subjects: Iterable[Subject], pairs: Mapping[str, Sequence[Pair]], made_at: str
) -> Calibration:
    """From pairs of identical code, by the key of their case."""
    spreads: dict[str, Spread] = {}
    comparisons = 0
    for subject in subjects:
        found = pairs.get(subject.case.key, ())
        comparisons = max(comparisons, len(found))
        for each in evidence_of(subject.case, subject.declaration, found, Thresholds()):
            if each.gates and is_timed(each.unit) and each.error and each.scale == "ratio":
                key = metric_key(each.category, each.benchmark, each.target, each.path)
                spreads[key] = Spread(each.error * math.sqrt(len(found)), each.freedom)

    def reach(spread: Spread) -> float:
        return student(spread.freedom, CONFIDENCE) * spread.deviation / math.sqrt(FIRST_PAIRS)

    return _calibration(spreads, reach, comparisons, made_at)


def stored_calibration(runs: Sequence[Sequence[Result]], made_at: str) -> Calibration:
    """From the results of runs of identical code that were made one after the other."""
    centres: dict[str, list[float]] = {}
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
                    centres.setdefault(key, []).append(math.log(figure.value))
    spreads = {
        key: Spread(statistics.stdev(values), len(values) - 1)
        for key, values in centres.items()
        if len(values) >= LEAST
    }
    return _calibration(spreads, lambda spread: _TWO_RUNS * spread.deviation, len(runs), made_at)


def _calibration(
    spreads: Mapping[str, Spread], reach: Callable[[Spread], float], comparisons: int, made_at: str
) -> Calibration:
    floors = {key: round(math.expm1(reach(each)), 6) for key, each in _drawn_together(spreads).items()}
    return Calibration(
        made_at=made_at,
        comparisons=comparisons,
        floors=floors,
        default=max(floors.values(), default=0.0) if len(floors) < 4 else _upper_quartile(floors.values()),
    )


def _upper_quartile(values: Iterable[float]) -> float:
    return statistics.quantiles(values, n=4)[2]


def _drawn_together(spreads: Mapping[str, Spread]) -> dict[str, Spread]:
    if not spreads:
        return {}
    prior = prior_of([(each.deviation**2, int(each.freedom)) for each in spreads.values()])
    if not prior.freedom:  # too few metrics to know how alike they are
        middle = statistics.median(each.deviation**2 for each in spreads.values())
        prior = Prior(middle, _PRIOR_FREEDOM)
    return {
        key: Spread(
            math.sqrt(
                (prior.freedom * prior.variance + each.freedom * each.deviation**2)
                / (prior.freedom + each.freedom)
            ),
            prior.freedom + each.freedom,
        )
        for key, each in spreads.items()
    }
