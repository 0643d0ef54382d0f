"""Each memory's own score: what its words and its vector say, before its neighbours count.

BM25 scores and cosines are put on one scale, on which 0 is the average memory and 1 is the mean of the ten
best. So they can be added, whatever the query and the collection.

For an agent with many memories, cosines are first estimated, from the signs in which a vector differs from
the query: an eighth of the bytes. Memories that can be among the best get exact ones (`candidates.py`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory._base.native import core
from memory.search._scans import at_least, at_most, estimates_of
from memory.search.best import best_values
from memory.search.index import AgentIndex
from memory.search.vectors import Query, reach_for

BEST = 10
"""The memories whose mean score becomes 1: as many as a search returns by default."""
_LANES = 16  # as in memory/_native/rank.c
_SAMPLE = 4096
"""Memories whose exact cosines give the average, and what differing signs say about a cosine."""
_NEAREST = 1024
"""The ten largest cosines are looked for among so many memories with the fewest differing signs, or among
more, if vectors as near as the tenth may have more differing signs …"""
_MOST_NEAREST = 64  # … but at most among 1/64 of all memories
_SORTED = 8192
"""Estimates that are sorted to find the lowest one that `best` returns."""

Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]
Positions = NDArray[np.int64]


class Scale(NamedTuple):
    """Puts scores on the common scale."""

    mean: float
    factor: float
    """0 if all scores are equal, apart from rounding."""

    @classmethod
    def of(cls, scores: Floats, living: Mask | None) -> Scale:
        """Return the scale on which the average of all scores is 0 and that of the best ones is 1."""
        if core is None:
            return cls.of_pure(scores, living)
        return cls(*core.scale_of(scores, living))

    @classmethod
    def of_pure(cls, scores: Floats, living: Mask | None) -> Scale:
        """Do what `of` does, without the compiled core: the same bits."""
        counted = scores if living is None else scores[living]
        count = len(counted)
        if count == 0:
            return cls(0.0, 0.0)
        # The sum has an order that a loop in C can follow: one for each of 16 lanes, then the lanes.
        wide = np.zeros(-(-count // _LANES) * _LANES)
        wide[:count] = counted
        total = _sum(np.add.reduce(wide.reshape(-1, _LANES), axis=0))
        return cls.from_best(total / count, best_values(counted, max(1, min(BEST, count // 10))))

    @classmethod
    def from_best(cls, mean: float, best: Floats) -> Scale:
        """Return the scale on which `mean` is 0 and the mean of `best` is 1."""
        spread = _sum(np.sort(best)) / len(best) - mean
        return cls(float(np.float32(mean)), float(np.float32(1 / spread)) if spread > 1e-9 else 0.0)

    def apply(self, scores: Floats) -> Floats:
        scaled: Floats = (scores - np.float32(self.mean)) * np.float32(self.factor)
        return scaled


def _sum(values: NDArray[Any]) -> float:
    """Return the sum of values, added in their order as 64-bit floats."""
    total = 0.0
    for value in values.tolist():
        total += value
    return total


def exact_scores(
    index: AgentIndex, query: Query, words: Floats | None, living: Mask | None
) -> tuple[Floats, Floats]:
    """Return the score of each memory, and its cosine to the query.

    words: the BM25 score of each memory; None if none holds a word of the query
    living: masks the memories that are not deleted; the others get 0, and change no neighbour's score
    """
    parts = [block.vectors.scores(query, count) for _, count, block in index.blocks()]
    cosines = parts[0] if len(parts) == 1 else np.concatenate(parts)
    own = Scale.of(cosines, living).apply(cosines)
    if words is not None:
        own += Scale.of(words, living).apply(words)
    if living is not None:
        own[~living] = 0.0
    return own, cosines


class EstimatedScores:
    """The scores of an agent with many memories: estimates of all, and exact ones of some."""

    def __init__(
        self,
        index: AgentIndex,
        query: Query,
        words: Floats | None,
        living: Mask | None,
        differing: NDArray[np.uint16],
    ) -> None:
        """The first arguments are those of `exact_scores`.

        differing: an array with a place for each memory, which gets the number of its differing signs
        """
        self._index, self._query, self._words, self._living = index, query, words, living
        self._differing = differing
        count = index.count
        count_differing(index, query, differing)
        dimensions = len(query.exact)
        sample = np.arange(0, count, max(count // _SAMPLE, 1))
        if living is not None:
            differing[~living] = dimensions + 1  # the last element of the table
            sample = sample[living[sample]]
        cosines = self.cosines_at(sample)
        nearest = self._nearest_cosines(dimensions)
        mean = float(cosines.mean(dtype=np.float64)) if len(cosines) else 0.0
        self.best_cosine = float(nearest.max()) if len(nearest) else 0.0
        """The largest cosine, very likely."""
        few = min(BEST, len(nearest))
        self._scale = Scale.from_best(mean, best_values(nearest, few)) if few else Scale(mean, 0.0)
        self._word_scale = Scale(0.0, 0.0) if words is None else Scale.of(words, living)
        table = self._scale.apply(_expected_cosines(differing[sample], cosines, dimensions))
        table -= np.float32(self._word_scale.mean * self._word_scale.factor)
        self._table = np.append(table, np.float32(-np.inf))
        """By the number of differing signs: what the estimate is, apart from words."""

    def best(self, wanted: int, bonus: Floats | None) -> Positions:
        """Return the positions of about `wanted` memories with the best estimates, ascending.

        bonus: what each memory gets besides
        """
        words, weight = self._words, self._word_scale.factor
        some = slice(None, None, max(len(self._differing) // _SORTED, 1))
        sample = estimates_of(
            self._differing[some],
            self._table,
            None if words is None else words[some],
            weight,
            None if bonus is None else bonus[some],
        )
        sample.sort()
        lowest = float(sample[-1 - int(len(sample) * wanted / len(self._differing))])
        return at_least(self._differing, self._table, words, weight, bonus, lowest)

    def _nearest_cosines(self, dimensions: int) -> Floats:
        """Return exact cosines that include the ten largest ones, very likely."""
        differing = self._differing
        reach = reach_of(differing, _NEAREST)
        cosines = self.cosines_at(at_most(differing, reach))
        if len(cosines) >= BEST:
            farthest = reach_of(differing, len(differing) // _MOST_NEAREST)
            needed = min(reach_for(float(best_values(cosines, BEST).min()), dimensions), farthest)
            if needed > reach:
                more = at_most(differing, needed)
                more = more[differing[more] > reach]
                cosines = np.concatenate((cosines, self.cosines_at(more)))
        return cosines

    def cosines_at(self, positions: Positions) -> Floats:
        """Return the exact cosines of some memories, given in ascending order."""
        return cosines_at(self._index, self._query, positions)

    def exact_at(self, positions: Positions) -> tuple[Floats, Floats]:
        """Return the exact scores and cosines of some memories, given in ascending order."""
        cosines = self.cosines_at(positions)
        own = self._scale.apply(cosines)
        if self._words is not None:
            own += self._word_scale.apply(self._words[positions])
        if self._living is not None:
            own[~self._living[positions]] = 0.0
        return own, cosines


def count_differing(index: AgentIndex, query: Query, out: NDArray[np.uint16]) -> None:
    """Write into `out` in how many signs the vector of each memory differs from the query."""
    for base, size, block in index.blocks():
        block.vectors.count_differing(query, out[base : base + size])


def cosines_at(index: AgentIndex, query: Query, positions: Positions) -> Floats:
    """Return the cosines of some memories, given in ascending order."""
    parts = [np.empty(0, np.float32)]
    for base, size, block in index.blocks():
        first, last = positions.searchsorted((base, base + size)).tolist()
        if first < last:
            parts.append(block.vectors.scores_at(query, positions[first:last] - base))
    return parts[1] if len(parts) == 2 else np.concatenate(parts)


def reach_of(differing: NDArray[np.uint16], wanted: int) -> int:
    """Return a number of differing signs that about `wanted` memories, or more, do not exceed."""
    stride = max(len(differing) // 16_384, 1)
    counts = np.cumsum(np.bincount(differing[::stride])) * stride
    return int(np.searchsorted(counts, min(wanted, counts[-1])))


def _expected_cosines(differing: NDArray[np.uint16], cosines: Floats, dimensions: int) -> Floats:
    """Return the expected cosine for each number of differing signs, given a sample of both.

    It is that of the angle: the share of differing signs times 180 degrees. A line through the sample
    corrects it, because the components of real vectors are neither independent nor centred.
    """
    by_angle = np.cos(np.arange(dimensions + 1) * (np.pi / dimensions))
    if len(cosines) == 0:
        return np.asarray(by_angle, np.float32)
    x, y = by_angle[differing], cosines.astype(np.float64)
    deviations = x - x.mean()
    squares = float(deviations @ deviations)
    slope = float(deviations @ y) / squares if squares > 0 else 1.0
    return np.asarray(slope * (by_angle - x.mean()) + y.mean(), np.float32)
