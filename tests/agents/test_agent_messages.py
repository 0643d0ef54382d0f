"""Messages, calls and sessions: validation, storing, and ids."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from subprocesses import run_python
from threads import together

from memory.agents import Message, Session, SessionStore, ToolCall, ToolResult
from memory.agents.errors import AgentError, InvalidAgentInput
from memory.agents.messages import new_id
from memory.errors import AgentMemoryError

texts = st.text(max_size=40)
names = st.text(min_size=1, max_size=10)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=8,
)
json_objects = st.dictionaries(texts, json_values, max_size=3)
calls = st.builds(ToolCall, name=names, arguments=json_objects)
results = st.builds(
    ToolResult,
    call_id=names,
    name=names,
    content=texts,
    is_error=st.booleans(),
    seconds=st.floats(0, 1e6),
)
messages = st.one_of(
    st.builds(Message, role=st.sampled_from(["system", "user"]), content=texts, metadata=json_objects),
    st.builds(
        Message,
        role=st.just("assistant"),
        content=texts,
        tool_calls=st.lists(calls, max_size=3).map(tuple),
        metadata=json_objects,
    ),
    st.builds(Message, role=st.just("tool"), content=texts, tool_result=results),
)


@given(st.lists(messages, max_size=6))
@settings(deadline=None, max_examples=50)
def test_messages_come_back_from_the_file_as_they_were_given(given_messages: list[Message]) -> None:
    with SessionStore() as store:
        session = store.create("ann")
        store.append(session.id, *given_messages)
        back = store.messages(session.id)
    assert back == given_messages
    assert [repr(each) for each in back] == [repr(each) for each in given_messages]  # -0.0, 1 and True
    assert [each.model_dump() for each in back] == [each.model_dump() for each in given_messages]


@given(json_objects)
@settings(deadline=None, max_examples=50)
def test_a_sessions_metadata_comes_back_as_it_was_given(metadata: dict[str, Any]) -> None:
    with SessionStore() as store:
        made = store.create("ann", metadata=metadata)
        assert store.get(made.id) == made
        assert repr(store.get(made.id).metadata) == repr(metadata)


@pytest.mark.parametrize(
    "fields",
    [
        {"role": "user", "tool_calls": (ToolCall(name="x"),)},
        {"role": "tool", "content": "no result"},
        {"role": "user", "tool_result": ToolResult(call_id="1", name="x", content="")},
        {"role": "somebody"},
        {"role": "user", "content": 3},
        {"role": "user", "id": ""},
        {"role": "user", "created_at": float("inf")},
        {"role": "user", "created_at": 0},
        {"role": "user", "metadata": {"x": float("nan")}},
        {"role": "user", "metadata": {"x": {1: 2}}},
        {"role": "user", "metadata": {"x": [(1, 2)]}},
        {"role": "user", "metadata": {"x": 2**64}},
        {"role": "user", "metadata": {"x": b"bytes"}},
        {"role": "user", "metadata": {"x": ["half \ud800"]}},
        {"role": "user", "metadata": {"half \ud800": 1}},
        {"role": "user", "surprise": 1},
    ],
)
def test_invalid_messages_are_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Message(**fields)


def test_arguments_that_hold_themselves_are_refused() -> None:
    endless: dict[str, Any] = {}
    endless["self"] = endless
    with pytest.raises(ValidationError, match="holds itself"):
        ToolCall(name="x", arguments=endless)


def test_a_message_cannot_be_changed() -> None:
    message = Message(role="user", content="hello")
    with pytest.raises(ValidationError):
        message.content = "bye"  # type: ignore[misc]


def test_an_error_of_the_store_is_one_line() -> None:
    with SessionStore() as store:
        for wrong in (
            {"agent_id": ""},
            {"agent_id": 3},
            {"agent_id": "ann", "title": None},
            {"agent_id": "ann", "title": "half a \ud800 character"},
            {"agent_id": "ann", "metadata": {"x": object()}},
            {"agent_id": "ann", "metadata": 3},
            {"agent_id": "ann", "id": ""},
        ):
            with pytest.raises(InvalidAgentInput) as caught:
                store.create(**wrong)
            assert "\n" not in str(caught.value)
        assert store.list() == []
    assert issubclass(AgentError, AgentMemoryError)


def test_ids_sort_by_creation_and_are_unique_across_threads() -> None:
    made = together(*[lambda: [new_id() for _ in range(2000)]] * 4)
    for own in made:
        assert own == sorted(own)
    assert len({each for own in made for each in own}) == 8000
    assert {len(each) for own in made for each in own} == {27}


def test_a_forked_child_makes_other_ids() -> None:
    printed = run_python(
        """
        from memory.agents.messages import new_id
        new_id()
        reading, writing = os.pipe()
        if os.fork() == 0:
            os.write(writing, new_id()[11:].encode())
            os._exit(0)
        print(new_id()[11:], os.read(reading, 16).decode())
        """
    )
    mine, childs = printed.split()
    assert abs(int(mine, 16) - int(childs, 16)) > 1000


def test_a_session_has_all_its_fields() -> None:
    session = Session(agent_id="ann")
    assert (session.title, session.archived, session.parent_id, session.message_count) == (
        "",
        False,
        None,
        0,
    )
    assert session.id
    assert session.created_at <= session.updated_at
