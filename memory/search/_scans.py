"""The scans that a search is made of. The compiled core does them without the interpreter's lock.

Each function has a twin in NumPy, for an installation without the core. The two give the same results bit
for bit: every sum of 32-bit floats is made in the same order on both sides.
"""

from __future__ import annotations

import numpy as np
import simsimd
from numpy.typing import NDArray

from memory._base.native import core

Floats = NDArray[np.float32]
Differences = NDArray[np.uint16]


def differing_signs(bits: NDArray[np.uint64], query: NDArray[np.uint64], out: Differences) -> None:
    """Count for each of the first vectors in how many signs it differs from the query.

    bits: the sign bits, 64 to a word, one column for each vector
    out: gets the counts; its length is the number of vectors
    """
    if core is None:
        differing_signs_pure(bits, query, out)
    else:
        core.differing_signs(bits, query, out)


def differing_signs_pure(bits: NDArray[np.uint64], query: NDArray[np.uint64], out: Differences) -> None:
    differing = np.bitwise_count(bits[:, : len(out)] ^ query[:, None])
    np.add.reduce(differing, axis=0, dtype=np.uint16, out=out)


def cosines(
    codes: NDArray[np.int8],
    norms: Floats,
    query: NDArray[np.int8],
    positions: NDArray[np.int64] | None,
    scale: float,
    count: int,
) -> Floats:
    """Return the integer products of vectors and query, divided by the vectors' lengths, times `scale`.

    positions: of which vectors; None for the first `count`
    """
    if core is None:
        return cosines_pure(codes, norms, query, positions, scale, count)
    out = np.empty(count if positions is None else len(positions), np.float32)
    core.cosines(codes, norms, query, positions, scale, out)
    return out


def cosines_pure(
    codes: NDArray[np.int8],
    norms: Floats,
    query: NDArray[np.int8],
    positions: NDArray[np.int64] | None,
    scale: float,
    count: int,
) -> Floats:
    if positions is None:
        codes, norms = codes[:count], norms[:count]
    else:
        codes, norms = codes[positions], norms[positions]
    if not len(codes):
        return np.empty(0, np.float32)
    products = np.asarray(simsimd.cdist(codes, query[None, :], metric="inner"))[:, 0]
    found: Floats = (products / norms).astype(np.float32)
    found *= np.float32(scale)
    return found


def add_words(
    scores: Floats,
    lengths: Floats,
    postings: NDArray[np.uint32],
    bounds: list[int],
    weights: list[float],
    slope: float,
    offset: float,
) -> None:
    """Add to `scores` what the postings of each word give: BM25 with its length normalisation.

    A posting with n occurrences in a memory of length l gives weight * n / (slope * l + offset + n).

    bounds: the start and the end of each word's postings (see `_lookups.py`)
    weights: one of each word
    """
    if core is None:
        add_words_pure(scores, lengths, postings, bounds, weights, slope, offset)
    else:
        core.add_words(scores, lengths, postings, bounds, weights, slope, offset)


def add_words_pure(
    scores: Floats,
    lengths: Floats,
    postings: NDArray[np.uint32],
    bounds: list[int],
    weights: list[float],
    slope: float,
    offset: float,
) -> None:
    for number, weight in enumerate(weights):
        part = postings[bounds[2 * number] : bounds[2 * number + 1]]
        positions = part >> np.uint32(8)
        occurrences = (part & np.uint32(255)).astype(np.float32)
        saturation = lengths[positions]
        saturation *= np.float32(slope)
        saturation += np.float32(offset)
        saturation += occurrences
        occurrences *= np.float32(weight)
        occurrences /= saturation
        scores[positions] += occurrences  # a memory is at most once among the postings of a word


def add_shares(scores: Floats, shares: Floats, context: Floats, turns: int) -> None:
    """Add to `context` what passes between elements that are `turns` apart, in both directions.

    shares[i] is the factor between the elements i - turns and i.
    """
    if core is None:
        add_shares_pure(scores, shares, context, turns)
    else:
        core.add_shares(scores, shares, context, turns)


def add_shares_pure(scores: Floats, shares: Floats, context: Floats, turns: int) -> None:
    if len(scores) <= turns:
        return
    shares = shares[turns : len(scores)]
    context[turns:] += shares * scores[:-turns]
    context[:-turns] += shares * scores[turns:]


def best_of_turns(scores: Floats, barriers: Floats, turns: int) -> Floats:
    """Return for each element the largest of itself and of those that are `turns` before and after it.

    barriers[i] is 0 if the elements i - turns and i count for each other, else minus infinity.
    """
    if core is None:
        return best_of_turns_pure(scores, barriers, turns)
    peaks = np.empty_like(scores)
    core.best_of_turns(scores, barriers, peaks, turns)
    return peaks


def best_of_turns_pure(scores: Floats, barriers: Floats, turns: int) -> Floats:
    peaks = scores.copy()
    if len(scores) <= turns:
        return peaks
    barriers = barriers[turns : len(scores)]
    np.maximum(peaks[turns:], scores[:-turns] + barriers, out=peaks[turns:])
    np.maximum(peaks[:-turns], scores[turns:] + barriers, out=peaks[:-turns])
    return peaks


def at_most(numbers: Differences, most: int) -> NDArray[np.int64]:
    """Return the positions of the numbers that are not larger than `most`, ascending."""
    if core is None:
        return at_most_pure(numbers, most)
    return np.frombuffer(core.at_most(numbers, most), np.int64)


def at_most_pure(numbers: Differences, most: int) -> NDArray[np.int64]:
    return (numbers <= most).nonzero()[0]


def estimates_of(
    differing: Differences, table: Floats, words: Floats | None, weight: float, bonus: Floats | None
) -> Floats:
    """Return table[differing] + words * weight + bonus. None stands for zeros."""
    estimates: Floats = table[differing]
    if words is not None:
        estimates = words * np.float32(weight) + estimates
    if bonus is not None:
        estimates += bonus
    return estimates


def at_least(
    differing: Differences,
    table: Floats,
    words: Floats | None,
    weight: float,
    bonus: Floats | None,
    lowest: float,
) -> NDArray[np.int64]:
    """Return the positions of the estimates that are not below `lowest`, ascending. See `estimates_of`."""
    if core is None:
        return at_least_pure(differing, table, words, weight, bonus, lowest)
    return np.frombuffer(core.at_least(differing, table, words, weight, bonus, lowest), np.int64)


def at_least_pure(
    differing: Differences,
    table: Floats,
    words: Floats | None,
    weight: float,
    bonus: Floats | None,
    lowest: float,
) -> NDArray[np.int64]:
    return (estimates_of(differing, table, words, weight, bonus) >= np.float32(lowest)).nonzero()[0]
