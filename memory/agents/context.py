"""The context of a model call, and its conversion to OpenAI's and Anthropic's request formats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from memory.agents.messages import Message
from memory.agents.tools import Tool


@dataclass(frozen=True)
class LeftOut:
    """How many messages, memories and sessions a context does not show.

    They did not fit into the budget, or they are tool calls without results, or results without calls.
    """

    messages: int = 0
    memories: int = 0
    sessions: int = 0

    def __bool__(self) -> bool:
        return bool(self.messages or self.memories or self.sessions)


@dataclass(frozen=True)
class Context:
    """The input of one model call."""

    system: str
    """The system prompt. If `recalled` is not empty, the prompt ends with a note that the block is data."""
    messages: tuple[Message, ...]
    """The history, oldest first."""
    tools: tuple[Tool, ...]
    """The tools that the model may call."""
    tokens: int
    """The tokens of the whole context, tools included."""
    left_out: LeftOut
    memories: tuple[Any, ...] = ()
    """The hits (`memory.Hit`) whose contents are in `recalled`."""
    recalled: str = ""
    """The memories and the other sessions, as one block of data with their origins; or empty. In a
    request, this block is at the start of the user's first message, never in the system prompt."""

    def to_openai(self) -> dict[str, Any]:
        """Return `messages` and `tools` of a request to OpenAI's chat completions interface."""
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": self.system})
        history = [_openai_message(message) for message in self.messages]
        if self.recalled:
            # Put the block into the first message: some chat templates need alternating roles.
            if history and history[0]["role"] == "user":
                history[0]["content"] = f"{self.recalled}\n\n{history[0]['content']}"
            else:
                history.insert(0, {"role": "user", "content": self.recalled})
        messages += history
        request: dict[str, Any] = {"messages": messages}
        if self.tools:
            request["tools"] = [
                {
                    "type": "function",
                    "function": {
                        "name": tool.name,
                        "description": tool.description,
                        "parameters": tool.parameters,
                    },
                }
                for tool in self.tools
            ]
        return request

    def to_anthropic(self) -> dict[str, Any]:
        """Return `messages`, `system` and `tools` of a request to Anthropic's messages interface.

        That interface has rules: the roles alternate, the first message is from the user, tool results
        are in messages of the user, and no text is empty. Messages that break these rules are merged or
        dropped. The caller adds `model` and `max_tokens`.
        """
        messages: list[dict[str, Any]] = []
        began = False
        if self.recalled:
            messages.append({"role": "user", "content": [{"type": "text", "text": self.recalled}]})
        for message in self.messages:
            role = "assistant" if message.role == "assistant" else "user"
            blocks = _anthropic_blocks(message)
            if message.role == "system" or not blocks or (message.role != "user" and not began):
                continue
            began = True
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
        system_messages = [message.content for message in self.messages if message.role == "system"]
        request: dict[str, Any] = {"messages": messages}
        system = "\n\n".join(part for part in (self.system, *system_messages) if part)
        if system:
            request["system"] = system
        if self.tools:
            request["tools"] = [
                {"name": tool.name, "description": tool.description, "input_schema": tool.parameters}
                for tool in self.tools
            ]
        return request


def _openai_message(message: Message) -> dict[str, Any]:
    if message.tool_result is not None:
        return {"role": "tool", "tool_call_id": message.tool_result.call_id, "content": message.content}
    openai: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        openai["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
    return openai


def _anthropic_blocks(message: Message) -> list[dict[str, Any]]:
    if message.tool_result is not None:
        result = message.tool_result
        block = {"type": "tool_result", "tool_use_id": result.call_id, "content": message.content}
        return [{**block, "is_error": True} if result.is_error else block]
    blocks: list[dict[str, Any]] = []
    if message.content.strip():
        blocks.append({"type": "text", "text": message.content})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return blocks
