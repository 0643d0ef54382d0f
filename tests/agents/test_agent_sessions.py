"""The session store: order, forks, lists, deletions, threads, processes, bad files."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from subprocesses import run_python, start_python
from threads import together

from memory.agents import Message, SessionStore
from memory.agents.errors import AgentError, InvalidAgentInput, SessionStoreError, UnknownSession


@pytest.fixture
def path(tmp_path: Path, request: pytest.FixtureRequest) -> Path | str:
    """Return a new place of sessions: a file, or a schema of a server in `make test-postgres`."""
    url = os.environ.get("AGENTMEMORY_TEST_URL")
    if url is None:
        return tmp_path / "folder" / "sessions.db"
    if any(part in request.node.name for part in ("file", "another_process", "before_the_fork")):
        pytest.skip("this test is about the file")
    return f"{url}&schema=t_{uuid4().hex}"


@pytest.fixture
def store(path: Path) -> Iterator[SessionStore]:
    with SessionStore(path) as opened:
        yield opened


def said(*contents: str) -> list[Message]:
    return [Message(role="user", content=content) for content in contents]


def contents_of(store: SessionStore, session_id: str) -> list[str]:
    return [message.content for message in store.messages(session_id)]


def test_sessions_and_messages_are_kept_when_a_store_is_reopened(path: Path) -> None:
    with SessionStore(path) as store:
        session = store.create("ann", "a title", metadata={"place": ["home", 1, None]})
        assert store.append(session.id, *said("one", "two")) == 2
        assert store.append(session.id, *said("three")) == 3
        kept = store.get(session.id)
    with SessionStore(path) as store:
        assert store.get(session.id) == kept
        assert kept.message_count == 3
        assert contents_of(store, session.id) == ["one", "two", "three"]


def test_a_session_can_be_created_with_messages(store: SessionStore) -> None:
    first = said("one", "two")
    session = store.create("ann", messages=first)
    assert session.message_count == 2
    assert store.get(session.id) == session
    assert store.messages(session.id) == first
    store.append(session.id, *said("three"))
    assert contents_of(store, session.id) == ["one", "two", "three"]


def test_parts_of_a_session_can_be_read(store: SessionStore) -> None:
    session = store.create("ann", messages=said(*map(str, range(10))))

    def some(**part: int) -> str:
        return "".join(message.content for message in store.messages(session.id, **part))

    assert some() == "0123456789"
    assert some(start=7) == "789"
    assert some(start=2, stop=4) == "23"
    assert some(last=3) == "789"
    assert some(last=0) == some(start=10) == ""
    assert some(last=99) == "0123456789"


def test_messages_are_added_all_or_none(store: SessionStore) -> None:
    session = store.create("ann")
    broken = Message.trusted(
        role="user",
        content="half \ud800",
        tool_calls=(),
        tool_result=None,
        id="1",
        created_at=1.0,
        metadata={},
    )
    for wrong in (broken, "a text"):
        with pytest.raises(InvalidAgentInput):
            store.append(session.id, *said("good"), wrong)  # type: ignore[arg-type]
    assert contents_of(store, session.id) == []
    assert store.get(session.id).message_count == 0


@given(st.data())
@settings(deadline=None, max_examples=50)
def test_a_fork_starts_with_the_first_messages_and_changes_independently(data: st.DataObject) -> None:
    """After random appends and forks, every session has the same messages as a plain list."""
    with SessionStore() as store:
        expected: dict[str, list[str]] = {store.create("ann").id: []}
        for number in range(data.draw(st.integers(1, 15))):
            chosen = data.draw(st.sampled_from(sorted(expected)))
            if data.draw(st.booleans()):
                new = [f"{number}.{each}" for each in range(data.draw(st.integers(0, 3)))]
                assert store.append(chosen, *said(*new)) == len(expected[chosen]) + len(new)
                expected[chosen] = expected[chosen] + new
            else:
                at = data.draw(st.none() | st.integers(0, len(expected[chosen])))
                fork = store.fork(chosen, at)
                assert fork.parent_id == chosen
                expected[fork.id] = expected[chosen][:at]
                assert fork.message_count == len(expected[fork.id])
        for session_id, contents in expected.items():
            assert contents_of(store, session_id) == contents
            assert store.get(session_id).message_count == len(contents)


def test_a_fork_stays_when_its_parent_is_deleted(store: SessionStore) -> None:
    parent = store.create("ann", "first", metadata={"a": 1}, messages=said("one", "two"))
    store.archive(parent.id)
    fork = store.fork(parent.id, 1, title="second")
    assert (fork.title, fork.metadata, fork.archived, fork.parent_id) == (
        "second",
        {"a": 1},
        False,
        parent.id,
    )
    assert store.delete(parent.id)
    assert contents_of(store, fork.id) == ["one"]
    assert store.get(fork.id) == fork


def test_the_session_that_was_used_last_is_listed_first(store: SessionStore) -> None:
    made = [store.create("ann", str(number)) for number in range(5)]
    bobs = store.create("bob")
    store.append(made[1].id, *said("hello"))
    store.archive(made[2].id)
    assert [session.title for session in store.list("ann")] == ["1", "4", "3", "0"]
    assert [session.title for session in store.list("ann", limit=2, offset=1)] == ["4", "3"]
    assert [session.title for session in store.list("ann", archived=True)] == ["2"]
    assert {session.id for session in store.list(archived=None)} == {bobs.id, *(each.id for each in made)}
    assert store.archive(made[2].id, False).archived is False
    assert store.list("ann")[0].id == made[2].id
    assert store.rename(made[0].id, "new").title == "new"
    assert store.list("nobody") == []


def test_thousands_of_sessions_do_not_mix(store: SessionStore) -> None:
    ids = [store.create(f"agent {number % 7}", messages=said(str(number))).id for number in range(3000)]
    assert len(store.list(limit=5000)) == 3000
    assert len(store.list("agent 3")) == len(range(3, 3000, 7))
    last = store.last_messages(ids)
    assert [last[each].content for each in ids] == [str(number) for number in range(3000)]


def test_a_deleted_session_is_unknown_to_every_call(store: SessionStore) -> None:
    session = store.create("ann", id="mine", messages=said("one"))
    assert store.delete("mine")
    assert not store.delete("mine")
    for use in (
        lambda: store.get("mine"),
        lambda: store.messages("mine"),
        lambda: store.news("mine", 0),
        lambda: store.append("mine", *said("two")),
        lambda: store.fork("mine"),
        lambda: store.archive("mine"),
        lambda: store.rename("mine", "x"),
    ):
        with pytest.raises(UnknownSession, match="there is no session 'mine'"):
            use()
    again = store.create("bob", id="mine")
    assert again.created_at > session.created_at
    assert contents_of(store, "mine") == []


def test_an_id_can_be_used_only_once(store: SessionStore) -> None:
    store.create("ann", id="mine", messages=said("one"))
    with pytest.raises(InvalidAgentInput, match="already"):
        store.create("bob", id="mine", messages=said("two"))
    assert contents_of(store, "mine") == ["one"]


def test_bad_input_raises_an_error_of_one_line(store: SessionStore) -> None:
    session = store.create("ann", messages=said("one"))
    for use in (
        lambda: store.fork(session.id, 2),
        lambda: store.fork(session.id, -1),
        lambda: store.fork(session.id, "x"),
        lambda: store.fork(session.id, True),
        lambda: store.fork(session.id, title=3),
        lambda: store.rename(session.id, None),
        lambda: store.rename(session.id, "\ud800"),
        lambda: store.messages(session.id, start=-1),
        lambda: store.messages(session.id, last=-1),
        lambda: store.list(limit=-1),
        lambda: store.list(offset="x"),
        lambda: store.get("\ud800"),
        lambda: store.append("\ud800"),
        lambda: store.get({}),
        lambda: SessionStore(durability="somehow"),
        lambda: SessionStore(busy_timeout_seconds=-1),
    ):
        with pytest.raises(AgentError) as caught:
            use()  # type: ignore[no-untyped-call]
        assert "\n" not in str(caught.value)
    assert len(store.list()) == 1


def test_threads_may_share_a_store(store: SessionStore) -> None:
    shared = store.create("ann")

    def work(name: str) -> str:
        own = store.create("ann", name)
        for number in range(50):
            store.append(own.id, *said(f"{name} {number}"))
            store.append(shared.id, *said(f"{name} {number}", f"{name} {number} again"))
            assert len(store.messages(own.id)) == number + 1
        return own.id

    names = ["a", "b", "c", "d"]
    ids = together(*(lambda name=name: work(name) for name in names))
    for name, each in zip(names, ids, strict=True):
        assert contents_of(store, each) == [f"{name} {number}" for number in range(50)]
    everything = contents_of(store, shared.id)
    for name in names:
        mine = [content for content in everything if content.startswith(name)]
        assert mine == [text for n in range(50) for text in (f"{name} {n}", f"{name} {n} again")]
    pairs = list(zip(everything[::2], everything[1::2], strict=True))
    assert all(second == f"{first} again" for first, second in pairs)  # messages of one call stay together


_APPENDING = """
from memory.agents import Message, SessionStore
path, session_id, name = sys.argv[1:]
with SessionStore(path) as store:
    print("ready", flush=True)
    sys.stdin.readline()
    for number in range(60):
        store.append(session_id, *[Message(role="user", content=f"{name} {number}{end}") for end in "ab"])
"""


def test_processes_may_share_a_file(path: Path) -> None:
    with SessionStore(path) as store:
        session = store.create("ann")
        processes = [start_python(_APPENDING, path, session.id, name) for name in "xyz"]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "ready\n"
            for process in processes:
                assert process.communicate("go\n", timeout=60) == ("", "")
        finally:
            for process in processes:
                process.kill()
                process.wait()
        everything = contents_of(store, session.id)
    assert len(everything) == 3 * 60 * 2
    for name in "xyz":
        own = [content for content in everything if content.startswith(name)]
        assert own == [f"{name} {number}{end}" for number in range(60) for end in "ab"]


_OPENING = """
from memory.agents import SessionStore
print("ready", flush=True)
for path in sys.stdin:
    with SessionStore(path.strip()) as store:
        store.create("ann")
    print("did", flush=True)
"""


def test_processes_may_create_the_same_file_at_once(tmp_path: Path) -> None:
    processes = [start_python(_OPENING) for _ in range(3)]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for number in range(15):
            path = tmp_path / f"{number}.db"
            for process in processes:
                assert process.stdin is not None
                process.stdin.write(f"{path}\n")
                process.stdin.flush()
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "did\n", process.stderr and process.stderr.read()
            with SessionStore(path) as store:
                assert len(store.list()) == 3
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def test_a_child_process_can_not_use_a_store_opened_before_the_fork(path: Path) -> None:
    printed = run_python(
        """
        from memory.agents import SessionStore
        from memory.agents.errors import SessionStoreError
        store = SessionStore(sys.argv[1])
        child = os.fork()
        if child == 0:
            try:
                store.create("ann")
            except SessionStoreError as problem:
                print(problem, flush=True)
            with SessionStore(sys.argv[1]) as own:
                own.create("ann", "from the child")
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print([session.title for session in store.list()])
        """,
        path,
    )
    assert printed.splitlines() == [
        f"{path} was opened before a fork: open a new SessionStore in the child process",
        "['from the child']",
    ]


def test_a_parent_reads_what_its_child_wrote_after_a_fork(path: Path) -> None:
    """The fork gives the parent a new connection. Messages that it kept in RAM may be stale then."""
    printed = run_python(
        """
        from memory.agents import Message, SessionStore
        store = SessionStore(sys.argv[1])
        store.just_written("none", 0)
        session = store.create("ann", messages=[Message(role="user", content="from the parent")])
        child = os.fork()
        if child == 0:
            with SessionStore(sys.argv[1]) as own:
                own.append(session.id, Message(role="user", content="from the child"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
        print([message.content for message in store.news(session.id, 0)[1]])
        """,
        path,
    )
    assert printed == "['from the parent', 'from the child']\n"


# -- bad files --------------------------------------------------------------------------------


def refused(path: Path) -> str:
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(SessionStoreError) as caught:
        SessionStore(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)
    assert (path.read_bytes() if path.is_file() else None) == before
    return str(caught.value)


def test_a_file_of_another_program_is_refused_and_unchanged(tmp_path: Path) -> None:
    text = tmp_path / "notes.txt"
    text.write_text("not a database " * 100)
    assert "not a database" in refused(text)
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    assert "is not a session file" in refused(other)


def test_a_file_of_a_newer_version_is_refused_and_unchanged(path: Path) -> None:
    SessionStore(path).close()
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA user_version = 99")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    db.close()
    assert "newer version" in refused(path)


def test_a_folder_and_a_path_below_a_file_are_refused(tmp_path: Path) -> None:
    assert "can't be opened" in refused(tmp_path)
    (tmp_path / "file").write_text("")
    assert "can't be opened" in refused(tmp_path / "file" / "sessions.db")


def test_a_file_without_write_permission_is_refused() -> None:
    with tempfile.TemporaryDirectory() as folder:  # not tmp_path, which only its owner can read
        path = Path(folder) / "sessions.db"
        SessionStore(path).close()
        path.chmod(0o444)
        Path(folder).chmod(0o555)
        printed = run_python(
            """
            from memory.agents import SessionStore
            from memory.agents.errors import SessionStoreError
            if os.getuid() == 0:
                os.setuid(65534)
            try:
                with SessionStore(sys.argv[1]) as store:
                    store.create("ann")
            except SessionStoreError as problem:
                print(problem)
            """,
            path,
        )
        assert printed.startswith(f"{path}")
        assert "readonly" in printed
        assert printed.count("\n") == 1
        Path(folder).chmod(0o755)


def test_every_call_of_a_closed_store_raises_an_error(path: Path) -> None:
    store = SessionStore(path)
    store.close()
    store.close()
    with pytest.raises(SessionStoreError, match="closed"):
        store.create("ann")
    with pytest.raises(SessionStoreError, match="closed"):
        store.list()


def test_a_lock_held_too_long_by_another_process_raises_an_error(path: Path) -> None:
    with SessionStore(path, busy_timeout_seconds=0.05) as store:
        session = store.create("ann")
        other = sqlite3.connect(path, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(SessionStoreError, match="locked"):
            store.append(session.id, *said("one"))
        assert contents_of(store, session.id) == []  # reads still work
        other.execute("ROLLBACK")
        other.close()
        assert store.append(session.id, *said("one")) == 1
