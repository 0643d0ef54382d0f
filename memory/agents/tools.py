"""Tools: typed Python functions that a model can call, and the registry that allows and runs them.

    registry = ToolRegistry(deny=["delete_*"])

    @registry.tool
    def weather(city: str, days: int = 1) -> str:
        \"\"\"The weather of the next days.

        Args:
            city: its name
        \"\"\"

If a tool raises, gets invalid arguments or takes too long, the model gets an error result, and the loop
goes on. The values of a generator become a list.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import re
import threading
import time
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import aclosing, closing
from contextvars import Context as Variables
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import islice
from queue import SimpleQueue
from typing import Any, cast, get_type_hints

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from memory.agents.errors import InvalidAgentInput, UnknownTool
from memory.agents.messages import ToolCall, ToolResult, first_error, sendable
from memory.errors import short

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # the names that OpenAI's and Anthropic's interfaces accept
_MAX_AT_ONCE = 32
"""The most functions of one reply that run at the same time: more than a model usually calls. Further calls
wait. This is also the most idle threads that are kept for later calls."""
_MAX_THREADS = 512
"""The most threads of all replies together, including threads that hang. Further calls wait."""
_GRACE_SECONDS = 1.0
"""How long a cancelled async tool may clean up. After this time the registry does not wait for the tool."""


class _Schema(GenerateJsonSchema):
    """Leaves defaults that are not JSON values out of the schema, without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in pydantic

    def encode_default(self, dft: Any) -> Any:
        try:
            return super().encode_default(dft)
        except UnicodeDecodeError as problem:  # a default of type bytes, in some versions of pydantic
            raise pydantic_core.PydanticSerializationError(str(problem)) from None


@dataclass(frozen=True)
class Tool:
    """A function with a JSON schema, which comes from its signature and its docstring."""

    name: str
    """Up to 64 letters, digits, _ and -."""
    description: str
    """Tells the model what the tool does."""
    function: Callable[..., Any]
    """May be async. The model passes all arguments by name."""
    timeout_seconds: float | None = None
    """None for no limit. A function that is not async can't be stopped: its thread runs to the end."""

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Tool:
        """Return a tool. By default its name and description are the function's name and docstring."""
        own_name = getattr(function, "__name__", "") if name is None else name
        text = description if description is not None else _summary(function)
        return cls(own_name, text, function, timeout_seconds)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidAgentInput(
                f"{short(self.name)} can't name a tool: use up to 64 letters a to z, digits, _ and -"
            )
        _check_timeout(f"tool {self.name}", self.timeout_seconds)
        self.parameters  # noqa: B018 - so that an unusable signature raises here, not at the first call

    @cached_property
    def arguments_model(self) -> type[BaseModel]:
        """The pydantic model of the arguments."""
        try:
            hints = get_type_hints(self.function, include_extras=True)
            parameters = inspect.signature(self.function).parameters
        except Exception as problem:
            raise InvalidAgentInput(
                f"tool {self.name}: the types of its signature can't be read: {problem}"
            ) from None
        descriptions = _parameter_descriptions(self.function)
        # The fields are named p0, p1, …, and the names of the parameters are their aliases: a parameter may
        # be named `copy` or `_x`, but a field of a pydantic model may not.
        fields: dict[str, Any] = {}
        for number, (name, parameter) in enumerate(parameters.items()):
            if parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
                parameter.POSITIONAL_ONLY,
            ):
                raise InvalidAgentInput(
                    f"tool {self.name}: a model can't pass {parameter} by name: use a plain parameter"
                )
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[f"p{number}"] = (
                hints.get(name, Any),
                Field(default, alias=name, description=descriptions.get(name)),
            )
        try:
            return create_model(
                self.name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
            )
        except Exception as problem:
            raise self._no_schema(problem) from None

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments."""
        try:
            schema = self.arguments_model.model_json_schema(schema_generator=_Schema)
        except InvalidAgentInput:
            raise
        except Exception as problem:
            raise self._no_schema(problem) from None
        schema.pop("title", None)
        for parameter in schema.get("properties", {}).values():
            parameter.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the validated arguments by parameter name, or raise InvalidAgentInput.

        Lists and dicts are copied, so that the function may change them.
        """
        if any(isinstance(value, list | dict) for value in arguments.values()):
            arguments = deepcopy(dict(arguments))
        try:
            checked = self.arguments_model.model_validate(arguments)
        except ValidationError as problem:
            raise InvalidAgentInput(first_error(problem)) from None
        return {
            info.alias or name: getattr(checked, name) for name, info in type(checked).model_fields.items()
        }

    def _no_schema(self, problem: Exception) -> InvalidAgentInput:
        return InvalidAgentInput(
            f"tool {self.name}: the signature can't be turned into a JSON schema: {_one_line(problem)}"
        )


@dataclass
class ToolRegistry:
    """The tools of an agent."""

    allow: Sequence[str] = ("*",)
    """Shell patterns of the names of tools that may be used."""
    deny: Sequence[str] = ()
    """Shell patterns of the names that may not be used, even if `allow` matches them."""
    timeout_seconds: float | None = None
    """The time limit of tools without a limit of their own; None for no limit."""
    _tools: dict[str, Tool] = field(default_factory=dict)
    _version: int = 0

    def __post_init__(self) -> None:
        for name, patterns in (("allow", self.allow), ("deny", self.deny)):
            if isinstance(patterns, str) or not all(isinstance(pattern, str) for pattern in patterns):
                raise InvalidAgentInput(f"{name} is {short(patterns)}: use a list of patterns")
        _check_timeout("the registry", self.timeout_seconds)

    @property
    def state(self) -> tuple[object, ...]:
        """A value that changes whenever the result of `tools()` may change."""
        return (self._version, *self.allow, "", *self.deny)

    def tool(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Add a function as a tool and return the function unchanged. Use this as a decorator."""
        self.add(function)
        return function

    def add(
        self,
        tool: Tool | Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Tool:
        """Add a tool, or a function with the options of `Tool.of`, and return the tool."""
        if not isinstance(tool, Tool):
            tool = Tool.of(tool, name=name, description=description, timeout_seconds=timeout_seconds)
        if tool.name in self._tools:
            raise InvalidAgentInput(f"the registry already has a tool {tool.name!r}: use another name")
        self._tools[tool.name] = tool
        self._version += 1
        return tool

    def remove(self, name: str) -> None:
        """Remove a tool, or raise UnknownTool."""
        del self._tools[self.get(name).name]
        self._version += 1

    def is_allowed(self, name: str) -> bool:
        """Return whether `allow` and `deny` permit a tool of that name."""
        return any(fnmatchcase(name, pattern) for pattern in self.allow) and not any(
            fnmatchcase(name, pattern) for pattern in self.deny
        )

    def tools(self) -> list[Tool]:
        """Return the tools that may be used, sorted by name so that their order is stable."""
        return [self._tools[name] for name in sorted(self._tools) if self.is_allowed(name)]

    def get(self, name: str) -> Tool:
        """Return a tool that may be used, or raise UnknownTool."""
        if name in self._tools and self.is_allowed(name):
            return self._tools[name]
        names = [tool.name for tool in self.tools()]
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
        raise UnknownTool(f"there is no tool {short(name)}: {hint}")

    # -- running ------------------------------------------------------------------------------

    def run(self, *calls: ToolCall) -> list[ToolResult]:
        """Run calls at the same time, each with its own time limit. Return the results in the calls' order.

        At most 32 calls run at once. The next call starts when a running call ends or exceeds its limit.
        The time of a call is measured from its own start.
        """
        if len(calls) == 1 and not self._needs_thread(calls[0]):
            return [self._run_here(calls[0], None)]
        results: dict[int, ToolResult] = {}
        running: dict[Future[ToolResult], tuple[int, float]] = {}  # the number of the call, and its start
        waiting = iter(range(len(calls)))
        while len(results) < len(calls):
            for number in islice(waiting, _MAX_AT_ONCE - len(running)):
                call = calls[number]
                start = time.perf_counter()
                running[_in_thread(self._run_here, call, self._limit(call))] = (number, start)
            wait(running, self._seconds_to_next_limit(calls, running), FIRST_COMPLETED)
            now = time.perf_counter()
            for future, (number, start) in list(running.items()):
                call = calls[number]
                if future.done():
                    results[number] = future.result()
                elif now >= self._end(call, start):
                    future.cancel()  # a call that still waits for a thread never starts
                    results[number] = _timed_out(call, self._limit(call), start)
                else:
                    continue
                del running[future]
        return [results[number] for number in range(len(calls))]

    def _seconds_to_next_limit(
        self, calls: Sequence[ToolCall], running: Mapping[Future[ToolResult], tuple[int, float]]
    ) -> float | None:
        """Return the seconds until the first running call exceeds its limit; None without limits."""
        end = min([self._end(calls[number], start) for number, start in running.values()])
        return None if end == math.inf else max(0.0, end - time.perf_counter())

    def _end(self, call: ToolCall, start: float) -> float:
        """Return the time, in seconds of `perf_counter`, at which `run` stops waiting for a call."""
        limit = self._limit(call)
        if limit is None:
            return math.inf
        return start + limit + (_GRACE_SECONDS if self._is_async(call) else 0.0)

    async def arun(self, *calls: ToolCall) -> list[ToolResult]:
        """Do what `run` does without blocking the event loop. Async tools have no limit of 32."""
        if len(calls) == 1:
            return [await self._arun_one(calls[0])]
        places = asyncio.Semaphore(_MAX_AT_ONCE)

        async def in_place(call: ToolCall) -> ToolResult:
            if self._is_async(call):
                return await self._arun_one(call)
            async with places:
                return await self._arun_one(call)

        return list(await asyncio.gather(*map(in_place, calls)))

    async def _arun_one(self, call: ToolCall) -> ToolResult:
        start = time.perf_counter()
        try:
            tool = self.get(call.name)
        except UnknownTool as problem:
            return _failed(call, problem, start)
        limit = self._limit(call)
        if tool.is_async:
            return await _call_async(tool, call, limit, start)
        try:
            async with asyncio.timeout(limit):
                return await asyncio.wrap_future(_in_thread(self._run_here, call, limit))
        except TimeoutError:
            return _timed_out(call, limit, start)

    def _run_here(self, call: ToolCall, limit: float | None) -> ToolResult:
        start = time.perf_counter()
        try:
            tool = self.get(call.name)
            if tool.is_async:
                return asyncio.run(_call_async(tool, call, limit, start))
            value = tool.function(**tool.bind(call.arguments))
            if inspect.isawaitable(value):
                value = asyncio.run(_await(value))
            elif inspect.isasyncgen(value):
                value = asyncio.run(_collect(cast("AsyncGenerator[Any]", value), limit, start))
            return _succeeded(call, value, limit, start)
        except _TimedOut:
            return _timed_out(call, limit, start)
        except (Exception, SystemExit, asyncio.CancelledError) as problem:
            return _failed(call, problem, start)

    def _needs_thread(self, call: ToolCall) -> bool:
        """Return whether a call needs its own thread: for its time limit, or for its own event loop."""
        return self._limit(call) is not None or (self._is_async(call) and _has_event_loop())

    def _is_async(self, call: ToolCall) -> bool:
        tool = self._tools.get(call.name)
        return tool is not None and tool.is_async

    def _limit(self, call: ToolCall) -> float | None:
        tool = self._tools.get(call.name)
        own = tool.timeout_seconds if tool else None
        return self.timeout_seconds if own is None else own


# -- threads ----------------------------------------------------------------------------------
#
# This replaces the pool of concurrent.futures. With that pool, the program would wait at exit for tools
# that hang, and a few such tools would block all its threads. Here a reply has at most _MAX_AT_ONCE running
# calls. A call that exceeds its limit no longer counts, so other calls are blocked only if _MAX_THREADS
# calls hang.

_Task = tuple[Variables, Callable[..., ToolResult], tuple[Any, ...], "Future[ToolResult]"]


class _Threads:
    """The threads of this process that run tools."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.count = 0
        self.idle: list[SimpleQueue[_Task]] = []
        self.waiting: deque[_Task] = deque()
        """Tasks for which no thread was free."""


_threads = _Threads()


def _in_thread(work: Callable[..., ToolResult], *arguments: Any) -> Future[ToolResult]:
    """Run `work` in an idle thread or in a new one. If _MAX_THREADS run already, wait for a free thread."""
    threads = _threads
    future: Future[ToolResult] = Future()
    task: _Task = (copy_context(), work, arguments, future)
    with threads.lock:
        if threads.idle:
            threads.idle.pop().put(task)
            return future
        if threads.count >= _MAX_THREADS:
            threads.waiting.append(task)
            return future
        threads.count += 1
    mailbox: SimpleQueue[_Task] = SimpleQueue()
    mailbox.put(task)
    try:
        threading.Thread(target=_serve, args=(threads, mailbox), name="agent-tool", daemon=True).start()
    except BaseException:
        with threads.lock:
            threads.count -= 1
        raise
    return future


def _serve(threads: _Threads, mailbox: SimpleQueue[_Task]) -> None:
    """Run tasks in a loop. End this thread when enough other threads are idle."""
    while True:
        variables, work, arguments, future = mailbox.get()
        result: ToolResult | BaseException | None = None
        runs = future.set_running_or_notify_cancel()
        if runs:
            try:
                result = variables.run(work, *arguments)
            except BaseException as problem:
                result = problem
        with threads.lock:  # before the result is set, so that the next call can use this thread
            stays = True
            if threads.waiting:
                mailbox.put(threads.waiting.popleft())
            elif len(threads.idle) < _MAX_AT_ONCE:
                threads.idle.append(mailbox)
            else:
                stays = False
                threads.count -= 1
        if isinstance(result, BaseException):
            future.set_exception(result)
        elif result is not None:
            future.set_result(result)
        del variables, work, arguments, future, result
        if not stays:
            return


def _forget_threads() -> None:
    """Reset the threads in a forked child, which does not have its parent's threads."""
    global _threads
    _threads = _Threads()


os.register_at_fork(after_in_child=_forget_threads)


def _has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# -- results ----------------------------------------------------------------------------------


async def _await(value: Any) -> Any:
    return await value


class _TimedOut(Exception):
    """The time limit of a tool passed before its generator ended."""


async def _collect(values: AsyncGenerator[Any], limit: float | None, start: float) -> list[Any]:
    left = None if limit is None else max(0.0, start + limit - time.perf_counter())
    collected = []
    try:
        async with asyncio.timeout(left) as timeout, aclosing(values):
            async for value in values:
                collected.append(value)
                _check_limit(limit, start)  # a generator that never waits can't be cancelled
    except TimeoutError:
        if timeout.expired():
            raise _TimedOut from None
        raise  # the tool itself raised this TimeoutError
    return collected


def _list_of(values: Generator[Any], limit: float | None, start: float) -> list[Any]:
    """Return the values of a generator. Close it and raise _TimedOut if the limit passes before its end."""
    collected = []
    with closing(values):
        for value in values:
            collected.append(value)
            _check_limit(limit, start)
    return collected


def _check_limit(limit: float | None, start: float) -> None:
    if limit is not None and time.perf_counter() - start > limit:
        raise _TimedOut


_abandoned: set[asyncio.Task[ToolResult]] = set()
"""Tasks that did not end when they were cancelled. An event loop holds only weak references to tasks."""


async def _call_async(tool: Tool, call: ToolCall, limit: float | None, start: float) -> ToolResult:
    if limit is None:
        return await _outcome(tool, call, limit, start)
    # Use a separate task: if the tool ignores its cancellation, the task can be abandoned.
    task = asyncio.create_task(_outcome(tool, call, limit, start))
    try:
        await asyncio.wait((task,), timeout=limit)
    finally:  # also if this coroutine is cancelled
        in_time = task.done()
        if not in_time:
            task.cancel()
            await asyncio.wait((task,), timeout=_GRACE_SECONDS)
            if not task.done():
                _abandoned.add(task)
                task.add_done_callback(_abandoned.discard)
    if not in_time:
        return _timed_out(call, limit, start)
    if task.cancelled():
        return _failed(call, asyncio.CancelledError(), start)  # the tool cancelled itself
    return task.result()


async def _outcome(tool: Tool, call: ToolCall, limit: float | None, start: float) -> ToolResult:
    task = asyncio.current_task()
    try:
        return _succeeded(call, await tool.function(**tool.bind(call.arguments)), limit, start)
    except _TimedOut:
        return _timed_out(call, limit, start)
    except (Exception, SystemExit) as problem:
        return _failed(call, problem, start)
    except asyncio.CancelledError as problem:
        if task is not None and task.cancelling():
            raise
        return _failed(call, problem, start)  # something inside the tool was cancelled, not this task


def _succeeded(call: ToolCall, value: Any, limit: float | None, start: float) -> ToolResult:
    if inspect.isgenerator(value):
        value = _list_of(cast("Generator[Any]", value), limit, start)
    result = _result(call, _as_text(value), False, start)
    # Check the limit again: nobody checks it during the wait for another tool or in a blocked event loop.
    return result if limit is None or result.seconds <= limit else _timed_out(call, limit, start)


def _failed(call: ToolCall, problem: BaseException, start: float) -> ToolResult:
    is_ours = isinstance(problem, InvalidAgentInput | UnknownTool)
    return _result(call, str(problem) if is_ours else _one_line(problem), True, start)


def _timed_out(call: ToolCall, limit: float | None, start: float) -> ToolResult:
    return _result(call, f"{call.name} did not end within {limit:g} s", True, start)


def interrupted(call: ToolCall) -> ToolResult:
    """Return the error result of a call that was interrupted, so that its outcome is unknown."""
    return _result(call, f"{call.name} was interrupted: it may have had effects", True, None)


def _result(call: ToolCall, content: str, is_error: bool, start: float | None) -> ToolResult:
    return ToolResult.trusted(
        call_id=call.id,
        name=call.name,
        content=sendable(content),
        is_error=is_error,
        seconds=0.0 if start is None else time.perf_counter() - start,
    )


def _one_line(problem: BaseException) -> str:
    try:
        text = " ".join(str(problem).split())
    except Exception:
        text = "its message can't be read"
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _check_timeout(owner: str, seconds: object) -> None:
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds <= 86_400):
        raise InvalidAgentInput(
            f"timeout_seconds of {owner} is {short(seconds)}: use a number above 0, up to 86,400 (a day)"
        )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    try:
        return pydantic_core.to_json(value, fallback=str, inf_nan_mode="constants").decode()
    except Exception:
        return str(value)  # not a JSON value, but the tool has succeeded


def _summary(function: Callable[..., Any]) -> str:
    """Return the docstring up to its first section, on one line."""
    return " ".join(_SECTION.split(inspect.getdoc(function) or "", maxsplit=1)[0].split())


_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):[ \t]*$", re.M
)
_PARAMETER = re.compile(r"\*{0,2}(\w+)(?: *\([^)]*\))? *: *(.*)")


def _parameter_descriptions(function: Callable[..., Any]) -> dict[str, str]:
    """Return the descriptions in the docstring's Args section. Lines with more indentation continue one."""
    text = inspect.getdoc(function) or ""
    heading = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*$", text, re.M)
    if heading is None:
        return {}
    descriptions: dict[str, str] = {}
    first_indent = name = None
    for line in text[heading.end() :].strip("\n").splitlines():
        indent = len(line) - len(line.lstrip())
        if line.strip() and not indent:
            break
        match = _PARAMETER.fullmatch(line.strip())
        if match and (first_indent is None or indent <= first_indent):
            first_indent, name = indent, match[1]
            descriptions[name] = match[2]
        elif name is not None and line.strip():
            descriptions[name] = f"{descriptions[name]} {line.strip()}".strip()
    return descriptions
