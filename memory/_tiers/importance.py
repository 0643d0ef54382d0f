"""How long a memory is worth keeping: the caller's importance, adjusted by recency and reads.

The adjustment is a factor between 1 and 1.16. That is less than the ratio of any two of the usual levels 1
to 5. So the factor decides between memories of about equal importance, and never reverses the caller's
order.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

RECENCY_SHARE = 0.08
"""The most that recency adds, as a share of the importance."""
READS_SHARE = 0.08
"""The most that reads add, as a share of the importance."""
RECENCY_HALF_LIFE = 24 * 3600.0
"""Seconds after which recency adds half as much."""
_MANY_READS = 32
"""The number of reads with the largest effect. More reads add nothing."""


def keep_score(importance: float, age_seconds: float, reads: int) -> float:
    """Return how much a memory is worth keeping in its tier."""
    recency: float = 0.5 ** (max(age_seconds, 0.0) / RECENCY_HALF_LIFE)
    read = min(math.log2(1 + reads) / math.log2(1 + _MANY_READS), 1.0)
    return importance * (1.0 + RECENCY_SHARE * recency + READS_SHARE * read)


def least_first(standing: Iterable[tuple[int, float, float, int]], now: float) -> list[int]:
    """Sort (seq, importance, created_at, reads) by score, then by age; return the seqs, lowest first.

    The scores are those of `keep_score`, up to rounding. To call it for each memory would take longer, and
    no other thread would run meanwhile.
    """
    columns = list(zip(*standing, strict=True))
    if not columns:
        return []
    seqs = np.array(columns[0], np.int64)
    importance, created_at, reads = (np.array(column, np.float64) for column in columns[1:])
    with np.errstate(over="ignore"):
        recency = 0.5 ** (np.maximum(now - created_at, 0.0) / RECENCY_HALF_LIFE)
        read = np.minimum(np.log2(1 + reads) / math.log2(1 + _MANY_READS), 1.0)
        scores = importance * (1.0 + RECENCY_SHARE * recency + READS_SHARE * read)
    order: list[int] = seqs[np.lexsort((seqs, scores))].tolist()
    return order
