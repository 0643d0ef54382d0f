"""Neighbours of some memories, and what they add to the scores: core and twin give the same bits."""

from __future__ import annotations

import numpy as np
import pytest

from memory._base.native import core
from memory.search._context import around, around_pure, context_of, context_of_pure
from memory.storage import NO_SESSION

needs_core = pytest.mark.skipif(core is None, reason="the compiled core was not built")
SHARES = (0.25, 0.125, 0.5, 0.5)


def links_of(sessions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the neighbours of each memory in its session."""
    before = np.arange(len(sessions), dtype=np.int32)
    after = before.copy()
    last: dict[int, int] = {}
    for at, session in enumerate(sessions.tolist()):
        if session in last:
            before[at], after[last[session]] = last[session], at
        last[session] = at
    return before, after


@pytest.mark.parametrize("chosen", [0, 1, 2, 300, 1500, 3000])
@pytest.mark.parametrize("kind", ["none", "runs", "mixed", "alternating"])
def test_the_context_of_some_memories_is_alike(kind: str, chosen: int) -> None:
    rng = np.random.default_rng(chosen)
    sessions = {
        "none": np.full(3000, NO_SESSION, np.int64),
        "runs": np.arange(3000, dtype=np.int64) // 40 * 2**40,
        "mixed": np.where(np.arange(3000) % 3, np.int64(NO_SESSION), rng.integers(0, 9, 3000)),
        "alternating": np.arange(3000, dtype=np.int64) % 7 - 3,
    }[kind]
    before, after = links_of(sessions)
    own = rng.random(3000, np.float32)
    positions = np.sort(rng.permutation(3000)[:chosen])
    scores = rng.normal(size=chosen).astype(np.float32)
    arguments = (positions, before, after, own, sessions[positions], scores, SHARES)
    ours, theirs = context_of(*arguments), context_of_pure(*arguments)
    assert ours.dtype == theirs.dtype == np.float32
    assert ours.tobytes() == theirs.tobytes()
    if chosen > 2:
        alone = own[positions] * scores + np.float32(1) * scores
        assert not np.array_equal(ours, alone), "no neighbour counted"


@pytest.mark.parametrize("chosen", [0, 1, 2, 300, 3000])
@pytest.mark.parametrize("kind", [1, 7, 40])
def test_the_memories_around_some_are_alike(kind: int, chosen: int) -> None:
    rng = np.random.default_rng(chosen)
    before, after = links_of(
        np.sort(rng.integers(0, 3000 // kind, 3000)) if kind == 40 else np.arange(3000) % kind
    )
    positions = rng.permutation(2900)[: min(chosen, 2800)]
    for turns in (0, 1, 6):
        # The last hundred came after the view.
        ours = around(positions, before, after, 2900, turns)
        assert ours.tolist() == around_pure(positions, before, after, 2900, turns).tolist()
        assert set(positions) <= set(ours.tolist())
        assert len(ours) > len(positions) or not turns or not chosen


def test_a_link_to_a_memory_behind_the_end_counts_as_none() -> None:
    """A view may have links to memories that came after it."""
    positions, scores = np.array([0, 1]), np.array([1, 2], np.float32)
    before, after = np.array([0, 0], np.int32), np.array([1, 7], np.int32)
    arguments = (positions, before, after, np.ones(2, np.float32), np.zeros(2, np.int64), scores, SHARES)
    assert context_of(*arguments).tobytes() == context_of_pure(*arguments).tobytes()


@needs_core
def test_arrays_that_do_not_fit_are_refused() -> None:
    assert core is not None
    links, floats = np.zeros(3, np.int32), np.zeros(3, np.float32)
    places = np.array([0, 1, 2])
    with pytest.raises(ValueError, match="different lengths"):
        core.context_of(places, links, links, floats, places, floats[:2], floats, SHARES, -1)
    with pytest.raises(ValueError, match="outside of the links"):
        core.context_of(places + 1, links, links, floats, places, floats, floats, SHARES, -1)
    with pytest.raises(ValueError, match="outside of the links"):
        core.context_of(places - 1, links, links, floats, places, floats, floats, SHARES, -1)
    with pytest.raises(TypeError, match="four shares"):
        core.context_of(places, links, links, floats, places, floats, floats, (1.0,), -1)
    with pytest.raises(TypeError, match="before"):
        core.context_of(places, floats, links, floats, places, floats, floats, SHARES, -1)
    with pytest.raises(ValueError, match="outside of the links"):
        core.around(places, links, links, 2, 1)
    with pytest.raises(ValueError, match="outside of the links"):
        core.around(places, links, links, 4, 1)
    with pytest.raises(ValueError, match="outside of the links"):
        core.around(places, links - 1, links, 3, 1)
    with pytest.raises(TypeError, match="before"):
        core.around(places, floats, links, 3, 1)
    with pytest.raises(TypeError, match="takes 9 arguments"):
        core.context_of()
