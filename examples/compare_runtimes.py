"""Compares the agent loop of this project with those of LangGraph and the OpenAI Agents SDK.

    pip install 'agentmemory-tiers[runtimes]'
    python examples/compare_runtimes.py [--conversations 60] [--turns 5] [--json FILE]

Each invocation handles one message of a user: a scripted model calls one tool, the tool runs, the model
answers. No model is called over a network, so the figures are the overhead of each runtime. A conversation
has a few such messages and its own session (or thread). The runtimes take turns in one process, one
conversation each, in rotating order. Runtimes that are not installed are shown as n/a.

The exit code is 0 if the goal is reached, and 1 if it is not or if there is nothing to compare with.

The table shows what each runtime stores. All files are SQLite with a write-ahead log and
synchronous=NORMAL, even if the runtime's own default is slower. Tracing is switched off.
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
"""The goal: our p50 is at most this many times the p50 of each other runtime."""
WARM_UP = 3
"""Conversations of each runtime that are not measured: they load modules and fill caches."""

Say = Callable[[str], str]
"""Takes one message of the user and returns the answer."""


def look_up(subject: str) -> str:
    """Look something up in the notes."""
    return f"Notes on {subject}"


@dataclass
class Runtime:
    """An agent loop to measure. `begin` starts a conversation."""

    name: str
    stores: str
    begin: Callable[[], Say]
    is_ours: bool = False
    seconds: list[float] = field(default_factory=list)
    cpu_seconds: list[float] = field(default_factory=list)
    """CPU time of the whole process: it varies less than elapsed time on a busy machine."""

    def talk(self, number: int, turns: int, *, timed: bool) -> None:
        """Run one conversation. The time of its first message includes its start."""
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
        single = len(self.seconds) == 1  # `quantiles` needs two values
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
def agentmemory(folder: Path, runner: asyncio.Runner) -> Iterator[list[Runtime]]:
    with ExitStack() as stack:

        def runtime(name: str, *, memory: bool, tool: Callable[..., Any]) -> AgentRuntime:
            tools = ToolRegistry()
            tools.add(tool, name="look_up")
            system = None
            if memory:
                config = MemoryConfig()
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
        stored = "each step before the next; question, result and answer as memories, searched each time"
        yield [
            Runtime("AgentMemory", stored, lambda: _conversation(full.invoke), is_ours=True),
            Runtime(
                "AgentMemory, async",
                stored,
                lambda: _conversation(lambda *arguments: runner.run(later.ainvoke(*arguments))),
                is_ours=True,
            ),
            Runtime(
                "AgentMemory, no memory",
                "each step before the next",
                lambda: _conversation(plain.invoke),
                is_ours=True,
            ),
        ]


def _conversation(invoke: Callable[..., Any]) -> Say:
    session: list[str] = []

    def say(text: str) -> str:
        result = invoke(text, *session)
        session[:] = [result.session_id]
        return str(result.answer)

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
            result = graph.invoke({"messages": [HumanMessage(text)]}, config, **options)
            return str(result["messages"][-1].content)

        return say

    with closing(sqlite3.connect(folder / "langgraph.db", check_same_thread=False)) as file:
        file.execute("PRAGMA synchronous = NORMAL")
        plain, kept = builder.compile(), builder.compile(checkpointer=SqliteSaver(file))
        yield [
            Runtime("LangGraph", "nothing", lambda: conversation(plain)),
            Runtime(
                "LangGraph, SqliteSaver",
                "a checkpoint for each step, written during the next (its default)",
                lambda: conversation(kept),
            ),
            Runtime(
                'LangGraph, SqliteSaver, durability="sync"',
                "a checkpoint for each step before the next",
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
                question = last if isinstance(last, str) else last["content"]
                output = ResponseFunctionToolCall(
                    type="function_call",
                    call_id=f"call_{next(numbers)}",
                    name="look_up",
                    arguments=json.dumps({"subject": question}),
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
            result = runner.run(Runner.run(agent, text, session=session, run_config=options))
            return str(result.final_output)

        return say

    try:
        yield [
            Runtime("OpenAI Agents SDK", "nothing, not even the history", lambda: conversation(kept=False)),
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
    """Measure the installed runtimes. Return them, and for each missing one the reason."""
    os.environ.setdefault("LANGSMITH_TRACING", "false")
    missing: dict[str, str] = {}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        runner = stack.enter_context(asyncio.Runner())
        runtimes: list[Runtime] = []
        for name, make in {
            "AgentMemory": agentmemory,
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
    """Print the table, and return whether the goal is reached."""
    ours = figures[runtimes[0].name]
    rows = [("runtime", "p50 ms", "p95 ms", "CPU ms", "ours ÷ it", "by CPU", "stores")]
    for runtime in runtimes:
        its = figures[runtime.name]
        times = [f"{its[name]:.2f}" for name in ("p50_ms", "p95_ms", "cpu_p50_ms")]
        ratios = [f"{ours[name] / its[name]:.2f}" for name in ("p50_ms", "cpu_p50_ms")]
        rows.append((runtime.name, *times, *(ratios if its is not ours else ("", "")), runtime.stores))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *numbers, stores in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=False)]
        print("  ".join([f"{name:{widths[0]}}", *cells, stores]))
    for name, reason in missing.items():
        print(f"{name}: n/a ({reason})")
    if all(runtime.is_ours for runtime in runtimes):
        print("\nnothing to compare with: install another runtime")
        return False
    print(f"\ngoal: the p50 of {runtimes[0].name} is at most {GOAL:g} × that of the others")
    reached = True
    for runtime in runtimes:
        if not runtime.is_ours:
            ratio = ours["p50_ms"] / figures[runtime.name]["p50_ms"]
            reached &= ratio <= GOAL
            print(f"  {runtime.name}: {'reached' if ratio <= GOAL else 'NOT reached'} ({ratio:.2f})")
    return reached


def main() -> int:
    parser = argparse.ArgumentParser(description="Compare agent runtimes with a scripted model.")
    parser.add_argument("--conversations", type=int, default=60, help="of each runtime (default: 60)")
    parser.add_argument("--turns", type=int, default=5, help="messages of a conversation (default: 5)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures to a JSON file")
    options = parser.parse_args()
    if options.conversations < 1 or options.turns < 1:
        parser.error("use whole numbers ≥ 1 for --conversations and --turns")
    runtimes, missing = compare(options.conversations, options.turns)
    figures = {runtime.name: runtime.figures() for runtime in runtimes}
    reached = show(figures, runtimes, missing)
    if options.json:
        options.json.write_text(json.dumps({**figures, "not_available": missing}, indent=2) + "\n")
    return 0 if reached else 1


if __name__ == "__main__":
    sys.exit(main())
