"""Tools: schemas of signatures, allowed tools, and error results instead of exceptions."""

from __future__ import annotations

import asyncio
import contextvars
import threading
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import date
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from subprocesses import PATIENCE, run_python

from memory.agents import Tool, ToolCall, ToolRegistry, ToolResult
from memory.agents.errors import InvalidAgentInput, UnknownTool
from memory.agents.tools import _Threads

SOON = 0.05
"""A time limit in seconds, for tools that wait for ever."""


class Colour(Enum):
    RED = "red"


class Place(BaseModel):
    name: str
    floor: int = 0


@dataclass
class Point:
    x: int


def weather(
    city: str, days: int = 1, unit: Literal["C", "F"] = "C", *, near: list[Place] | None = None
) -> str:
    """The weather of the next days,
    as far as it is known.

    Args:
        city: its name: in English,
            or as its people say
        days (int): how many

    Returns:
        text: a report
    """
    return f"{city} {days} {unit} {near}"


def call(name: str, **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments)


def run(registry: ToolRegistry, *calls: ToolCall, how: str = "sync") -> list[ToolResult]:
    return registry.run(*calls) if how == "sync" else asyncio.run(registry.arun(*calls))


both_ways = pytest.mark.parametrize("how", ["sync", "async"])


# -- schemas ----------------------------------------------------------------------------------


def test_a_signature_and_a_docstring_become_a_schema() -> None:
    tool = Tool.of(weather)
    assert tool.name == "weather"
    assert tool.description == "The weather of the next days, as far as it is known."
    schema = tool.parameters
    assert schema["type"] == "object"
    assert schema["required"] == ["city"]
    assert schema["additionalProperties"] is False
    properties = schema["properties"]
    assert list(properties) == ["city", "days", "unit", "near"]
    assert properties["city"] == {
        "type": "string",
        "description": "its name: in English, or as its people say",
    }
    assert properties["days"] == {"type": "integer", "default": 1, "description": "how many"}
    assert properties["unit"]["enum"] == ["C", "F"]
    assert schema["$defs"]["Place"]["properties"]["floor"]["type"] == "integer"


def test_arguments_are_converted_to_the_types_of_the_function() -> None:
    def use(
        place: Place, day: date, colour: Colour, amount: Annotated[int, Field(ge=1)], *rest: str
    ) -> None: ...

    with pytest.raises(InvalidAgentInput, match="rest"):
        Tool.of(use)

    def good(place: Place, day: date, colour: Colour, amount: Annotated[int, Field(ge=1)], other=3) -> None:  # type: ignore[no-untyped-def]
        """Something."""

    tool = Tool.of(good)
    bound = tool.bind({"place": {"name": "x"}, "day": "2024-02-01", "colour": "red", "amount": "3"})
    assert bound == {
        "place": Place(name="x"),
        "day": date(2024, 2, 1),
        "colour": Colour.RED,
        "amount": 3,
        "other": 3,
    }
    for wrong in ({"amount": 0}, {"amount": "many"}, {"surprise": 1}):
        with pytest.raises(InvalidAgentInput) as caught:
            tool.bind({"place": {"name": "x"}, "day": "2024-02-01", "colour": "red", "amount": 1, **wrong})
        assert next(iter(wrong)) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_parameter_may_have_any_name() -> None:
    def odd(copy: int, schema: str, json: bool, model_config: int, _hidden: int = 2) -> list[Any]:
        return [copy, schema, json, model_config, _hidden]

    registry = ToolRegistry()
    tool = registry.add(odd)
    assert list(tool.parameters["properties"]) == ["copy", "schema", "json", "model_config", "_hidden"]
    done = registry.run(call("odd", copy=1, schema="s", json=True, model_config=4, _hidden=5))[0]
    assert (done.content, done.is_error) == ('[1,"s",true,4,5]', False)


def test_a_default_that_is_not_json_is_left_out_of_the_schema() -> None:
    nothing = object()

    def tool(value: Any = nothing) -> bool:
        return value is nothing

    registry = ToolRegistry()
    registry.add(tool)
    assert registry.run(call("tool"))[0].content == "true"


def test_an_invalid_tool_is_refused_when_it_is_added() -> None:
    def takes_object(thing: threading.Lock) -> None: ...  # type: ignore[valid-type]
    def unknown_type(thing: Nowhere) -> None: ...  # type: ignore[name-defined]  # noqa: F821
    def positional(thing: int, /) -> None: ...
    def many(**things: int) -> None: ...

    for function in (takes_object, unknown_type, positional, many, lambda: 1, 3):
        with pytest.raises(InvalidAgentInput) as caught:
            Tool.of(function)  # type: ignore[arg-type]
        assert "\n" not in str(caught.value)
    for name in ("", "two words", "größe", "x" * 65, "a/b"):
        with pytest.raises(InvalidAgentInput, match="can't name a tool"):
            Tool.of(weather, name=name)
    for seconds in (0, -1, float("nan"), "soon"):
        with pytest.raises(InvalidAgentInput, match="timeout_seconds"):
            Tool.of(weather, timeout_seconds=seconds)
        with pytest.raises(InvalidAgentInput, match="timeout_seconds"):
            ToolRegistry(timeout_seconds=seconds)


# -- the registry -----------------------------------------------------------------------------


def test_patterns_decide_which_tools_may_be_used() -> None:
    registry = ToolRegistry(allow=["read_*", "list"], deny=["*_secret"])
    for name in ("read_file", "read_secret", "list", "write_file"):
        registry.add(lambda: "done", name=name, description="")
    assert [tool.name for tool in registry.tools()] == ["list", "read_file"]
    assert not registry.run(call("read_file"))[0].is_error
    for name in ("read_secret", "write_file", "Read_file"):
        refused = registry.run(call(name))[0]
        assert refused.is_error
        assert "there is no tool" in refused.content
    before = registry.state
    registry.deny = ["*"]
    assert registry.state != before
    assert registry.tools() == []
    with pytest.raises(InvalidAgentInput, match="list of patterns"):
        ToolRegistry(allow="read_*")


def test_an_unknown_tool_is_refused_with_a_hint() -> None:
    registry = ToolRegistry()
    registry.add(weather)
    with pytest.raises(UnknownTool, match="did you mean 'weather'"):
        registry.get("whether")
    with pytest.raises(UnknownTool, match="there are: weather"):
        registry.get("x")
    with pytest.raises(InvalidAgentInput, match="already"):
        registry.add(weather)
    registry.remove("weather")
    with pytest.raises(UnknownTool, match="none"):
        registry.remove("weather")


# -- running ----------------------------------------------------------------------------------


@both_ways
def test_results_become_text(how: str) -> None:
    class Strange:
        def __str__(self) -> str:
            return "strange"

    values: list[tuple[Any, str]] = [
        ("as it is", "as it is"),
        (None, "null"),
        ({"a": [1, 2.5]}, '{"a":[1,2.5]}'),
        (Place(name="x"), '{"name":"x","floor":0}'),
        ([Point(3)], '[{"x":3}]'),
        ("größe", "größe"),
        (["größe"], '["größe"]'),
        (Strange(), '"strange"'),
        (b"\xff", "b'\\xff'"),
        ("half \ud800", "half ?"),
        (date(2024, 2, 1), '"2024-02-01"'),
    ]
    for value, text in values:
        registry = ToolRegistry()
        registry.add(lambda value=value: value, name="give", description="")
        done = run(registry, call("give"), how=how)[0]
        assert (done.content, done.is_error) == (text, False)


@both_ways
def test_a_tool_that_raises_gives_an_error_result(how: str) -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    registry = ToolRegistry()
    problems: list[BaseException] = [
        ValueError("wrong\nin two lines"),
        KeyError("x"),
        SystemExit(3),
        TimeoutError("its own"),
        asyncio.CancelledError("its own"),
        ValueError("half \ud800"),
        Mute(),
        RecursionError(),
    ]

    @registry.tool
    def fail(number: int) -> None:
        raise problems[number]

    @registry.tool
    async def fail_async(number: int) -> None:
        raise problems[number]

    for number, problem in enumerate(problems):
        for name in ("fail", "fail_async"):
            done = run(registry, call(name, number=number), how=how)[0]
            assert done.is_error, problem
            assert type(problem).__name__ in done.content
            assert "\n" not in done.content
            assert "\ud800" not in done.content
    wrong = run(registry, call("fail", number="x"), call("fail"), call("nothing"), how=how)
    assert [result.is_error for result in wrong] == [True] * 3
    assert [result.name for result in wrong] == ["fail", "fail", "nothing"]


@both_ways
@pytest.mark.parametrize("is_async", [False, True])
def test_calls_run_concurrently_and_results_keep_their_order(how: str, is_async: bool) -> None:
    """Each call waits for all others: run one after the other, they would never end."""
    registry = ToolRegistry()
    calls = [call("meet", number=number) for number in range(4)]
    barrier = threading.Barrier(len(calls))

    async def meet_async(number: int) -> int:
        await asyncio.to_thread(barrier.wait, PATIENCE)
        return number

    def meet(number: int) -> int:
        barrier.wait(PATIENCE)
        return number

    registry.add(meet_async if is_async else meet, name="meet")
    results = run(registry, *calls, how=how)
    assert [result.content for result in results] == [str(number) for number in range(4)]
    assert [result.call_id for result in results] == [call.id for call in calls]
    assert not any(result.is_error for result in results)


@both_ways
@pytest.mark.parametrize("is_async", [False, True])
def test_a_tool_that_takes_too_long_gives_an_error_result(how: str, is_async: bool) -> None:
    registry = ToolRegistry(timeout_seconds=PATIENCE)
    forever = threading.Event()
    cancelled = []

    def hang() -> None:
        forever.wait(PATIENCE)

    async def hang_async() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            cancelled.append(True)

    registry.add(hang_async if is_async else hang, name="hang", timeout_seconds=SOON)
    registry.add(lambda: "quick", name="quick", description="")
    alone = run(registry, call("hang"), how=how)
    assert [(result.content, result.is_error) for result in alone] == [
        ("hang did not end within 0.05 s", True)
    ]
    several = run(registry, call("quick"), call("hang"), call("quick"), how=how)
    assert [result.is_error for result in several] == [False, True, False]
    assert len(cancelled) == (2 if is_async else 0)  # only a coroutine can be stopped
    forever.set()


@both_ways
def test_a_tool_that_times_out_during_the_wait_for_another_gives_an_error(how: str) -> None:
    registry = ToolRegistry(timeout_seconds=PATIENCE)
    late_has_ended = threading.Event()

    def late() -> str:
        threading.Event().wait(2 * SOON)
        late_has_ended.set()
        return "late"

    registry.add(lambda: late_has_ended.wait(PATIENCE), name="waits", description="")
    registry.add(late, timeout_seconds=SOON)
    waits, too_late = run(registry, call("waits"), call("late"), how=how)
    assert (waits.content, waits.is_error) == ("true", False)
    assert (too_late.content, too_late.is_error) == ("late did not end within 0.05 s", True)


@both_ways
def test_a_coroutine_that_blocks_the_event_loop_times_out(how: str) -> None:
    registry = ToolRegistry(timeout_seconds=SOON)

    @registry.tool
    async def block() -> str:
        threading.Event().wait(2 * SOON)
        return "done"

    assert run(registry, call("block"), how=how)[0].is_error


def test_a_coroutine_that_ignores_its_cancellation_is_abandoned(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("memory.agents.tools._GRACE_SECONDS", SOON)
    registry = ToolRegistry(timeout_seconds=SOON)
    released = asyncio.Event()
    ended: list[str] = []

    @registry.tool
    async def stubborn() -> str:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            await asyncio.wait_for(released.wait(), PATIENCE)
        ended.append("stubborn")
        return "done"

    async def main() -> None:
        result = (await registry.arun(call("stubborn")))[0]
        assert (result.content, result.is_error) == ("stubborn did not end within 0.05 s", True)
        invocation = asyncio.ensure_future(registry.arun(call("stubborn")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        invocation.cancel()
        with pytest.raises(asyncio.CancelledError):
            await invocation
        assert ended == []
        released.set()
        while len(ended) < 2:
            await asyncio.sleep(0)

    asyncio.run(main())


@both_ways
def test_a_coroutine_that_returns_after_its_cancellation_timed_out(how: str) -> None:
    registry = ToolRegistry(timeout_seconds=SOON)

    @registry.tool
    async def cleans_up() -> str:
        try:
            await asyncio.sleep(PATIENCE)
        except asyncio.CancelledError:
            await asyncio.sleep(0)
        return "done"

    @registry.tool
    async def gives_up() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(PATIENCE)

    results = run(registry, call("cleans_up"), call("gives_up"), how=how)
    assert [result.is_error for result in results] == [True, True]
    assert results[1].content == "CancelledError"


@both_ways
def test_values_of_a_generator_become_a_list_and_its_exception_an_error(how: str) -> None:
    registry = ToolRegistry()

    @registry.tool
    def numbers(last: int) -> Iterator[int]:
        for number in range(last):
            if number == 2:
                raise ValueError("no further")
            yield number

    @registry.tool
    async def numbers_later(last: int) -> AsyncIterator[int]:
        for number in numbers(last):
            yield number

    for name in ("numbers", "numbers_later"):
        whole, broken = run(registry, call(name, last=2), call(name, last=3), how=how)
        assert (whole.content, whole.is_error) == ("[0,1]", False)
        assert (broken.content, broken.is_error) == ("ValueError: no further", True)


def test_the_time_limit_of_each_tool_starts_with_its_own_call() -> None:
    """A hundred tools that hang all time out after one limit, not after a hundred."""
    registry = ToolRegistry(timeout_seconds=0.3)
    forever = threading.Event()
    registry.add(lambda: forever.wait(PATIENCE), name="hang", description="")
    start = time.perf_counter()
    results = registry.run(*[call("hang") for _ in range(100)])
    took = time.perf_counter() - start
    assert all(result.is_error for result in results)
    assert took < 100 * 0.3 / 2
    # They still hang, but other tools can run.
    registry.timeout_seconds = PATIENCE
    registry.add(lambda: "fine", name="fine", description="")
    assert registry.run(call("fine"))[0].content == "fine"
    forever.set()


def test_a_tool_that_hangs_does_not_delay_the_end_of_the_program() -> None:
    printed = run_python(
        """
        import threading
        from memory.agents import ToolCall, ToolRegistry
        registry = ToolRegistry(timeout_seconds=0.05)
        registry.add(lambda: threading.Event().wait(), name="hang", description="")
        print(registry.run(ToolCall(name="hang"))[0].content)
        """
    )
    assert printed == "hang did not end within 0.05 s\n"


def test_async_tools_run_inside_a_running_event_loop() -> None:
    registry = ToolRegistry()

    @registry.tool
    async def hello() -> str:
        await asyncio.sleep(0)
        return "hello"

    async def main() -> ToolResult:
        return registry.run(call("hello"))[0]

    assert asyncio.run(main()).content == "hello"


def test_a_blocking_tool_does_not_block_the_event_loop() -> None:
    registry = ToolRegistry()
    release = threading.Event()
    registry.add(lambda: release.wait(PATIENCE), name="wait", description="")

    async def main() -> ToolResult:
        running = asyncio.ensure_future(registry.arun(call("wait")))
        await asyncio.sleep(0)
        release.set()  # not reached if the tool blocks the loop; it would then return False
        return (await running)[0]

    assert asyncio.run(main()).content == "true"


def test_tools_see_the_context_variables_of_their_caller() -> None:
    who = contextvars.ContextVar("who", default="nobody")
    registry = ToolRegistry(timeout_seconds=PATIENCE)
    registry.add(lambda: who.get(), name="who", description="")

    async def main() -> list[ToolResult]:
        return await registry.arun(call("who"))

    who.set("ann")
    assert registry.run(call("who"))[0].content == "ann"
    assert asyncio.run(main())[0].content == "ann"


def test_a_tool_may_change_its_arguments_without_changing_the_call() -> None:
    registry = ToolRegistry()

    @registry.tool
    def spoil(things: Any) -> int:
        things["list"].append(3)
        return len(things["list"])

    spoiling = call("spoil", things={"list": [1, 2]})
    assert registry.run(spoiling)[0].content == "3"
    assert spoiling.arguments == {"things": {"list": [1, 2]}}


def test_cancelling_arun_cancels_async_tools() -> None:
    registry = ToolRegistry()
    ended = []

    @registry.tool
    async def wait() -> None:
        try:
            await asyncio.sleep(PATIENCE)
        finally:
            ended.append(True)

    async def main() -> None:
        running = asyncio.ensure_future(registry.arun(call("wait"), call("wait")))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    asyncio.run(main())
    assert ended == [True, True]


# -- limits -----------------------------------------------------------------------------------


@both_ways
@pytest.mark.parametrize("kind", ["sync", "async", "waiting"])
def test_a_generator_that_misses_its_limit_is_closed(how: str, kind: str) -> None:
    closed = threading.Event()
    count = 0

    def numbers() -> Iterator[int]:
        nonlocal count
        try:
            while True:
                count += 1
                yield count
        finally:
            closed.set()

    async def anumbers() -> AsyncIterator[int]:
        nonlocal count
        try:
            while True:
                count += 1
                yield count
                if kind == "waiting":
                    await asyncio.Event().wait()
        finally:
            closed.set()

    registry = ToolRegistry(timeout_seconds=SOON)
    registry.add(numbers if kind == "sync" else anumbers, name="numbers")
    done = run(registry, call("numbers"), how=how)[0]
    assert done.is_error
    assert "did not end within" in done.content
    assert closed.wait(PATIENCE)
    consumed = count
    run(
        registry, call("numbers", wrong=1), how=how
    )  # something else; the generator is not consumed meanwhile
    assert count == consumed


def test_a_generator_of_a_coroutine_is_limited_too() -> None:
    async def numbers() -> Any:
        return iter_numbers()

    def iter_numbers() -> Iterator[int]:
        while True:
            yield 1

    registry = ToolRegistry(timeout_seconds=SOON)
    registry.add(numbers)
    assert "did not end within" in asyncio.run(registry.arun(call("numbers")))[0].content


@both_ways
def test_thousands_of_calls_use_few_threads_and_give_all_results(how: str) -> None:
    lock = threading.Lock()
    running = most = 0
    names: set[int] = set()

    def work(number: int) -> int:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
            names.add(threading.get_ident())
        with lock:
            running -= 1
        return number

    registry = ToolRegistry(timeout_seconds=PATIENCE)
    registry.add(work)
    before = threading.active_count()
    results = run(registry, *(call("work", number=number) for number in range(2000)), how=how)
    assert [int(result.content) for result in results] == list(range(2000))
    assert most <= 32
    assert threading.active_count() <= before + 32


@both_ways
def test_tools_that_hang_do_not_stop_the_others(how: str) -> None:
    release = threading.Event()

    def hang() -> None:
        release.wait()

    def work(number: int) -> int:
        return number

    registry = ToolRegistry(timeout_seconds=PATIENCE)
    registry.add(hang, timeout_seconds=SOON)
    registry.add(work)
    calls = [*[call("hang")] * 100, *(call("work", number=number) for number in range(100))]
    try:
        results = run(registry, *calls, how=how)
    finally:
        release.set()
    assert all("did not end within" in result.content for result in results[:100])
    assert [result.content for result in results[100:]] == [str(number) for number in range(100)]


@both_ways
def test_a_call_waits_for_a_thread_within_its_limit(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memory.agents.tools._MAX_THREADS", 2)
    monkeypatch.setattr("memory.agents.tools._threads", _Threads())
    release = threading.Event()
    ran: list[int] = []

    def hang() -> None:
        release.wait()

    def work(number: int) -> int:
        ran.append(number)
        return number

    registry = ToolRegistry()
    registry.add(hang, timeout_seconds=SOON)
    registry.add(work, timeout_seconds=SOON)
    try:
        run(registry, call("hang"), call("hang"), how=how)
        assert "did not end within" in run(registry, call("work", number=1), how=how)[0].content
    finally:
        release.set()
    registry.remove("work")
    registry.add(work, timeout_seconds=PATIENCE)
    assert run(registry, call("work", number=2), how=how)[0].content == "2"
    assert ran == [2]  # the call that was given up never started


def test_tools_may_run_tools() -> None:
    registry = ToolRegistry(timeout_seconds=PATIENCE)

    def inner(number: int) -> int:
        return number

    def outer(number: int) -> str:
        return registry.run(call("inner", number=number), call("inner", number=number))[1].content

    registry.add(inner)
    registry.add(outer)
    results = registry.run(*(call("outer", number=number) for number in range(100)))
    assert [result.content for result in results] == [str(number) for number in range(100)]
