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
import os
import re
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from contextvars import Context as Variables
from contextvars import copy_context
from copy import deepcopy
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from queue import SimpleQueue
from typing import Any, get_type_hints

import pydantic_core
from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.json_schema import GenerateJsonSchema

from memory.agents.errors import InvalidAgentInput, UnknownTool
from memory.agents.messages import ToolCall, ToolResult, first_error, sendable
from memory.errors import short

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # the names that OpenAI's and Anthropic's interfaces accept
_MAX_IDLE_THREADS = 32
"""Threads that are kept for later calls: as many tools as usually run at the same time."""
_GRACE_SECONDS = 1.0
"""How long a cancelled async tool may clean up. After that the registry no longer waits for it."""


class _Schema(GenerateJsonSchema):
    """Leaves defaults that are not JSON values out of the schema, without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in pydantic


@dataclass(frozen=True)
class Tool:
    """A function with a JSON schema, which comes from its signature and its docstring."""

    name: str
    """Up to 64 letters, digits, _ and -."""
    description: str
    """Tells the model what the tool does."""
    function: Callable[..., Any]
    """May be async. Its parameters need names that the model can pass."""
    timeout_seconds: float | None = None
    """None for no limit. A function that is not async can't be stopped: its thread goes on."""

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
        # The fields have neutral names, and the parameters are their aliases: a parameter may be named
        # `copy` or `_x`, but a field of a pydantic model may not.
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
    """The time limit of tools that have none of their own; None for no limit."""
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
        """Add a function as a tool and return it unchanged: use it as a decorator."""
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
        """Run calls at the same time, each with its own time limit. Return the results in their order."""
        if len(calls) == 1 and not self._needs_thread(calls[0]):
            return [self._run_here(calls[0], None)]
        start = time.perf_counter()
        futures = [_in_thread(self._run_here, call, self._limit(call)) for call in calls]
        results = []
        for call, future in zip(calls, futures, strict=True):
            limit = self._limit(call)
            left = None if limit is None else max(0.0, start + limit - time.perf_counter())
            if left is not None and self._is_async(call):
                left += _GRACE_SECONDS
            try:
                results.append(future.result(left))
            except FutureTimeout:
                results.append(_timed_out(call, limit, start))
        return results

    async def arun(self, *calls: ToolCall) -> list[ToolResult]:
        """Do what `run` does without blocking the event loop."""
        if len(calls) == 1:
            return [await self._arun_one(calls[0])]
        return list(await asyncio.gather(*map(self._arun_one, calls)))

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
                value = asyncio.run(_collect(value))
            return _succeeded(call, value, limit, start)
        except (Exception, SystemExit, asyncio.CancelledError) as problem:
            return _failed(call, problem, start)

    def _needs_thread(self, call: ToolCall) -> bool:
        """Return whether a call needs its own thread: to be timed, or for an event loop of its own."""
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
# Not the pool of concurrent.futures: tools that hang would use up its threads, and the program would wait
# for them at its end. Here a thread that hangs is never used again.

_Task = tuple[Variables, Callable[..., ToolResult], tuple[Any, ...], "Future[ToolResult]"]
_idle: list[SimpleQueue[_Task]] = []


def _in_thread(work: Callable[..., ToolResult], *arguments: Any) -> Future[ToolResult]:
    """Run `work` in an idle thread, or in a new one."""
    task: _Task = (copy_context(), work, arguments, Future())
    try:
        mailbox = _idle.pop()
    except IndexError:
        mailbox = SimpleQueue()
        threading.Thread(target=_serve, args=(mailbox,), name="agent-tool", daemon=True).start()
    mailbox.put(task)
    return task[3]


def _serve(mailbox: SimpleQueue[_Task]) -> None:
    """Run the tasks of a mailbox, until enough other threads are idle."""
    while True:
        variables, work, arguments, future = mailbox.get()
        result: ToolResult | BaseException
        try:
            result = variables.run(work, *arguments)
        except BaseException as problem:
            result = problem
        stays = len(_idle) < _MAX_IDLE_THREADS
        if stays:
            _idle.append(mailbox)
        if future.set_running_or_notify_cancel():
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        del variables, work, arguments, future, result
        if not stays:
            return


os.register_at_fork(after_in_child=_idle.clear)


def _has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# -- results ----------------------------------------------------------------------------------


async def _await(value: Any) -> Any:
    return await value


async def _collect(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]


_abandoned: set[asyncio.Task[ToolResult]] = set()
"""Tasks that did not end when they were cancelled. An event loop holds only weak references to tasks."""


async def _call_async(tool: Tool, call: ToolCall, limit: float | None, start: float) -> ToolResult:
    if limit is None:
        return await _outcome(tool, call, limit, start)
    # A separate task, because it can be abandoned if it goes on after it was cancelled.
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
    except (Exception, SystemExit) as problem:
        return _failed(call, problem, start)
    except asyncio.CancelledError as problem:
        if task is not None and task.cancelling():
            raise
        return _failed(call, problem, start)  # something inside the tool was cancelled, not this task


def _succeeded(call: ToolCall, value: Any, limit: float | None, start: float) -> ToolResult:
    result = _result(call, _as_text(value), False, start)
    # The limit may have passed unnoticed: during the wait for another tool, or in a blocked event loop.
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
    if inspect.isgenerator(value):
        value = list(value)  # not inside the `try`: what it raises is an error of the tool
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
    """Return the descriptions in the docstring's Args section. More indented lines continue one."""
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
