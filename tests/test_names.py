"""Agents, ids and kinds may be subclasses of str, such as numpy.str_ and str enums: their text counts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from typing import Any

import numpy as np
import pytest
from small_embedder import small_embedder

from memory import AgentMemorySystem
from memory._base import native
from memory._write.intake import session_of
from memory.agents import Message, SessionStore
from memory.storage import _reader, _rows

OpenMemory = Callable[..., AgentMemorySystem]


class Name(str):
    """A plain subclass."""


def enum_of(text: str) -> str:
    return Enum("Names", {"MEMBER": text}, type=str)(text)


SUBCLASSES: dict[str, Callable[[str], str]] = {"subclass": Name, "numpy": np.str_, "enum": enum_of}


@pytest.fixture(params=["core", "pure"])
def open_either(request: pytest.FixtureRequest, open_memory: OpenMemory) -> Iterator[OpenMemory]:
    """Open memories that check rows with the compiled core, or without it."""
    with pytest.MonkeyPatch.context() as now:
        if request.param == "pure":
            now.setattr(_rows, "core", None)
            now.setattr(_reader, "_is_row_intact", _rows.is_row_intact)
        elif native.core is None:
            pytest.skip("the compiled core was not built")
        yield open_memory


READS: dict[str, Callable[[AgentMemorySystem, str, str], Any]] = {
    "get": lambda memory, agent, id_: memory.get(agent, id_),
    "get_many of one": lambda memory, agent, id_: memory.get_many(agent, [id_])[0],
    "get_many": lambda memory, agent, id_: memory.get_many(agent, [id_, "other"])[0],
    "search": lambda memory, agent, id_: memory.search(agent, "tea", 1)[0].entry,
    "retrieve_similar_states": lambda memory, agent, id_: (
        memory.retrieve_similar_states(agent, "tea", 1)[0].entry
    ),
    "retrieve_by_attributes": lambda memory, agent, id_: memory.retrieve_by_attributes(agent, {"a": 1})[0],
    "retrieve_by_time_range": lambda memory, agent, id_: memory.retrieve_by_time_range(agent)[0],
    "recent": lambda memory, agent, id_: memory.recent(agent, 1)[0],
}


@pytest.mark.parametrize("kind", SUBCLASSES)
@pytest.mark.parametrize("read", READS)
def test_every_read_finds_a_memory_that_is_not_cached(
    open_either: OpenMemory, read: str, kind: str
) -> None:
    make = SUBCLASSES[kind]
    with open_either(embedder=small_embedder()) as memory:
        memory.add("ann", "tea", id="one", metadata={"a": 1})
    memory = open_either(embedder=small_embedder())
    for _ in range(4):  # later reads take what earlier ones have cached
        entry = READS[read](memory, make("ann"), make("one"))
        assert (entry.id, entry.agent_id, entry.content) == ("one", "ann", "tea")
        assert type(entry.id) is type(entry.agent_id) is str


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_what_is_stored_under_a_subclass_is_stored_under_its_text(
    open_memory: OpenMemory, kind: str
) -> None:
    make = SUBCLASSES[kind]
    with open_memory(embedder=small_embedder()) as memory:
        ids = [
            memory.add(make("ann"), "tea", id=make("one"), kind=make("drink")),
            *memory.add_many([{"agent_id": make("ann"), "content": "soup", "id": make("two")}]),
            *memory.add_many(
                {"agent_id": make("bob"), "content": "rice", "id": make(name), "kind": make("food")}
                for name in ("three", "four")
            ),
        ]
        assert ids == ["one", "two", "three", "four"]
        assert {type(id_) for id_ in ids} == {str}
        assert memory.add("ann", "tea", id="one", kind="drink") == "one"
    memory = open_memory(embedder=small_embedder())
    assert memory.agents() == ["ann", "bob"]
    entries = [memory.get("ann", "one"), memory.get("bob", "four")]
    assert [(entry.kind, type(entry.kind)) for entry in entries if entry] == [("drink", str), ("food", str)]
    assert memory.check().intact == 4


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_changes_by_a_subclass_change_the_memory_of_its_text(open_either: OpenMemory, kind: str) -> None:
    make = SUBCLASSES[kind]
    with open_either(embedder=small_embedder()) as memory:
        memory.add_many({"agent_id": "ann", "content": "tea", "id": name} for name in ("one", "two", "six"))
    memory = open_either(embedder=small_embedder())
    agent, one = make("ann"), make("one")
    assert memory.exists(agent, one)
    assert memory.update(agent, one, content="soup", kind=make("food"))
    entry = memory.get("ann", "one")
    assert entry is not None
    assert (entry.content, entry.kind) == ("soup", "food")
    assert memory.force_transition_to_im(100, agent) == 3
    assert memory.update(agent, one, importance=2.0)
    assert memory.get_memory_statistics(agent)["tiers"]["im"] == 3
    memory.drop_caches(agent)
    assert memory.get(agent, one) is not None
    memory.maintain()  # saves the read counts
    assert memory.delete(agent, one)
    assert memory.get(agent, one) is None
    assert memory.delete_many(agent, [make("two")]) == 1
    assert memory.delete_all(agent) == 1
    assert memory.check().problems == ()


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_a_conversation_has_the_number_of_its_text(kind: str) -> None:
    assert session_of({"session_id": SUBCLASSES[kind]("monday")}) == session_of({"session_id": "monday"})


@pytest.mark.parametrize("kind", SUBCLASSES)
def test_sessions_are_found_by_subclasses(kind: str) -> None:
    make = SUBCLASSES[kind]
    with SessionStore() as store:
        store.create(make("ann"), make("tea"), id=make("monday"))
        store.append(make("monday"), Message(role="user", content=make("hello")))
        (session,) = store.list("ann")
        assert (session.id, session.title, session.message_count) == ("monday", "tea", 1)
        assert store.get(make("monday")) == session
        assert [message.content for message in store.messages(make("monday"))] == ["hello"]
        assert store.delete(make("monday"))
