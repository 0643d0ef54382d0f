"""Metrics of the base that the current side lacks: which of them were removed on purpose."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

import msgspec

from memory.benchmarking.verdicts.patterns import fits
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict


def allow(comparison: Comparison, patterns: Sequence[str]) -> None:
    """Change `missing` to "not judged" for all metrics that a pattern fits.

    A pattern that fits no metric gets a note, because it may hide a metric that goes missing later.

    Args:
        comparison: comparison to change
        patterns: patterns of metrics (see `patterns.py`), or of benchmarks: `storage.*`,
            `storage.read_latency`, `storage.read_latency@sqlite-baseline`
    """
    unused = dict.fromkeys(patterns)
    for number, each in enumerate(comparison.metrics):
        fitting = [pattern for pattern in patterns if _fits(pattern, each)]
        if each.verdict != "missing" or not fitting:
            continue
        for pattern in fitting:
            unused.pop(pattern, None)
        comparison.metrics[number] = msgspec.structs.replace(
            each, verdict=None, reason=f"{each.reason}; allowed by {fitting[0]!r}"
        )
    comparison.notes += [f"--allow-missing {pattern!r} fits nothing that is missing" for pattern in unused]


def _fits(pattern: str, each: MetricVerdict) -> bool:
    if fnmatchcase(each.name, pattern) or fnmatchcase(f"{each.name}@{each.target}", pattern):
        return True
    return bool(each.path) and fits(pattern, each.name, each.path)
