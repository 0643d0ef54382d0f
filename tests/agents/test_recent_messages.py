"""What a store has just written is known without reading the file, and only as long as it is true."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.agents import Message, SessionStore


def said(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    with SessionStore(path) as store:
        store.just_written("none", 0)  # from here on it knows which writes are its own
        yield store


def test_what_was_written_is_known(store: SessionStore) -> None:
    first, *rest = said("one", "two", "three")
    session = store.create("ann", messages=[first])
    store.append(session.id, *rest)
    assert store.just_written(session.id, 0) == (session.created_at, [first, *rest])
    assert store.just_written(session.id, 2) == (session.created_at, rest[1:])
    assert store.just_written(session.id, 3) == (session.created_at, [])
    assert store.just_written(session.id, 4) is None
    assert store.news(session.id, 1) == (session.created_at, store.messages(session.id, start=1))


def test_it_is_a_copy(store: SessionStore) -> None:
    session = store.create("ann", messages=said("one"))
    store.just_written(session.id, 0)[1].clear()
    assert len(store.just_written(session.id, 0)[1]) == 1


def test_what_was_not_written_here_is_not_known(store: SessionStore, path: Path) -> None:
    with SessionStore(path) as other:
        session = other.create("ann", messages=said("one"))
        assert store.just_written(session.id, 0) is None
        store.append(session.id, *said("two"))
        assert store.just_written(session.id, 0) is None
        assert len(store.news(session.id, 0)[1]) == 2


def test_nothing_is_believed_after_somebody_else_has_written(store: SessionStore, path: Path) -> None:
    session = store.create("ann", messages=said("one"))
    with SessionStore(path) as other:
        other.append(session.id, *said("two"))
        assert store.just_written(session.id, 0) is None
        store.append(session.id, *said("three"))
        assert [each.content for each in store.news(session.id, 0)[1]] == ["one", "two", "three"]


def test_a_session_made_anew_elsewhere_under_the_same_id_is_not_taken_for_the_old_one(
    store: SessionStore, path: Path
) -> None:
    store.create("ann", id="same", messages=said("old"))
    with SessionStore(path) as other:
        other.delete("same")
        other.create("ann", id="same", messages=said("new"))
    store.append("same", *said("more"))
    assert [each.content for each in store.news("same", 0)[1]] == ["new", "more"]


def test_a_deleted_session_is_gone(store: SessionStore) -> None:
    session = store.create("ann", messages=said("one"))
    assert store.delete(session.id)
    assert store.just_written(session.id, 0) is None


@pytest.mark.parametrize(("count", "length"), [(100, 1), (3, 9_000)])
def test_long_sessions_are_read_from_the_file(store: SessionStore, count: int, length: int) -> None:
    session = store.create("ann", messages=said("one"))
    for _ in range(count):
        store.append(session.id, *said("x" * length))
    assert store.just_written(session.id, 0) is None
    assert len(store.news(session.id, 0)[1]) == count + 1


def test_of_many_sessions_the_newest_are_known(store: SessionStore) -> None:
    ids = [store.create("ann", messages=said("one")).id for _ in range(300)]
    known = [store.just_written(id, 0) is not None for id in ids]
    assert known == [False] * 44 + [True] * 256
