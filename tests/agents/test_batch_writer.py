"""Async invocations that end at the same time share one commit, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from small_embedder import small_embedder
from threads import together

from memory import AgentMemorySystem
from memory.agents import AgentRuntime, Context, Invocation, Reply, ScriptedModel, SessionStore
from memory.embedding import FunctionEmbedder
from memory.errors import IdConflict

Open = Callable[..., AgentMemorySystem]


@pytest.fixture
def memory(open_memory: Open) -> AgentMemorySystem:
    return open_memory(embedder=small_embedder())


@pytest.fixture
def sessions() -> Iterator[SessionStore]:
    with SessionStore() as store:
        yield store


@pytest.fixture
def batches(memory: AgentMemorySystem, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list of the number of memories in each call of `add_many`."""
    sizes: list[int] = []
    add_many = memory.add_many

    def counted(batch: list[Any]) -> list[str]:
        sizes.append(len(batch))
        return add_many(batch)

    monkeypatch.setattr(memory, "add_many", counted)
    return sizes


def echo(context: Context) -> Reply:
    return Reply(f"You said: {context.messages[-1].content}")


def runtime(
    memory: AgentMemorySystem, sessions: SessionStore, say: Callable[[Context], Reply] = echo
) -> AgentRuntime:
    return AgentRuntime("ann", ScriptedModel([say], repeat=True), sessions=sessions, memory=memory)


async def ask(agent: AgentRuntime, *questions: str) -> list[Invocation]:
    return list(await asyncio.gather(*map(agent.ainvoke, questions)))


def texts(memory: AgentMemorySystem) -> list[str]:
    return sorted(entry.content for entry in memory.recent("ann", 1000))


def test_invocations_that_end_together_are_stored_in_one_batch(
    memory: AgentMemorySystem, sessions: SessionStore, batches: list[int]
) -> None:
    questions = [f"question {number}" for number in range(50)]
    done = asyncio.run(ask(runtime(memory, sessions), *questions))
    assert batches == [100]
    assert [each.answer for each in done] == [f"You said: {question}" for question in questions]
    assert texts(memory) == sorted([*questions, *(each.answer for each in done)])


def test_invocations_one_after_the_other_are_stored_in_one_batch_each(
    memory: AgentMemorySystem, sessions: SessionStore, batches: list[int]
) -> None:
    async def in_turn(agent: AgentRuntime) -> None:
        for number in range(3):
            await agent.ainvoke(f"question {number}")
            assert len(texts(memory)) == 2 * (number + 1)  # stored before `ainvoke` returns

    asyncio.run(in_turn(runtime(memory, sessions)))
    assert batches == [2, 2, 2]


def test_an_invalid_memory_does_not_prevent_storing_the_others(
    memory: AgentMemorySystem, sessions: SessionStore
) -> None:
    def say(context: Context) -> Reply:
        if context.messages[-1].content == "bad":
            memory.add("ann", "was here first", id=context.messages[-1].id)
        return echo(context)

    first, bad, last = asyncio.run(ask(runtime(memory, sessions, say), "first", "bad", "last"))
    assert (first.error, last.error) == ("", "")
    assert bad.answer == "You said: bad"
    assert bad.error.startswith("not stored in the memory: id ")
    assert isinstance(bad.exception, IdConflict)
    assert texts(memory) == [
        "You said: first",
        "You said: last",
        "first",
        "last",
        "was here first",
    ]


def test_a_cancelled_invocation_is_stored_once(memory: AgentMemorySystem, sessions: SessionStore) -> None:
    async def cancel(agent: AgentRuntime) -> None:
        waiting = asyncio.create_task(agent.ainvoke("cancelled"))
        other = asyncio.create_task(agent.ainvoke("not cancelled"))
        await asyncio.sleep(0)  # both are about to store now
        assert texts(memory) == []
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await other).error == ""

    asyncio.run(cancel(runtime(memory, sessions)))
    questions = ["cancelled", "not cancelled"]
    assert texts(memory) == sorted([*questions, *(f"You said: {each}" for each in questions)])


def test_an_unexpected_error_is_raised_in_every_invocation(
    memory: AgentMemorySystem, sessions: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: object) -> list[str]:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(memory, "add_many", broken)

    async def both(agent: AgentRuntime) -> list[Any]:
        invocations = (agent.ainvoke("one"), agent.ainvoke("two"))
        return list(await asyncio.gather(*invocations, return_exceptions=True))

    assert [type(each) for each in asyncio.run(both(runtime(memory, sessions)))] == [ZeroDivisionError] * 2


def test_an_unexpected_error_of_one_invocation_affects_only_that_one(
    open_memory: Open, sessions: SessionStore
) -> None:
    plain = small_embedder()

    def embed(texts: Sequence[str]) -> Any:
        if any("bad" in text for text in texts):
            raise ZeroDivisionError("of the embedder")
        return plain.embed(texts)

    memory = open_memory(embedder=FunctionEmbedder(embed, name="fails", dimensions=plain.dimensions))
    agent = runtime(memory, sessions, lambda context: Reply("fine"))

    async def all_three() -> list[Any]:
        invocations = (agent.ainvoke("one"), agent.ainvoke("two, bad"), agent.ainvoke("three"))
        return list(await asyncio.gather(*invocations, return_exceptions=True))

    first, bad, last = asyncio.run(all_three())
    assert (first.error, last.error) == ("", "")
    # The search for its question fails first. That ends the invocation with an error.
    assert "ZeroDivisionError" in (bad.error if isinstance(bad, Invocation) else repr(bad))
    assert texts(memory) == ["fine", "fine", "one", "three"]


def test_event_loops_in_several_threads_can_share_a_runtime(
    memory: AgentMemorySystem, sessions: SessionStore
) -> None:
    agent = runtime(memory, sessions)

    def work(name: str) -> None:
        asyncio.run(ask(agent, *(f"{name} {number}" for number in range(20))))

    together(lambda: work("a"), lambda: work("b"), lambda: work("c"))
    assert len(texts(memory)) == 120


def test_an_invocation_without_a_memory_does_not_wait(sessions: SessionStore) -> None:
    agent = AgentRuntime("ann", ScriptedModel([echo], repeat=True), sessions=sessions)
    (done,) = asyncio.run(ask(agent, "hello"))
    assert done.answer == "You said: hello"
