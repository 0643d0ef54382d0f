"""The k largest scores, found by the largest score of each run of positions.

NumPy's `partition` is slow on scores that are mostly equal, as BM25 scores are: most memories hold no word
of the query. Here only the few runs that can hold one of the k largest scores are looked at again.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_RUN = 128
"""Scores in a run. Round: from 64 to 512 the time differs by less than a tenth."""
_FEW_RUNS = 32
"""With fewer runs than this, or than 4 for each wanted score, `partition` of all scores is as fast."""


def top(scores: NDArray[np.float32], k: int) -> NDArray[np.int64]:
    """Return the positions of the k largest scores, unordered; of equal scores, the last ones."""
    if len(scores) <= k or k <= 0:
        return np.arange(len(scores) if k > 0 else 0)
    candidates = _candidates(scores, k)
    values = scores if candidates is None else scores[candidates]
    lowest = np.partition(values, len(values) - k)[len(values) - k]
    above = (values > lowest).nonzero()[0]
    equal = (values == lowest).nonzero()[0]
    chosen = np.concatenate((above, equal[len(equal) - (k - len(above)) :]))
    return chosen if candidates is None else candidates[chosen]


def best_values(scores: NDArray[np.float32], k: int) -> NDArray[np.float32]:
    """Return the k largest of at least k scores, unordered."""
    candidates = _candidates(scores, k)
    values = scores if candidates is None else scores[candidates]
    best: NDArray[np.float32] = np.partition(values, len(values) - k)[len(values) - k :]
    return best


def _candidates(scores: NDArray[np.float32], k: int) -> NDArray[np.int64] | None:
    """Return positions that include the k largest scores, ascending; None if looking at all is as fast.

    Of the scores that equal the k-th largest one, the last k are included."""
    whole = len(scores) // _RUN
    if whole < max(_FEW_RUNS, 4 * k):
        return None
    peaks = np.maximum.reduce(scores[: whole * _RUN].reshape(whole, _RUN), axis=1)
    # k runs have a score of at least this, so the k largest scores are not below it.
    lowest = np.partition(peaks, whole - k)[whole - k]
    runs = (peaks > lowest).nonzero()[0]
    equal = (peaks == lowest).nonzero()[0][-k:]
    chosen = np.concatenate((runs, equal))
    chosen.sort()
    positions = (chosen[:, None] * _RUN + np.arange(_RUN)).ravel()
    return np.concatenate((positions, np.arange(whole * _RUN, len(scores))))
