"""The verdict on a benchmark's headline figure.

Not every headline is judged itself. `cpu_ms` and `p50_ms` of the same timing are judged in place of a
throughput, for example. Then the headline gets the worst of their verdicts, so that every page
and table shows the same verdict as `compare`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from memory.benchmarking.model.paths import join, leaf_of, split_leaf, where_of
from memory.benchmarking.verdicts.gating import judged_of_a_timing
from memory.benchmarking.verdicts.records import MetricVerdict, Verdict
from memory.benchmarking.verdicts.words import ORDER


@dataclass(frozen=True)
class HeadlineVerdict:
    """How a headline figure changed, and the verdict on it."""

    change: MetricVerdict
    """The change of the figure itself."""
    verdict: Verdict | None
    """None if neither this figure nor another figure of its timing is judged."""
    judged_by: tuple[str, ...] = ()
    """The names of the figures that are judged in its place; empty where it is judged itself."""


def headline_verdict(path: str, metrics: Mapping[str, MetricVerdict]) -> HeadlineVerdict | None:
    """Return the verdict on a headline figure; None where it was not compared.

    `path` is the figure's, `metrics` are the verdicts on its benchmark by path.
    """
    change = metrics.get(path)
    if change is None or change.base is None or change.current is None:
        return None
    if change.verdict is not None:
        return HeadlineVerdict(change, change.verdict)
    where = where_of(path)
    leaves = [leaf for other, leaf in map(split_leaf, metrics) if other == where and leaf != leaf_of(path)]
    judged = {leaf: metrics[join(where, leaf)].verdict for leaf in judged_of_a_timing(leaves, "stored")}
    for verdict in ORDER:
        names = tuple(leaf for leaf, found in judged.items() if found == verdict)
        if names:
            return HeadlineVerdict(change, verdict, names)
    return HeadlineVerdict(change, None)
