"""Agents to measure: the loop of `memory.agents` on durable files, with a model that follows a script.

The scripted model asks for one tool and then answers with what the tool said, so every message of a
session holds its question: whatever is lost, or is another session's, can be seen.
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
from memory.benchmarking.targets.base import Item, Target
from memory.benchmarking.workloads.texts import MEMORIES, sentences

if TYPE_CHECKING:
    from memory.agents import AgentRuntime, Context, Message, Reply, SessionStore, ToolRegistry
    from memory.system import AgentMemorySystem

AGENT = "assistant"
KNOWN = 100
"""Memories that the agent has before the first message."""
MESSAGES = 4
"""Of one invocation: the question, the call of the tool, its result, the answer."""
PROMPT = "You are a careful assistant. Look things up before you answer, and say what you found."


@contextmanager
def own_memory(bench: Bench) -> Iterator[tuple[Target, AgentMemorySystem]]:
    """This project's memory, opened and knowing something; other targets have no such loop."""
    from memory.benchmarking.targets.agentmemory import AgentMemoryTarget

    if not issubclass(load_target(bench.target_name), AgentMemoryTarget):
        raise NotSupported(
            f"{bench.target_name} has no agent loop: this measures memory.agents, which runs on AgentMemory"
        )
    try:
        import pydantic  # noqa: F401
    except ImportError:
        raise needs("pydantic", "agents", "the agent loop") from None
    with bench.target() as target:
        assert isinstance(target, AgentMemoryTarget)
        target.add([Item(AGENT, text) for text in islice(sentences(MEMORIES, bench.seed), KNOWN)])
        target.flush()
        yield target, target.memory


@dataclass(frozen=True)
class Loop:
    """An agent with a durable memory, durable sessions and one tool."""

    runtime: AgentRuntime
    sessions: SessionStore
    target: Target

    def ask(self, question: str) -> str:
        """The session in which it was answered."""
        return answered(self.runtime.invoke(question), question)

    def memories(self) -> int:
        return sum(self.target.count().values())

    def astray(self, questions: Sequence[str], session_ids: Sequence[str]) -> int:
        """Messages that are not where they should be: lost, added twice, or another session's."""
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
def open_loop(bench: Bench, *, asynchronous: bool = False) -> Iterator[Loop]:
    """The loop in a folder that is gone afterwards; its tool is a coroutine for those who await."""
    with own_memory(bench) as (target, memory), bench.folder() as folder:
        from memory.agents import AgentRuntime, ScriptedModel, SessionStore, ToolRegistry

        tools = ToolRegistry()
        tools.add(_look_up_later if asynchronous else _look_up, name="look_up")
        model = ScriptedModel([_say], repeat=True)
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


def _say(context: Context) -> Reply:
    from memory.agents import Reply, ToolCall

    last = context.messages[-1]
    if last.tool_result is not None:
        return Reply(f"I found: {last.content}")
    return Reply(tool_calls=(ToolCall(name="look_up", arguments={"subject": last.content}),))


def answered(invocation: Any, question: str) -> str:
    """The session of an invocation that answered this question; figures of any other mean nothing."""
    if invocation.stopped_by != "answer" or question not in invocation.answer:
        raise AssertionError(f"{question!r} was answered with {invocation.answer!r} {invocation.error}")
    return str(invocation.session_id)


def make_tools(count: int) -> ToolRegistry:
    """So many tools of three arguments, each with a name and a description of its own."""
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
