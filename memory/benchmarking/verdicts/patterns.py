"""Metrics named by patterns, the same in the configuration and on the command line."""

from __future__ import annotations

from fnmatch import fnmatchcase

from memory.benchmarking.model.paths import leaf_of


def fits(pattern: str, name: str, path: str) -> bool:
    """Whether a pattern means this metric of `name`, which is `category.benchmark`.

    It may give the metric alone (`p50_ms`), its path (`*/stm/*/p50_ms`), or both with the benchmark before
    them (`storage.read_latency:*/p50_ms`).
    """
    ways = (path, leaf_of(path), f"{name}:{path}")
    return any(fnmatchcase(way, pattern) for way in ways)
