"""Which metrics are judged, and which are only shown.

One timing gives a dozen figures that rise and fall together. Judging all of them would multiply the tests,
and Holm's correction would make each one less sensitive. So two figures of a timing are judged: CPU time,
which other programs hardly disturb, and the median of wall time, which includes waiting for a disk, a lock
or a server. Of stored runs, the second is judged only where the operation waits or uses threads
(`evidence.py`). A lockstep comparison measures both precisely and judges the first of them only.
"""

from __future__ import annotations

from collections.abc import Collection

from memory.benchmarking.metrics import TIMED, Better, is_derived, is_timed
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.verdicts.records import Kind
from memory.benchmarking.verdicts.thresholds import Thresholds

_STAND_FOR_A_TIMING = ("cpu_ms", "p50_ms")
_OF_A_TIMING = {*TIMED, "min_ms", "std_dev_ms", "p999_ms"}
_TAILS = {"p95_ms": 200, "p99_ms": 1_000, "p999_ms": 10_000}
"""The fewest samples of a round for each percentile, so that ten samples lie beyond it."""
_NEVER = {"max_ms", "min_ms", "std_dev_ms"}


def judged_of_a_timing(figures: Collection[str], kind: Kind) -> list[str]:
    """Return the figures that are judged for a whole timing."""
    found = [figure for figure in _STAND_FOR_A_TIMING if figure in figures]
    return found[:1] if kind == "lockstep" else found


def reason_not_judged(
    path: str,
    unit: str,
    better: Better,
    *,
    kind: Kind,
    name: str = "",
    siblings: Collection[str] = (),
    samples: int = 0,
    times_count: bool = True,
    thresholds: Thresholds | None = None,
) -> str:
    """Return why a metric is not judged; empty where it is.

    A tail is judged only where a pattern of the thresholds names it.

    Args:
        path, unit, better: the metric
        kind: how the two sides were measured
        name: `category.benchmark`
        siblings: the leaves of all figures at the same place
        samples: how many samples a round of the metric has
        times_count: `Run.times_count`
        thresholds: those of the comparison
    """
    leaf = leaf_of(path)
    asked_for = thresholds is not None and thresholds.named(name, path) is not None
    if better == "neither":
        return "no direction is better"
    if leaf in _NEVER:
        return "one sample decides it"
    if is_timed(unit) and not times_count:
        return "rounds ran side by side"
    if leaf in _TAILS:
        if not asked_for:
            return "a tail; set a threshold for it to have it judged"
        return "" if samples >= _TAILS[leaf] else f"a tail of {samples} samples, {_TAILS[leaf]} are needed"
    if asked_for:
        return ""
    if is_derived(leaf):  # the other figures are judged instead, with less noise
        return "computed from other figures"
    judged = judged_of_a_timing(siblings, kind)
    if judged and leaf not in judged and (leaf in _OF_A_TIMING or is_timed(unit)):
        return f"judged by {' and '.join(judged)}"
    return ""
