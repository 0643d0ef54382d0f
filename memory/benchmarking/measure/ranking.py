"""Quality of ranked search results. The intervals allow for questions of the same conversation."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Hashable, Mapping, Sequence

from memory.benchmarking.measure.statistics import CONFIDENCE, Estimate, t_critical

DEPTHS = (1, 5, 10)
"""The values of k in recall@k, any@k and all@k."""


def ranking_figures(ranked: Sequence[str], grades: Mapping[str, int]) -> dict[str, float]:
    """Return the usual quality figures of one question.

    recall@k is the share of the relevant ids that are among the first k results. any@k is 1 if at least one
    relevant id is among them, and all@k is 1 if all are. nDCG@10 follows Järvelin and Kekäläinen
    (gain = grade). MRR is 1 ÷ the rank of the first relevant id.

    Args:
        ranked: the ids that were found, the best first.
        grades: id to grade; an id with a grade above 0 is relevant. At least one id must be relevant.
    """
    relevant = {id_ for id_, grade in grades.items() if grade > 0}
    figures: dict[str, float] = {}
    for depth in DEPTHS:
        found = len(relevant & set(ranked[:depth]))
        figures[f"recall_at_{depth}"] = found / len(relevant)
        figures[f"any_at_{depth}"] = float(found > 0)
        figures[f"all_at_{depth}"] = float(found == len(relevant))
    best = _discounted_gain(sorted(grades.values(), reverse=True)[:10])
    figures["ndcg_at_10"] = _discounted_gain([grades.get(id_, 0) for id_ in ranked[:10]]) / best
    ranks = [rank for rank, id_ in enumerate(ranked, start=1) if id_ in relevant]
    figures["mrr"] = 1 / ranks[0] if ranks else 0.0
    return figures


def _discounted_gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 1) for rank, grade in enumerate(grades, start=1))


def clustered_mean(values: Sequence[float], clusters: Sequence[Hashable]) -> Estimate:
    """Return the mean over questions, with an interval that allows for correlation inside clusters.

    The variance is the linearised variance of the ratio estimator over clusters (Cochran, Sampling
    Techniques, 2.11), with Student's t. If there is a single cluster, each question counts as a cluster.

    Args:
        values: one figure for each question, from 0 to 1.
        clusters: the conversation of each question.
    """
    mean = math.fsum(values) / len(values)
    units: dict[Hashable, list[float]] = {}
    several = len(set(clusters)) > 1
    for number, (value, cluster) in enumerate(zip(values, clusters, strict=True)):
        units.setdefault(cluster if several else number, []).append(value - mean)
    count = len(units)
    if count < 2:
        return Estimate(mean)
    spread = math.fsum(math.fsum(unit) ** 2 for unit in units.values())
    error = math.sqrt(spread * count / (count - 1)) / len(values)
    half_width = t_critical(count - 1, CONFIDENCE) * error
    return Estimate(mean, max(0.0, mean - half_width), min(1.0, mean + half_width))


def separation(higher: Collection[float], lower: Collection[float]) -> float:
    """Return the probability that a random value of `higher` exceeds a random value of `lower`.

    This is the area under the ROC curve. 0.5 means that the two groups can't be distinguished.
    """
    ordered = sorted(lower)
    total = 0.0
    for value in higher:
        below, not_above = bisect_left(ordered, value), bisect_right(ordered, value)
        total += below + (not_above - below) / 2
    return total / (len(higher) * len(ordered))
