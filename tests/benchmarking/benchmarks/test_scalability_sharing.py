"""Cold searches, threads on one agent, and many agents: what they promise, and that they can fail."""

from __future__ import annotations

from typing import Any

import pytest
from membench import LIGHT

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks.scalability.cold_search import benchmark_cold_search
from memory.benchmarking.benchmarks.scalability.many_agents import _agents_of, benchmark_many_agents
from memory.benchmarking.benchmarks.scalability.threads import benchmark_threads
from memory.benchmarking.errors import LostWrites, NotSupported
from memory.benchmarking.run.worker import flatten_result
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget

BASELINE = "sqlite-baseline"
SMALL: dict[str, Any] = {"memories": 20, "operations": 24, "blocks": 2}


def test_a_cold_search_is_the_first_call_of_a_newly_opened_target(monkeypatch: pytest.MonkeyPatch) -> None:
    searches: list[int] = []
    search = AgentMemoryTarget.search

    def noted(self: AgentMemoryTarget, *arguments: Any) -> Any:
        searches.append(id(self.memory))
        return search(self, *arguments)

    monkeypatch.setattr(AgentMemoryTarget, "search", noted)
    found = benchmark_cold_search([10, 30], 3, bench=Bench())
    assert len(searches) == 2 * 3 * 2
    assert all(first == second for first, second in zip(searches[::2], searches[1::2], strict=True))
    for size in ("size_10", "size_30"):
        cell = found[size]
        assert cell["first_search_ms"] <= cell["worst_first_search_ms"]
        assert cell["first_to_second"] == cell["first_search_ms"] / cell["second_search_ms"]
    assert found["growth"].endswith("between 10 and 30")


def test_a_target_that_keeps_nothing_has_no_cold_search() -> None:
    with pytest.raises(NotSupported, match=r"light has no search"):
        benchmark_cold_search([10], bench=Bench(target=LIGHT))


def test_threads_share_one_agent_and_leave_nothing_behind() -> None:
    found = benchmark_threads([4, 2], **SMALL, bench=Bench())
    assert list(found) == ["threads_1", "threads_2", "threads_4"]
    assert found["threads_1"]["to_one_thread"] == 1
    for cell in found.values():
        assert cell["operations_per_second"] > 0
        for kind in ("add", "search"):
            assert 0 < cell[kind]["p50_ms"] <= cell[kind]["p99_ms"] <= cell[kind]["worst_wait_ms"]


def test_a_target_that_threads_can_not_share_is_measured_with_one_thread() -> None:
    found = flatten_result(benchmark_threads([2], **SMALL, bench=Bench(target=BASELINE)))
    assert found.not_available == {"threads_2": "sqlite-baseline can't be shared by threads"}
    assert found.figures["threads_1/operations_per_second"] > 0


def test_a_wrong_answer_to_a_thread_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentMemoryTarget, "search", lambda *_: [])
    with pytest.raises(AssertionError, match="agentmemory found nothing"):
        benchmark_threads([2], **SMALL, bench=Bench())


def test_a_write_of_a_thread_that_got_lost_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentMemoryTarget, "add_one", lambda *_: "0")
    with pytest.raises(AssertionError, match="acknowledged 1 of 6 memories"):
        benchmark_threads([2], **SMALL, bench=Bench())


def test_agents_are_imported_one_by_one_or_in_turn() -> None:
    assert list(_agents_of(2, 2, "agent_by_agent")) == ["agent_0", "agent_0", "agent_1", "agent_1"]
    assert list(_agents_of(2, 2, "in_turn")) == ["agent_0", "agent_1", "agent_0", "agent_1"]


@pytest.mark.parametrize("target", ["agentmemory", BASELINE])
def test_every_agent_finds_its_memories(target: str) -> None:
    found = benchmark_many_agents([4], 3, bench=Bench(target=target))
    assert list(found) == ["agent_by_agent", "in_turn"]
    for cells in found.values():
        cell = cells["agents_4"]
        assert cell["imported_per_second"] > 0
        assert cell["import_rss_growth_mb"] >= 0
        assert 0 < cell["cold_search"]["p50_ms"] <= cell["cold_search"]["p95_ms"]


def test_agents_without_search_are_imported() -> None:
    found = flatten_result(benchmark_many_agents([2], 3, bench=Bench(target=LIGHT)))
    assert found.not_available["in_turn/agents_2/cold_search"] == "light has no search"


def test_lost_memories_of_an_import_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AgentMemoryTarget, "get", lambda self, agent_id, ids: [None] * len(ids))
    with pytest.raises(LostWrites, match="200 missing of 200"):
        benchmark_many_agents([2], 3, bench=Bench())
