"""The three categories about agents: real loops, searches and contexts, alone and in the runner."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from broken_targets import place_of
from membench import membench

from memory.agents import Context, Message
from memory.benchmarking import Bench
from memory.benchmarking.benchmarks import BenchmarkReport, _agents, agent_execution, context_build
from memory.benchmarking.benchmarks._spread import TIMED_WITH_SPREAD, spread_of, with_spread
from memory.benchmarking.benchmarks._standalone import goal_lines
from memory.benchmarking.benchmarks._standalone import main as standalone
from memory.benchmarking.benchmarks.agent_execution import (
    benchmark_session_creation,
    benchmark_simple_invocation,
)
from memory.benchmarking.benchmarks.context_build import (
    benchmark_baseline,
    benchmark_large_session_count,
    benchmark_large_tool_count,
)
from memory.benchmarking.benchmarks.memory_search import (
    benchmark_concurrent_search,
    benchmark_long_query,
    benchmark_no_match,
    benchmark_short_query,
    benchmark_vector_search,
)
from memory.benchmarking.errors import NotSupported
from memory.benchmarking.framework import BenchmarkResult
from memory.benchmarking.measure.timing import Timing
from memory.benchmarking.model.paths import NotAvailable

ROOT = Path(__file__).resolve().parents[3]
BOTH = ("agentmemory", "sqlite-baseline")
TINY_SEARCH: dict[str, Any] = {"entries": [3, 12], "iterations": 4}
TINY_CONTEXT: dict[str, Any] = {"sessions": [2, 4], "tools": [1, 3], "iterations": 3}


def quick(target: str = "agentmemory") -> Bench:
    return Bench(target=target, seconds=0.005)


# -- agents -----------------------------------------------------------------------------------


def test_an_invocation_is_timed_and_leaves_its_memories() -> None:
    found = benchmark_simple_invocation(iterations=5, bench=quick())
    assert isinstance(found["invoke"], Timing)
    assert found["invoke"]["items_processed"] >= 5
    assert found["memories_created"] == 3, "the question, the tool's result and the answer"
    assert found["messages_astray"] == 0
    assert found["concurrent_to_one_by_one"] > 0
    assert found["peak_traced_bytes"] > 1000


def test_a_message_in_a_wrong_session_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def with_a_leak(*arguments: Any, **options: Any) -> Iterator[_agents.Loop]:
        with _agents.open_loop(*arguments, **options) as loop:
            append = loop.sessions.append

            def leaky(session_id: str, *messages: Message) -> int:
                if messages[-1].role == "assistant":
                    messages = (*messages[:-1], Message(role="assistant", content="somebody else's"))
                return append(session_id, *messages)

            monkeypatch.setattr(loop.sessions, "append", leaky)
            yield loop

    monkeypatch.setattr(agent_execution, "open_loop", with_a_leak)
    found = benchmark_simple_invocation(iterations=2, bench=quick())
    assert found["messages_astray"] > 0


def test_astray_counts_missing_and_extra_messages() -> None:
    with _agents.open_loop(quick()) as loop:
        session = _agents.session_of_answer(loop.runtime.invoke("where?"), "where?")
        assert loop.astray(["where?"], [session]) == 0
        loop.sessions.append(session, Message(role="user", content="where?"))
        assert loop.astray(["where?"], [session]) == 1
        assert loop.astray(["who?"], [session]) == 5
        empty = loop.sessions.create(_agents.AGENT).id
        assert loop.astray(["where?"], [empty]) == 4


def test_created_sessions_are_counted_and_kept() -> None:
    found = benchmark_session_creation(iterations=7, bench=quick())
    assert found["sessions_created"] >= found["create"]["items_processed"] >= 7


@pytest.mark.parametrize(
    "function",
    [
        benchmark_simple_invocation,
        benchmark_session_creation,
        benchmark_baseline,
        benchmark_large_session_count,
        benchmark_large_tool_count,
    ],
)
def test_the_agent_loop_needs_the_target_agentmemory(function: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(NotSupported, match=r"sqlite-baseline has no agent loop: .* runs on AgentMemory"):
        function(bench=quick("sqlite-baseline"))


# -- searches ---------------------------------------------------------------------------------


@pytest.mark.parametrize("target", BOTH)
@pytest.mark.parametrize("function", [benchmark_short_query, benchmark_long_query])
def test_searches_are_timed_at_each_size(function: Callable[..., dict[str, Any]], target: str) -> None:
    found = function(**TINY_SEARCH, bench=quick(target))
    assert [found[f"entries_{count}"]["entries_created"] for count in (3, 12)] == [3, 12]
    assert [found[f"entries_{count}"]["answers"] for count in (3, 12)] == [3, 10]
    assert found["entries_3"]["search"]["items_processed"] >= 4
    assert found["growth"].startswith("search p50 grows like n^")


@pytest.mark.parametrize("target", BOTH)
def test_two_ways_to_search_are_timed_in_turns(target: str) -> None:
    found = benchmark_no_match(**TINY_SEARCH, bench=quick(target))["entries_12"]
    assert len(found["no_match"].samples_ns) == len(found["match"].samples_ns) == 4
    assert found["no_match_to_match"] > 0
    found = benchmark_vector_search(**TINY_SEARCH, bench=quick(target))["entries_12"]
    assert len(found["by_vector"].samples_ns) == len(found["by_text"].samples_ns) == 4
    assert found["vector_to_text"] > 0


def test_threads_share_a_store_that_can_be_shared() -> None:
    found = benchmark_concurrent_search([5], iterations=3, threads=[1, 3], bench=quick())["entries_5"]
    assert found["threads_1"]["scaling"] == 1.0
    alone, three = (found[f"threads_{number}"]["searches_per_second"] for number in (1, 3))
    assert found["threads_3"]["scaling"] == pytest.approx(three / alone)
    without_one = benchmark_concurrent_search([5], iterations=2, threads=[2], bench=quick())
    assert "scaling" not in without_one["entries_5"]["threads_2"]


def test_a_store_that_threads_can_not_share_is_not_available() -> None:
    bench = quick("sqlite-baseline")
    found = benchmark_concurrent_search([5], iterations=3, threads=[1, 2], bench=bench)["entries_5"]
    assert found["threads_1"]["searches_per_second"] > 0
    assert found["threads_2"] == NotAvailable("threads can't share one open store of sqlite-baseline")


def test_a_search_that_loses_answers_is_an_error() -> None:
    bench = quick(place_of("FindsNothing"))
    with pytest.raises(AssertionError, match="gave 0 answers out of 3 memories"):
        benchmark_short_query(**TINY_SEARCH, bench=bench)


def test_a_search_that_fails_in_a_thread_is_an_error() -> None:
    bench = quick(place_of("FailsToSearch"))
    with pytest.raises(RuntimeError, match="the index is gone"):
        benchmark_concurrent_search([5], iterations=3, threads=[3], bench=bench)


# -- contexts ---------------------------------------------------------------------------------


def test_contexts_are_built_at_each_size_in_four_ways() -> None:
    found = benchmark_large_session_count(sessions=[2, 30], tools=[1, 12], iterations=3, bench=quick())
    sizes = [(others, tools) for others in (2, 30) for tools in (1, 12)]
    built = [found[f"sessions_{others}"][f"tools_{tools}"] for others, tools in sizes]
    for each in built:
        for way in ("first", "cold", "rebuild", "rebuild_with_question"):
            assert each[way]["items_processed"] == 3
    tokens = [each["tokens_built"] for each in built]
    assert tokens[0] < tokens[1] < tokens[3]
    assert tokens[0] < tokens[2] < tokens[3], "more sessions and more tools are more to read"
    ways = ("first", "cold", "rebuild")
    assert {f"{way}_us_per_session" for way in ways} <= set(found)
    assert {f"{way}_us_per_tool" for way in ways} <= set(found["sessions_2"])


def test_a_cold_context_is_read_from_the_file_and_counted_again() -> None:
    """`first` finds the history in RAM, and the process's counts of texts that were seen before."""
    with context_build.desk(quick(), 3) as place:
        next(place.conversations(1, 2)).build()  # as the warm-up: from here on the store knows its file
        first = next(place.conversations(1, 2))
        cold = next(place.conversations(1, 2, cold=True))
        assert first.builder.sessions.just_written(first.id, 0) is not None
        assert cold.builder.sessions.just_written(cold.id, 0) is None
        assert cold.builder._count is not first.builder._count
        again = next(place.conversations(1, 2, cold=True))
        assert again.builder._count is not cold.builder._count
        context = cold.build()
        assert [message.content for message in context.messages] == [
            message.content for message in cold.store.messages(cold.id)
        ]
        assert context.recalled.count("\n- ") >= 3
        assert not context.left_out


def test_one_size_has_no_slope() -> None:
    found = benchmark_baseline([2], [1], iterations=2, bench=quick())
    assert set(found) == {"sessions_2"}
    assert set(found["sessions_2"]) == {"tools_1"}


# -- spread -----------------------------------------------------------------------------------


def test_spread_adds_to_a_timing_and_keeps_its_samples() -> None:
    timing = Timing((1_000_000, 3_000_000), (2,), (4_000_000,), (4_000_000,))
    spread = with_spread(timing)
    assert spread.samples_ns == timing.samples_ns
    assert dict(spread) == {**timing, "std_dev_ms": pytest.approx(2**0.5), "min_ms": 1.0}
    assert set(spread) == set(TIMED_WITH_SPREAD)
    single = spread_of([2.0])
    assert single["std_dev_ms"] == 0.0
    assert set(single.values()) == {0.0, 2.0}


# -- by themselves ----------------------------------------------------------------------------

ALONE = {
    "agent_execution": (
        50,
        ["simple_invocation", "session_creation", "concurrent_invocations (10 at once)"],
    ),
    "memory_search": (
        10,
        [
            "short_query (10 entries)",
            "no_match (10,000 entries)",
            "vector_search (1,000 entries)",
            "concurrent_search, 4 threads (10,000 entries)",
        ],
    ),
    "context_build": (
        100,
        [
            "baseline (5 sessions, 3 tools)",
            "large (100 sessions, 50 tools)",
            "large (100 sessions, 50 tools), cold",
            "large (100 sessions, 50 tools), one message more",
        ],
    ),
}


def alone(category: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-m", f"memory.benchmarking.benchmarks.{category}", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.mark.parametrize("category", ALONE)
def test_a_category_runs_as_a_program(category: str, tmp_path: Path) -> None:
    done = alone(category, "--iterations", "3", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    goal, names = ALONE[category]
    assert f"goal: median below {goal} ms" in done.stdout
    (file,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert file == tmp_path / "benchmarks" / f"{category}_results.json"
    report = BenchmarkReport.load(file)
    assert report.name == category
    for name in names:
        assert report.result(name).iterations == 3
        assert re.search(rf"{re.escape(name)}: (reached|NOT reached) \(", done.stdout)
    if category == "agent_execution":
        assert report.result("simple_invocation").entries_created == 9
        assert report.result("session_creation").entries_created == 3
        assert report.result("concurrent_invocations (10 at once)").entries_created == 90


def test_an_agent_that_does_not_answer_is_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def say_nothing_right(context: Context) -> str:
        return "something else"

    monkeypatch.setattr(_agents, "_reply", say_nothing_right)
    options = ["--iterations", "2", "--output", str(tmp_path)]
    with pytest.raises(SystemExit) as ended:
        standalone("agent_execution", 50, agent_execution.prepare, options)
    assert ended.value.code == 1
    assert "2 of 3 failed" in capsys.readouterr().out
    with pytest.raises(AssertionError, match="was answered with 'something else'"):
        benchmark_simple_invocation(iterations=2, bench=quick())


def test_the_report_is_written_to_the_given_place(tmp_path: Path) -> None:
    done = alone("agent_execution", "--iterations", "1", "--output", "new/place", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    file = tmp_path / "new" / "place" / "agent_execution_results.json"
    assert json.loads(file.read_text())["name"] == "agent_execution"
    done = alone("agent_execution", "--iterations", "1", "--output", "mine.json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert BenchmarkReport.load(tmp_path / "mine.json").results


def test_wrong_iterations_give_an_error_of_one_line(tmp_path: Path) -> None:
    done = alone("agent_execution", "--iterations", "0", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "agent_execution: simple_invocation: iterations is 0: use a whole number ≥ 1\n"
    assert not list(tmp_path.iterdir())


def test_a_missed_goal_is_printed() -> None:
    report = BenchmarkReport(
        "x", (BenchmarkResult.of("quick", [0.001]), BenchmarkResult.of("slow", [0.02]))
    )
    assert goal_lines(report, 10) == [
        "goal: median below 10 ms",
        "  quick: reached (1 ms)",
        "  slow: NOT reached (20 ms)",
    ]


# -- the guide --------------------------------------------------------------------------------


def test_the_examples_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    guide = ROOT / "docs" / "performance" / "benchmarks.md"
    examples = re.findall(r"```python\n(.*?)```", guide.read_text(), re.DOTALL)
    assert len(examples) >= 2
    monkeypatch.chdir(tmp_path)
    for number, example in enumerate(examples):
        exec(compile(example, f"{guide.name}, example {number + 1}", "exec"), {"__name__": "guide"})
    assert BenchmarkReport.load("my_results.json").results


def test_the_commands_of_the_guide_exist(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "performance" / "benchmarks.md").read_text()
    runs = re.findall(r"^membench (run [^#\n]*)", guide, re.MULTILINE)
    assert len(runs) >= 3
    for run in runs:
        done = membench(*shlex.split(run), "--dry-run", cwd=tmp_path)
        assert done.code == 0, done.err
    for category in ALONE:
        assert f"python -m memory.benchmarking.benchmarks.{category}" in guide
    for path in re.findall(r"\]\(([^)#]+\.md)", guide):
        assert (ROOT / "docs" / "performance" / path).resolve().exists(), path


# -- beside other runtimes --------------------------------------------------------------------


def compared(turns: int, cwd: Path) -> tuple[subprocess.CompletedProcess[str], dict[str, Any]]:
    figures = cwd / "figures.json"
    program = ROOT / "examples" / "compare_runtimes.py"
    done = subprocess.run(
        [sys.executable, program, "--conversations", "1", "--turns", str(turns), "--json", figures],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stderr == ""
    return done, json.loads(figures.read_text())


def test_the_runtimes_are_compared_or_named_as_missing(tmp_path: Path) -> None:
    done, found = compared(2, tmp_path)
    assert done.returncode in (0, 1), "whether the goal is reached is not for a test to decide"
    assert found["AgentMemory"]["invocations"] == 2
    for name in ("LangGraph", "OpenAI Agents SDK"):
        assert (name in found) != (name in found["not_available"])
        assert name in done.stdout


def test_a_single_message_and_nothing_to_compare_with(tmp_path: Path) -> None:
    """Where no other runtime can be imported: a folder in the way has none of what they need."""
    for name in ("langgraph", "agents"):
        (tmp_path / f"{name}.py").touch()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}")
        done, found = compared(1, tmp_path)
    assert done.returncode == 1
    assert "nothing to compare with" in done.stdout
    assert set(found["not_available"]) == {"LangGraph", "OpenAI Agents SDK"}
    assert found["AgentMemory"]["invocations"] == 1
    assert found["AgentMemory"]["p95_ms"] == found["AgentMemory"]["p50_ms"]
