"""The parts of the package above the store, on a server: sessions, LangGraph, export, moves, hooks."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres_servers import Server

from memory import AgentMemorySystem, MemoryConfig
from memory.agents import Message, SessionStore
from memory.cli import main

SECRET = "not-shown-anywhere"


def test_a_memory_moves_from_file_to_server_and_back(
    tmp_path: Path, url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    from test_moving import contents, filled, found

    source, back = str(tmp_path / "source.db"), str(tmp_path / "back.db")
    with AgentMemorySystem(MemoryConfig(url=source, maintenance="manual")) as memory:
        filled(memory)
    assert main(["move", source, url]) == 0
    assert contents(url) == contents(source)
    assert found(url) == found(source)
    assert main(["move", url, back]) == 0
    assert contents(back) == contents(source)
    assert found(back) == found(source)
    assert main(["move", url.replace("/postgres?", "/no_such?"), back]) == 1
    shown = capfd.readouterr()
    assert SECRET not in shown.out + shown.err


def test_an_export_can_be_imported_on_a_server_and_back(tmp_path: Path, url: str) -> None:
    from test_moving import contents, filled

    with AgentMemorySystem(MemoryConfig(url=url, maintenance="manual")) as memory:
        filled(memory)
        assert memory.export_jsonl(tmp_path / "export") == 449
        assert SECRET not in (tmp_path / "export").read_text()
        assert memory.import_jsonl(tmp_path / "export") == 0
    copy = str(tmp_path / "copy.db")
    with AgentMemorySystem(MemoryConfig(url=copy, maintenance="manual")) as other:
        assert other.import_jsonl(tmp_path / "export") == 449
    assert contents(copy) == contents(url)


def test_sessions_are_shared_by_hosts(url: str) -> None:
    with SessionStore(url) as one, SessionStore(url) as other:
        session = one.create("ann", "a title \0", metadata={"place": 1})
        assert one.append(session.id, Message(role="user", content="hello")) == 1
        assert other.append(session.id, Message(role="assistant", content="hi")) == 2
        assert [message.content for message in one.messages(session.id)] == ["hello", "hi"]
        assert other.get(session.id).title == "a title \0"
        copy = other.fork(session.id, 1)
        assert [found.id for found in one.list("ann")] == [copy.id, session.id]
        assert one.delete(session.id)
        assert [found.id for found in other.list("ann")] == [copy.id]


def test_sessions_lose_and_double_nothing_over_a_restart(server: Server, url: str) -> None:
    with SessionStore(url) as store:
        session = store.create("ann")
        for number in range(6):
            if number % 2:
                server.restart()
            assert store.append(session.id, Message(role="user", content=str(number))) == number + 1
        assert [message.content for message in store.messages(session.id)] == list("012345")


def test_a_langgraph_store_works_on_a_server(url: str) -> None:
    pytest.importorskip("langgraph")
    from memory.integrations.langgraph import AgentMemoryStore

    config = MemoryConfig(url=url, maintenance="manual")
    with AgentMemorySystem(config) as one, AgentMemorySystem(config) as other:
        store, elsewhere = AgentMemoryStore(one), AgentMemoryStore(other)
        store.put(("users", "ann"), "likes", {"text": "she likes violins"})
        store.put(("users", "ann"), "job", {"text": "works on submarines"})
        assert elsewhere.get(("users", "ann"), "likes").value == {"text": "she likes violins"}
        assert elsewhere.search(("users",), query="submarines")[0].key == "job"
        elsewhere.delete(("users", "ann"), "job")
        assert [item.key for item in store.search(("users",))] == ["likes"]
