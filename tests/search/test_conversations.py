"""The links between neighbouring memories against a plain walk over each conversation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from memory.search.conversations import COHERENCE_PAIRS, Conversations
from memory.search.turn_links import MISSING, NEIGHBOUR_SHARES, PEAK_SHARE
from memory.storage import NO_SESSION

DIMENSIONS = 16


def plain_context(sessions: list[int], scores: list[float], free_are_linked: bool) -> list[float]:
    """What the module's doc says, one memory at a time."""
    context = []
    for position, session in enumerate(sessions):
        chain = [other for other, name in enumerate(sessions) if name == session]
        if session == NO_SESSION and not free_are_linked:
            chain = [position]
        at = chain.index(position)
        own = scores[position]
        total = 0.0
        for distance, share in zip((1, 2), NEIGHBOUR_SHARES, strict=True):
            for place in (at - distance, at + distance):
                inside = 0 <= place < len(chain)
                total += share * (scores[chain[place]] if inside else MISSING * own)
        total += PEAK_SHARE * max(scores[other] for other in chain[max(at - 4, 0) : at + 5])
        context.append(total)
    return context


def in_parts(sessions: list[int], sizes: list[int]) -> Conversations:
    chains = Conversations(DIMENSIONS)
    start = 0
    for size in [*sizes, len(sessions)]:
        part = sessions[start : start + size]
        if part:
            chains.extend(np.array(part, np.int64))
        start += len(part)
    return chains


session_lists = st.lists(st.integers(0, 4), max_size=40)
with_free = st.lists(st.sampled_from([NO_SESSION, NO_SESSION, 0, 1, 2**62]), max_size=40)
part_sizes = st.lists(st.integers(1, 9), max_size=12)


@settings(deadline=None)
@given(sessions=session_lists.filter(bool), sizes=part_sizes, data=st.data())
def test_context_is_what_a_plain_walk_gives_however_the_memories_came(
    sessions: list[int], sizes: list[int], data: st.DataObject
) -> None:
    scores = data.draw(hnp.arrays(np.float32, len(sessions), elements=st.floats(-4, 4, width=32)))
    chains = in_parts(sessions, sizes)
    assert chains.count == len(sessions)
    context = chains.context(scores)
    assert context is not None
    expected = plain_context(sessions, [float(score) for score in scores], free_are_linked=True)
    assert context.tolist() == pytest.approx(expected, abs=1e-4)


@settings(deadline=None)
@given(sessions=with_free.filter(bool), sizes=part_sizes, data=st.data())
def test_memories_without_a_session_stand_alone_while_nothing_says_they_cohere(
    sessions: list[int], sizes: list[int], data: st.DataObject
) -> None:
    scores = data.draw(hnp.arrays(np.float32, len(sessions), elements=st.floats(-4, 4, width=32)))
    context = in_parts(sessions, sizes).context(scores)
    if all(session == NO_SESSION for session in sessions):
        assert context is None
        return
    assert context is not None
    expected = plain_context(sessions, [float(score) for score in scores], free_are_linked=False)
    assert context.tolist() == pytest.approx(expected, abs=1e-4)


def observe(chains: Conversations, vectors: np.ndarray, start: int, end: int) -> None:
    """Let it look at the memories from start to end - 1."""
    positions = np.arange(start, end)
    before = chains.before(positions)
    vectors = vectors.astype(np.float32)
    chains.observe(positions, vectors[positions], before, vectors[before])


def observed(vectors: np.ndarray, sizes: list[int]) -> Conversations:
    count = len(vectors)
    chains = Conversations(DIMENSIONS)
    start = 0
    for size in [*sizes, count]:
        end = min(start + size, count)
        if end == start:
            continue
        chains.extend(np.full(end - start, NO_SESSION, np.int64))
        observe(chains, vectors, start, end)
        start = end
    return chains


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def drifting(count: int) -> np.ndarray:
    """Each vector is near the one before it, as the turns of a conversation are."""
    steps = np.random.default_rng(1).standard_normal((count, DIMENSIONS))
    rows = [steps[0]]
    for step in steps[1:]:
        rows.append(0.8 * rows[-1] + 0.6 * step)
    return unit(np.array(rows))


@pytest.mark.parametrize("sizes", [[], [1] * 300, [64, 1, 7], [299]])
def test_a_chain_without_sessions_counts_if_consecutive_memories_are_alike(sizes: list[int]) -> None:
    scores = np.random.default_rng(2).standard_normal(300).astype(np.float32)
    vectors = drifting(300)
    context = observed(vectors, sizes).context(scores)
    assert context is not None
    expected = plain_context([NO_SESSION] * 300, scores.tolist(), free_are_linked=True)
    assert context.tolist() == pytest.approx(expected, abs=1e-4)
    shuffled = vectors[np.random.default_rng(3).permutation(300)]
    assert observed(shuffled, sizes).context(scores) is None


def test_few_memories_say_nothing_about_coherence() -> None:
    vectors = drifting(COHERENCE_PAIRS + 1)
    scores = np.ones(COHERENCE_PAIRS, np.float32)
    assert observed(vectors[:COHERENCE_PAIRS], []).context(scores) is None
    assert observed(vectors, []).context(np.ones(COHERENCE_PAIRS + 1, np.float32)) is not None


def test_equal_or_zero_vectors_do_not_count_as_a_conversation() -> None:
    scores = np.ones(200, np.float32)
    same = unit(np.ones((200, DIMENSIONS)))
    assert observed(same, []).context(scores) is None
    assert observed(np.zeros((200, DIMENSIONS)), []).context(scores) is None


def in_sessions(vectors: np.ndarray, length: int) -> Conversations:
    """Sessions of this length, their memories observed block by block."""
    chains = Conversations(DIMENSIONS)
    for start in range(0, len(vectors), 50):
        end = min(start + 50, len(vectors))
        chains.extend(np.arange(start, end) // length)
        observe(chains, vectors, start, end)
    return chains


def test_neighbours_in_a_session_count_until_enough_of_them_show_nothing_in_common() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(400).astype(np.float32)
    unrelated = unit(rng.standard_normal((400, DIMENSIONS)).astype(np.float32))
    assert in_sessions(unrelated, 20).context(scores) is None
    assert in_sessions(unrelated[:40], 20).context(scores[:40]) is not None, "too few to tell"
    wandering = drifting(400).astype(np.float32)
    assert in_sessions(wandering, 20).context(scores) is not None


def test_a_heap_of_notes_stands_alone_beside_a_conversation_in_sessions() -> None:
    rng = np.random.default_rng(2)
    notes = unit(rng.standard_normal((200, DIMENSIONS)).astype(np.float32))
    turns = drifting(200).astype(np.float32)
    chains = Conversations(DIMENSIONS)
    chains.extend(np.concatenate([np.full(200, NO_SESSION), np.arange(200) // 20]))
    observe(chains, np.vstack((notes, turns)), 0, 400)
    scores = np.zeros(400, np.float32)
    scores[[100, 300]] = 1.0
    context = chains.context(scores)
    assert context is not None
    assert context[101] == 0
    assert context[301] > 0
