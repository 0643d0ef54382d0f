"""The same agent loop in this project, in LangGraph and in the OpenAI Agents SDK, side by side.

    pip install 'agentmemory-tiers[runtimes]'
    python examples/compare_runtimes.py [--conversations 60] [--turns 5] [--json FILE]

Every invocation is one message of a user: a scripted model asks for one tool, the tool runs, the model
answers. No model is called over a network, so what is measured is what each runtime adds. A conversation
has a few such messages and is a session (or thread) of its own; the runtimes take turns, a conversation
each, in rotating order, in one process. What is not installed is n/a.

Exits with 0 if the goal is reached, and with 1 if it is not or if nothing is there to compare with.

What each one stores is in the table: fewer words there mean less work. All files are SQLite with a
write-ahead log and synchronous=NORMAL, also where the runtime's own default would be slower; tracing is
switched off.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from memory import AgentMemorySystem, MemoryConfig
from memory.agents import AgentRuntime, Context, Reply, ScriptedModel, SessionStore, ToolCall, ToolRegistry

PROMPT = "You are a careful assistant. Look things up before you answer."
QUESTIONS = (
    "What do we know about the lighthouse?",
    "When does the ferry to the island leave?",
    "Who repaired the espresso machine last week?",
    "How much did the wooden canoe cost?",
    "Why was the piano lesson moved to Thursday?",
)
GOAL = 0.5
"""Ours at most so many times each of the others."""
WARM_UP = 3

Say = Callable[[str], str]
"""One message of the user; the answer."""


def look_up(subject: str) -> str:
    """Look something up in the notes."""
    return f"Notes on {subject}"


@dataclass
class Runtime:
    """A loop to measure: `begin` starts a conversation, what it gives takes the messages."""

    name: str
    stores: str
    begin: Callable[[], Say]
    is_ours: bool = False
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """Of the whole process, all threads: on a busy machine the steadier figure."""

    def talk(self, number: int, turns: int, *, timed: bool) -> None:
        """One conversation; beginning it is on the clock of its first message."""
        say: Say | None = None
        for turn in range(turns):
            question = f"{QUESTIONS[(number + turn) % len(QUESTIONS)]} ({number}.{turn})"
            cpu_start, start = time.process_time(), time.perf_counter()
            if say is None:
                say = self.begin()
            answer = say(question)
            took, cpu = time.perf_counter() - start, time.process_time() - cpu_start
            if answer != f"I found: Notes on {question}":
                raise RuntimeError(f"{self.name} answered {question!r} with {answer!r}")
            if timed:
                self.seconds.append(took)
                self.cpu_seconds.append(cpu)

    def figures(self) -> dict[str, float]:
        single = len(self.seconds) == 1  # of which no quantiles can be taken
        p95 = (
            self.seconds[0] if single else statistics.quantiles(self.seconds, n=20, method="inclusive")[-1]
        )
        return {
            "p50_ms": statistics.median(self.seconds) * 1e3,
            "p95_ms": p95 * 1e3,
            "cpu_p50_ms": statistics.median(self.cpu_seconds) * 1e3,
            "invocations": len(self.seconds),
        }


# -- this project -----------------------------------------------------------------------------


def script(context: Context) -> Reply:
    last = context.messages[-1]
    if last.tool_result is not None:
        return Reply(f"I found: {last.content}")
    return Reply(tool_calls=(ToolCall(name="look_up", arguments={"subject": last.content}),))


@contextmanager
def ours(folder: Path, runner: asyncio.Runner) -> Iterator[list[Runtime]]:
    with ExitStack() as stack:

        def runtime(name: str, *, memory: bool, tool: Callable[..., Any]) -> AgentRuntime:
            tools = ToolRegistry()
            tools.add(tool, name="look_up")
            system = None
            if memory:
                config = MemoryConfig(maintenance="manual")
                config.ltm_config.db_path = str(folder / f"{name}-memory.db")
                system = stack.enter_context(AgentMemorySystem(config))
            return AgentRuntime(
                "assistant",
                ScriptedModel([script], repeat=True),
                sessions=stack.enter_context(SessionStore(folder / f"{name}-sessions.db")),
                memory=system,
                tools=tools,
                system_prompt=PROMPT,
            )

        async def look_up_later(subject: str) -> str:
            """Look something up in the notes."""
            return look_up(subject)

        full = runtime("full", memory=True, tool=look_up)
        plain = runtime("plain", memory=False, tool=look_up)
        later = runtime("async", memory=True, tool=look_up_later)
        stored = "each step, before the next; question, result and answer as memories, searched each time"
        yield [
            Runtime("AgentMemory", stored, lambda: _conversation(full.invoke), is_ours=True),
            Runtime(
                "AgentMemory, async",
                stored,
                lambda: _conversation(lambda *said: runner.run(later.ainvoke(*said))),
                is_ours=True,
            ),
            Runtime(
                "AgentMemory, no memory",
                "each step, before the next",
                lambda: _conversation(plain.invoke),
                is_ours=True,
            ),
        ]


def _conversation(invoke: Callable[..., Any]) -> Say:
    session: list[str] = []

    def say(text: str) -> str:
        done = invoke(text, *session)
        session[:] = [done.session_id]
        return str(done.answer)

    return say


# -- LangGraph --------------------------------------------------------------------------------


@contextmanager
def langgraph(folder: Path, runner: asyncio.Runner) -> Iterator[list[Runtime]]:
    from langchain_core.language_models.chat_models import BaseChatModel
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
    from langchain_core.outputs import ChatGeneration, ChatResult
    from langchain_core.tools import tool
    from langgraph.checkpoint.sqlite import SqliteSaver
    from langgraph.graph import START, MessagesState, StateGraph
    from langgraph.prebuilt import ToolNode, tools_condition

    numbers = count()

    class Scripted(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "scripted"

        def _generate(self, messages: list[Any], *_: Any, **__: Any) -> ChatResult:
            last = messages[-1]
            if isinstance(last, ToolMessage):
                reply = AIMessage(f"I found: {last.content}")
            else:
                call = {"name": "look_up", "args": {"subject": last.content}, "id": f"call_{next(numbers)}"}
                reply = AIMessage("", tool_calls=[call])
            return ChatResult(generations=[ChatGeneration(message=reply)])

    model = Scripted()
    system = SystemMessage(PROMPT)

    def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [model.invoke([system, *state["messages"]])]}

    builder = StateGraph(MessagesState)
    builder.add_node("model", ask)
    builder.add_node("tools", ToolNode([tool(look_up)]))
    builder.add_edge(START, "model")
    builder.add_conditional_edges("model", tools_condition)
    builder.add_edge("tools", "model")

    def conversation(graph: Any, **options: Any) -> Say:
        config = {"configurable": {"thread_id": f"thread_{next(numbers)}"}}

        def say(text: str) -> str:
            done = graph.invoke({"messages": [HumanMessage(text)]}, config, **options)
            return str(done["messages"][-1].content)

        return say

    with closing(sqlite3.connect(folder / "langgraph.db", check_same_thread=False)) as file:
        file.execute("PRAGMA synchronous = NORMAL")
        plain, kept = builder.compile(), builder.compile(checkpointer=SqliteSaver(file))
        yield [
            Runtime("LangGraph", "nothing", lambda: conversation(plain)),
            Runtime(
                "LangGraph, SqliteSaver",
                "a checkpoint each step, written beside the next (its default)",
                lambda: conversation(kept),
            ),
            Runtime(
                'LangGraph, SqliteSaver, durability="sync"',
                "a checkpoint each step, before the next",
                lambda: conversation(kept, durability="sync"),
            ),
        ]


# -- OpenAI Agents SDK ------------------------------------------------------------------------


@contextmanager
def openai_agents(folder: Path, runner: asyncio.Runner) -> Iterator[list[Runtime]]:
    from agents import Agent, Model, ModelResponse, RunConfig, Runner, SQLiteSession, Usage, function_tool
    from openai.types.responses import (
        ResponseFunctionToolCall,
        ResponseOutputMessage,
        ResponseOutputText,
    )

    numbers = count()

    class Scripted(Model):
        async def get_response(
            self, system_instructions: Any, input: Any, *_: Any, **__: Any
        ) -> ModelResponse:
            last = input if isinstance(input, str) else input[-1]
            if isinstance(last, dict) and last.get("type") == "function_call_output":
                text = ResponseOutputText(
                    type="output_text", text=f"I found: {last['output']}", annotations=[]
                )
                output: Any = ResponseOutputMessage(
                    id=f"message_{next(numbers)}",
                    type="message",
                    role="assistant",
                    status="completed",
                    content=[text],
                )
            else:
                said = last if isinstance(last, str) else last["content"]
                output = ResponseFunctionToolCall(
                    type="function_call",
                    call_id=f"call_{next(numbers)}",
                    name="look_up",
                    arguments=json.dumps({"subject": said}),
                )
            return ModelResponse(output=[output], usage=Usage(), response_id=None)

        def stream_response(self, *_: Any, **__: Any) -> Any:
            raise NotImplementedError

    class Session(SQLiteSession):
        @staticmethod
        def _configure_connection(conn: sqlite3.Connection) -> None:
            SQLiteSession._configure_connection(conn)
            conn.execute("PRAGMA synchronous = NORMAL")

    agent = Agent("assistant", instructions=PROMPT, model=Scripted(), tools=[function_tool(look_up)])
    options = RunConfig(tracing_disabled=True)
    sessions: list[SQLiteSession] = []

    def conversation(*, kept: bool) -> Say:
        session = None
        if kept:
            session = Session(f"session_{next(numbers)}", folder / "openai.db")
            sessions.append(session)

        def say(text: str) -> str:
            done = runner.run(Runner.run(agent, text, session=session, run_config=options))
            return str(done.final_output)

        return say

    try:
        yield [
            Runtime("OpenAI Agents SDK", "nothing, and knows no history", lambda: conversation(kept=False)),
            Runtime(
                "OpenAI Agents SDK, SQLiteSession",
                "the messages of each step",
                lambda: conversation(kept=True),
            ),
        ]
    finally:
        for session in sessions:
            session.close()


# -- side by side -----------------------------------------------------------------------------


def compare(conversations: int, turns: int) -> tuple[list[Runtime], dict[str, str]]:
    """All runtimes that are installed, measured; and why others are not."""
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runner = stack.enter_context(asyncio.Runner())
        runtimes: list[Runtime] = []
        for name, make in {
            "AgentMemory": ours,
            "LangGraph": langgraph,
            "OpenAI Agents SDK": openai_agents,
        }.items():
            try:
                runtimes += stack.enter_context(make(folder, runner))
            except ImportError as problem:
                missing[name] = f"{problem}: pip install 'agentmemory-tiers[runtimes]'"
        for number in range(WARM_UP):
            for runtime in runtimes:
                runtime.talk(number, turns, timed=False)
        for number in range(conversations):
            first = number % len(runtimes)
            for runtime in runtimes[first:] + runtimes[:first]:
                gc.collect()
                runtime.talk(number, turns, timed=True)
    return runtimes, missing


def show(figures: dict[str, dict[str, float]], runtimes: list[Runtime], missing: dict[str, str]) -> bool:
    """Print the table and whether the goal is reached."""
    base = figures[runtimes[0].name]
    rows = [("runtime", "p50 ms", "p95 ms", "CPU ms", "ours ÷ it", "by CPU", "stores")]
    for each in runtimes:
        found = figures[each.name]
        times = [f"{found[name]:.2f}" for name in ("p50_ms", "p95_ms", "cpu_p50_ms")]
        ratios = [f"{base[name] / found[name]:.2f}" for name in ("p50_ms", "cpu_p50_ms")]
        rows.append((each.name, *times, *(ratios if found is not base else ("", "")), each.stores))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers, stores in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=False)]
        print("  ".join([f"{name:{widths[0]}}", *cells, stores]))
    for name, reason in missing.items():
        print(f"{name}: n/a ({reason})")
    if all(each.is_ours for each in runtimes):
        print("\nnothing to compare with: install another runtime")
        return False
    print(f"\ngoal: the p50 of {runtimes[0].name} at most {GOAL:g} × that of the others")
    reached = True
    for each in runtimes:
        if not each.is_ours:
            ratio = base["p50_ms"] / figures[each.name]["p50_ms"]
            reached &= ratio <= GOAL
            print(f"  {each.name}: {'reached' if ratio <= GOAL else 'NOT reached'} ({ratio:.2f})")
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description="Agent runtimes side by side, with a scripted model.")
    parser.add_argument("--conversations", type=int, default=60, help="of each runtime (default: 60)")
    parser.add_argument("--turns", type=int, default=5, help="messages of a conversation (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    options = parser.parse_args()
    if options.conversations < 1 or options.turns < 1:
        parser.error("use whole numbers ≥ 1 for --conversations and --turns")
    runtimes, missing = compare(options.conversations, options.turns)
    figures = {each.name: each.figures() for each in runtimes}
    reached = show(figures, runtimes, missing)
    if options.json:
        options.json.write_text(json.dumps({**figures, "not_available": missing}, indent=2) + "\n")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
