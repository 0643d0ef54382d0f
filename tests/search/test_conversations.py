"""The context of memories, compared with a plain computation over each conversation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from memory.search.conversations import COHERENCE_PAIRS, Conversations
from memory.search.turn_links import MISSING, NEIGHBOUR_SHARES, PEAK_SHARE, SESSION_SHARE
from memory.storage import NO_SESSION

DIMENSIONS = 16


def plain_context(sessions: list[int], scores: list[float], sessionless_are_linked: bool) -> list[float]:
    """Compute the context as `conversations.py` describes it, one memory at a time."""
    context = []
    for position, session in enumerate(sessions):
        chain = [other for other, name in enumerate(sessions) if name == session]
        if session == NO_SESSION and not sessionless_are_linked:
            chain = [position]
        at = chain.index(position)
        own = scores[position]
        total = 0.0
        for distance, share in zip((1, 2), NEIGHBOUR_SHARES, strict=True):
            for place in (at - distance, at + distance):
                inside = 0 <= place < len(chain)
                total += share * (scores[chain[place]] if inside else MISSING * own)
        near = [scores[other] for other in chain[max(at - 4, 0) : at + 5]]
        in_session = near if session == NO_SESSION else [scores[other] for other in chain]
        total += PEAK_SHARE * max(near) + SESSION_SHARE * max(in_session)
        context.append(total)
    return context


def in_parts(sessions: list[int], sizes: list[int]) -> Conversations:
    conversations = Conversations(DIMENSIONS)
    start = 0
    for size in [*sizes, len(sessions)]:
        part = sessions[start : start + size]
        if part:
            conversations.extend(np.array(part, np.int64))
        start += len(part)
    return conversations


session_lists = st.lists(st.integers(0, 4), max_size=40)
with_sessionless = st.lists(st.sampled_from([NO_SESSION, NO_SESSION, 0, 1, 2**62]), max_size=40)
part_sizes = st.lists(st.integers(1, 9), max_size=12)


@settings(deadline=None)
@given(sessions=session_lists.filter(bool), sizes=part_sizes, data=st.data())
def test_context_equals_a_plain_computation_for_any_order_of_adding(
    sessions: list[int], sizes: list[int], data: st.DataObject
) -> None:
    scores = data.draw(hnp.arrays(np.float32, len(sessions), elements=st.floats(-4, 4, width=32)))
    conversations = in_parts(sessions, sizes)
    assert conversations.count == len(sessions)
    context = conversations.context(scores)
    assert context is not None
    expected = plain_context(sessions, [float(score) for score in scores], sessionless_are_linked=True)
    assert context.tolist() == pytest.approx(expected, abs=1e-4)


@settings(deadline=None)
@given(sessions=with_sessionless.filter(bool), sizes=part_sizes, data=st.data())
def test_memories_without_a_session_get_no_context_until_they_cohere(
    sessions: list[int], sizes: list[int], data: st.DataObject
) -> None:
    scores = data.draw(hnp.arrays(np.float32, len(sessions), elements=st.floats(-4, 4, width=32)))
    context = in_parts(sessions, sizes).context(scores)
    if all(session == NO_SESSION for session in sessions):
        assert context is None
        return
    assert context is not None
    expected = plain_context(sessions, [float(score) for score in scores], sessionless_are_linked=False)
    assert context.tolist() == pytest.approx(expected, abs=1e-4)


def observe(conversations: Conversations, vectors: np.ndarray, start: int, end: int) -> None:
    """Observe the memories from `start` to `end` - 1."""
    positions = np.arange(start, end)
    before = conversations.before(positions)
    vectors = vectors.astype(np.float32)
    conversations.observe(positions, vectors[positions], before, vectors[before])


def observed(vectors: np.ndarray, sizes: list[int]) -> Conversations:
    count = len(vectors)
    conversations = Conversations(DIMENSIONS)
    start = 0
    for size in [*sizes, count]:
        end = min(start + size, count)
        if end == start:
            continue
        conversations.extend(np.full(end - start, NO_SESSION, np.int64))
        observe(conversations, vectors, start, end)
        start = end
    return conversations


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def drifting(count: int) -> np.ndarray:
    """Return vectors that are each near the one before, like the turns of a conversation."""
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
    expected = plain_context([NO_SESSION] * 300, scores.tolist(), sessionless_are_linked=True)
    assert context.tolist() == pytest.approx(expected, abs=1e-4)
    shuffled = vectors[np.random.default_rng(3).permutation(300)]
    assert observed(shuffled, sizes).context(scores) is None


def test_too_few_memories_leave_coherence_unknown() -> None:
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
    """Return sessions of this length, observed in blocks of 50 memories."""
    conversations = Conversations(DIMENSIONS)
    for start in range(0, len(vectors), 50):
        end = min(start + 50, len(vectors))
        conversations.extend(np.arange(start, end) // length)
        observe(conversations, vectors, start, end)
    return conversations


def test_neighbours_in_a_session_count_until_enough_pairs_show_no_coherence() -> None:
    rng = np.random.default_rng(1)
    scores = rng.random(400).astype(np.float32)
    unrelated = unit(rng.standard_normal((400, DIMENSIONS)).astype(np.float32))
    assert in_sessions(unrelated, 20).context(scores) is None
    assert in_sessions(unrelated[:40], 20).context(scores[:40]) is not None, "too few pairs"
    wandering = drifting(400).astype(np.float32)
    assert in_sessions(wandering, 20).context(scores) is not None


def test_unrelated_notes_get_no_context_while_a_conversation_in_sessions_does() -> None:
    rng = np.random.default_rng(2)
    notes = unit(rng.standard_normal((200, DIMENSIONS)).astype(np.float32))
    turns = drifting(200).astype(np.float32)
    conversations = Conversations(DIMENSIONS)
    conversations.extend(np.concatenate([np.full(200, NO_SESSION), np.arange(200) // 20]))
    observe(conversations, np.vstack((notes, turns)), 0, 400)
    scores = np.zeros(400, np.float32)
    scores[[100, 300]] = 1.0
    context = conversations.context(scores)
    assert context is not None
    assert context[101] == 0
    assert context[301] > 0


def test_later_memories_do_not_change_whether_the_neighbours_of_a_view_count() -> None:
    conversations = Conversations(2)
    units = np.eye(2, dtype=np.float32)[np.arange(2 * COHERENCE_PAIRS) // COHERENCE_PAIRS]

    def add(first: int, end: int) -> None:
        positions = np.arange(first, end)
        conversations.extend(np.full(end - first, NO_SESSION))
        before = conversations.before(positions)
        conversations.observe(positions, units[positions], before, units[before])

    add(0, COHERENCE_PAIRS)
    view = conversations.view()
    assert not view.count_neighbours
    add(COHERENCE_PAIRS, 2 * COHERENCE_PAIRS)
    assert conversations.count_neighbours
    assert not view.count_neighbours
