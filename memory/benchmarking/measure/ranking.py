"""How good a ranked answer is, and how sure that is: over questions, clustered by where they come from."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Mapping, Sequence

from memory.benchmarking.measure.statistics import CONFIDENCE, Estimate, student

DEPTHS = (1, 5, 10)


def ranking_figures(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """The usual figures of one question: `ranked` are the ids found, `grades` says which are right.

    R@k is the share of the right ones among the first k, any@k and all@k whether one or every one is
    there, nDCG@10 after Järvelin and Kekäläinen (gain = grade), MRR the inverse place of the first.
    """
    right = {id_ for id_, grade in grades.items() if grade > 0}
    figures: dict[str, float] = {}
    for depth in DEPTHS:
        found = len(right & set(ranked[:depth]))
        figures[f"recall_at_{depth}"] = found / len(right)
        figures[f"any_at_{depth}"] = float(found > 0)
        figures[f"all_at_{depth}"] = float(found == len(right))
    best = _discounted(sorted(grades.values(), reverse=True)[:10])
    figures["ndcg_at_10"] = _discounted([grades.get(id_, 0) for id_ in ranked[:10]]) / best
    places = [place for place, id_ in enumerate(ranked, start=1) if id_ in right]
    figures["mrr"] = 1 / places[0] if places else 0.0
    return figures


def _discounted(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(place + 1) for place, grade in enumerate(grades, start=1))


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    """The mean over questions, with an interval that knows that those of one conversation are alike.

    The ratio estimator's linearised variance over clusters (Cochran, Sampling Techniques, 2.11), with
    Student's t. One cluster alone says nothing of others: then the questions themselves are the units.
    """
    mean = math.fsum(values) / len(values)
    units: dict[Hashable, list[float]] = {}
    whole = len(set(clusters)) > 1
    for number, (value, cluster) in enumerate(zip(values, clusters, strict=True)):
        units.setdefault(cluster if whole else number, []).append(value - mean)
    count = len(units)
    if count < 2:
        return Estimate(mean)
    spread = math.fsum(math.fsum(unit) ** 2 for unit in units.values())
    error = math.sqrt(spread * count / (count - 1)) / len(values)
    reach = student(count - 1, CONFIDENCE) * error
    return Estimate(mean, max(0.0, mean - reach), min(1.0, mean + reach))


def separation(higher: Collection[float], lower: Collection[float]) -> float:
    """The chance that one of `higher` exceeds one of `lower` (area under the ROC curve); 0.5 is luck."""
    ordered = sorted(lower)
    total = 0.0
    for value in higher:
        below, upto = bisect_left(ordered, value), bisect_right(ordered, value)
        total += below + (upto - below) / 2
    return total / (len(higher) * len(ordered))
