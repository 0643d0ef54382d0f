"""The benchmarks of integration, small: what they return, what they refuse, and that they can fail."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memory.benchmarking.bench import Bench
from memory.benchmarking.benchmarks import _integration_below as below_module
from memory.benchmarking.benchmarks import _integration_langgraph as graph_module
from memory.benchmarking.benchmarks import integration
from memory.benchmarking.benchmarks._integration_gymnasium import Player, situation
from memory.benchmarking.errors import InvalidBenchmarkConfig, NotSupported
from memory.benchmarking.model.paths import NotAvailable
from memory.benchmarking.run.worker import flatten_result
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Found, Item, Settings
from memory.benchmarking.targets.sqlite_baseline import SQLiteBaselineTarget


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(scratch=tmp_path)


@pytest.fixture
def baseline(tmp_path: Path) -> Bench:
    return Bench(target="sqlite-baseline", scratch=tmp_path)


def use(monkeypatch: pytest.MonkeyPatch, target: type) -> None:
    monkeypatch.setattr("memory.benchmarking.bench.load_target", lambda name: target)
    monkeypatch.setattr("memory.benchmarking.bench.make_target", lambda name, embedder=None: target())


# -- the facade -------------------------------------------------------------------------------


def test_every_method_is_compared_with_its_parts(bench: Bench) -> None:
    found = integration.benchmark_api_overhead(num_operations=10, bench=bench)
    paths = flatten_result(found).figures
    by_tier = [f"{verb}/{tier}" for verb in ("get", "search") for tier in ("stm", "im", "ltm")]
    verbs = ["add", "update", "delete", *by_tier]
    for verb in verbs:
        for figure in ("overhead_us", "overhead_percent", "throughput_overhead_percent"):
            assert f"{verb}/{figure}" in paths
        assert f"{verb}/facade/p50_ms" in paths
        assert f"{verb}/below/p99_ms" in paths
    assert found["add"]["facade"].calls == found["add"]["below"].calls == 10
    assert found["add"]["store_only"].calls == 10
    assert found["search"]["im"]["facade"].calls == 20


def test_other_targets_have_no_facade(baseline: Bench) -> None:
    with pytest.raises(NotSupported, match="sqlite-baseline has no facade"):
        integration.benchmark_api_overhead(num_operations=5, bench=baseline)


def test_parts_with_other_results_than_the_facade_fail_the_benchmark(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(below_module.Below, "update", lambda *_: False)
    with pytest.raises(AssertionError, match="does not have its new content"):
        integration.benchmark_api_overhead(num_operations=5, bench=bench)
    monkeypatch.setattr(below_module.Below, "search", lambda *_, **__: [])
    with pytest.raises(AssertionError, match="found different memories in stm"):
        integration.benchmark_api_overhead(num_operations=5, bench=bench)


# -- hooks ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["agentmemory", "sqlite-baseline"])
def test_hooks_are_compared_with_the_plain_agent_and_plain_storing(name: str, tmp_path: Path) -> None:
    bench = Bench(target=name, scratch=tmp_path)
    found = integration.benchmark_hook_implementation(num_steps=10, bench=bench)
    flatten_result(found)
    for method in ("observe", "act"):
        assert {"plain", "hooked", "store"} <= set(found[method])
        assert {found[method][side].calls for side in ("plain", "hooked", "store")} == {10}
        assert {"overhead_us", "hooked_to_plain_us", "overhead_percent"} <= set(found[method])
    assert found["room"]["ram_bytes_per_step"] > 0
    assert found["room"]["disk_bytes_per_step"] > 0


def test_what_is_stored_by_hand_is_what_the_hook_stores(bench: Bench) -> None:
    states = integration.agent_states(3)
    with bench.target() as target:
        hooked = integration._walker(integration._TargetAsMemory(target))
        for state in states:
            hooked.observe(state)
            hooked.act(state)
        entries = target.memory.recent("walker", 10)  # type: ignore[attr-defined]
    remembered = [(entry.step, entry.content) for entry in reversed(entries)]
    plain = integration._walker(None)
    by_hand = {method: integration._as_stored(plain, method, states) for method in ("observe", "act")}
    assert remembered == [each for pair in zip(*by_hand.values(), strict=True) for each in pair]


class FailingTarget(SQLiteBaselineTarget):
    """Raises an error at step 3."""

    def add_one(self, item: Any, place: str | None = None) -> str:
        if item.step == 3:
            raise OSError("no space left")
        return super().add_one(item, place)


def test_hooks_that_could_not_store_fail_the_benchmark(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, FailingTarget)
    monkeypatch.setattr(integration._TargetAsMemory, "add_ready", lambda *_: "would raise itself")
    with pytest.raises(AssertionError, match="1 calls were not stored"):
        integration.benchmark_hook_implementation(num_steps=10, bench=bench)


class SilentTarget(SQLiteBaselineTarget):
    """Says that it stored, and did not."""

    def add_one(self, item: Any, place: str | None = None) -> str:
        return "1" if item.step == 3 else super().add_one(item, place)


def test_a_target_that_stored_less_than_it_reported_fails_the_benchmark(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, SilentTarget)
    with pytest.raises(AssertionError, match="calls left"):
        integration.benchmark_hook_implementation(num_steps=10, bench=bench)


# -- frameworks -------------------------------------------------------------------------------


def test_two_frameworks_run_with_and_without_the_memory(bench: Bench) -> None:
    found = integration.benchmark_framework_integration(training_iterations=3, bench=bench)
    flatten_result(found)
    cart, graph = found["gymnasium"], found["langgraph"]
    for name in ("without_memory", "with_memory"):
        assert cart[name]["iteration"].calls == graph[name]["iteration"].calls == 3
    assert cart["with_memory"]["reward"] == cart["without_memory"]["reward"] > 0
    assert graph["without_memory"]["reward"] == 0
    assert graph["with_memory"]["reward"] == graph["as_store"]["reward"] == 1
    assert cart["writes"] == cart["steps"] + 3  # each episode also stores its policy
    assert graph["writes"] == 15
    for each in (cart, graph):
        reads = sum(place["reads"] for place in each["accesses"].values())
        assert set(each["accesses"]) == {"stm", "im", "ltm"}
        assert each["read_write_ratio"] == pytest.approx(reads / each["writes"])
    # How many memories have moved to im by then depends on the maintenance thread, so no tier is named.
    assert sum(place["reads"] for place in cart["accesses"].values()) > 0


def test_a_target_without_tiers_runs_too(baseline: Bench) -> None:
    found = integration.benchmark_framework_integration(training_iterations=1, bench=baseline)
    flatten_result(found)
    assert set(found["gymnasium"]["accesses"]) == {"store"}
    assert found["langgraph"]["with_memory"]["reward"] == 1
    assert isinstance(found["langgraph"]["as_store"], NotAvailable)


def test_a_read_counts_for_the_tier_of_the_memory_at_that_time(bench: Bench) -> None:
    with bench.target(settings=Settings(limits={"stm": 1})) as target:
        ids = target.add([Item("ann", "one"), Item("ann", "another")])
        reads = integration._ReadsByTier(target)

        def read_both(number: int) -> None:
            target.get("ann", ids)

        read = reads.counted(read_both)
        read(0)
        target.get_one("ann", ids[0])  # outside `read`: not counted
        target.maintain()
        read(1)
        found = integration._accesses(target, reads, reads=4, writes=2)
    assert found["accesses"] == {"stm": {"reads": 3}, "im": {"reads": 1}, "ltm": {"reads": 0}}
    assert found["read_write_ratio"] == 2


class Shelves(SQLiteBaselineTarget):
    """Has tiers, but does not report from which tier it read a memory."""

    name = "shelves"
    capabilities = replace(SQLiteBaselineTarget.capabilities, tiers=("top", "bottom"))


def test_reads_by_tier_are_not_available_without_counters() -> None:
    target = Shelves()
    found = integration._accesses(target, integration._ReadsByTier(target), reads=4, writes=2)
    assert found["accesses"] == NotAvailable("shelves does not show from which tier it reads a memory")


class MuddledTarget(AgentMemoryTarget):
    """Gives back policies that were never tried, and finds nothing."""

    def get_one(self, agent_id: str, id: str) -> Any:
        content = super().get_one(agent_id, id)
        if isinstance(content, dict) and "policy" in content:
            content["policy"] = [-weight for weight in content["policy"]]
        return content

    def search(self, *_: Any, **__: Any) -> list[Found]:
        return []


def test_a_memory_that_returns_wrong_content_gets_a_lower_reward(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(monkeypatch, MuddledTarget)
    found = integration.benchmark_framework_integration(training_iterations=3, bench=bench)
    cart, graph = found["gymnasium"], found["langgraph"]
    assert cart["with_memory"]["reward"] < cart["without_memory"]["reward"]
    assert graph["with_memory"]["reward"] == 0
    assert graph["as_store"]["reward"] == 1  # it does not use the target


def test_a_framework_that_is_not_installed_is_not_available(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found = integration.benchmark_framework_integration(training_iterations=1, bench=bench)
    for name in ("gymnasium", "langgraph"):
        assert isinstance(found[name], NotAvailable)
        assert f"pip install 'agentmemory-tiers[{name}]'" in found[name].reason


def test_an_unknown_framework_is_named(bench: Bench) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="'gymnasium'"):
        integration.benchmark_framework_integration(frameworks=["gymnasum"], bench=bench)


def test_the_same_seed_plays_the_same_episodes() -> None:
    rewards = []
    for seed in (1, 1, 2):
        player = Player(seed)
        for number in range(3):
            player.iterate(number)
        player.close()
        rewards.append(player.rewards)
    assert rewards[0] == rewards[1] != rewards[2]


def test_situations_are_described_in_words() -> None:
    assert situation([-2, 0, 0.1, -1]) == "cart far left, nearly standing, pole leaning right, falling left"


def test_questions_are_about_facts_that_were_stated() -> None:
    told: dict[str, str] = {}
    for number in range(30):
        for said, answer in graph_module.conversation(number, seed=5):
            what = said.removeprefix("What is my ").removeprefix("My ").split(" is ")[0].rstrip("?")
            if answer is None:
                told[what] = said
            else:
                assert answer in told[what]


def test_importing_the_category_loads_no_heavy_packages() -> None:
    program = "import memory.benchmarking.benchmarks.integration, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert not {"numpy", "pandas", "scipy", "matplotlib", "rich", "gymnasium", "langgraph"} & loaded
