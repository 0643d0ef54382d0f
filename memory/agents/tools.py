"""Tools: typed Python functions that a model may call, and the registry that decides which.

    registry = ToolRegistry(deny=["delete_*"])

    @registry.tool
    def weather(city: str, days: int = 1) -> str:
        \"\"\"The weather of the next days.

        Args:
            city: its name
        \"\"\"

A tool that raises, gets wrong arguments or takes too long gives the model an error result; it never ends
the loop.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model

from memory.agents.errors import InvalidAgentInput, UnknownTool
from memory.agents.messages import ToolCall, ToolResult
from memory.errors import short

_MOST_THREADS = 32


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
        own_name = name or getattr(function, "__name__", "")
        if not own_name or not all(letter.isalnum() or letter in "_-" for letter in own_name):
            raise InvalidAgentInput(f"{short(own_name)} can't name a tool: use letters, digits, _ and -")
        text = description if description is not None else _summary(function)
        tool = cls(own_name, text, function, timeout_seconds)
        tool.arguments_model  # noqa: B018 - a signature that can't be a schema is an error here, not at a call
        return tool

    @cached_property
    def arguments_model(self) -> type[BaseModel]:
        try:
            hints = get_type_hints(self.function, include_extras=True)
        except Exception as problem:
            raise InvalidAgentInput(f"tool {self.name}: its types can't be read: {problem}") from None
        about = _parameters(self.function)
        fields: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.function).parameters.items():
            if parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
                parameter.POSITIONAL_ONLY,
            ):
                raise InvalidAgentInput(f"tool {self.name}: {parameter} can't be named by a model")
            default = ... if parameter.default is parameter.empty else parameter.default
            fields[name] = (hints.get(name, Any), Field(default, description=about.get(name)))
        try:
            return create_model(self.name, __config__=ConfigDict(extra="forbid"), **fields)
        except Exception as problem:
            raise InvalidAgentInput(f"tool {self.name}: its signature is no schema: {problem}") from None

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of its arguments."""
        schema = self.arguments_model.model_json_schema()
        schema.pop("title", None)
        for each in schema.get("properties", {}).values():
            each.pop("title", None)
        return schema

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.function)

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments as the function wants them, or InvalidAgentInput."""
        try:
            checked = self.arguments_model.model_validate(arguments)
        except ValidationError as problem:
            first = problem.errors()[0]
            place = ".".join(str(part) for part in first["loc"]) or "arguments"
            raise InvalidAgentInput(f"{place}: {first['msg']} (got {short(first['input'])})") from None
        return {name: getattr(checked, name) for name in type(checked).model_fields}


@dataclass
class ToolRegistry:
    """The tools of an agent. A tool may be used if it fits `allow` and not `deny` (shell patterns)."""

    allow: Sequence[str] = ("*",)
    deny: Sequence[str] = ()
    timeout_seconds: float | None = None
    """For tools that have none of their own."""
    _tools: dict[str, Tool] = field(default_factory=dict)
    _pool: ThreadPoolExecutor | None = None
    version: int = 0
    """Changes with every tool that is added or removed."""

    def tool(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Decorator: the function stays what it is, and becomes a tool."""
        self.add(function)
        return function

    def add(self, tool: Tool | Callable[..., Any], **options: Any) -> Tool:
        made = tool if isinstance(tool, Tool) else Tool.of(tool, **options)
        if made.name in self._tools:
            raise InvalidAgentInput(f"there is a tool {made.name!r} already")
        self._tools[made.name] = made
        self.version += 1
        return made

    def remove(self, name: str) -> None:
        del self._tools[self.get(name).name]
        self.version += 1

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

    def __len__(self) -> int:
        return len(self.tools())

    # -- running ------------------------------------------------------------------------------

    def run(self, *calls: ToolCall) -> list[ToolResult]:
        """The results, in the order of the calls; several run at once."""
        if len(calls) == 1 and not self._needs_thread(calls[0]):
            return [self._run_here(calls[0])]
        futures = [self._threads().submit(self._run_here, call) for call in calls]
        results = []
        for call, future in zip(calls, futures, strict=True):
            limit = self._limit(call)
            start = time.perf_counter()
            try:
                results.append(future.result(limit))
            except FutureTimeout:
                results.append(_too_late(call, limit, time.perf_counter() - start))
        return results

    async def arun(self, *calls: ToolCall) -> list[ToolResult]:
        """As `run`, without blocking the event loop."""
        return list(await asyncio.gather(*(self._arun_one(call) for call in calls)))

    async def _arun_one(self, call: ToolCall) -> ToolResult:
        start = time.perf_counter()
        try:
            tool = self.get(call.name)
        except UnknownTool as problem:
            return _failed(call, problem, start)
        limit = self._limit(call)
        if tool.is_async:
            work: Any = _call_async(tool, call, start)
        else:
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self._threads(), self._run_here, call)
        try:
            result: ToolResult = await asyncio.wait_for(work, limit)
        except TimeoutError:
            return _too_late(call, limit, time.perf_counter() - start)
        return result

    def _run_here(self, call: ToolCall) -> ToolResult:
        start = time.perf_counter()
        try:
            tool = self.get(call.name)
            value = tool.function(**tool.bind(call.arguments))
            if inspect.isawaitable(value):
                value = asyncio.run(_awaited(value))
            return _done(call, value, start)
        except Exception as problem:
            return _failed(call, problem, start)

    def _needs_thread(self, call: ToolCall) -> bool:
        return self._limit(call) is not None

    def _limit(self, call: ToolCall) -> float | None:
        tool = self._tools.get(call.name)
        own = tool.timeout_seconds if tool else None
        return self.timeout_seconds if own is None else own

    def _threads(self) -> ThreadPoolExecutor:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="agent-tool")
        return self._pool


async def _awaited(value: Any) -> Any:
    return await value


async def _call_async(tool: Tool, call: ToolCall, start: float) -> ToolResult:
    try:
        return _done(call, await tool.function(**tool.bind(call.arguments)), start)
    except Exception as problem:
        return _failed(call, problem, start)


def _done(call: ToolCall, value: Any, start: float) -> ToolResult:
    return ToolResult(
        call_id=call.id, name=call.name, content=_as_text(value), seconds=time.perf_counter() - start
    )


def _failed(call: ToolCall, problem: Exception, start: float) -> ToolResult:
    known = isinstance(problem, InvalidAgentInput | UnknownTool)
    text = str(problem) if known else f"{type(problem).__name__}: {problem}"
    seconds = time.perf_counter() - start
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True, seconds=seconds)


def _too_late(call: ToolCall, limit: float | None, seconds: float) -> ToolResult:
    text = f"{call.name} did not end within {limit:g} s"
    return ToolResult(call_id=call.id, name=call.name, content=text, is_error=True, seconds=seconds)


def _as_text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, BaseModel):
        return value.model_dump_json()
    return json.dumps(value, default=str, ensure_ascii=False)


def _summary(function: Callable[..., Any]) -> str:
    text = inspect.getdoc(function) or ""
    return " ".join(text.partition("\nArgs:")[0].split())


def _parameters(function: Callable[..., Any]) -> dict[str, str]:
    """What the docstring's Args say of each parameter."""
    lines = (inspect.getdoc(function) or "").partition("\nArgs:")[2].splitlines()
    pairs = (line.strip().partition(": ") for line in lines)
    return {name.partition(" ")[0]: about for name, colon, about in pairs if colon}
