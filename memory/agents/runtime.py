"""The loop: build the context, ask the model, run its tools, until there is an answer.

Every step is durable before the next begins: the user's message before the model is asked, a tool call
and its result (in one transaction) before the model is asked again, the answer before it is given back.
What happened is stored in the memory at the end, as one batch.

The loop ends on an answer, on a limit, or on an error; all three are told in the `Invocation`, and the
session can go on after each. What is not an `Exception` (a cancelled task, Ctrl-C) is raised, after what
happened until then was stored.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from memory.agents._batch_writer import BatchWriter, store
from memory.agents.builder import TOKEN_BUDGET, ContextBuilder
from memory.agents.context import Context
from memory.agents.errors import InvalidAgentInput, ModelError
from memory.agents.messages import Message, ToolCall, ToolResult, new_id, sendable
from memory.agents.model import Model, Reply
from memory.agents.sessions import SessionStore
from memory.agents.tools import ToolRegistry, interrupted
from memory.errors import AgentMemoryError, short

if TYPE_CHECKING:
    from memory.system import AgentMemorySystem

_TITLE_WIDTH = 60
StoppedBy = Literal["answer", "limit", "error"]


@dataclass(frozen=True)
class Invocation:
    """How one call of `invoke` went."""

    session_id: str
    answer: str
    stopped_by: StoppedBy
    steps: int
    """How often the model was asked."""
    messages: tuple[Message, ...]
    """Everything that was added to the session."""
    tool_results: tuple[ToolResult, ...] = ()
    error: str = ""
    """One line; beside an answer it says that the answer could not be stored in the memory."""
    exception: Exception | None = None
    """What was raised, with its traceback, if something was."""
    finish_reason: str = ""
    """What the model said of its answer: "length" for one that was cut off."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Tokens of all steps together, where the model tells."""
    seconds: float = 0.0


@dataclass
class _Turn:
    """One invocation while it is going on."""

    session_id: str
    added: list[Message]
    results: list[ToolResult] = field(default_factory=list)
    steps: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    start: float = 0.0


class _End(msgspec.Struct, frozen=True):
    """Why an invocation goes no further."""

    stopped_by: StoppedBy
    answer: str = ""
    finish_reason: str = ""
    error: str = ""
    exception: Exception | None = None


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
        token_budget: int | None = None,
        max_steps: int = 8,
    ) -> None:
        if not isinstance(agent_id, str) or not agent_id:
            raise InvalidAgentInput(f"agent_id is {short(agent_id)}: use a text that is not empty")
        if max_steps < 1:
            raise InvalidAgentInput(f"max_steps is {max_steps}: use a whole number ≥ 1")
        if builder is not None and not (
            sessions in (None, builder.sessions)
            and memory in (None, builder.memory)
            and (tools is None or tools is builder.tools)
            and not system_prompt
            and token_budget is None
        ):
            raise InvalidAgentInput(
                "builder has sessions, memory, tools, a system_prompt and a token_budget of its own: "
                "give them to it alone"
            )
        self.agent_id = agent_id
        self.model = model
        self.builder = builder or ContextBuilder(
            SessionStore() if sessions is None else sessions,
            memory,
            tools,
            system_prompt=system_prompt,
            token_budget=TOKEN_BUDGET if token_budget is None else token_budget,
        )
        self.sessions = self.builder.sessions
        self.memory = self.builder.memory
        self.tools = self.builder.tools
        self._together = None if self.memory is None else BatchWriter(self.memory)
        self._max_steps = max_steps

    def invoke(self, text: str, session_id: str | None = None) -> Invocation:
        """Answer one message of the user, in a new session or in an old one."""
        with self._turn(text, session_id) as turn:
            end = self._run(turn)
            return _told(turn, end, self._remember(turn))

    def _run(self, turn: _Turn) -> _End:
        try:
            while turn.steps < self._max_steps:
                context = self._context(turn)
                reply = self._heard(turn, self.model.complete(context))
                if not reply.tool_calls:
                    return self._answered(turn, reply)
                wish = self._wish(reply)
                with self._noting_interruption(turn, wish):
                    results = self.tools.run(*wish.tool_calls)
                self._ran(turn, wish, results)
        except Exception as problem:
            return _failure(problem)
        return self._no_answer()

    async def ainvoke(self, text: str, session_id: str | None = None) -> Invocation:
        """As `invoke`; other invocations go on while the model or a tool is waited for.

        Files and memory are used in between, in the event loop's own thread: a millisecond or so a step.
        Memories of invocations that end at the same moment are stored in one commit.
        """
        with self._turn(text, session_id) as turn:
            end = await self._arun(turn)
            forgotten = None
            if self._together is not None:
                forgotten = await self._together.add(self._entries(turn))
            return _told(turn, end, forgotten)

    async def _arun(self, turn: _Turn) -> _End:
        try:
            while turn.steps < self._max_steps:
                context = self._context(turn)
                reply = self._heard(turn, await self.model.acomplete(context))
                if not reply.tool_calls:
                    return self._answered(turn, reply)
                wish = self._wish(reply)
                with self._noting_interruption(turn, wish):
                    results = await self.tools.arun(*wish.tool_calls)
                self._ran(turn, wish, results)
        except Exception as problem:
            return _failure(problem)
        return self._no_answer()

    # -- steps --------------------------------------------------------------------------------

    @contextmanager
    def _turn(self, text: str, session_id: str | None) -> Iterator[_Turn]:
        """One invocation, alone in its session: two at once would mix up their messages."""
        start = time.perf_counter()
        if not isinstance(text, str) or not text.strip():
            raise InvalidAgentInput(f"the message is {short(text)}: use a text that is not empty")
        message = Message.new("user", text)
        if session_id is None:
            session_id = new_id()
            with self.sessions.alone(session_id):
                self.sessions.create(self.agent_id, _title(text), id=session_id, messages=(message,))
                yield from self._going_on(_Turn(session_id, [message], start=start))
        else:
            with self.sessions.alone(session_id):
                session = self.sessions.get(session_id)
                if session.agent_id != self.agent_id:
                    raise InvalidAgentInput(
                        f"session {short(session_id)} belongs to agent {short(session.agent_id)}"
                    )
                self.sessions.append(session_id, message)
                yield from self._going_on(_Turn(session_id, [message], start=start))

    def _going_on(self, turn: _Turn) -> Iterator[_Turn]:
        try:
            yield turn
        except BaseException:
            self._remember(turn)
            raise

    def _context(self, turn: _Turn) -> Context:
        turn.steps += 1
        return self.builder.build(turn.session_id, self.agent_id)

    def _heard(self, turn: _Turn, reply: Reply) -> Reply:
        """The reply, if it is one."""
        if not isinstance(reply, Reply):
            raise ModelError(f"{self.model.name} gave {short(reply)}: a model gives a Reply")
        if not isinstance(reply.content, str | None):
            raise ModelError(f"{self.model.name} gave the content {short(reply.content)}: use a text")
        for call in reply.tool_calls or ():
            if not isinstance(call, ToolCall):
                raise ModelError(f"{self.model.name} gave the tool call {short(call)}: use a ToolCall")
        for name, tokens in reply.usage.items():
            turn.usage[name] = turn.usage.get(name, 0) + tokens
        return reply

    def _wish(self, reply: Reply) -> Message:
        """The message that asks for tools, its calls with ids that differ.

        Checked before they run: what can't be stored afterwards would leave no trace of what they did.
        """
        calls = tuple(reply.tool_calls)
        if len({call.id for call in calls}) < len(calls):
            calls = tuple(call.model_copy(update={"id": new_id()}) for call in calls)
        message = Message.new("assistant", sendable(reply.content or ""), calls)
        try:
            self.sessions.check(message)
        except InvalidAgentInput as problem:
            raise ModelError(f"{self.model.name} asked for tools, which were not run: {problem}") from None
        return message

    def _add(self, turn: _Turn, *messages: Message) -> None:
        self.sessions.append(turn.session_id, *messages)
        turn.added += messages

    def _ran(self, turn: _Turn, wish: Message, results: list[ToolResult]) -> None:
        self._add(turn, wish, *map(Message.of_result, results))
        turn.results += results

    @contextmanager
    def _noting_interruption(self, turn: _Turn, wish: Message) -> Iterator[None]:
        """Tools that nobody waited for to the end may have had their effects: the session says so."""
        try:
            yield
        except BaseException:
            self._ran(turn, wish, [interrupted(call) for call in wish.tool_calls])
            raise

    def _answered(self, turn: _Turn, reply: Reply) -> _End:
        content = sendable(reply.content or "")
        self._add(turn, Message.new("assistant", content))
        return _End("answer", content, finish_reason=reply.finish_reason)

    def _no_answer(self) -> _End:
        return _End("limit", error=f"no answer after {self._max_steps} steps")

    def _remember(self, turn: _Turn) -> AgentMemoryError | None:
        """Store what happened as one batch of the memory; or why that failed."""
        return None if self.memory is None else store(self.memory, self._entries(turn))

    def _entries(self, turn: _Turn) -> list[dict[str, Any]]:
        """What was said and what tools found, as memories."""
        calls: dict[str, ToolCall] = {}
        entries = []
        for message in turn.added:
            for call in message.tool_calls:
                calls[call.id] = call  # a later step may use an id again
            if message.content.strip() or message.tool_result is not None:
                entries.append(self._entry(turn.session_id, message, calls))
        return entries

    def _entry(self, session_id: str, message: Message, calls: Mapping[str, ToolCall]) -> dict[str, Any]:
        metadata = {"session": session_id, "speaker": message.role}
        content = message.content
        result = message.tool_result
        if result is not None:
            metadata["tool"] = result.name
            arguments = msgspec.json.encode(calls[result.call_id].arguments).decode()
            content = f"{result.name} {arguments}: {content}"  # "3" alone would say nothing later
        return {
            "agent_id": self.agent_id,
            "content": content,
            "kind": "message" if result is None else "action",
            "metadata": metadata,
            "id": message.id,
        }


def _failure(problem: Exception) -> _End:
    foreseen = isinstance(problem, AgentMemoryError)
    error = str(problem) if foreseen else f"{type(problem).__name__}: {problem}"
    return _End("error", error=" ".join(error.split()), exception=problem)


def _told(turn: _Turn, end: _End, forgotten: AgentMemoryError | None) -> Invocation:
    """The whole story; `forgotten` says why it could not be stored in the memory."""
    error, exception = end.error, end.exception
    if forgotten is not None:
        error = "; ".join(filter(None, (error, f"not stored in the memory: {forgotten}")))
        exception = exception or forgotten
    return Invocation(
        turn.session_id,
        end.answer,
        end.stopped_by,
        turn.steps,
        tuple(turn.added),
        tuple(turn.results),
        error,
        exception,
        end.finish_reason,
        turn.usage,
        time.perf_counter() - turn.start,
    )


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_WIDTH else line[: _TITLE_WIDTH - 1] + "…"
