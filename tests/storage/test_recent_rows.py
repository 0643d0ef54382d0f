"""`recent_rows` returns rows that this process just added, and only if none is missing."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from conformance import add, features_of, numbered, row
from small_embedder import small_embedder
from threads import together

from memory import AgentMemorySystem
from memory._base.native import core
from memory.entry import Tier
from memory.errors import IdConflict
from memory.storage import SQLiteStore
from memory.storage.shared_versions import SharedVersions


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "memory.db"


@pytest.fixture
def store(path: Path) -> Iterator[SQLiteStore]:
    store = SQLiteStore(path)
    store.add([row("first"), row("other", "bob")])
    for agent in ("ann", "bob"):
        assert store.recent_rows(agent, 0, 1) is None  # the first call makes the store keep the next rows
    yield store
    store.close()


def test_added_rows_are_returned_once(store: SQLiteStore) -> None:
    one = add(store, [row("a", session=None, step=None)])
    two = add(store, numbered(3, tier=Tier.IM))
    columns = store.recent_rows("ann", 1, 5)
    _, _, read = store.catch_up("ann", 1, 0)
    for name in ("seq", "tier", "created_at", "step", "session"):
        assert getattr(columns, name).tolist() == getattr(read, name).tolist(), name
        assert getattr(columns, name).dtype == getattr(read, name).dtype, name
    assert columns.features == read.features == [features_of(each) for each in one + two]
    assert store.recent_rows("ann", 1, 5) is None


def test_an_empty_range_and_an_unknown_agent_return_none(store: SQLiteStore) -> None:
    assert store.recent_rows("ann", 1, 1) is None
    assert store.recent_rows("nobody", 0, 0) is None


def test_rows_up_to_the_given_seq_are_left_out(store: SQLiteStore) -> None:
    add(store, numbered(3))
    columns = store.recent_rows("ann", 2, 4)
    assert columns.seq.tolist() == [3, 4]


@pytest.mark.parametrize("who", ["ann", "bob"])
def test_a_batch_of_several_agents_is_kept_for_each(store: SQLiteStore, who: str) -> None:
    stored = add(store, [row("a"), row("b", "bob"), row("c")])
    mine = [each for each in stored if each.agent == who]
    columns = store.recent_rows(who, 1, mine[-1].seq)
    assert columns.features == [features_of(each) for each in mine]


def test_rows_added_by_another_store_in_between_return_none(store: SQLiteStore, path: Path) -> None:
    for order in ("ours theirs ours", "theirs ours", "ours theirs"):
        other = SQLiteStore(path)
        first = store.state("ann").last_seq
        for number, whose in enumerate(order.split()):
            (store if whose == "ours" else other).add([row(f"{order} {number}")])
        other.close()
        assert store.recent_rows("ann", first, store.state("ann").last_seq) is None, order


def test_rows_that_were_not_added_are_not_returned(store: SQLiteStore) -> None:
    with pytest.raises(IdConflict):
        store.add([row("a"), row("first", digest=5)])
    assert store.add([row("first"), row("a")]) == [None, 2]
    columns = store.recent_rows("ann", 1, 2)
    assert columns.seq.tolist() == [2]


def test_more_rows_than_the_limit_return_none(store: SQLiteStore) -> None:
    for each in numbered(70):
        store.add([each])
    assert store.recent_rows("ann", 1, 71) is None
    store.add(numbered(100, "bob"))
    assert store.recent_rows("bob", 1, 101) is None


def test_rows_are_kept_only_for_the_agents_that_were_searched_last(store: SQLiteStore) -> None:
    agents = [f"agent {each}" for each in range(100)]
    add(store, [row("a", agent) for agent in agents])
    for agent in agents:
        assert store.recent_rows(agent, 0, 1) is None
    add(store, [row("b", agent) for agent in agents])
    kept = [store.recent_rows(agent, 1, 2) is not None for agent in agents[::-1]]
    assert kept[:64] == [True] * 64
    assert not any(kept[64:])


def test_an_index_beside_two_writers_gets_every_row_once(store: SQLiteStore, path: Path) -> None:
    """The index first calls `recent_rows`, then `catch_up` if that returned None."""
    other = SQLiteStore(path)
    seen: list[int] = [1]

    def follow() -> None:
        while len(seen) < 401:
            state = store.state("ann")
            if state.last_seq == seen[-1]:
                continue
            columns = store.recent_rows("ann", seen[-1], state.last_seq)
            if columns is None:
                _, _, columns = store.catch_up("ann", seen[-1], state.last_change)
            seen.extend(columns.seq.tolist())

    def write(mine: SQLiteStore, name: str) -> None:
        for each in range(200):
            mine.add([row(f"{name} {each}")])

    together(follow, lambda: write(store, "ours"), lambda: write(other, "theirs"))
    other.close()
    assert seen == list(range(1, 402))


def watched(store: SQLiteStore) -> int:
    watch = store.watch("ann", new_rows=True)
    assert watch is not None
    return watch()


def added_alone(store: SQLiteStore, *names: str) -> None:
    """Add rows one by one: the first opens the tail of the agent, the others are added to it."""
    for name in names:
        store.add([row(name, has_new_id=True)])


@pytest.mark.skipif(core is None, reason="only the compiled core can tell that nobody else has added rows")
def test_own_rows_are_returned_while_nobody_else_has_written(store: SQLiteStore) -> None:
    added_alone(store, "a", "b", "c")
    columns = store.own_rows("ann", 1, watched(store))
    assert columns is not None
    assert columns.seq.tolist() == [2, 3, 4]
    assert store.own_rows("ann", 1, watched(store)) is None  # each row is returned once
    added_alone(store, "d")
    columns = store.own_rows("ann", 4, watched(store))
    assert columns is not None
    assert columns.seq.tolist() == [5]
    assert store.own_rows("nobody", 0, watched(store)) is None


@pytest.mark.parametrize("order", ["ours theirs ours", "theirs ours", "ours theirs", "theirs"])
def test_own_rows_are_not_complete_if_another_store_has_added_some(
    store: SQLiteStore, path: Path, order: str
) -> None:
    added_alone(store, "a", "b")
    store.own_rows("ann", 1, watched(store))
    other = SQLiteStore(path)
    for number, whose in enumerate(order.split()):
        added_alone(store if whose == "ours" else other, f"{order} {number}")
    other.close()
    assert store.own_rows("ann", 3, watched(store)) is None
    assert store.state("ann").last_seq == 3 + len(order.split())


def test_a_commit_of_another_process_meanwhile_leaves_no_version_of_ours() -> None:
    versions = SharedVersions(None)
    versions.begin(3)
    assert versions.end_all() == [(3, versions.slots[3])]
    for written in (8, 9):  # by the end and by the beginning of another commit
        versions.begin(3)
        versions.slots[3] = written
        assert versions.end_all() == []


class _Interrupted(int):
    def __add__(self, other: int) -> int:
        raise KeyboardInterrupt


def test_an_interrupt_after_own_rows_were_appended_does_not_append_them_twice(
    open_memory: Callable[..., AgentMemorySystem],
) -> None:
    memory = open_memory(embedder=small_embedder())
    for number in range(3):
        memory.add("ann", f"note {number}")
        memory.search("ann", "note")
    memory.add("ann", "note 3")
    index = memory._indexes.index("ann")
    index._added_unmeasured = _Interrupted()
    with pytest.raises(KeyboardInterrupt), index.lock:
        index.catch_up()  # as `maintain` does, to save the index
    index._added_unmeasured = 0
    found = sorted(hit.entry.content for hit in memory.search("ann", "note", 10))
    assert found == ["note 0", "note 1", "note 2", "note 3"]
