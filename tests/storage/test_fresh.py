"""Rows that a process has just added reach its own index without the file; anything else is read there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import add, features_of, numbered, row
from threads import together

from memory.entry import Tier
from memory.errors import IdConflict
from memory.storage import SQLiteStore


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    store.add([row("first"), row("other", "bob")])
    yield store
    store.close()


@pytest.fixture
def number(store: SQLiteStore) -> Callable[[], int]:
    watch = store.watch("ann", new_rows=True)
    assert watch is not None
    return watch


def test_what_was_added_is_handed_over_once(store: SQLiteStore, number: Callable[[], int]) -> None:
    before = number()
    one = add(store, [row("a", session=None, step=None)])
    two = add(store, numbered(3, tier=Tier.IM))
    after, columns = store.fresh_rows("ann", before, 1)
    assert after == number()
    _, _, read = store.catch_up("ann", 1, 0)
    for name in ("seq", "tier", "created_at", "step", "session"):
        assert getattr(columns, name).tolist() == getattr(read, name).tolist(), name
        assert getattr(columns, name).dtype == getattr(read, name).dtype, name
    assert columns.features == read.features == [features_of(each) for each in one + two]
    assert store.fresh_rows("ann", before, 1) is None
    assert store.fresh_rows("ann", after, 1) is None


def test_rows_that_were_seen_already_are_left_out(store: SQLiteStore, number: Callable[[], int]) -> None:
    before = number()
    (seen,) = add(store, [row("a")])
    assert store.fresh_rows("ann", before, seen.seq) == (number(), None)


@pytest.mark.parametrize("who", ["ann", "bob"])
def test_batches_of_several_agents_reach_each(
    store: SQLiteStore, number: Callable[[], int], who: str
) -> None:
    before = {agent: store.watch(agent, new_rows=True)() for agent in ("ann", "bob")}
    stored = add(store, [row("a"), row("b", "bob"), row("c")])
    _, columns = store.fresh_rows(who, before[who], 1)
    assert columns.features == [features_of(each) for each in stored if each.agent == who]


def test_what_another_connection_did_breaks_the_chain(
    store: SQLiteStore, number: Callable[[], int], path: Path
) -> None:
    before = number()
    add(store, [row("a")])
    between = number()
    other = SQLiteStore(path)
    other.add([row("theirs")])
    add(store, [row("b")])
    other.close()
    after, columns = store.fresh_rows("ann", before, 1)
    assert after == between != number()
    assert [seq for seq, *_ in columns.features] == [2]
    assert store.fresh_rows("ann", after, 2) is None


@pytest.mark.parametrize(
    "change",
    [
        lambda store: store.delete("ann", ["a"]),
        lambda store: store.delete_agent("ann"),
        lambda store: store.forget("ann", [2], Tier.STM),
        lambda store: store.replace(store.rows("ann", [2])[0], store.rows("ann", [2])[0]),
    ],
    ids=["delete", "delete_agent", "forget", "replace"],
)
def test_a_change_breaks_the_chain(
    store: SQLiteStore, number: Callable[[], int], change: Callable[[SQLiteStore], object]
) -> None:
    before = number()
    add(store, [row("a")])
    assert change(store)
    add(store, [row("b")])
    after, columns = store.fresh_rows("ann", before, 1)
    assert after != number()
    assert [seq for seq, *_ in columns.features] == [2]


def test_what_was_refused_is_not_handed_over(store: SQLiteStore, number: Callable[[], int]) -> None:
    before = number()
    with pytest.raises(IdConflict):
        store.add([row("a"), row("first", digest=5)])
    assert store.fresh_rows("ann", before, 1) is None
    assert store.add([row("first"), row("a")]) == [None, 2]
    _, columns = store.fresh_rows("ann", before, 1)
    assert [seq for seq, *_ in columns.features] == [2]


def test_no_more_is_kept_than_a_search_may_want(store: SQLiteStore, number: Callable[[], int]) -> None:
    before = number()
    for each in numbered(70):
        store.add([each])
    assert store.fresh_rows("ann", before, 1) is None
    store.add(numbered(100, "bob"))
    assert store.fresh_rows("bob", before, 1) is None


def test_agents_that_nobody_searches_are_not_kept(store: SQLiteStore) -> None:
    pulse = store.watch("ann")
    assert pulse is not None
    add(store, [row("a")])
    assert store.fresh_rows("ann", 2, 0) is None
    assert store.fresh_rows("nobody", 2, 0) is None


def test_only_the_agents_that_were_followed_last_are_kept(store: SQLiteStore) -> None:
    add(store, [row("a", f"agent {each}") for each in range(100)])
    before = [store.watch(f"agent {each}", new_rows=True)() for each in range(100)]
    add(store, [row("b", f"agent {each}") for each in range(100)])
    kept = [store.fresh_rows(f"agent {each}", before[each], 1) is not None for each in range(100)]
    assert kept == [False] * 36 + [True] * 64


def test_with_many_writers_nothing_is_missed_and_nothing_comes_twice(
    store: SQLiteStore, number: Callable[[], int], path: Path
) -> None:
    """Whoever asks for fresh rows first and for the file's second has all of them in the end, once."""
    other = SQLiteStore(path)
    seen: list[int] = []

    def follow() -> None:
        pulse, last = number(), 1
        state, _, columns = store.catch_up("ann", last, 0)
        seen.extend(columns.seq.tolist())
        last = state.last_seq
        while len(seen) < 400:
            now = number()
            fresh = store.fresh_rows("ann", pulse, last)
            if fresh is not None:
                pulse, columns = fresh
                if columns is not None:
                    seen.extend(columns.seq.tolist())
                    last = seen[-1]
            if pulse != now or now & 1:
                state, _, columns = store.catch_up("ann", last, 0)
                seen.extend(columns.seq.tolist())
                last, pulse = max(last, state.last_seq), now

    def write(mine: SQLiteStore, name: str) -> None:
        for each in range(200):
            mine.add([row(f"{name} {each}")])

    together(follow, lambda: write(store, "ours"), lambda: write(other, "theirs"))
    other.close()
    assert seen == list(range(2, 402))
