"""Patterns that name metrics, in the configuration and on the command line."""

from __future__ import annotations

from fnmatch import fnmatchcase

from memory.benchmarking.model.paths import leaf_of


def fits(pattern: str, name: str, path: str) -> bool:
    """Whether a pattern fits a metric of the benchmark `name`, which is `category.benchmark`.

    A pattern is for the leaf (`p50_ms`), for the path (`*/stm/*/p50_ms`), or for the path with the
    benchmark (`storage.read_latency:*/p50_ms`).
    """
    ways = (path, leaf_of(path), f"{name}:{path}")
    return any(fnmatchcase(way, pattern) for way in ways)
