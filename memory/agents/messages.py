"""Sessions, messages, tool calls and their results: what flows through the loop and is kept.

Frozen: a message that was stored is never changed. `model_construct` builds them without checks where
the values come from our own file.
"""

from __future__ import annotations

import time
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from memory.ids import new_ids

Role = Literal["system", "user", "assistant", "tool"]


def new_id() -> str:
    """Unique, and in the order of time."""
    return new_ids(1)[0]


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ToolCall(_Record):
    """A model's wish to have a tool run."""

    id: str = Field(default_factory=new_id, min_length=1)
    name: str = Field(min_length=1)
    arguments: dict[str, Any] = Field(default_factory=dict)


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
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.tool_calls and self.role != "assistant":
            raise ValueError(f"a message of role {self.role!r} can't call tools: only 'assistant' can")
        if (self.tool_result is not None) != (self.role == "tool"):
            raise ValueError("a message of role 'tool' has a tool_result, and no other has")
        return self

    @classmethod
    def of_result(cls, result: ToolResult) -> Self:
        return cls(role="tool", content=result.content, tool_result=result)


class Session(_Record):
    """A conversation with an agent; its messages are kept beside it."""

    id: str = Field(default_factory=new_id, min_length=1)
    agent_id: str = Field(min_length=1)
    title: str = ""
    created_at: float = Field(default_factory=time.time, gt=0)
    updated_at: float = Field(default_factory=time.time, gt=0)
    archived: bool = False
    parent_id: str | None = None
    """The session that this one was forked from."""
    message_count: int = Field(default=0, ge=0)
    metadata: dict[str, Any] = Field(default_factory=dict)
