"""How long it takes to build a model's context."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks._agents import AGENT, PROMPT, make_tools, own_memory
from memory.benchmarking.benchmarks._spread import TIMED_WITH_SPREAD, with_spread
from memory.benchmarking.measure.resources import traced_peak_bytes
from memory.benchmarking.metrics import Metric, declare
from memory.benchmarking.model.parameters import Count, Sizes
from memory.benchmarking.model.presentation import LineChart, PercentileChart
from memory.benchmarking.workloads.natural_texts import memory_texts, question_texts

if TYPE_CHECKING:
    from memory.agents import Context, ContextBuilder, Message, SessionStore, ToolRegistry
    from memory.benchmarking.benchmarks import BenchmarkRunner
    from memory.system import AgentMemorySystem

GOAL_MS = 100.0
_TEXT_WORDS, _QUESTION_WORDS = 18, 9
"""The words of each message: those of an average chat turn and question."""
_HISTORY = 9
"""Messages of each session: questions and answers in turn, a question last."""
_BUDGET = 1_000_000
"""Token budget: so large that the context leaves nothing out."""
_MEMORIES = 5
_WARM_UP = 5
_SLOPE = Metric("µs", "lower")
_COUNT = Metric("", "neither")


_declare = partial(
    declare,
    headline="sessions_*/tools_*/first/p50_ms",
    reports=[*TIMED_WITH_SPREAD, "peak_traced_bytes"],
    goals={"p50_ms": GOAL_MS},
    first_us_per_session=_SLOPE,
    first_us_per_tool=_SLOPE,
    cold_us_per_session=_SLOPE,
    cold_us_per_tool=_SLOPE,
    rebuild_us_per_session=_SLOPE,
    rebuild_us_per_tool=_SLOPE,
    tokens_built=_COUNT,
)


@_declare(
    profiles={"quick": {"iterations": 20}},
    expected_seconds={"quick": 0.4, "standard": 1.0, "full": 1.0},
    charts=[PercentileChart("Time to build a context", lines=["part"])],
)
def benchmark_baseline(
    sessions: Sizes = (5,),
    tools: Sizes = (3,),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How long it takes to build a model's context for an agent with a few sessions and tools.

    Read it as the work of the loop before each call of the model. `first` is a new `ContextBuilder` in a
    running process: it searches the memory and reads the other sessions. The history is in RAM, because the
    same `SessionStore` wrote it. Token counts of known texts (tools, prompt, other sessions) are cached.
    `cold` has no history in RAM and no token counts: its store is another object on the same file, and its
    token counter is new. `cold` still has these caches: the memory's index, the tokens of single words, the
    schemas of the tools, the pages of the file. `rebuild` is the context of `first` after one more message
    that is not a question. `rebuild_with_question` is after a new question, which needs a new search.
    `tokens_built` is the size of the context; nothing is left out.

    Args:
        sessions: how many other sessions the agent has, all of them shown in the context
        tools: how many tools it has
        iterations: how many contexts are built in each way
    """
    return _builds(bench or Bench(), sessions, tools, iterations)


@_declare(
    profiles={"quick": {"sessions": [5, 15], "iterations": 10}},
    expected_seconds={"quick": 0.8, "standard": 3.0, "full": 3.0},
    charts=[
        LineChart(
            "Time to build a context, by number of sessions", "p50_ms", "sessions", lines=["part"], fit=True
        )
    ],
)
def benchmark_large_session_count(
    sessions: Sizes = (5, 10, 100),
    tools: Sizes = (3,),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How the time to build a context grows with the number of sessions.

    Read `first_us_per_session` as the time that each additional session adds: the context lists every
    session with its last message. `cold_us_per_session` includes counting its tokens. See `baseline` for
    the four ways to build.

    Args:
        sessions: how many other sessions the agent has, all of them shown in the context
        tools: how many tools it has
        iterations: how many contexts are built in each way
    """
    return _builds(bench or Bench(), sessions, tools, iterations)


@_declare(
    profiles={
        "quick": {"sessions": [5], "tools": [3, 10], "iterations": 10},
        "standard": {"sessions": [5]},
    },
    expected_seconds={"quick": 1.2, "standard": 2.8, "full": 6.0},
    charts=[
        LineChart(
            "Time to build a context, by number of tools",
            "p50_ms",
            "tools",
            lines=["part"],
            panels=["sessions"],
        )
    ],
)
def benchmark_large_tool_count(
    sessions: Sizes = (5, 100),
    tools: Sizes = (3, 6, 50),
    iterations: Count = 100,
    bench: Bench | None = None,
    **kwargs: Any,
) -> dict[str, Any]:
    """How the time to build a context grows with the number of tools.

    Read `cold_us_per_tool` as the time that each additional tool adds when the tokens of its schema are not
    cached, and `first_us_per_tool` as its time when they are. See `baseline` for the four ways to build.

    Args:
        sessions: how many other sessions the agent has, all of them shown in the context
        tools: how many tools it has
        iterations: how many contexts are built in each way
    """
    return _builds(bench or Bench(), sessions, tools, iterations)


def _builds(bench: Bench, sessions: Sequence[int], tools: Sequence[int], iterations: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for others in sorted(set(sessions)):
        with desk(bench, others) as place:
            found[f"sessions_{others}"] = {
                f"tools_{count}": _four_ways(bench, place, count, iterations)
                for count in sorted(set(tools))
            }
    for by_tools in found.values():
        by_tools.update(_slopes(by_tools, "tools_", "tool"))
    smallest = f"tools_{min(tools)}"
    found.update(_slopes({size: each[smallest] for size, each in found.items()}, "sessions_", "session"))
    return found


def _four_ways(bench: Bench, place: Desk, tools: int, iterations: int) -> dict[str, Any]:
    label = f"{place.others} sessions, {tools} tools"
    for each in place.conversations(_WARM_UP, tools):
        each.build()
        each.add_answer()
        each.build()
    *timed, traced = place.conversations(iterations + 1, tools)
    peak = traced_peak_bytes(traced.build)
    found: dict[str, Any] = {"first": _timed(bench, timed, f"{label}, first")}
    context = timed[0].build()
    cold = list(place.conversations(iterations, tools, cold=True))
    found["cold"] = _timed(bench, cold, f"{label}, cold")
    for built in (context, cold[0].build()):
        # Revisions before 0.3 have the lines in the system text.
        lines = getattr(built, "recalled", built.system).count("\n- ")
        if built.left_out or len(built.tools) != tools or lines < place.others:
            raise AssertionError(
                f"the context does not hold all: {built.left_out}, {len(built.tools)} tools"
            )
    for each in timed:
        each.add_answer()
    found["rebuild"] = _timed(bench, timed, f"{label}, rebuild")
    for each in timed:
        each.add_question()
    found["rebuild_with_question"] = _timed(bench, timed, f"{label}, rebuild with a question")
    return {**found, "tokens_built": context.tokens, "peak_traced_bytes": peak}


def _timed(bench: Bench, ready: Sequence[Conversation], label: str) -> Any:
    """Time one build of each conversation: a second build would find everything cached."""
    timing = bench.time(lambda each: each.build(), ready, calls=len(ready), warm_up=0, label=label)
    return with_spread(timing)


def _slopes(by_size: Mapping[str, Any], prefix: str, what: str) -> dict[str, float]:
    """Return by how many µs the median rises per session or tool, by least squares."""
    sizes = [int(name.removeprefix(prefix)) for name in by_size]
    if len(sizes) < 2:
        return {}
    mean = math.fsum(sizes) / len(sizes)
    spread = math.fsum((size - mean) ** 2 for size in sizes)
    return {
        f"{way}_us_per_{what}": math.fsum(
            (size - mean) * each[way]["p50_ms"] * 1e3
            for size, each in zip(sizes, by_size.values(), strict=True)
        )
        / spread
        for way in ("first", "cold", "rebuild")
    }


# -- what contexts are built from -------------------------------------------------------------


@dataclass
class Conversation:
    """A session with a new builder of its own."""

    builder: ContextBuilder
    store: SessionStore
    id: str
    texts: Iterator[str]
    questions: Iterator[str]

    def build(self) -> Context:
        return self.builder.build(self.id, AGENT)

    def add_answer(self) -> None:
        from memory.agents import Message

        self.store.append(self.id, Message(role="assistant", content=next(self.texts)))

    def add_question(self) -> None:
        from memory.agents import Message

        self.store.append(self.id, Message(role="user", content=next(self.questions)))


def _cut(texts: Iterator[str], words: int) -> Iterator[str]:
    """Yield texts of equal length: a longer context then comes from more sessions or tools only."""
    for text in texts:
        parts = text.split()
        if len(parts) >= words:
            yield " ".join(parts[:words])


class Desk:
    """An agent with a number of other sessions, on durable files.

    `store` writes. `reader` is another object on the same file, with nothing cached.
    """

    def __init__(
        self, store: SessionStore, reader: SessionStore, memory: AgentMemorySystem, others: int, seed: int
    ) -> None:
        self.others = others
        self._store = store
        self._reader = reader
        self._memory = memory
        self._texts = _cut(memory_texts(seed + 1), _TEXT_WORDS)
        self._questions = _cut(question_texts(seed + 1), _QUESTION_WORDS)
        self._registries: dict[int, ToolRegistry] = {}
        for number in range(others):
            session = store.create(AGENT, f"session {number}")
            store.append(session.id, *self._history())

    def conversations(self, count: int, tools: int, *, cold: bool = False) -> Iterator[Conversation]:
        """Yield new conversations, archived so that the agent's list has only the other sessions."""
        from memory.agents import ContextBuilder
        from memory.embedding import count_tokens

        registry = self._registries.setdefault(tools, make_tools(tools))
        for _ in range(count):
            session = self._store.create(AGENT, "this session")
            self._store.append(session.id, *self._history())
            self._store.archive(session.id)
            builder = ContextBuilder(
                self._reader if cold else self._store,
                self._memory,
                registry,
                system_prompt=PROMPT,
                token_budget=_BUDGET,
                memories=_MEMORIES,
                recent_sessions=self.others,
                # An explicit counter gets its own cache instead of that of the process.
                count_tokens=count_tokens if cold else None,
            )
            yield Conversation(builder, self._store, session.id, self._texts, self._questions)

    def _history(self) -> list[Message]:
        from memory.agents import Message

        return [
            Message(role="assistant", content=next(self._texts))
            if number % 2
            else Message(role="user", content=next(self._questions))
            for number in range(_HISTORY)
        ]


@contextmanager
def desk(bench: Bench, others: int) -> Iterator[Desk]:
    with own_memory(bench) as (_, memory), bench.folder() as folder:
        from memory.agents import SessionStore

        path = folder / "sessions.db"
        with SessionStore(path) as store, SessionStore(path) as reader:
            yield Desk(store, reader, memory, others, bench.seed)


# -- as a program -----------------------------------------------------------------------------

_SIZES = {
    "baseline": (5, 3),
    "large_session_count": (10, 3),
    "large_tool_count": (5, 6),
    "large": (100, 50),
}


def prepare(runner: BenchmarkRunner, iterations: int, stack: ExitStack) -> None:
    """Add the three benchmarks and a larger one, each in three ways."""
    bench = Bench()
    for name, (others, tools) in _SIZES.items():
        place = stack.enter_context(desk(bench, others))
        title = f"{name} ({others} sessions, {tools} tools)"
        new = list(place.conversations(max(0, iterations) + _WARM_UP, tools))
        _add(runner, title, new, iterations)
        cold = list(place.conversations(max(0, iterations) + _WARM_UP, tools, cold=True))
        _add(runner, f"{title}, cold", cold, iterations)
        known = list(place.conversations(max(0, iterations) + _WARM_UP, tools))
        for each in known:
            each.build()
            each.add_answer()
        _add(runner, f"{title}, one message more", known, iterations)


def _add(runner: BenchmarkRunner, name: str, ready: Sequence[Conversation], iterations: int) -> None:
    stream = iter(ready)
    runner.add_benchmark(name, lambda: next(stream).build(), iterations, warm_up=_WARM_UP)


if __name__ == "__main__":
    from memory.benchmarking.benchmarks._standalone import main

    main("context_build", GOAL_MS, prepare)
