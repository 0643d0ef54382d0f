"""The model behind an agent: one interface, and one that follows a script.

A model gets a context and gives a reply: a text, or tools that it wants to be run.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count
from typing import Self

from memory.agents.context import Context
from memory.agents.errors import ModelError
from memory.agents.messages import ToolCall


@dataclass(frozen=True)
class Reply:
    """What a model said."""

    content: str = ""
    """None, which many interfaces give beside tool calls, is read as ""."""
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = "stop"
    usage: dict[str, int] = field(default_factory=dict)
    """Tokens, where the model tells: input_tokens, output_tokens."""


class Model(ABC):
    """Anything that completes a context. Implement `complete`; `acomplete` too where waiting can be async.

    What it raises ends the invocation: as `ModelError` where it is foreseen, and any other exception is
    told in the `Invocation` in the same way.
    """

    name: str = "model"

    @abstractmethod
    def complete(self, context: Context) -> Reply:
        """The reply, or ModelError."""

    async def acomplete(self, context: Context) -> Reply:
        """The same for async callers; by default in a thread, which goes on if the caller is cancelled."""
        return await asyncio.to_thread(self.complete, context)

    def close(self) -> None:  # noqa: B027 - most models hold nothing
        """Release what it holds."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Line = Reply | str | Callable[[Context], Reply | str]
"""A reply, a text for a reply without tools, or a function of the context that makes one."""


class ScriptedModel(Model):
    """Says what its script says: for tests, benchmarks and offline use. Deterministic."""

    name = "scripted"

    def __init__(self, script: Iterable[Line], *, repeat: bool = False) -> None:
        self._script = list(script)
        self._repeat = repeat
        self._numbers = count()
        if not self._script:
            raise ModelError("the script is empty: give at least one line")

    def complete(self, context: Context) -> Reply:
        number = next(self._numbers)
        if number >= len(self._script) and not self._repeat:
            raise ModelError(f"the script has {len(self._script)} lines, and this is call {number + 1}")
        line = self._script[number % len(self._script)]
        said = line(context) if callable(line) else line
        return Reply(said) if isinstance(said, str) else said

    async def acomplete(self, context: Context) -> Reply:
        return self.complete(context)
