"""The scans of a search: the compiled functions and their twins give the same numbers, bit for bit."""

from __future__ import annotations

import numpy as np
import pytest

from memory._base.native import core
from memory.search import _scans

needs_core = pytest.mark.skipif(core is None, reason="the compiled core was not built")


@pytest.mark.parametrize("words", [1, 4, 6])
@pytest.mark.parametrize("rows", [0, 1, 15, 16, 17, 5000])
def test_differing_signs_are_counted_alike(words: int, rows: int) -> None:
    rng = np.random.default_rng(rows)
    bits = rng.integers(0, 2**64, (words, rows + 9), dtype=np.uint64)
    query = rng.integers(0, 2**64, words, dtype=np.uint64)
    if rows > 2:
        bits[:, 1], bits[:, 2] = query, ~query
    ours, theirs = np.empty(rows, np.uint16), np.empty(rows, np.uint16)
    _scans.differing_signs(bits, query, ours)
    _scans.differing_signs_pure(bits, query, theirs)
    assert ours.tolist() == theirs.tolist()
    if rows > 2:
        assert ours[1:3].tolist() == [0, 64 * words]


@pytest.mark.parametrize("dimensions", [1, 16, 31, 64, 256, 300])
@pytest.mark.parametrize("chosen", [False, True])
def test_cosines_are_alike(dimensions: int, chosen: bool) -> None:
    rng = np.random.default_rng(dimensions)
    codes = rng.integers(-127, 128, (700, dimensions), dtype=np.int8)
    codes[3] = 0
    norms = np.maximum(np.sqrt((codes.astype(np.float32) ** 2).sum(axis=1)), 1).astype(np.float32)
    query = codes[9].copy()
    positions = rng.permutation(700)[:200] if chosen else None
    arguments = (codes, norms, query, positions, 0.0123, 650)
    assert _scans.cosines(*arguments).tobytes() == _scans.cosines_pure(*arguments).tobytes()


def test_words_are_scored_alike() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(0, 60, 40_000).astype(np.float32)
    ours, theirs = np.zeros(40_000, np.float32), np.zeros(40_000, np.float32)
    parts, bounds, weights = [], [], []
    for count in (0, 1, 127, 128, 129, 30_000):
        positions = np.sort(rng.permutation(40_000)[:count]).astype(np.uint32)
        bounds += [sum(map(len, parts)), sum(map(len, parts)) + count]
        parts.append(positions << np.uint32(8) | rng.integers(1, 256, count).astype(np.uint32))
        weights.append(float(rng.random() * 9))
    arguments = (np.concatenate(parts), bounds, weights, 0.031, 0.54)
    _scans.add_words(ours, lengths, *arguments)
    _scans.add_words_pure(theirs, lengths, *arguments)
    assert ours.any()
    assert ours.tobytes() == theirs.tobytes()


@pytest.mark.parametrize("turns", [1, 2])
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5, 4095, 4096, 4097, 4098, 9000])
def test_scores_pass_between_turns_alike(turns: int, count: int) -> None:
    rng = np.random.default_rng(count)
    scores = rng.standard_normal(count, dtype=np.float32)
    linked = rng.random(count + 3) < 0.8  # the arrays of an index are longer than its memories are many
    shares = np.where(linked, 0.25, 0).astype(np.float32)
    barriers = np.where(linked, 0, -np.inf).astype(np.float32)
    ours, theirs = np.ones(count, np.float32), np.ones(count, np.float32)
    _scans.add_shares(scores, shares, ours, turns)
    _scans.add_shares_pure(scores, shares, theirs, turns)
    assert ours.tobytes() == theirs.tobytes()
    peaks = _scans.best_of_turns(scores, barriers, turns)
    assert peaks.tobytes() == _scans.best_of_turns_pure(scores, barriers, turns).tobytes()


@pytest.mark.parametrize("count", [0, 1, 31, 32, 33, 1023, 1024, 1025, 10_001])
def test_positions_are_chosen_alike(count: int) -> None:
    rng = np.random.default_rng(count)
    differing = rng.integers(0, 258, count).astype(np.uint16)
    for most in (-1, 0, 100, 257, 65_535, 100_000):
        ours = _scans.at_most(differing, most)
        assert ours.tolist() == _scans.at_most_pure(differing, most).tolist()
        assert ours.tolist() == [at for at, number in enumerate(differing.tolist()) if number <= most]


@pytest.mark.parametrize("has_words", [True, False])
@pytest.mark.parametrize("has_bonus", [True, False])
@pytest.mark.parametrize("count", [0, 1, 1023, 1024, 1025, 10_001])
def test_estimates_are_added_and_chosen_alike(count: int, has_words: bool, has_bonus: bool) -> None:
    rng = np.random.default_rng(count)
    differing = rng.integers(0, 258, count).astype(np.uint16)
    table = np.append(rng.random(257, dtype=np.float32), np.float32(-np.inf))
    words = rng.random(count + 5, dtype=np.float32)[:count] if has_words else None
    bonus = rng.random(count, dtype=np.float32) if has_bonus else None
    estimates = _scans.estimates_of(differing, table, words, 0.37, bonus).tolist()
    for lowest in (-np.inf, 0.5, *estimates[:20], 9.0):
        ours = _scans.at_least(differing, table, words, 0.37, bonus, lowest)
        theirs = _scans.at_least_pure(differing, table, words, 0.37, bonus, lowest)
        assert ours.tolist() == theirs.tolist()
        assert ours.tolist() == [at for at, estimate in enumerate(estimates) if estimate >= lowest]


@needs_core
def test_nothing_outside_of_an_array_is_read_or_written() -> None:
    assert core is not None
    scores, lengths = np.zeros(5, np.float32), np.ones(5, np.float32)
    with pytest.raises(ValueError, match="outside of 5 memories"):
        core.add_words(scores, lengths, np.array([5 << 8 | 1], np.uint32), [0, 1], [1.0], 1.0, 1.0)
    with pytest.raises(ValueError, match="outside of 5 memories"):
        core.add_words(scores, lengths[:4], np.array([1], np.uint32), [0, 1], [1.0], 1.0, 1.0)
    with pytest.raises(ValueError, match="outside of 1 postings"):
        core.add_words(scores, lengths, np.array([1], np.uint32), [0, 2], [1.0], 1.0, 1.0)
    with pytest.raises(ValueError, match="of 1 words, not of 2"):
        core.add_words(scores, lengths, np.array([1], np.uint32), [0, 1], [1.0, 2.0], 1.0, 1.0)
    codes, norms = np.zeros((5, 8), np.int8), np.ones(5, np.float32)
    out = np.empty(1, np.float32)
    for place in (5, -1):
        with pytest.raises(ValueError, match="do not fit"):
            core.cosines(codes, norms, codes[0], np.array([place]), 1.0, out)
    with pytest.raises(ValueError, match="do not fit"):
        core.cosines(codes, norms, codes[0], None, 1.0, np.empty(6, np.float32))
    with pytest.raises(ValueError, match="are no"):
        core.differing_signs(np.zeros((2, 5), np.uint64), np.zeros(2, np.uint64), np.empty(6, np.uint16))
    two = np.array([2], np.uint16)
    with pytest.raises(ValueError, match="outside of a table"):
        core.at_least(two, out.repeat(2), out, 1.0, None, 0.0)
    with pytest.raises(ValueError, match="words has 0"):
        core.at_least(two, out.repeat(3), out[:0], 1.0, None, 0.0)
    with pytest.raises(ValueError, match="bonus has 0"):
        core.at_least(two, out.repeat(3), None, 1.0, out[:0], 0.0)
    with pytest.raises(ValueError, match="shares has 3"):
        core.add_shares(scores, scores[:3], scores.copy(), 1)
    with pytest.raises(ValueError, match="same array"):
        core.best_of_turns(scores, scores, scores, 1)
    with pytest.raises(ValueError, match="turns is 0"):
        core.add_shares(scores, scores, scores.copy(), 0)
    with pytest.raises(TypeError):
        core.differing_signs(np.zeros((2, 5), np.int64), np.zeros(2, np.uint64), np.empty(5, np.uint16))
