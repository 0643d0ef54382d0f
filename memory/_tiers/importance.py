"""How much a memory matters: what the caller said first of all, recency and use adjust it.

The adjustments are a factor between 1 and 1.16, less than the step between any two of the usual levels
1 to 5: they decide between memories of like importance and never turn the caller's order round.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

RECENCY_SHARE = 0.08
USE_SHARE = 0.08
RECENCY_HALF_LIFE = 24 * 3600.0
_MANY_USES = 32


def standing_value(importance: float, age_seconds: float, uses: int) -> float:
    """What a memory is worth keeping in its tier."""
    recency: float = 0.5 ** (max(age_seconds, 0.0) / RECENCY_HALF_LIFE)
    use = min(math.log2(1 + uses) / math.log2(1 + _MANY_USES), 1.0)
    return importance * (1.0 + RECENCY_SHARE * recency + USE_SHARE * use)


def least_first(standing: Iterable[tuple[int, float, float, int]], now: float) -> list[int]:
    """Seqs of (seq, importance, created_at, uses), the least worth keeping first, then the oldest."""
    valued = [
        (standing_value(importance, now - created_at, uses), seq)
        for seq, importance, created_at, uses in standing
    ]
    valued.sort()
    return [seq for _, seq in valued]
