"""The nearest vectors of an agent.

Up to 65,536 memories, this is the search of `VectorBlock`. With more, it is done for all blocks at once:
sign bits find the candidates, int8 codes rank them. At last, the best few are compared by their vectors in
the store. Those are finer than the codes, and among a million vectors the tenth and the eleventh differ by
less than the rounding of a code.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from memory.search._scans import at_most
from memory.search._scratch import scratch
from memory.search.best import top
from memory.search.index import AgentIndex
from memory.search.own_scores import Floats, Mask, Positions, cosines_at, count_differing, reach_of
from memory.search.vectors import Query, reach_for

LARGE = 1 << 16
"""An agent with more memories is searched in all blocks at once."""
_FEW_ALLOWED = 4096
"""If so few memories are allowed, their codes are compared without looking at sign bits."""
_CANDIDATE_SHARE = 200  # The first pass ranks about the nearest 1/200 of the memories by their codes …
_CANDIDATES_PER_HIT = 12  # … but at least 12 for each wanted one
_MOST_CANDIDATES = 8  # If the candidates are more than 1/8 of the memories, each block is searched alone
_DEVIATIONS = 2.0
"""See `reach_for`. Measured recall@10 with a million memories, all in stm: .996 with 1.5, .999 with 2."""
_ROUNDING = 3  # The rounded query selects this many times k candidates, which the exact query then orders
_REREAD = 2
"""For each wanted memory, the vectors of the two best ones are read from the store. Measured recall@10 with
a million memories, of which 60 % are in ltm: .977 without, .981 with 2."""


def nearest(index: AgentIndex, query: Query, k: int, allowed: Mask | None) -> list[tuple[float, int]]:
    """Return the cosines and the positions of the k vectors nearest to a query, best first.

    Of equal cosines the newer memory comes first.

    allowed: masks the positions that may be returned; None for all
    """
    if index.count <= LARGE:
        return _of_each_block(index, query, k, allowed)
    wanted = _REREAD * k
    found = _of_all_blocks(index, query, k, wanted, allowed) if index.is_held else None
    if found is None:
        some = _of_each_block(index, query, wanted, allowed)
        found = (
            np.array([position for _, position in some], np.int64),
            np.array([cosine for cosine, _ in some], np.float32),
        )
    positions, cosines = found
    order = np.argsort(positions)
    positions, cosines = positions[order], cosines[order]
    places, vectors = index.stored_vectors(positions)
    cosines[places] = vectors @ query.exact
    return sorted(zip(cosines.tolist(), positions.tolist(), strict=True), reverse=True)[:k]


def _of_each_block(
    index: AgentIndex, query: Query, k: int, allowed: Mask | None
) -> list[tuple[float, int]]:
    """Do what `nearest` does, one block after the other."""
    found: list[tuple[float, int]] = []
    for base, count, block in index.blocks():
        part = None if allowed is None else allowed[base : base + count]
        at_least = found[-1][0] if len(found) == k else -1.0
        positions, cosines = block.vectors.nearest(query, count, k, part, at_least)
        found.extend(zip(cosines.tolist(), (positions + base).tolist(), strict=True))
        found.sort(reverse=True)
        del found[k:]
    return found


def _of_all_blocks(
    index: AgentIndex, query: Query, k: int, wanted: int, allowed: Mask | None
) -> tuple[Positions, Floats] | None:
    """Return positions and cosines of the nearest vectors, unordered: more than k, so that the k nearest
    are among them. Return None if too many vectors have similar bits."""
    candidates = _candidates(index, query, k, allowed)
    if candidates is None:
        return None
    if len(candidates) > max(_ROUNDING * k, wanted):
        cosines = cosines_at(index, query, candidates)
        candidates = np.sort(candidates[top(cosines, max(_ROUNDING * k, wanted))])
    cosines = _exact(index, query, candidates)
    best = top(cosines, wanted)
    return candidates[best], cosines[best]


def _candidates(index: AgentIndex, query: Query, k: int, allowed: Mask | None) -> Positions | None:
    """Return positions that very likely include the k nearest; None for too many. See `VectorBlock`."""
    if allowed is not None:
        positions: NDArray[np.int64] = allowed.nonzero()[0]
        if len(positions) <= max(_FEW_ALLOWED, k):
            return positions
    dimensions = len(query.exact)
    with scratch(index.count) as arrays:
        differing = arrays.differing
        count_differing(index, query, differing)
        if allowed is not None:
            differing[~allowed] = dimensions + 1
        reach = min(
            reach_of(differing, max(index.count // _CANDIDATE_SHARE, _CANDIDATES_PER_HIT * k)), dimensions
        )
        positions = at_most(differing, reach)
        cosines = cosines_at(index, query, positions)
        if len(cosines) < k:
            return None
        lowest = float(cosines[top(cosines, k)].min())
        needed = reach_for(lowest, dimensions, _DEVIATIONS)
        if needed > reach:
            positions = at_most(differing, needed)
        if len(positions) * _MOST_CANDIDATES > index.count:
            return None
    return positions


def _exact(index: AgentIndex, query: Query, positions: Positions) -> Floats:
    """Return the cosines of some memories, in ascending order, to the query that is not rounded."""
    parts = [np.empty(0, np.float32)]
    for base, size, block in index.blocks():
        first, last = positions.searchsorted((base, base + size)).tolist()
        if first < last:
            parts.append(block.vectors.exact(query, positions[first:last] - base))
    return np.concatenate(parts)
