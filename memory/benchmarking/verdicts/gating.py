"""Which metrics decide, and which are only shown.

One timing gives a dozen figures that rise and fall together. To judge all of them would multiply the
tests, and with them what Holm's correction asks of each, and would tell nothing new. So one timing is
judged by two figures: CPU time, which other programs hardly disturb, and the median on the wall clock,
which alone sees waiting for a disk, a lock or a server. In lockstep, where each is measured much better
than a comparison needs, by the first of the two.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase

from memory.benchmarking.metrics import TIMED, Better, is_timed
from memory.benchmarking.model.paths import leaf_of
from memory.benchmarking.verdicts.records import Kind
from memory.benchmarking.verdicts.thresholds import Thresholds

_STAND_FOR_A_TIMING = ("cpu_ms", "p50_ms")
_OF_A_TIMING = {*TIMED, "min_ms", "std_dev_ms", "p999_ms"}
_TAILS = {"p95_ms": 200, "p99_ms": 1_000, "p999_ms": 10_000}
"""How many samples a round needs so that ten lie beyond the percentile."""
_NEVER = {"max_ms", "min_ms", "std_dev_ms"}
_DERIVED = (
    "*overhead*", "growth_exponent", "scaling", "*_efficiency", "*_to_*", "*_us_per_*", "generator_late_*",
)  # fmt: skip
"""Made from other figures, which are judged; a small difference of large ones is mostly noise."""


def judged_of_a_timing(figures: Collection[str], kind: Kind) -> list[str]:
    """Those that stand for all figures of one timing."""
    found = [figure for figure in _STAND_FOR_A_TIMING if figure in figures]
    return found[:1] if kind == "lockstep" else found


def why_not(
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
    """Why a metric is not judged; empty where it is.

    `name` is `category.benchmark`; `siblings` are the figures that stand beside it, by their last names;
    `times_count` is `Run.gates`. A tail is judged only where a pattern of the thresholds asks for it.
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
    if any(fnmatchcase(leaf, pattern) for pattern in _DERIVED):
        return "made from other figures"
    judged = judged_of_a_timing(siblings, kind)
    if judged and leaf not in judged and (leaf in _OF_A_TIMING or is_timed(unit)):
        return f"judged by {' and '.join(judged)}"
    return ""
