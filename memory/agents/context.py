"""What a model gets to see: system prompt, memories, other sessions, history and tools, within a budget.

    system prompt │ what the memory knows of the question │ recent sessions │ history … newest message
    ───────────────────────────────── tokens ≤ budget ─────────────────────────────────── + tools

The order never changes. A message is in or out, never cut; a tool's result never stands without its call.
What did not fit is told in `left_out`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from memory.agents.errors import BudgetTooSmall, InvalidAgentInput
from memory.agents.messages import Message
from memory.agents.sessions import SessionStore
from memory.agents.tools import Tool, ToolRegistry

if TYPE_CHECKING:
    from memory.entry import Hit
    from memory.system import AgentMemorySystem

MESSAGE_TOKENS = 4
"""What a message costs besides its text."""
_RECENCY_SHARE = 0.1
_IMPORTANCE_SHARE = 0.1
_DAY = 24 * 3600.0
_MOST_SESSIONS_CACHED = 256


@dataclass(frozen=True)
class LeftOut:
    """What there was no room for."""

    messages: int = 0
    memories: int = 0
    sessions: int = 0

    def __bool__(self) -> bool:
        return bool(self.messages or self.memories or self.sessions)


@dataclass(frozen=True)
class Context:
    """One request to a model."""

    system: str
    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]
    tokens: int
    left_out: LeftOut
    memories: tuple[Any, ...] = ()
    """The hits of the memory that are part of it."""

    def to_openai(self) -> dict[str, Any]:
        """As the chat completions interface takes it."""
        messages: list[dict[str, Any]] = []
        if self.system:
            messages.append({"role": "system", "content": self.system})
        messages += [_openai_message(message) for message in self.messages]
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
        """As the messages interface takes it: the roles take turns, results are the user's."""
        messages: list[dict[str, Any]] = []
        for message in self.messages:
            if message.role == "system":
                continue
            role = "assistant" if message.role == "assistant" else "user"
            blocks = _anthropic_blocks(message)
            if messages and messages[-1]["role"] == role:
                messages[-1]["content"] += blocks
            else:
                messages.append({"role": role, "content": blocks})
        later = [message.content for message in self.messages if message.role == "system"]
        request: dict[str, Any] = {"messages": messages}
        system = "\n\n".join(part for part in (self.system, *later) if part)
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
    made: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        made["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": msgspec.json.encode(call.arguments).decode()},
            }
            for call in message.tool_calls
        ]
    return made


def _anthropic_blocks(message: Message) -> list[dict[str, Any]]:
    if message.tool_result is not None:
        result = message.tool_result
        block = {"type": "tool_result", "tool_use_id": result.call_id, "content": message.content}
        return [{**block, "is_error": True} if result.is_error else block]
    blocks: list[dict[str, Any]] = []
    if message.content:
        blocks.append({"type": "text", "text": message.content})
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
        for call in message.tool_calls
    ]
    return blocks or [{"type": "text", "text": ""}]


@dataclass
class _History:
    """A session's messages as far as they were read, each with its tokens."""

    messages: list[Message] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class _Block:
    """A part of the system text that was made for one question."""

    text: str = ""
    tokens: int = 0
    left_out: int = 0
    hits: tuple[Any, ...] = ()


class ContextBuilder:
    """Builds contexts for an agent's sessions.

    Messages are read and counted once: after one new message only that one is. What the memory and the
    other sessions say is looked up anew for each message of the user, and stays for the tool calls that
    follow it.
    """

    def __init__(
        self,
        sessions: SessionStore,
        memory: AgentMemorySystem | None = None,
        tools: ToolRegistry | None = None,
        *,
        system_prompt: str = "",
        token_budget: int = 8000,
        memories: int = 5,
        recent_sessions: int = 0,
        memory_share: float = 0.25,
        count_tokens: Callable[[str], int] | None = None,
    ) -> None:
        if token_budget < 1 or memories < 0 or recent_sessions < 0 or not 0 <= memory_share <= 1:
            raise InvalidAgentInput(
                f"token_budget {token_budget}, memories {memories}, recent_sessions {recent_sessions}, "
                f"memory_share {memory_share}: use a budget ≥ 1, counts ≥ 0 and a share from 0 to 1"
            )
        self.system_prompt = system_prompt
        self.token_budget = token_budget
        self._sessions = sessions
        self._memory = memory
        self._tools = tools or ToolRegistry()
        self._most_memories = memories
        self._most_sessions = recent_sessions
        self._memory_share = memory_share
        self._count = count_tokens or _default_counter()
        self._histories: dict[str, _History] = {}
        self._blocks: dict[str, tuple[str, _Block, _Block]] = {}
        self._prompt_tokens: tuple[str, int] = ("", 0)
        self._tool_tokens: tuple[int, tuple[Tool, ...], int] = (-1, (), 0)

    def build(self, session_id: str, agent_id: str | None = None) -> Context:
        """The context for the next step of a session."""
        history = self._history(session_id)
        tools, tool_tokens = self._tool_part()
        fixed = self._prompt_part() + tool_tokens
        newest = history.tokens[-1] if history.tokens else 0
        room = self.token_budget - fixed - newest
        if room < 0:
            raise BudgetTooSmall(
                f"token_budget is {self.token_budget}: the system prompt, the tools and the newest message "
                f"take {fixed + newest}"
            )
        memories, others = self._blocks_for(session_id, agent_id, history, int(room * self._memory_share))
        room -= memories.tokens + others.tokens
        start = _fitting(history, room + newest)
        used = sum(history.tokens[start:])
        return Context(
            system="\n\n".join(part for part in (self.system_prompt, memories.text, others.text) if part),
            messages=tuple(history.messages[start:]),
            tools=tools,
            tokens=fixed + memories.tokens + others.tokens + used,
            left_out=LeftOut(start, memories.left_out, others.left_out),
            memories=memories.hits,
        )

    def forget(self, session_id: str) -> None:
        """Drop what is cached of a session."""
        self._histories.pop(session_id, None)
        self._blocks.pop(session_id, None)

    # -- the parts ----------------------------------------------------------------------------

    def _history(self, session_id: str) -> _History:
        history = self._histories.pop(session_id, None) or _History()
        new = self._sessions.messages(session_id, start=len(history.messages))
        history.messages += new
        history.tokens += [self._message_tokens(message) for message in new]
        if len(self._histories) >= _MOST_SESSIONS_CACHED:
            self.forget(next(iter(self._histories)))
        self._histories[session_id] = history  # at the end: the one that was used last is dropped last
        return history

    def _message_tokens(self, message: Message) -> int:
        tokens = MESSAGE_TOKENS + self._count(message.content)
        for call in message.tool_calls:
            tokens += MESSAGE_TOKENS + self._count(
                f"{call.name} {msgspec.json.encode(call.arguments).decode()}"
            )
        return tokens

    def _prompt_part(self) -> int:
        if self._prompt_tokens[0] != self.system_prompt:
            tokens = MESSAGE_TOKENS + self._count(self.system_prompt)
            self._prompt_tokens = (self.system_prompt, tokens)
        return self._prompt_tokens[1]

    def _tool_part(self) -> tuple[tuple[Tool, ...], int]:
        if self._tool_tokens[0] != self._tools.version:
            tools = tuple(self._tools.tools())
            schemas = (
                f"{tool.name} {tool.description} {msgspec.json.encode(tool.parameters).decode()}"
                for tool in tools
            )
            tokens = sum(MESSAGE_TOKENS + self._count(schema) for schema in schemas)
            self._tool_tokens = (self._tools.version, tools, tokens)
        return self._tool_tokens[1], self._tool_tokens[2]

    def _blocks_for(
        self, session_id: str, agent_id: str | None, history: _History, room: int
    ) -> tuple[_Block, _Block]:
        question = next((each for each in reversed(history.messages) if each.role == "user"), None)
        if question is None or not ((self._memory and self._most_memories) or self._most_sessions):
            return _Block(), _Block()
        known = self._blocks.get(session_id)
        if known is not None and known[0] == question.id:
            return known[1], known[2]
        agent = agent_id or self._sessions.get(session_id).agent_id
        memories = self._memory_block(agent, question.content, room)
        others = self._sessions_block(agent, session_id, room - memories.tokens)
        self._blocks[session_id] = (question.id, memories, others)
        return memories, others

    def _memory_block(self, agent_id: str, question: str, room: int) -> _Block:
        if self._memory is None or not self._most_memories or not question.strip():
            return _Block()
        hits = _weighed(self._memory.search(agent_id, question, self._most_memories))
        lines = [f"- {_as_line(hit)}" for hit in hits]
        kept, tokens = self._lines_that_fit("What you remember:", lines, room)
        text = "\n".join(("What you remember:", *lines[:kept])) if kept else ""
        return _Block(text, tokens, len(lines) - kept, tuple(hits[:kept]))

    def _sessions_block(self, agent_id: str, current: str, room: int) -> _Block:
        if not self._most_sessions:
            return _Block()
        found = self._sessions.list(agent_id, limit=self._most_sessions + 1)
        others = [session for session in found if session.id != current][: self._most_sessions]
        last = self._sessions.last_messages([session.id for session in others])
        lines = [
            f"- {session.title or session.id}: {_first_line(last[session.id].content)}"
            for session in others
            if session.id in last
        ]
        kept, tokens = self._lines_that_fit("Other conversations:", lines, room)
        text = "\n".join(("Other conversations:", *lines[:kept])) if kept else ""
        return _Block(text, tokens, len(lines) - kept)

    def _lines_that_fit(self, head: str, lines: Sequence[str], room: int) -> tuple[int, int]:
        """How many of the lines, the first ones first, and their tokens with the heading."""
        total = self._count(head) + 1
        kept = 0
        for line in lines:
            tokens = self._count(line) + 1
            if total + tokens > room:
                break
            total += tokens
            kept += 1
        return (kept, total) if kept else (0, 0)


def _fitting(history: _History, room: int) -> int:
    """Where the history begins: as far back as there is room, and not between a call and its result."""
    start = len(history.messages)
    while start and history.tokens[start - 1] <= room:
        start -= 1
        room -= history.tokens[start]
    while start < len(history.messages) and history.messages[start].role == "tool":
        start += 1
    return start


def _weighed(hits: Sequence[Hit]) -> list[Hit]:
    """By score first of all; recency and importance decide between like ones."""
    now = time.time()

    def weight(hit: Hit) -> float:
        recency: float = 0.5 ** (max(now - hit.entry.created_at, 0.0) / _DAY)
        importance = min(hit.entry.importance / 5, 1.0)
        return abs(hit.score) * (_RECENCY_SHARE * recency + _IMPORTANCE_SHARE * importance) + hit.score

    return sorted(hits, key=weight, reverse=True)


def _as_line(hit: Hit) -> str:
    content = hit.entry.content
    text = content if isinstance(content, str) else msgspec.json.encode(content).decode()
    return " ".join(text.split())


def _first_line(text: str, width: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _default_counter() -> Callable[[str], int]:
    from memory.embedding import count_tokens

    return count_tokens
