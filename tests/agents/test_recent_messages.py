"""Messages that a store has just written are cached until another connection writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memory.agents import Message, SessionStore


def user_messages(*texts: str) -> list[Message]:
    return [Message(role="user", content=text) for text in texts]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "sessions.db"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    with SessionStore(path) as store:
        store.just_written("none", 0)  # reads the data version, so that later writes are its own
        yield store


def test_messages_that_were_just_written_are_cached(store: SessionStore) -> None:
    first, *rest = user_messages("one", "two", "three")
    session = store.create("ann", messages=[first])
    store.append(session.id, *rest)
    assert store.just_written(session.id, 0) == (session.created_at, [first, *rest])
    assert store.just_written(session.id, 2) == (session.created_at, rest[1:])
    assert store.just_written(session.id, 3) == (session.created_at, [])
    assert store.just_written(session.id, 4) is None
    assert store.news(session.id, 1) == (session.created_at, store.messages(session.id, start=1))


def test_the_returned_messages_are_a_copy(store: SessionStore) -> None:
    session = store.create("ann", messages=user_messages("one"))
    store.just_written(session.id, 0)[1].clear()
    assert len(store.just_written(session.id, 0)[1]) == 1


def test_messages_written_by_others_are_not_cached(store: SessionStore, path: Path) -> None:
    with SessionStore(path) as other:
        session = other.create("ann", messages=user_messages("one"))
        assert store.just_written(session.id, 0) is None
        store.append(session.id, *user_messages("two"))
        assert store.just_written(session.id, 0) is None
        assert len(store.news(session.id, 0)[1]) == 2


def test_the_cache_is_stale_after_another_connection_has_written(store: SessionStore, path: Path) -> None:
    session = store.create("ann", messages=user_messages("one"))
    with SessionStore(path) as other:
        other.append(session.id, *user_messages("two"))
        assert store.just_written(session.id, 0) is None
        store.append(session.id, *user_messages("three"))
        assert [message.content for message in store.news(session.id, 0)[1]] == ["one", "two", "three"]


def test_a_session_created_again_elsewhere_is_not_mistaken_for_the_old_one(
    store: SessionStore, path: Path
) -> None:
    store.create("ann", id="same", messages=user_messages("old"))
    with SessionStore(path) as other:
        other.delete("same")
        other.create("ann", id="same", messages=user_messages("new"))
    store.append("same", *user_messages("more"))
    assert [message.content for message in store.news("same", 0)[1]] == ["new", "more"]


def test_a_deleted_session_leaves_the_cache(store: SessionStore) -> None:
    session = store.create("ann", messages=user_messages("one"))
    assert store.delete(session.id)
    assert store.just_written(session.id, 0) is None


@pytest.mark.parametrize(("count", "length"), [(100, 1), (3, 9_000)])
def test_long_sessions_are_read_from_the_file(store: SessionStore, count: int, length: int) -> None:
    session = store.create("ann", messages=user_messages("one"))
    for _ in range(count):
        store.append(session.id, *user_messages("x" * length))
    assert store.just_written(session.id, 0) is None
    assert len(store.news(session.id, 0)[1]) == count + 1


def test_the_newest_of_many_sessions_are_cached(store: SessionStore) -> None:
    ids = [store.create("ann", messages=user_messages("one")).id for _ in range(300)]
    known = [store.just_written(id, 0) is not None for id in ids]
    assert known == [False] * 44 + [True] * 256
