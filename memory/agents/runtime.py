"""The loop: build the context, ask the model, run its tools, until there is an answer.

Every step is durable before the next begins. What happened is stored in the memory at the end, as one
batch. The loop ends on an answer, on a limit, or on an error; all three are told in the `Invocation`, and
the session can go on after each.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from memory.agents.context import Context, ContextBuilder
from memory.agents.errors import AgentError, InvalidAgentInput
from memory.agents.messages import Message, ToolResult
from memory.agents.model import Model, Reply
from memory.agents.sessions import SessionStore
from memory.agents.tools import ToolRegistry
from memory.errors import short

if TYPE_CHECKING:
    from memory.system import AgentMemorySystem


@dataclass(frozen=True)
class Invocation:
    """How one call of `invoke` went."""

    session_id: str
    answer: str
    stopped_by: Literal["answer", "limit", "error"]
    steps: int
    """How often the model was asked."""
    messages: tuple[Message, ...]
    """Everything that was added to the session."""
    tool_results: tuple[ToolResult, ...] = ()
    error: str = ""
    seconds: float = 0.0


@dataclass
class _Turn:
    """One invocation while it is going on."""

    session_id: str
    added: list[Message] = field(default_factory=list)
    results: list[ToolResult] = field(default_factory=list)
    steps: int = 0
    start: float = field(default_factory=time.perf_counter)


class AgentRuntime:
    """An agent: a model with tools, sessions and, if wanted, a memory."""

    def __init__(
        self,
        agent_id: str,
        model: Model,
        *,
        sessions: SessionStore | None = None,
        memory: AgentMemorySystem | None = None,
        tools: ToolRegistry | None = None,
        builder: ContextBuilder | None = None,
        system_prompt: str = "",
        token_budget: int = 8000,
        max_steps: int = 8,
    ) -> None:
        if not isinstance(agent_id, str) or not agent_id:
            raise InvalidAgentInput(f"agent_id is {short(agent_id)}: use a text that is not empty")
        if max_steps < 1:
            raise InvalidAgentInput(f"max_steps is {max_steps}: use a whole number ≥ 1")
        self.agent_id = agent_id
        self.model = model
        self.sessions = sessions if sessions is not None else SessionStore()
        self.memory = memory
        self.tools = tools or ToolRegistry()
        self.builder = builder or ContextBuilder(
            self.sessions, memory, self.tools, system_prompt=system_prompt, token_budget=token_budget
        )
        self._max_steps = max_steps
        self._busy: set[str] = set()
        self._busy_lock = threading.Lock()

    def invoke(self, text: str, session_id: str | None = None) -> Invocation:
        """Answer one message of the user, in a new session or in an old one."""
        turn = self._begin(text, session_id)
        with self._alone(turn.session_id):
            self._add(turn, Message(role="user", content=text))
            try:
                while turn.steps < self._max_steps:
                    reply = self.model.complete(self._context(turn))
                    if not reply.tool_calls:
                        return self._answered(turn, reply)
                    self._ran(turn, reply, self.tools.run(*reply.tool_calls))
            except AgentError as problem:
                return self._failed(turn, problem)
            return self._ended(turn, "", "limit", f"no answer after {self._max_steps} steps")

    async def ainvoke(self, text: str, session_id: str | None = None) -> Invocation:
        """As `invoke`; other invocations go on while the model or a tool is waited for."""
        turn = self._begin(text, session_id)
        with self._alone(turn.session_id):
            self._add(turn, Message(role="user", content=text))
            try:
                while turn.steps < self._max_steps:
                    reply = await self.model.acomplete(self._context(turn))
                    if not reply.tool_calls:
                        return self._answered(turn, reply)
                    self._ran(turn, reply, await self.tools.arun(*reply.tool_calls))
            except AgentError as problem:
                return self._failed(turn, problem)
            except asyncio.CancelledError:
                self._failed(turn, AgentError("cancelled"))
                raise
            return self._ended(turn, "", "limit", f"no answer after {self._max_steps} steps")

    # -- steps --------------------------------------------------------------------------------

    def _begin(self, text: str, session_id: str | None) -> _Turn:
        if not isinstance(text, str) or not text.strip():
            raise InvalidAgentInput(f"the message is {short(text)}: use a text that is not empty")
        if session_id is None:
            return _Turn(self.sessions.create(self.agent_id, title=text[:60]).id)
        session = self.sessions.get(session_id)
        if session.agent_id != self.agent_id:
            raise InvalidAgentInput(
                f"session {short(session_id)} belongs to agent {short(session.agent_id)}"
            )
        return _Turn(session_id)

    @contextmanager
    def _alone(self, session_id: str) -> Iterator[None]:
        """Two invocations of one session at once would mix up their messages."""
        with self._busy_lock:
            if session_id in self._busy:
                raise InvalidAgentInput(
                    f"session {short(session_id)} is in the middle of another invocation"
                )
            self._busy.add(session_id)
        try:
            yield
        finally:
            with self._busy_lock:
                self._busy.discard(session_id)

    def _context(self, turn: _Turn) -> Context:
        turn.steps += 1
        return self.builder.build(turn.session_id, self.agent_id)

    def _add(self, turn: _Turn, *messages: Message) -> None:
        self.sessions.append(turn.session_id, *messages)
        turn.added += messages

    def _ran(self, turn: _Turn, reply: Reply, results: list[ToolResult]) -> None:
        call = Message(role="assistant", content=reply.content, tool_calls=reply.tool_calls)
        self._add(turn, call, *map(Message.of_result, results))
        turn.results += results

    def _answered(self, turn: _Turn, reply: Reply) -> Invocation:
        self._add(turn, Message(role="assistant", content=reply.content))
        return self._ended(turn, reply.content, "answer")

    def _failed(self, turn: _Turn, problem: AgentError) -> Invocation:
        return self._ended(turn, "", "error", str(problem))

    def _ended(
        self, turn: _Turn, answer: str, stopped_by: Literal["answer", "limit", "error"], error: str = ""
    ) -> Invocation:
        if self.memory is not None:
            self._remember(turn)
        return Invocation(
            turn.session_id,
            answer,
            stopped_by,
            turn.steps,
            tuple(turn.added),
            tuple(turn.results),
            error,
            time.perf_counter() - turn.start,
        )

    def _remember(self, turn: _Turn) -> None:
        """What was said and what tools found, as one batch of the memory."""
        assert self.memory is not None
        entries = []
        for message in turn.added:
            if not message.content.strip():
                continue
            metadata = {"session": turn.session_id, "speaker": message.role}
            if message.tool_result is not None:
                metadata["tool"] = message.tool_result.name
            entries.append(
                {
                    "agent_id": self.agent_id,
                    "content": message.content,
                    "kind": "action" if message.role == "tool" else "message",
                    "metadata": metadata,
                    "id": message.id,
                }
            )
        if entries:
            self.memory.add_many(entries)
