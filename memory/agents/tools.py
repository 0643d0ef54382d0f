"""Tools: typed Python functions that a model may call, and the registry that decides which.

    registry = ToolRegistry(deny=["delete_*"])

    @registry.tool
    def weather(city: str, days: int = 1) -> str:
        \"\"\"The weather of the next days.

        Args:
            city: its name
        \"\"\"

A tool that raises, gets wrong arguments or takes too long gives the model an error result; it never ends
the loop. What a generator yields is a list.
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
from memory.agents.messages import ToolCall, ToolResult, refusal, sendable
from memory.errors import short

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # what the models' interfaces take
_MOST_IDLE_THREADS = 32
_GRACE_SECONDS = 1.0
"""An async tool that is cancelled may clean up for so long; then it is left behind."""


class _Schema(GenerateJsonSchema):
    """A default that JSON can't hold is left out of the schema, without a warning."""

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012 - as in pydantic


@dataclass(frozen=True)
class Tool:
    """A function with the schema that its signature and docstring say."""

    name: str
    description: str
    function: Callable[..., Any]
    timeout_seconds: float | None = None
    """None: as long as it takes. A function that is not async can't be stopped: its thread goes on."""

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout_seconds: float | None = None,
    ) -> Tool:
        own_name = getattr(function, "__name__", "") if name is None else name
        text = description if description is not None else _summary(function)
        return cls(own_name, text, function, timeout_seconds)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            raise InvalidAgentInput(
                f"{short(self.name)} can't name a tool: use up to 64 letters a to z, digits, _ and -"
            )
        _check_limit(f"tool {self.name}", self.timeout_seconds)
        self.parameters  # noqa: B018 - a signature that can't be a schema is an error here, not at a call

    @cached_property
    def arguments_model(self) -> type[BaseModel]:
        try:
            hints = get_type_hints(self.function, include_extras=True)
            parameters = inspect.signature(self.function).parameters
        except Exception as problem:
            raise InvalidAgentInput(f"tool {self.name}: its types can't be read: {problem}") from None
        about = _parameters(self.function)
        # The fields have names of ours, and the parameters are their aliases: a parameter may be called
        # `copy` or `_x`, which no field of a pydantic model may.
        fields: dict[str, Any] = {}
        for number, (name, parameter) in enumerate(parameters.items()):
            if parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
                parameter.POSITIONAL_ONLY,
            ):
                raise InvalidAgentInput(f"tool {self.name}: {parameter} can't be named by a model")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[f"p{number}"] = (
                hints.get(name, Any),
                Field(default, alias=name, description=about.get(name)),
            )
        try:
            return create_model(
                self.name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields
            )
        except Exception as problem:
            raise InvalidAgentInput(
                f"tool {self.name}: its signature is no schema: {_line(problem)}"
            ) from None

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        try:
            schema = self.arguments_model.model_json_schema(schema_generator=_Schema)
        except InvalidAgentInput:
            raise
        except Exception as problem:
            raise InvalidAgentInput(
                f"tool {self.name}: its signature is no schema: {_line(problem)}"
            ) from None
        schema.pop("title", None)
        for each in schema.get("properties", {}).values():
            each.pop("title", None)
        schema.setdefault("properties", {})
        return schema

    @cached_property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the function wants them, or InvalidAgentInput. The function may change its own."""
        if any(isinstance(value, list | dict) for value in arguments.values()):
            arguments = deepcopy(dict(arguments))
        try:
            checked = self.arguments_model.model_validate(arguments)
        except ValidationError as problem:
            raise InvalidAgentInput(refusal(problem)) from None
        return {
            about.alias or name: getattr(checked, name)
            for name, about in type(checked).model_fields.items()
        }


@dataclass
class ToolRegistry:
    """The tools of an agent. A tool may be used if it fits `allow` and not `deny` (shell patterns)."""

    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    timeout_seconds: float | None = None
    """For tools that have none of their own."""
    _tools: dict[str, Tool] = field(default_factory=dict)
    _version: int = 0

    def __post_init__(self) -> None:
        for name, patterns in (("allow", self.allow), ("deny", self.deny)):
            if isinstance(patterns, str) or not all(isinstance(each, str) for each in patterns):
                raise InvalidAgentInput(f"{name} is {short(patterns)}: use a list of patterns")
        _check_limit("the registry", self.timeout_seconds)

    @property
    def state(self) -> tuple[object, ...]:
        """Changes whenever `tools()` may."""
        return (self._version, *self.allow, "", *self.deny)

    def tool(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the function stays what it is, and becomes a tool."""
        self.add(function)
        return function

    def add(self, tool: Tool | Callable[..., Any], **options: Any) -> Tool:
        made = tool if isinstance(tool, Tool) else Tool.of(tool, **options)
        if made.name in self._tools:
            raise InvalidAgentInput(f"there is a tool {made.name!r} already")
        self._tools[made.name] = made
        self._version += 1
        return made

    def remove(self, name: str) -> None:
        del self._tools[self.get(name).name]
        self._version += 1

    def is_allowed(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self.allow) and not any(
            fnmatchcase(name, pattern) for pattern in self.deny
        )

    def tools(self) -> list[Tool]:
        """Those that may be used, by name: the order never changes by itself."""
        return [self._tools[name] for name in sorted(self._tools) if self.is_allowed(name)]

    def get(self, name: str) -> Tool:
        if name in self._tools and self.is_allowed(name):
            return self._tools[name]
        names = [tool.name for tool in self.tools()]
        close = get_close_matches(name, names, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"there are: {', '.join(names) or 'none'}"
        raise UnknownTool(f"there is no tool {short(name)}: {hint}")

    # -- running ------------------------------------------------------------------------------

    def run(self, *calls: ToolCall) -> list[ToolResult]:
        """The results, in the order of the calls; several run at once, each with its own time limit."""
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
                results.append(_too_late(call, limit, start))
        return results

    async def arun(self, *calls: ToolCall) -> list[ToolResult]:
        """As `run`, without blocking the event loop."""
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
            return _too_late(call, limit, start)

    def _run_here(self, call: ToolCall, limit: float | None) -> ToolResult:
        start = time.perf_counter()
        try:
            tool = self.get(call.name)
            if tool.is_async:
                return asyncio.run(_call_async(tool, call, limit, start))
            value = tool.function(**tool.bind(call.arguments))
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            elif inspect.isasyncgen(value):
                value = asyncio.run(_collected(value))
            return _done(call, value, limit, start)
        except (Exception, SystemExit, asyncio.CancelledError) as problem:
            return _failed(call, problem, start)

    def _needs_thread(self, call: ToolCall) -> bool:
        """A limit can only be kept from outside, and a thread with an event loop can't run another one."""
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
# Not concurrent.futures' pool: there, tools that hang would use up its threads, and the end of the
# program would wait for them. Here a thread that hangs is simply not used again.

_Task = tuple[Variables, Callable[..., ToolResult], tuple[Any, ...], "Future[ToolResult]"]
_idle: list[SimpleQueue[_Task]] = []


def _in_thread(work: Callable[..., ToolResult], *arguments: Any) -> Future[ToolResult]:
    task: _Task = (copy_context(), work, arguments, Future())
    try:
        mailbox = _idle.pop()
    except IndexError:
        mailbox = SimpleQueue()
        threading.Thread(target=_serve, args=(mailbox,), name="agent-tool", daemon=True).start()
    mailbox.put(task)
    return task[3]


def _serve(mailbox: SimpleQueue[_Task]) -> None:
    while True:
        variables, work, arguments, future = mailbox.get()
        result: ToolResult | BaseException
        try:
            result = variables.run(work, *arguments)
        except BaseException as problem:
            result = problem
        more = len(_idle) < _MOST_IDLE_THREADS
        if more:
            _idle.append(mailbox)
        if future.set_running_or_notify_cancel():
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)
        del variables, work, arguments, future, result
        if not more:
            return


os.register_at_fork(after_in_child=_idle.clear)


def _has_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


# -- results ----------------------------------------------------------------------------------


async def _awaited(value: Any) -> Any:
    return await value


async def _collected(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]


_left_behind: set[asyncio.Task[ToolResult]] = set()
"""The event loop alone would not keep them from being collected as garbage."""


async def _call_async(tool: Tool, call: ToolCall, limit: float | None, start: float) -> ToolResult:
    if limit is None:
        return await _outcome(tool, call, limit, start)
    # A task of its own: one that goes on although it was cancelled can't be left behind otherwise.
    task = asyncio.create_task(_outcome(tool, call, limit, start))
    try:
        await asyncio.wait((task,), timeout=limit)
    finally:  # also if we are cancelled ourselves
        in_time = task.done()
        if not in_time:
            task.cancel()
            await asyncio.wait((task,), timeout=_GRACE_SECONDS)
            if not task.done():
                _left_behind.add(task)
                task.add_done_callback(_left_behind.discard)
    if not in_time:
        return _too_late(call, limit, start)
    if task.cancelled():
        return _failed(call, asyncio.CancelledError(), start)  # by the tool itself
    return task.result()


async def _outcome(tool: Tool, call: ToolCall, limit: float | None, start: float) -> ToolResult:
    task = asyncio.current_task()
    try:
        return _done(call, await tool.function(**tool.bind(call.arguments)), limit, start)
    except (Exception, SystemExit) as problem:
        return _failed(call, problem, start)
    except asyncio.CancelledError as problem:
        if task is not None and task.cancelling():
            raise
        return _failed(call, problem, start)  # something inside the tool was cancelled, not we


def _done(call: ToolCall, value: Any, limit: float | None, start: float) -> ToolResult:
    result = _result(call, _as_text(value), False, start)
    # Nobody may have looked at the clock meanwhile: another tool was waited for, or the loop was held up.
    return result if limit is None or result.seconds <= limit else _too_late(call, limit, start)


def _failed(call: ToolCall, problem: BaseException, start: float) -> ToolResult:
    known = isinstance(problem, InvalidAgentInput | UnknownTool)
    return _result(call, str(problem) if known else _line(problem), True, start)


def _too_late(call: ToolCall, limit: float | None, start: float) -> ToolResult:
    return _result(call, f"{call.name} did not end within {limit:g} s", True, start)


def interrupted(call: ToolCall) -> ToolResult:
    """For a call whose outcome nobody waited for."""
    return _result(call, f"{call.name} was interrupted: it may have done its work", True, None)


def _result(call: ToolCall, content: str, is_error: bool, start: float | None) -> ToolResult:
    return ToolResult.trusted(
        call_id=call.id,
        name=call.name,
        content=sendable(content),
        is_error=is_error,
        seconds=0.0 if start is None else time.perf_counter() - start,
    )


def _line(problem: BaseException) -> str:
    try:
        text = " ".join(str(problem).split())
    except Exception:
        text = "its message can't be read"
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__


def _check_limit(whose: str, seconds: object) -> None:
    if seconds is not None and not (isinstance(seconds, int | float) and 0 < seconds <= 86_400):
        raise InvalidAgentInput(
            f"timeout_seconds of {whose} is {short(seconds)}: use seconds above 0, up to a day"
        )


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return str(value)
    if inspect.isgenerator(value):
        value = list(value)  # here, so that what it raises is an error of the tool
    try:
        return pydantic_core.to_json(value, fallback=str, inf_nan_mode="constants").decode()
    except Exception:
        return str(value)  # nothing for JSON, but the tool has done its work


def _summary(function: Callable[..., Any]) -> str:
    """The docstring up to its first section."""
    return " ".join(_SECTION.split(inspect.getdoc(function) or "", maxsplit=1)[0].split())


_SECTION = re.compile(
    r"^(?:Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):[ \t]*$", re.M
)
_PARAMETER = re.compile(r"\*{0,2}(\w+)(?: *\([^)]*\))? *: *(.*)")


def _parameters(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring's Args say of each parameter; lines that are further in go on with it."""
    text = inspect.getdoc(function) or ""
    head = re.search(r"^(?:Args|Arguments|Parameters):[ \t]*$", text, re.M)
    if head is None:
        return {}
    about: dict[str, str] = {}
    depth = name = None
    for line in text[head.end() :].strip("\n").splitlines():
        inside = len(line) - len(line.lstrip())
        if line.strip() and not inside:
            break
        found = _PARAMETER.fullmatch(line.strip())
        if found and (depth is None or inside <= depth):
            depth, name = inside, found[1]
            about[name] = found[2]
        elif name is not None and line.strip():
            about[name] = f"{about[name]} {line.strip()}".strip()
    return about
