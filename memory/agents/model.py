"""The interface of models, and a model that follows a script.

A model gets a context and returns a reply: a text, or the tools that it wants to call.
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
    """A model's answer, or its tool calls."""

    content: str = ""
    """The text. None, which many interfaces return with tool calls, counts as ""."""
    tool_calls: tuple[ToolCall, ...] = ()
    """The tools to run; empty if `content` is the answer."""
    finish_reason: str = "stop"
    """Why the model stopped: "length" means that the answer was cut off."""
    usage: dict[str, int] = field(default_factory=dict)
    """Token counts, if the model reports them: input_tokens, output_tokens."""


class Model(ABC):
    """The interface of models. Implement `complete`, and `acomplete` if the model can wait asynchronously.

    If a method raises, the invocation ends and reports the exception. Raise `ModelError` for errors that
    you expect.
    """

    name: str = "model"
    """Used in error messages."""

    @abstractmethod
    def complete(self, context: Context) -> Reply:
        """Return the reply to a context, or raise ModelError."""

    async def acomplete(self, context: Context) -> Reply:
        """Return the reply to a context.

        By default this runs `complete` in a thread. The thread is not stopped if the caller is cancelled.
        """
        return await asyncio.to_thread(self.complete, context)

    def close(self) -> None:  # noqa: B027 - optional: most models hold no resources
        """Release connections and other resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


Line = Reply | str | Callable[[Context], Reply | str]
"""A reply, the text of a reply without tool calls, or a function that returns either for a context."""


class ScriptedModel(Model):
    """A deterministic model for tests, benchmarks and offline use: each call returns the next line.

    Args:
        script: the lines, at least one.
        repeat: whether to start again after the last line. Otherwise a further call raises ModelError.
    """

    name = "scripted"

    def __init__(self, script: Iterable[Line], *, repeat: bool = False) -> None:
        self._script = list(script)
        self._repeat = repeat
        self._numbers = count()
        if not self._script:
            raise ModelError("the script is empty: use at least one line")

    def complete(self, context: Context) -> Reply:
        number = next(self._numbers)
        if number >= len(self._script) and not self._repeat:
            raise ModelError(
                f"call {number + 1} of a script with {len(self._script)} lines: add lines or use repeat"
            )
        line = self._script[number % len(self._script)]
        reply = line(context) if callable(line) else line
        return Reply(reply) if isinstance(reply, str) else reply

    async def acomplete(self, context: Context) -> Reply:
        return self.complete(context)
