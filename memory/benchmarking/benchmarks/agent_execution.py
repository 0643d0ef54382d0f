"""What one message to an agent costs besides the model."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import islice
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks._agents import (
    AGENT,
    KNOWN,
    Loop,
    open_loop,
    own_memory,
    session_of_answer,
)
from memory.benchmarking.benchmarks._spread import TIMED_WITH_SPREAD, with_spread
from memory.benchmarking.measure.resources import traced_peak_bytes
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count
from memory.benchmarking.model.presentation import BarChart, Goal, PercentileChart
from memory.benchmarking.workloads.natural_texts import question_texts

if TYPE_CHECKING:
    from memory.benchmarking.benchmarks import BenchmarkRunner

GOAL_MS = 50.0
_AT_ONCE = 10
"""Invocations that run at once in the program of this module."""
_TURNS = 4
"""How many times each side runs: one by one, and concurrent."""
_COUNT = Metric("", "neither")


@declare(
    headline="invoke/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "invocations_per_second", "peak_traced_bytes"],
    concurrent_to_one_by_one=Metric("×", "higher"),
    messages_astray=Metric("", "lower"),
    memories_created=_COUNT,
    profiles={"quick": {"iterations": 10}, "standard": {"iterations": 50}},
    expected_seconds={"quick": 0.5, "standard": 2.0, "full": 3.0},
    goals={
        "p50_ms": GOAL_MS,
        "messages_astray": Goal(0, reached="No message was lost or mixed up between sessions."),
    },
    charts=[
        PercentileChart("Time of one message", lines=["part"]),
        BarChart("Messages per second", metric="invocations_per_second", names=["part"], label="messages"),
    ],
)
def benchmark_simple_invocation(
    iterations: Count = 100, memories: Count = KNOWN, bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """How long one message to an agent takes besides the model: context, one tool call, memory, sessions.

    Read `invoke` as the time that the loop adds to a real model's time. The model is scripted: it calls one
    tool, then it answers. Each message has a session of its own. The loop searches the memory for it, and
    writes every step to disk before the next one starts. At the end it stores question, tool result and
    answer as memories. The memory has its default settings: memories move down in the background.
    `one_by_one` and `concurrent` are async invocations, awaited one after the other or
    all at once. The model never waits, so a ratio of 1 means that concurrency costs nothing; above 1,
    invocations that end together save time by sharing one commit. `messages_astray` counts lost and
    mixed-up messages. `memories_created` and `peak_traced_bytes` are those of one invocation, measured
    separately.

    Args:
        iterations: the smallest number of invocations to time, and the number that run at once
        memories: how many memories the agent has before the first message
    """
    bench = bench or Bench()
    questions = question_texts(bench.seed + 1)
    with open_loop(bench, memories=memories) as loop:
        asked = list(islice(questions, iterations))
        for question in asked[:3]:
            loop.ask(question)
        timing = bench.time(loop.ask, asked, label="invoke")
        found: dict[str, Any] = {"invoke": with_spread(timing)}
        before = loop.memories()
        loop.ask(asked[-1])
        found["memories_created"] = loop.memories() - before
        last = next(questions)
        found["peak_traced_bytes"] = traced_peak_bytes(lambda: loop.ask(last))
    with open_loop(bench, asynchronous=True, memories=memories) as loop:
        batches = [list(islice(questions, iterations)) for _ in range(2 * _TURNS)]
        found.update(_concurrency(loop, batches))
    return found


def _concurrency(loop: Loop, batches: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the throughput of invocations awaited one by one and all at once, measured in turns."""

    async def one_by_one(questions: Sequence[str]) -> list[Any]:
        return [await loop.runtime.ainvoke(question) for question in questions]

    async def concurrent(questions: Sequence[str]) -> list[Any]:
        return await _invoke_concurrently(loop, questions)

    rates: dict[str, list[float]] = {"one_by_one": [], "concurrent": []}
    ways = [("one_by_one", one_by_one), ("concurrent", concurrent)]
    astray = 0
    with asyncio.Runner() as runner:
        runner.run(concurrent([f"{question} (warm-up)" for question in batches[0][:10]]))
        for turn in range(0, len(batches), 2):
            for questions, (name, way) in zip(batches[turn : turn + 2], ways, strict=True):
                start = time.perf_counter()
                invocations = runner.run(way(questions))
                rates[name].append(len(questions) / (time.perf_counter() - start))
                astray += loop.astray(questions, list(map(session_of_answer, invocations, questions)))
            ways.reverse()
    ratios = [many / one for one, many in zip(rates["one_by_one"], rates["concurrent"], strict=True)]
    return {
        **{name: {"invocations_per_second": statistics.median(each)} for name, each in rates.items()},
        "concurrent_to_one_by_one": statistics.median(ratios),
        "messages_astray": astray,
    }


async def _invoke_concurrently(loop: Loop, questions: Sequence[str]) -> list[Any]:
    return list(await asyncio.gather(*map(loop.runtime.ainvoke, questions)))


@declare(
    headline="create/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes"],
    sessions_created=_COUNT,
    profiles={"quick": {"iterations": 20}},
    expected_seconds={"quick": 0.4, "standard": 0.3, "full": 0.6},
    goals={"p50_ms": GOAL_MS},
    charts=[PercentileChart("Time to create a session", lines=["part"])],
)
def benchmark_session_creation(
    iterations: Count = 100, bench: Bench | None = None, **kwargs: Any
) -> dict[str, Any]:
    """How long it takes to create a session on disk.

    Read it as the time that a new conversation needs before its first message. Each session survives the
    end of the process: the benchmark opens the file again at the end, and checks that all sessions are
    there.

    Args:
        iterations: the smallest number of sessions to time
    """
    bench = bench or Bench()
    with own_memory(bench), bench.folder() as folder:
        from memory.agents import SessionStore

        titles = list(islice(question_texts(bench.seed), iterations))
        with SessionStore(folder / "sessions.db") as store:
            timing = bench.time(lambda title: store.create(AGENT, title), titles, label="create")
            created = len(store.list(AGENT))
            peak = traced_peak_bytes(lambda: store.create(AGENT, "one more"))
        with SessionStore(folder / "sessions.db") as again:
            kept = len(again.list(AGENT))
        if kept != created + 1:
            raise AssertionError(f"{created + 1} sessions were created, {kept} are in the file")
    return {"create": with_spread(timing), "sessions_created": created, "peak_traced_bytes": peak}


# -- as a program -----------------------------------------------------------------------------


def prepare(runner: BenchmarkRunner, iterations: int, stack: ExitStack) -> None:
    """Add the two benchmarks, and one with several invocations at once."""
    loop = stack.enter_context(open_loop(Bench()))
    questions = question_texts(seed=1)
    runner.add_benchmark(
        "simple_invocation",
        lambda: loop.ask(next(questions)),
        iterations,
        warm_up=5,
        entries_created=loop.memories,
    )
    runner.add_benchmark(
        "session_creation",
        lambda: loop.sessions.create(AGENT, "a session"),
        iterations,
        warm_up=5,
        entries_created=lambda: len(loop.sessions.list(AGENT)),
    )
    many = stack.enter_context(open_loop(Bench(), asynchronous=True))
    event_loop = stack.enter_context(asyncio.Runner())

    def ask_at_once() -> None:
        asked = list(islice(questions, _AT_ONCE))
        for invocation, question in zip(
            event_loop.run(_invoke_concurrently(many, asked)), asked, strict=True
        ):
            session_of_answer(invocation, question)

    runner.add_benchmark(
        f"concurrent_invocations ({_AT_ONCE} at once)",
        ask_at_once,
        iterations,
        warm_up=1,
        entries_created=many.memories,
    )


if __name__ == "__main__":
    from memory.benchmarking.benchmarks._standalone import main

    main("agent_execution", GOAL_MS, prepare)
