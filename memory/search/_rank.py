"""Score all memories of an index and choose the best ones.

For an index of one block, which is up to 65,536 memories, this is one call of the compiled core that,
from 2,048 memories on, releases the interpreter's lock. Many small calls would be slower, and threads that
search at once would wait for each other before each of them. The twin in NumPy gives the same results bit
for bit.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from memory._base.native import core
from memory.search.best import top
from memory.search.index import AgentIndex
from memory.search.lexical import WordMatches
from memory.search.own_scores import Floats, Mask, exact_scores
from memory.search.vectors import Query


class Best(NamedTuple):
    """The best memories, best first."""

    positions: list[int]
    scores: list[float]
    cosines: list[float]
    context: list[float] | None
    """What the neighbours added; None if no neighbours count."""
    bonus: list[float] | None
    best_cosine: float
    """The largest cosine of all memories that are not deleted; minus infinity if all are."""


def rank(
    index: AgentIndex,
    k: int,
    query: Query,
    matches: WordMatches,
    bonus: Floats | None,
    allowed: Mask | None,
) -> Best:
    """Return the k best memories, of equal ones the newer first.

    matches: the words of the query
    bonus: what each memory gets besides; None for nothing
    allowed: masks the positions that may be returned; None for all
    """
    block = index.only_block
    if core is None or block is None:
        return rank_pure(index, k, query, matches, bonus, allowed)
    return Best(
        *core.rank(
            index.count,
            k,
            (*block.vectors.arrays, query.code, query.scale),
            matches.for_core() if matches else None,
            index.living,
            index.conversations.for_core(),
            bonus,
            allowed,
        )
    )


def rank_pure(
    index: AgentIndex,
    k: int,
    query: Query,
    matches: WordMatches,
    bonus: Floats | None,
    allowed: Mask | None,
) -> Best:
    """Do what `rank` does, without the compiled core, or with an index of several blocks."""
    living = index.living
    own, cosines = exact_scores(index, query, matches.scores() if matches else None, living)
    of_living = cosines if living is None else cosines[living]
    best_cosine = float(np.maximum.reduce(of_living, initial=-np.inf))
    return choose(None, own, cosines, index.conversations.context(own), bonus, allowed, k, best_cosine)


def choose(
    positions: NDArray[np.int64] | None,
    own: Floats,
    cosines: Floats,
    context: Floats | None,
    bonus: Floats | None,
    allowed: Mask | None,
    k: int,
    best_cosine: float,
) -> Best:
    """Return the best of some memories, given what their scores are made of.

    positions: to which memories the elements of the arrays belong; None for all memories
    best_cosine: the largest cosine of all memories that are not deleted
    """
    total = own if context is None else own + context
    if bonus is not None:
        total = total + bonus
    if allowed is not None:
        total = np.where(allowed, total, -np.inf)
    best = top(total, k)
    best = best[np.lexsort((-best, -total[best]))]
    if allowed is not None:
        best = best[allowed[best]]
    return Best(
        (best if positions is None else positions[best]).tolist(),
        total[best].tolist(),
        cosines[best].tolist(),
        None if context is None else context[best].tolist(),
        None if bonus is None else bonus[best].tolist(),
        best_cosine,
    )
