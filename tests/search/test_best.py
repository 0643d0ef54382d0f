"""The k largest scores: always those that sorting all scores gives."""

from __future__ import annotations

import numpy as np
import pytest

from memory.search.best import best_values, top


def _scores(kind: str, count: int, rng: np.random.Generator) -> np.ndarray:
    scores = rng.normal(size=count).astype(np.float32)
    if kind == "mostly zero":
        scores[rng.random(count) < 0.97] = 0
    elif kind == "few values":
        scores = np.round(scores)
    elif kind == "mostly excluded":
        scores[rng.random(count) < 0.999] = -np.inf
    elif kind == "all equal":
        scores[:] = 1
    return scores


@pytest.mark.parametrize("kind", ["any", "mostly zero", "few values", "mostly excluded", "all equal"])
@pytest.mark.parametrize("count", [1, 10, 127, 5000, 8192, 20001])
@pytest.mark.parametrize("k", [0, 1, 10, 200])
def test_the_best_are_those_of_a_sort_and_of_equal_scores_the_last(kind: str, count: int, k: int) -> None:
    rng = np.random.default_rng(count + k)
    for _ in range(5):
        scores = _scores(kind, count, rng)
        expected = np.lexsort((-np.arange(count), -scores))[:k]
        assert sorted(top(scores, k).tolist()) == sorted(expected.tolist())
        if 1 <= k <= count:
            assert sorted(best_values(scores, k).tolist()) == sorted(scores[expected].tolist())
