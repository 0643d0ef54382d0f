"""The agent loop: build the context, call the model and run its tools, until there is an answer.

The loop stores each step in the session before the next step starts. The user's message is stored before
the first call of the model. Tool calls and their results are stored, in one transaction, before the next
call. The answer is stored before it is returned. At the end, the loop stores all messages in the memory as
one batch.

The loop ends with an answer, at a limit or with an error. `Invocation.stopped_by` says which. In each case
the session can be continued. Exceptions that are not an `Exception` (a cancelled task, Ctrl-C) are raised
after the messages so far were stored.
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
"""The most characters of a session's title, so that it fits on one line of a list. The title is the start
of the session's first message."""
StoppedBy = Literal["answer", "limit", "error"]


@dataclass(frozen=True)
class Invocation:
    """The outcome of one call of `invoke`."""

    session_id: str
    answer: str
    """The model's answer; empty if there is none."""
    stopped_by: StoppedBy
    steps: int
    """How often the model was called."""
    messages: tuple[Message, ...]
    """The messages that were added to the session."""
    tool_results: tuple[ToolResult, ...] = ()
    """The results of all tool calls, in order."""
    error: str = ""
    """The error on one line, or empty. If there is an answer too, only storing the memories failed."""
    exception: Exception | None = None
    """The exception behind `error`, with its traceback."""
    finish_reason: str = ""
    """Why the model ended its answer: "length" means that the answer was cut off."""
    usage: Mapping[str, int] = field(default_factory=dict)
    """Token counts of all steps together, if the model reports them."""
    seconds: float = 0.0


@dataclass
class _InvocationState:
    """The state of a running invocation."""

    session_id: str
    added: list[Message]
    results: list[ToolResult] = field(default_factory=list)
    steps: int = 0
    usage: dict[str, int] = field(default_factory=dict)
    start: float = 0.0


class _End(msgspec.Struct, frozen=True):
    """Why an invocation ended."""

    stopped_by: StoppedBy
    answer: str = ""
    finish_reason: str = ""
    error: str = ""
    exception: Exception | None = None


class AgentRuntime:
    """An agent: a model with sessions, tools and a memory.

    Args:
        agent_id: owns the sessions and the memories.
        model: replies to contexts.
        sessions: stores the messages; by default a new store in RAM.
        memory: is searched for each question, and stores all messages; None for no memory.
        tools: the tools that the model may call; None for none.
        builder: a context builder of your own. Then do not pass sessions, memory, tools, system_prompt and
            token_budget: the builder has them.
        system_prompt: the text that each context starts with.
        token_budget: the most tokens of a context; 8,000 by default.
        max_steps: the most calls of the model in one invocation.
    """

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
            raise InvalidAgentInput(f"agent_id is {short(agent_id)}: use a string that is not empty")
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
                "builder already has sessions, memory, tools, system_prompt and token_budget: "
                "pass these to the builder or to the runtime, not to both"
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
        self._batch_writer = None if self.memory is None else BatchWriter(self.memory)
        self._max_steps = max_steps

    def invoke(self, text: str, session_id: str | None = None) -> Invocation:
        """Answer one message of the user.

        Args:
            text: the message; not empty.
            session_id: the session to continue; by default a new one is created.

        Raises:
            InvalidAgentInput: the text is empty, or the session is in use or belongs to another agent.
            UnknownSession: there is no session with that id.
        """
        with self._begin(text, session_id) as state:
            end = self._loop(state)
            return _invocation(state, end, self._store_memories(state))

    def _loop(self, state: _InvocationState) -> _End:
        try:
            while state.steps < self._max_steps:
                context = self._context(state)
                reply = self._validate_reply(state, self.model.complete(context))
                if not reply.tool_calls:
                    return self._add_answer(state, reply)
                calls = self._calls_message(reply)
                with self._record_interruption(state, calls):
                    results = self.tools.run(*calls.tool_calls)
                self._add_results(state, calls, results)
        except Exception as problem:
            return _failure(problem)
        return self._no_answer()

    async def ainvoke(self, text: str, session_id: str | None = None) -> Invocation:
        """Do what `invoke` does. Other tasks run while this one waits for the model or for a tool.

        Files and memory are accessed in the event loop's thread, which takes about 1 ms per step.
        Invocations that end at the same time store their memories in one commit.
        """
        with self._begin(text, session_id) as state:
            end = await self._aloop(state)
            not_stored = None
            if self._batch_writer is not None:
                not_stored = await self._batch_writer.add(self._entries(state))
            return _invocation(state, end, not_stored)

    async def _aloop(self, state: _InvocationState) -> _End:
        try:
            while state.steps < self._max_steps:
                context = self._context(state)
                reply = self._validate_reply(state, await self.model.acomplete(context))
                if not reply.tool_calls:
                    return self._add_answer(state, reply)
                calls = self._calls_message(reply)
                with self._record_interruption(state, calls):
                    results = await self.tools.arun(*calls.tool_calls)
                self._add_results(state, calls, results)
        except Exception as problem:
            return _failure(problem)
        return self._no_answer()

    # -- steps --------------------------------------------------------------------------------

    @contextmanager
    def _begin(self, text: str, session_id: str | None) -> Iterator[_InvocationState]:
        """Store the user's message and lock the session.

        Without the lock, two invocations at the same time would mix their messages.
        """
        start = time.perf_counter()
        if not isinstance(text, str) or not text.strip():
            raise InvalidAgentInput(f"the message is {short(text)}: use a string that is not empty")
        message = Message.new("user", text)
        is_new = session_id is None
        session_id = new_id() if session_id is None else session_id
        with self.sessions.alone(session_id):
            if is_new:
                self.sessions.create(self.agent_id, _title(text), id=session_id, messages=(message,))
            else:
                session = self.sessions.get(session_id)
                if session.agent_id != self.agent_id:
                    raise InvalidAgentInput(
                        f"session {short(session_id)} belongs to agent {short(session.agent_id)}: "
                        "use a session of this agent"
                    )
                self.sessions.append(session_id, message)
            state = _InvocationState(session_id, [message], start=start)
            try:
                yield state
            except BaseException:
                self._store_memories(state)
                raise

    def _context(self, state: _InvocationState) -> Context:
        state.steps += 1
        return self.builder.build(state.session_id, self.agent_id)

    def _validate_reply(self, state: _InvocationState, reply: Reply) -> Reply:
        """Return the reply if it is valid, and add its token counts to the state; else raise ModelError."""
        if not isinstance(reply, Reply):
            raise ModelError(f"{self.model.name} returned {short(reply)}: a model must return a Reply")
        if not isinstance(reply.content, str | None):
            raise ModelError(f"{self.model.name} returned the content {short(reply.content)}: use a string")
        for call in reply.tool_calls or ():
            if not isinstance(call, ToolCall):
                raise ModelError(f"{self.model.name} returned the tool call {short(call)}: use a ToolCall")
        for name, tokens in reply.usage.items():
            state.usage[name] = state.usage.get(name, 0) + tokens
        return reply

    def _calls_message(self, reply: Reply) -> Message:
        """Return the message with the tool calls. Each call has a different id.

        The message is checked before the tools run. If it could not be stored afterwards, the session would
        not show what the tools did.
        """
        calls = tuple(reply.tool_calls)
        if len({call.id for call in calls}) < len(calls):
            calls = tuple(call.model_copy(update={"id": new_id()}) for call in calls)
        message = Message.new("assistant", sendable(reply.content or ""), calls)
        try:
            self.sessions.check(message)
        except InvalidAgentInput as problem:
            raise ModelError(
                f"{self.model.name} returned tool calls that can't be stored; no tool was run: {problem}"
            ) from None
        return message

    def _add(self, state: _InvocationState, *messages: Message) -> None:
        self.sessions.append(state.session_id, *messages)
        state.added += messages

    def _add_results(self, state: _InvocationState, calls: Message, results: list[ToolResult]) -> None:
        self._add(state, calls, *map(Message.of_result, results))
        state.results += results

    @contextmanager
    def _record_interruption(self, state: _InvocationState, calls: Message) -> Iterator[None]:
        """Store interrupted calls, with results that say so: their tools may have had effects."""
        try:
            yield
        except BaseException:
            self._add_results(state, calls, [interrupted(call) for call in calls.tool_calls])
            raise

    def _add_answer(self, state: _InvocationState, reply: Reply) -> _End:
        content = sendable(reply.content or "")
        self._add(state, Message.new("assistant", content))
        return _End("answer", content, finish_reason=reply.finish_reason)

    def _no_answer(self) -> _End:
        return _End("limit", error=f"no answer after {self._max_steps} steps")

    def _store_memories(self, state: _InvocationState) -> AgentMemoryError | None:
        """Store the messages in the memory as one batch. Return the error if that fails."""
        return None if self.memory is None else store(self.memory, self._entries(state))

    def _entries(self, state: _InvocationState) -> list[dict[str, Any]]:
        """Return the texts and the tool results of an invocation as memories."""
        calls: dict[str, ToolCall] = {}
        entries = []
        for message in state.added:
            for call in message.tool_calls:
                calls[call.id] = call  # a later step may use the same id
            if message.content.strip() or message.tool_result is not None:
                entries.append(self._entry(state.session_id, message, calls))
        return entries

    def _entry(self, session_id: str, message: Message, calls: Mapping[str, ToolCall]) -> dict[str, Any]:
        metadata = {"session": session_id, "speaker": message.role}
        content = message.content
        result = message.tool_result
        if result is not None:
            metadata["tool"] = result.name
            arguments = msgspec.json.encode(calls[result.call_id].arguments).decode()
            # Store the call with its result: a result such as "3" means nothing without the call.
            content = f"{result.name} {arguments}: {content}"
        return {
            "agent_id": self.agent_id,
            "content": content,
            "kind": "message" if result is None else "action",
            "metadata": metadata,
            "id": message.id,
        }


def _failure(problem: Exception) -> _End:
    is_ours = isinstance(problem, AgentMemoryError)
    error = str(problem) if is_ours else f"{type(problem).__name__}: {problem}"
    return _End("error", error=" ".join(error.split()), exception=problem)


def _invocation(state: _InvocationState, end: _End, not_stored: AgentMemoryError | None) -> Invocation:
    """Return the outcome. `not_stored` is the error of storing the memories, if there was one."""
    error, exception = end.error, end.exception
    if not_stored is not None:
        error = "; ".join(filter(None, (error, f"not stored in the memory: {not_stored}")))
        exception = exception or not_stored
    return Invocation(
        state.session_id,
        end.answer,
        end.stopped_by,
        state.steps,
        tuple(state.added),
        tuple(state.results),
        error,
        exception,
        end.finish_reason,
        state.usage,
        time.perf_counter() - state.start,
    )


def _title(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _TITLE_WIDTH else line[: _TITLE_WIDTH - 1] + "…"
