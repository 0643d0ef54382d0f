"""Sessions, messages, tool calls and their results: what flows through the loop and is kept.

Frozen: a message that was stored is never changed. Arguments and metadata are what JSON can hold, so that
they come back from the file as they were given.
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
    """From a random point, and from another one in a forked child: no two processes make the same ids."""
    global _numbers
    _numbers = count(int.from_bytes(os.urandom(8)) >> 1)


_restart_ids()
os.register_at_fork(after_in_child=_restart_ids)


def new_id() -> str:
    """Unique; those of one process sort as they were made, while its clock does not go back."""
    return f"{time.time_ns() // 1_000_000:011x}{next(_numbers) & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def _only_json(value: dict[str, Any]) -> dict[str, Any]:
    todo: list[Any] = [value] if value else []
    seen = 0
    while todo:
        each = todo.pop()
        seen += 1
        if isinstance(each, str):
            if not each.isascii() and each != sendable(each):
                raise ValueError(f"{short(each)} holds half a character, which no file can")
        elif isinstance(each, dict):
            for key in each:
                if type(key) is not str:
                    raise ValueError(f"the key {short(key)} is not a text")
            todo += each
            todo += each.values()
        elif isinstance(each, list):
            todo += each
        elif isinstance(each, float):
            if not math.isfinite(each):
                raise ValueError(f"{each} is not a number that JSON can hold")
        elif isinstance(each, int):
            if not -(2**63) <= each < 2**64:
                raise ValueError(f"{short(each)} has more than 64 bits")
        elif each is not None:
            raise ValueError(f"{short(each)} is nothing that JSON can hold")
        if seen > 1_000_000:
            raise ValueError("it is too large, or holds itself")
    return value


JsonObject = Annotated[dict[str, Any], AfterValidator(_only_json)]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def trusted(cls, **values: Any) -> Self:
        """From values of our own: every field, in the order of the class, unchecked.

        A quarter of what `model_construct` takes, which looks at each field anew.
        """
        made = cls.__new__(cls)
        _set(made, "__dict__", values)
        _set(made, "__pydantic_fields_set__", set(values))
        _set(made, "__pydantic_extra__", None)
        _set(made, "__pydantic_private__", None)
        return made


_set = object.__setattr__


class ToolCall(_Record):
    """A model's wish to have a tool run."""

    id: str = Field(default_factory=new_id, min_length=1)
    name: str = Field(min_length=1)
    arguments: JsonObject = Field(default_factory=dict)


class ToolResult(_Record):
    """What a tool gave back; an error is a result too, which the model can read."""

    call_id: str = Field(min_length=1)
    name: str = Field(min_length=1)
    content: str
    is_error: bool = False
    seconds: float = Field(default=0.0, ge=0)


class Message(_Record):
    """One turn of a session."""

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
            raise ValueError(f"a message of role {self.role!r} can't call tools: only 'assistant' can")
        if (self.tool_result is not None) != (self.role == "tool"):
            raise ValueError("a message of role 'tool' has a tool_result, and no other has")
        return self

    @classmethod
    def new(
        cls,
        role: Role,
        content: str,
        tool_calls: tuple[ToolCall, ...] = (),
        tool_result: ToolResult | None = None,
    ) -> Self:
        """A message of the loop's own, whose parts were checked before."""
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
        return cls.new("tool", result.content, tool_result=result)


class Session(_Record):
    """A conversation with an agent; its messages are kept beside it."""

    id: str = Field(default_factory=new_id, min_length=1)
    agent_id: str = Field(min_length=1)
    title: str = ""
    created_at: float = Field(default_factory=time.time, gt=0)
    updated_at: float = Field(default_factory=time.time, gt=0)
    archived: bool = False
    parent_id: str | None = None
    """The session that this one was forked from; it may be gone by now."""
    message_count: int = Field(default=0, ge=0)
    metadata: JsonObject = Field(default_factory=dict)


def checked(make: Callable[[], _Value]) -> _Value:
    """What pydantic refuses becomes one line of ours."""
    try:
        return make()
    except ValidationError as problem:
        raise InvalidAgentInput(refusal(problem)) from None


def refusal(problem: ValidationError) -> str:
    """The first thing that pydantic did not like: where, what and why."""
    first = problem.errors(include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "value"
    return f"{place} is {short(first['input'])}: {first['msg']}"


def sendable(text: str) -> str:
    """A text that every file and wire takes: half characters, as in broken file names, become '?'."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()
