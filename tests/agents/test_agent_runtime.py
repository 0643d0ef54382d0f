"""The loop: how it ends, what it stores, and that concurrent invocations lose or mix up nothing."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from subprocesses import PATIENCE
from threads import together

from memory import AgentMemorySystem
from memory.agents import (
    AgentRuntime,
    Context,
    ContextBuilder,
    Invocation,
    Model,
    Reply,
    ScriptedModel,
    SessionStore,
    ToolCall,
    ToolRegistry,
)
from memory.agents.errors import InvalidAgentInput, ModelError, UnknownSession

OpenMemory = Callable[..., AgentMemorySystem]
both_ways = pytest.mark.parametrize("how", ["sync", "async"])


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    with SessionStore(tmp_path / "sessions.db") as opened:
        yield opened


def invoke(
    runtime: AgentRuntime, text: str, session_id: str | None = None, how: str = "sync"
) -> Invocation:
    if how == "sync":
        return runtime.invoke(text, session_id)
    return asyncio.run(runtime.ainvoke(text, session_id))


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def stored(store: SessionStore, session_id: str) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in store.messages(session_id)]


def adding() -> ToolRegistry:
    registry = ToolRegistry()

    @registry.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    return registry


@both_ways
def test_messages_and_tool_results_are_stored_in_session_and_memory(
    how: str, store: SessionStore, open_memory: OpenMemory
) -> None:
    memory = open_memory()
    model = ScriptedModel([Reply("", (call("add", a=1, b=2),)), "It is 3."])
    runtime = AgentRuntime("ann", model, sessions=store, memory=memory, tools=adding())
    done = invoke(runtime, "What is\n1+2?", how=how)
    assert (done.answer, done.stopped_by, done.steps, done.error) == ("It is 3.", "answer", 2, "")
    assert [result.content for result in done.tool_results] == ["3"]
    assert stored(store, done.session_id) == [
        ("user", "What is\n1+2?"),
        ("assistant", ""),
        ("tool", "3"),
        ("assistant", "It is 3."),
    ]
    assert list(done.messages) == store.messages(done.session_id)
    assert store.get(done.session_id).title == "What is 1+2?"
    memories = memory.recent("ann", 10)
    assert {entry.content for entry in memories} == {"What is\n1+2?", 'add {"a":1,"b":2}: 3', "It is 3."}
    assert {entry.metadata["session"] for entry in memories} == {done.session_id}
    assert {entry.id for entry in memories} <= {message.id for message in done.messages}


def test_a_session_continues_and_memories_of_other_sessions_are_shown(
    store: SessionStore, open_memory: OpenMemory
) -> None:
    seen: list[Context] = []

    def note(context: Context) -> str:
        seen.append(context)
        return "noted"

    runtime = AgentRuntime("ann", ScriptedModel([note], repeat=True), sessions=store, memory=open_memory())
    first = runtime.invoke("My umbrella is in the cellar.")
    runtime.invoke("And my hat is in the car.", first.session_id)
    assert [message.content for message in seen[-1].messages] == [
        "My umbrella is in the cellar.",
        "noted",
        "And my hat is in the car.",
    ]
    runtime.invoke("Where is my umbrella?")
    assert '- user: "My umbrella is in the cellar."' in seen[-1].recalled


@both_ways
def test_the_loop_ends_at_the_limit_and_can_go_on(how: str, store: SessionStore) -> None:
    script: list[Any] = [Reply("", (call("add", a=1, b=1),))] * 3 + ["two"]
    runtime = AgentRuntime("ann", ScriptedModel(script), sessions=store, tools=adding(), max_steps=3)
    done = invoke(runtime, "1+1?", how=how)
    assert (done.stopped_by, done.answer, done.steps) == ("limit", "", 3)
    assert done.error == "no answer after 3 steps"
    assert invoke(runtime, "well?", done.session_id, how=how).answer == "two"


@both_ways
@pytest.mark.parametrize("problem", [ModelError("gone"), ValueError("a bug\nof two lines"), KeyError("x")])
def test_a_model_that_fails_ends_the_invocation_and_not_the_session(
    how: str, problem: Exception, store: SessionStore, open_memory: OpenMemory
) -> None:
    def fail(context: Context) -> str:
        raise problem

    memory = open_memory()
    model = ScriptedModel([Reply("", (call("add", a=1, b=2),)), fail, "here again"])
    runtime = AgentRuntime("ann", model, sessions=store, memory=memory, tools=adding())
    done = invoke(runtime, "hello", how=how)
    assert (done.stopped_by, done.answer, done.exception) == ("error", "", problem)
    assert "\n" not in done.error
    assert str(problem.args[0]).split()[0] in done.error
    assert [role for role, _ in stored(store, done.session_id)] == ["user", "assistant", "tool"]
    assert len(memory.recent("ann", 10)) == 2  # the messages so far are stored
    again = invoke(runtime, "are you there?", done.session_id, how=how)
    assert again.answer == "here again"


@both_ways
def test_an_invalid_reply_is_an_error(how: str, store: SessionStore) -> None:
    class Wrong(Model):
        def complete(self, context: Context) -> Reply:
            return "just a text"  # type: ignore[return-value]

    done = invoke(AgentRuntime("ann", Wrong(), sessions=store), "hello", how=how)
    assert done.stopped_by == "error"
    assert "a model must return a Reply" in done.error


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"x": value}
    return value


@both_ways
@pytest.mark.parametrize(
    "reply",
    [
        Reply(3, (call("note"),)),  # type: ignore[arg-type]
        Reply("", ("note",)),  # type: ignore[arg-type]
        Reply("", (call("note"), {"name": "note"})),  # type: ignore[arg-type]
        Reply("", (call("note"), ToolCall.trusted(id="half \ud800", name="note", arguments={}))),
        Reply("", (call("note"), ToolCall.trusted(id="1", name="note", arguments={"x": "half \ud800"}))),
        Reply("", (call("note"), ToolCall.trusted(id="1", name="note", arguments={"x": object()}))),
        Reply("", (call("note", about=nested(100_000)),)),
    ],
    ids=range(7),
)
def test_no_tool_runs_for_a_reply_that_can_not_be_stored(
    how: str, reply: Reply, store: SessionStore, open_memory: OpenMemory
) -> None:
    registry = ToolRegistry()
    ran: list[str] = []
    registry.add(lambda about=None: ran.append("note"), name="note", description="")
    model = ScriptedModel([reply, "fine"])
    runtime = AgentRuntime("ann", model, sessions=store, memory=open_memory(), tools=registry)
    done = invoke(runtime, "hello", how=how)
    assert (done.stopped_by, done.steps, ran) == ("error", 1, [])
    assert isinstance(done.exception, ModelError)
    assert "\n" not in done.error
    assert stored(store, done.session_id) == [("user", "hello")]
    assert invoke(runtime, "again", done.session_id, how=how).answer == "fine"


@both_ways
def test_no_content_and_no_calls_are_read_as_empty(how: str, store: SessionStore) -> None:
    script: list[Any] = [
        Reply(None, [call("add", a=1, b=2)]),  # type: ignore[arg-type]
        Reply(None, None),  # type: ignore[arg-type]
    ]
    runtime = AgentRuntime("ann", ScriptedModel(script), sessions=store, tools=adding())
    done = invoke(runtime, "1+2?", how=how)
    assert (done.stopped_by, done.answer, done.error) == ("answer", "", "")
    assert stored(store, done.session_id)[1:] == [
        ("assistant", ""),
        ("tool", "3"),
        ("assistant", ""),
    ]
    assert list(done.messages) == store.messages(done.session_id)


@pytest.mark.parametrize("problem", [KeyboardInterrupt(), SystemExit(3)])
@both_ways
def test_an_interrupt_is_raised_and_releases_the_session(
    how: str, problem: BaseException, store: SessionStore, open_memory: OpenMemory
) -> None:
    def interrupt(context: Context) -> str:
        raise problem

    memory = open_memory()
    runtime = AgentRuntime("ann", ScriptedModel([interrupt, "fine"]), sessions=store, memory=memory)
    session = store.create("ann")
    with pytest.raises(type(problem)):
        invoke(runtime, "hello", session.id, how=how)
    assert [entry.content for entry in memory.recent("ann", 5)] == ["hello"]
    assert invoke(runtime, "again", session.id, how=how).answer == "fine"
    assert [content for _, content in stored(store, session.id)] == ["hello", "again", "fine"]


def test_an_interrupted_tool_is_recorded_in_the_session(store: SessionStore) -> None:
    registry = ToolRegistry()

    @registry.tool
    def stop() -> None:
        raise KeyboardInterrupt

    model = ScriptedModel([Reply("", (call("stop"),)), "fine"])
    runtime = AgentRuntime("ann", model, sessions=store, tools=registry)
    session = store.create("ann")
    with pytest.raises(KeyboardInterrupt):
        runtime.invoke("stop", session.id)
    assert stored(store, session.id)[1:] == [
        ("assistant", ""),
        ("tool", "stop was interrupted: it may have had effects"),
    ]
    assert runtime.invoke("go on", session.id).answer == "fine"


def test_a_cancelled_invocation_stores_its_messages_so_far(
    store: SessionStore, open_memory: OpenMemory
) -> None:
    registry = ToolRegistry()
    started = asyncio.Event()

    @registry.tool
    async def wait() -> None:
        started.set()
        await asyncio.sleep(PATIENCE)

    memory = open_memory()
    model = ScriptedModel([Reply("", (call("wait"),)), "fine"])
    runtime = AgentRuntime("ann", model, sessions=store, memory=memory, tools=registry)
    session = store.create("ann")

    async def main() -> str:
        task = asyncio.ensure_future(runtime.ainvoke("wait", session.id))
        await started.wait()
        with pytest.raises(InvalidAgentInput, match="another invocation"):
            await runtime.ainvoke("me too", session.id)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return (await runtime.ainvoke("go on", session.id)).answer

    assert asyncio.run(main()) == "fine"
    assert [role for role, _ in stored(store, session.id)] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
    ]
    assert "interrupted" in stored(store, session.id)[2][1]
    assert len(memory.recent("ann", 10)) == 4


def test_a_session_runs_one_invocation_at_a_time(store: SessionStore) -> None:
    """Neither the same runtime nor another one with the same store can start a second one."""
    called, release = threading.Event(), threading.Event()

    def wait(context: Context) -> str:
        called.set()
        release.wait(PATIENCE)
        return "done"

    runtime = AgentRuntime("ann", ScriptedModel([wait]), sessions=store)
    other = AgentRuntime("ann", ScriptedModel(["fine"], repeat=True), sessions=store)
    session = store.create("ann")

    def second() -> None:
        called.wait(PATIENCE)
        for each in (runtime, other):
            with pytest.raises(InvalidAgentInput, match="in use by another invocation"):
                each.invoke("me too", session.id)
        assert other.invoke("elsewhere").answer == "fine"
        release.set()

    first, _ = together(lambda: runtime.invoke("hello", session.id), second)
    assert first.answer == "done"
    assert [content for _, content in stored(store, session.id)] == ["hello", "done"]
    assert other.invoke("now?", session.id).answer == "fine"


class Echo(Model):
    """Passes the question to two tools and answers with their results, so that mix-ups show."""

    name = "echo"

    def complete(self, context: Context) -> Reply:
        newest = context.messages[-1]
        if newest.role == "user":
            return Reply("", (call("twice", text=newest.content), call("atwice", text=newest.content)))
        return Reply(f"{context.messages[-2].content} {newest.content}")

    async def acomplete(self, context: Context) -> Reply:
        await asyncio.sleep(0)
        return self.complete(context)


def echoing(store: SessionStore, memory: AgentMemorySystem | None) -> AgentRuntime:
    registry = ToolRegistry()

    @registry.tool
    def twice(text: str) -> str:
        """The text twice."""
        return f"{text}{text}"

    @registry.tool
    async def atwice(text: str) -> str:
        """The text twice, later."""
        await asyncio.sleep(0)
        return f"{text}{text}!"

    return AgentRuntime("ann", Echo(), sessions=store, memory=memory, tools=registry)


def assert_not_mixed_up(
    store: SessionStore, memory: AgentMemorySystem, done: list[Invocation], rounds: int
) -> None:
    assert len({each.session_id for each in done}) == len(done) // rounds
    for each in done:
        text = each.messages[0].content
        assert each.answer == f"{text}{text} {text}{text}!"
        in_file = store.messages(each.session_id)
        assert len(in_file) == 5 * rounds
        start = in_file.index(each.messages[0])
        assert in_file[start : start + 5] == list(each.messages)
        assert [message.role for message in each.messages] == [
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
        ]
    assert len(memory.recent("ann", 10_000)) == 4 * len(done)
    ids = [message.id for each in done for message in each.messages if message.content]
    assert None not in memory.get_many("ann", ids)


def test_a_hundred_concurrent_invocations_lose_and_mix_up_nothing(
    store: SessionStore, open_memory: OpenMemory
) -> None:
    memory = open_memory()
    runtime = echoing(store, memory)

    async def main() -> list[Invocation]:
        first = await asyncio.gather(*(runtime.ainvoke(f"<{number}>") for number in range(100)))
        second = await asyncio.gather(
            *(runtime.ainvoke(f"again {each.answer}", each.session_id) for each in first)
        )
        return [*first, *second]

    assert_not_mixed_up(store, memory, asyncio.run(main()), 2)


def test_threads_lose_and_mix_up_nothing(store: SessionStore, open_memory: OpenMemory) -> None:
    memory = open_memory()
    runtime = echoing(store, memory)

    def work(name: str) -> list[Invocation]:
        return [runtime.invoke(f"<{name}{number}>") for number in range(12)]

    done = together(*(lambda name=name: work(name) for name in "abcd"))
    assert_not_mixed_up(store, memory, [each for some in done for each in some], 1)


def test_blocking_tools_of_many_invocations_run_at_once(store: SessionStore) -> None:
    """Each tool waits for all others: if one blocked the event loop, none would end."""
    barrier = threading.Barrier(10)
    registry = ToolRegistry()
    registry.add(lambda: barrier.wait(PATIENCE) >= 0, name="meet", description="")

    def answer(context: Context) -> Reply | str:
        newest = context.messages[-1]
        return newest.content if newest.role == "tool" else Reply("", (call("meet"),))

    runtime = AgentRuntime("ann", ScriptedModel([answer], repeat=True), sessions=store, tools=registry)

    async def main() -> list[Invocation]:
        return await asyncio.gather(*(runtime.ainvoke("meet") for _ in range(10)))

    assert [each.answer for each in asyncio.run(main())] == ["true"] * 10


def test_calls_with_the_same_id_get_new_ids(store: SessionStore) -> None:
    twins = tuple(ToolCall(id="same", name="add", arguments={"a": n, "b": n}) for n in (1, 2))
    seen: list[Context] = []

    def answer(context: Context) -> str:
        seen.append(context)
        return "done"

    runtime = AgentRuntime("ann", ScriptedModel([Reply("", twins), answer]), sessions=store, tools=adding())
    assert runtime.invoke("sums").answer == "done"
    assert [message.content for message in seen[0].messages] == ["sums", "", "2", "4"]
    assert len({call.id for call in seen[0].messages[1].tool_calls}) == 2


def test_a_reused_id_refers_to_the_newest_call(store: SessionStore, open_memory: OpenMemory) -> None:
    memory = open_memory()
    script = [Reply("", (ToolCall(id="1", name="add", arguments={"a": n, "b": n}),)) for n in (1, 2)]
    model = ScriptedModel([*script, "done"])
    AgentRuntime("ann", model, sessions=store, memory=memory, tools=adding()).invoke("sums")
    actions = {entry.content for entry in memory.recent("ann", 10) if entry.kind == "action"}
    assert actions == {'add {"a":1,"b":1}: 2', 'add {"a":2,"b":2}: 4'}


def test_an_answer_is_returned_even_if_the_memory_fails(
    store: SessionStore, open_memory: OpenMemory
) -> None:
    memory = open_memory()

    def close(context: Context) -> str:
        memory.close()
        return "the answer"

    runtime = AgentRuntime("ann", ScriptedModel([close, "never"]), sessions=store, memory=memory)
    done = runtime.invoke("hello")
    assert (done.answer, done.stopped_by) == ("the answer", "answer")
    assert done.error.startswith("not stored in the memory: ")
    assert [content for _, content in stored(store, done.session_id)] == ["hello", "the answer"]
    after = runtime.invoke("hello again", done.session_id)  # the context can't be built any more
    assert after.stopped_by == "error"


def test_a_budget_that_is_too_small_is_an_error_in_one_line(store: SessionStore) -> None:
    runtime = AgentRuntime("ann", ScriptedModel(["hi"]), sessions=store, token_budget=20)
    done = runtime.invoke("word " * 100)
    assert done.stopped_by == "error"
    assert "token_budget is 20" in done.error
    assert runtime.invoke("short", done.session_id).answer == "hi"  # the long one is left out


def test_bad_input_is_refused_before_anything_is_stored(store: SessionStore) -> None:
    runtime = AgentRuntime("ann", ScriptedModel(["hi"]), sessions=store)
    for text in ("", "  \n", None, 3):
        with pytest.raises(InvalidAgentInput):
            runtime.invoke(text)  # type: ignore[arg-type]
    with pytest.raises(InvalidAgentInput):
        runtime.invoke("half \ud800")
    assert store.list() == []
    with pytest.raises(UnknownSession):
        runtime.invoke("hello", "nowhere")
    bobs = store.create("bob")
    with pytest.raises(InvalidAgentInput, match="belongs to agent 'bob'"):
        runtime.invoke("hello", bobs.id)
    for wrong in ({"agent_id": ""}, {"agent_id": "ann", "max_steps": 0}):
        with pytest.raises(InvalidAgentInput):
            AgentRuntime(model=ScriptedModel(["hi"]), **wrong)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="empty"):
        ScriptedModel([])


def test_a_builder_provides_sessions_memory_and_tools(store: SessionStore) -> None:
    registry = adding()
    builder = ContextBuilder(store, tools=registry, system_prompt="Be brief.")
    runtime = AgentRuntime("ann", ScriptedModel(["hi"]), builder=builder)
    assert runtime.sessions is store
    assert runtime.tools is registry
    for own in (
        {"sessions": SessionStore()},
        {"tools": ToolRegistry()},
        {"system_prompt": "x"},
        {"token_budget": 100},
    ):
        with pytest.raises(InvalidAgentInput, match="builder"):
            AgentRuntime("ann", ScriptedModel(["hi"]), builder=builder, **own)  # type: ignore[arg-type]


def test_tools_that_are_added_later_can_be_used(store: SessionStore) -> None:
    registry = ToolRegistry()
    runtime = AgentRuntime(
        "ann", ScriptedModel([Reply("", (call("late"),)), "done"]), sessions=store, tools=registry
    )
    registry.add(lambda: "in time", name="late", description="")
    assert [result.content for result in runtime.invoke("now").tool_results] == ["in time"]
