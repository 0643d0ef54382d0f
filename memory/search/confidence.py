"""An estimate of the chance that a hit is relevant, from 0 to 1.

A score compares the memories of one search. It does not tell whether any of them is relevant. The
confidence is a logistic model of what does: how many of the question's words the hit and all memories hold,
how near the nearest memory is in meaning, and how far the hit is behind the best one.
`scripts/confidence.py` fits it on conversations: half of the questions are asked of their own one, half of
another one. It assumes the default embedder: with another one it orders hits, but is not calibrated.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul
from typing import NamedTuple

LOWEST_COSINE = 0.05
"""Cosines below this count as this: their logarithm says nothing more."""


class Features(NamedTuple):
    """What the confidence of a hit depends on; also its coefficients."""

    constant: float
    covered: float
    """The share of the question's words that the hit holds. Function words do not count."""
    known: float
    """The share of the question's words that any memory holds."""
    nearest: float
    """The logarithm of the largest cosine of any memory."""
    behind: float
    """How much lower the hit's score is than that of the best hit."""
    rank: float
    """The logarithm of the hit's rank, from 0."""
    size: float
    """The logarithm of the number of memories."""
    known_in_size: float
    """`known` times `size`: of few memories, few hold a word of any question."""


COEFFICIENTS = Features(
    constant=1.05,
    covered=2.17,
    known=-0.78,
    nearest=0.86,
    behind=-0.33,
    rank=-0.94,
    size=-0.91,
    known_in_size=0.71,
)
"""Fitted on the development halves of LoCoMo, REALTALK and BEAM together, each with the same weight."""


class Evidence(NamedTuple):
    """What a whole search tells about the confidence of its hits."""

    words: int
    """The number of distinct words of the question, without function words."""
    known: int
    """How many of them any memory holds."""
    nearest: float
    """The largest cosine of any memory."""
    best: float
    """The score of the best hit."""
    memories: int
    """The number of memories."""

    def features(self, rank: int, score: float, covered: int) -> Features:
        """Return the features of the hit of a rank, from 0, that holds `covered` of the words."""
        words = max(self.words, 1)
        known, size = self.known / words, math.log(max(self.memories, 1))
        nearest = math.log(max(self.nearest, LOWEST_COSINE))
        return Features(
            1.0, covered / words, known, nearest, self.best - score, math.log1p(rank), size, known * size
        )

    def confidences(self, start: int, scores: Sequence[float], covered: Sequence[int]) -> list[float]:
        """Return the confidence of the hits from rank `start`, as `confidence` does from their features.

        What is the same for all of them is computed once: every search calls this."""
        of_all = self.features(0, self.best, 0)
        total = sum(map(mul, of_all, COEFFICIENTS))
        of_word = COEFFICIENTS.covered / max(self.words, 1)
        of_ranks = _OF_FIRST_RANKS[start : start + len(scores)]
        if len(of_ranks) < len(scores):
            of_ranks = [_of_rank(rank) for rank in range(start, start + len(scores))]
        behind, best = COEFFICIENTS.behind, self.best
        return [
            _logistic(total + of_word * words + behind * (best - score) + of_rank)
            for score, words, of_rank in zip(scores, covered, of_ranks, strict=True)
        ]


def _of_rank(rank: int) -> float:
    return COEFFICIENTS.rank * math.log1p(rank)


_OF_FIRST_RANKS = [_of_rank(rank) for rank in range(100)]
"""What the first ranks add to the logit: more ranks than nearly every search returns."""


def confidence(features: Sequence[float]) -> float:
    """Return the chance that a hit is relevant."""
    total = sum([each * weight for each, weight in zip(features, COEFFICIENTS, strict=True)])
    return _logistic(total)


def _logistic(total: float) -> float:
    return 1 / (1 + math.exp(-total)) if total > -700 else 0.0
