"""Sessions, messages, tool calls and tool results: the records of the agent loop.

These records are frozen, because a stored message never changes. Arguments and metadata must be JSON
values, so that the session file returns them unchanged.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from itertools import count
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from memory.agents.errors import InvalidAgentInput
from memory.errors import short

Role = Literal["system", "user", "assistant", "tool"]
_Value = TypeVar("_Value")

_numbers = count()


def _restart_ids() -> None:
    """Start the ids at a random number, so that two processes do not create the same ids.

    This also runs in every forked child.
    """
    global _numbers
    _numbers = count(int.from_bytes(os.urandom(8)) >> 1)


_restart_ids()
os.register_at_fork(after_in_child=_restart_ids)


def new_id() -> str:
    """Return a unique id. The ids of one process sort in the order of their creation."""
    return f"{time.time_ns() // 1_000_000:011x}{next(_numbers) & 0xFFFF_FFFF_FFFF_FFFF:016x}"


_MAX_JSON_VALUES = 1_000_000
"""The largest number of values in one JSON object: far more than a tool needs. The limit also stops the
check of an object that contains itself."""


_MAX_JSON_DEPTH = 200
"""The most levels of nested lists and objects in a call's arguments: the memory stores no deeper ones."""


def too_deep(tree: Any) -> bool:
    """Return whether a value that was decoded from JSON is nested deeper than the memory can store."""
    level = [tree]
    for _ in range(_MAX_JSON_DEPTH + 1):
        level = [item for item in level if isinstance(item, list | dict)]
        if not level:
            return False
        level = [item for each in level for item in (each.values() if isinstance(each, dict) else each)]
    return any(isinstance(item, list | dict) for item in level)


def _check_json(value: dict[str, Any]) -> dict[str, Any]:
    """Return the value, or raise ValueError if JSON can't represent it."""
    pending: list[Any] = [value] if value else []
    checked_values = 0
    while pending:
        item = pending.pop()
        checked_values += 1
        if isinstance(item, str):
            if not item.isascii() and item != sendable(item):
                raise ValueError(f"{short(item)} holds half of a surrogate pair: use valid Unicode")
        elif isinstance(item, dict):
            for key in item:
                if type(key) is not str:
                    raise ValueError(f"the key {short(key)} is not a string")
            pending += item
            pending += item.values()
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, float):
            if not math.isfinite(item):
                raise ValueError(f"{item} is not a JSON number: use a finite one")
        elif isinstance(item, int):
            if not -(2**63) <= item < 2**64:
                raise ValueError(f"{short(item)} has more than 64 bits: use a string")
        elif item is not None:
            raise ValueError(f"{short(item)} is not a JSON value")
        if checked_values > _MAX_JSON_VALUES:
            raise ValueError("it has more than a million values, or holds itself")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_check_json)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def trusted(cls, **values: Any) -> Self:
        """Return a record without validation.

        The values must be valid. Pass a value for each field, in the order of the class.

        This takes a quarter of the time of `model_construct`, which inspects each field.
        """
        record = cls.__new__(cls)
        _set(record, "__dict__", values)
        _set(record, "__pydantic_fields_set__", set(values))
        _set(record, "__pydantic_extra__", None)
        _set(record, "__pydantic_private__", None)
        return record


_set = object.__setattr__


class ToolCall(_Record):
    """A model's request to run the tool `name` with these arguments."""

    id: str = Field(default_factory=new_id, min_length=1)
    """Unique within a reply. `ToolResult.call_id` refers to this id."""
    name: str = Field(min_length=1)
    arguments: JsonObject = Field(default_factory=dict)
    """The arguments by parameter name; JSON values only."""


class ToolResult(_Record):
    """The result of a tool call. An error is a result too, which the model can read."""

    call_id: str = Field(min_length=1)
    """The id of the `ToolCall`."""
    name: str = Field(min_length=1)
    """The name of the tool."""
    content: str
    """The value that the tool returned, as text or JSON; or the error."""
    is_error: bool = False
    seconds: float = Field(default=0.0, ge=0)
    """How long the tool ran."""


class Message(_Record):
    """One message of a session.

    role: "system", "user", "assistant" or "tool"
    tool_calls: only in a message with role "assistant"
    tool_result: in every message with role "tool", and in no other
    id: unique; a random one by default
    created_at: seconds since 1970; now by default
    metadata: JSON values of your own
    """

    role: Role
    content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_result: ToolResult | None = None
    id: str = Field(default_factory=new_id, min_length=1)
    created_at: float = Field(default_factory=time.time, gt=0)
    metadata: JsonObject = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"tool_calls of a message with role {self.role!r}: use role 'assistant'")
        if (self.tool_result is not None) != (self.role == "tool"):
            raise ValueError("a message with role 'tool' needs a tool_result, and no other may have one")
        return self

    @classmethod
    def new(
        cls,
        role: Role,
        content: str,
        tool_calls: tuple[ToolCall, ...] = (),
        tool_result: ToolResult | None = None,
    ) -> Self:
        """Return a message with a new id and the current time. The arguments must already be valid."""
        return cls.trusted(
            role=role,
            content=content,
            tool_calls=tool_calls,
            tool_result=tool_result,
            id=new_id(),
            created_at=time.time(),
            metadata={},
        )

    @classmethod
    def of_result(cls, result: ToolResult) -> Self:
        """Return the message of role "tool" that holds a result."""
        return cls.new("tool", result.content, tool_result=result)


class Session(_Record):
    """A conversation with an agent. `SessionStore` holds its messages.

    title: shown in lists and in the contexts of other sessions
    created_at, updated_at: seconds since 1970
    archived: whether `SessionStore.list` hides the session by default
    metadata: JSON values of your own
    """

    id: str = Field(default_factory=new_id, min_length=1)
    agent_id: str = Field(min_length=1)
    title: str = ""
    created_at: float = Field(default_factory=time.time, gt=0)
    updated_at: float = Field(default_factory=time.time, gt=0)
    archived: bool = False
    parent_id: str | None = None
    """The session that this one was forked from. It may have been deleted."""
    message_count: int = Field(default=0, ge=0)
    metadata: JsonObject = Field(default_factory=dict)


def checked(make: Callable[[], _Value]) -> _Value:
    """Return `make()`. Turn pydantic's ValidationError into a one-line InvalidAgentInput."""
    try:
        return make()
    except ValidationError as problem:
        raise InvalidAgentInput(first_error(problem)) from None


def first_error(problem: ValidationError) -> str:
    """Return the first error of a ValidationError in one line: the field, its value, the reason."""
    first = problem.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "value"
    return f"{place} is {short(first['input'])}: {first['msg']}"


def sendable(text: str) -> str:
    """Return a text that UTF-8 can encode: lone surrogates, as in broken file names, become '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
