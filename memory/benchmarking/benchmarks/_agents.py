"""Agents to measure: the loop of `memory.agents` on durable files, with a scripted model.

The model calls one tool and then answers with the tool's result. So every message of a session contains its
question, and a message that is lost or in a wrong session can be detected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.errors import NotSupported, needs
from memory.benchmarking.targets import load_target
from memory.benchmarking.targets.base import Item, Settings, Target
from memory.benchmarking.workloads.natural_texts import memory_texts

if TYPE_CHECKING:
    from memory.agents import AgentRuntime, Context, Message, Reply, SessionStore, ToolRegistry
    from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
    from memory.system import AgentMemorySystem

AGENT = "assistant"
KNOWN = 100
"""Memories that the agent has before the first message."""
MESSAGES = 4
"""Messages of one invocation: the question, the tool call, its result, the answer."""
PROMPT = "You are a careful assistant. Look things up before you answer, and say what you found."


@contextmanager
def own_memory(
    bench: Bench, memories: int = KNOWN
) -> Iterator[tuple[AgentMemoryTarget, AgentMemorySystem]]:
    """Open this project's memory as it is shipped, with some memories; other targets have no agent loop."""
    from memory.benchmarking.targets.agentmemory import AgentMemoryTarget

    if not issubclass(load_target(bench.target_name), AgentMemoryTarget):
        raise NotSupported(
            f"{bench.system} has no agent loop: this measures memory.agents, which runs on AgentMemory"
        )
    try:
        import pydantic  # noqa: F401
    except ImportError:
        raise needs("pydantic", "agents", "the agent loop") from None
    with bench.target(settings=Settings(as_shipped=True)) as target:
        assert isinstance(target, AgentMemoryTarget)
        bench.store(target, [Item(AGENT, text) for text in islice(memory_texts(bench.seed), memories)])
        target.flush()
        target.maintain()  # what filling the store has left to do in the background is not measured
        yield target, target.memory


@dataclass(frozen=True)
class Loop:
    """An agent with a durable memory, durable sessions and one tool."""

    runtime: AgentRuntime
    sessions: SessionStore
    target: Target

    def ask(self, question: str) -> str:
        """Ask a question in a new session; return the session's id."""
        return session_of_answer(self.runtime.invoke(question), question)

    def memories(self) -> int:
        return sum(self.target.count().values())

    def astray(self, questions: Sequence[str], session_ids: Sequence[str]) -> int:
        """Count the messages that are lost, duplicated or in a wrong session."""
        wrong = 0
        for question, session_id in zip(questions, session_ids, strict=True):
            messages = self.sessions.messages(session_id)
            right = sum(map(_is_right, messages, _ROLES, [question] * MESSAGES))
            wrong += max(len(messages), MESSAGES) - right
        return wrong


_ROLES = ("user", "assistant", "tool", "assistant")


def _is_right(message: Message, role: str, question: str) -> bool:
    said = [message.content, *(str(call.arguments) for call in message.tool_calls)]
    return message.role == role and any(question in each for each in said)


@contextmanager
def open_loop(bench: Bench, *, asynchronous: bool = False, memories: int = KNOWN) -> Iterator[Loop]:
    """Open the loop in a temporary folder; with `asynchronous` its tool is a coroutine."""
    with own_memory(bench, memories) as (target, memory), bench.folder() as folder:
        from memory.agents import AgentRuntime, ScriptedModel, SessionStore, ToolRegistry

        tools = ToolRegistry()
        tools.add(_look_up_later if asynchronous else _look_up, name="look_up")
        model = ScriptedModel([_reply], repeat=True)
        with SessionStore(folder / "sessions.db") as sessions:
            runtime = AgentRuntime(
                AGENT, model, sessions=sessions, memory=memory, tools=tools, system_prompt=PROMPT
            )
            yield Loop(runtime, sessions, target)


def _look_up(subject: str) -> str:
    """Look something up in the notes.

    Args:
        subject: what to look for
    """
    return f"Notes on {subject}"


async def _look_up_later(subject: str) -> str:
    """Look something up in the notes.

    Args:
        subject: what to look for
    """
    return _look_up(subject)


def _reply(context: Context) -> Reply:
    from memory.agents import Reply, ToolCall

    last = context.messages[-1]
    if last.tool_result is not None:
        return Reply(f"I found: {last.content}")
    return Reply(tool_calls=(ToolCall(name="look_up", arguments={"subject": last.content}),))


def session_of_answer(invocation: Any, question: str) -> str:
    """Return the session of an invocation; raise if it did not answer this question."""
    if invocation.stopped_by != "answer" or question not in invocation.answer:
        raise AssertionError(f"{question!r} was answered with {invocation.answer!r} {invocation.error}")
    return str(invocation.session_id)


def make_tools(count: int) -> ToolRegistry:
    """Return a registry of tools with three arguments each, and with different names and descriptions."""
    from memory.agents import ToolRegistry

    registry = ToolRegistry()
    for number in range(count):
        verb, thing = _VERBS[number % len(_VERBS)], _THINGS[number // len(_VERBS) % len(_THINGS)]
        name = f"{verb}_{thing}_{number}"
        registry.add(
            _tool(), name=name, description=f"{verb.capitalize()} a {thing} by what is known of it."
        )
    return registry


_VERBS = ("find", "open", "close", "rename", "copy", "move", "share", "count", "sort", "print")
_THINGS = ("file", "folder", "ticket", "contact", "invoice", "calendar", "recipe", "picture")


def _tool() -> Callable[..., str]:
    def tool(subject: str, limit: int = 10, exact: bool = False) -> str:
        """A tool.

        Args:
            subject: what it is about, in a few words
            limit: how many results to give at most
            exact: whether every word must be there
        """
        return subject

    return tool
