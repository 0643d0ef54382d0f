"""No target gets figures for memories that it does not keep: every benchmark reads back what it stored."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from broken_targets import place_of
from membench import LIGHT, membench, only_run
from test_declared_figures import OURS, TINY

from memory.benchmarking.bench import Acknowledged, Bench
from memory.benchmarking.errors import LostWrites
from memory.benchmarking.run.discovery import Benchmark
from memory.benchmarking.targets.base import Item

MEASURES_LOSSES = {
    "compression.training_efficiency": "stores nothing",
    "memory_transition.importance_scoring": "evicts on purpose, and reports what is left",
    "integration.api_overhead": "measures AgentMemory's own classes only, and checks their contents",
    "agent_execution.session_creation": "stores sessions, not memories",
    "quality.retrieval_quality": "its figures are those of what is found, so a loss makes them worse",
}
STORING = {name: each for name, each in OURS.items() if name not in MEASURES_LOSSES}


@pytest.mark.parametrize("name", ["LosesHalf", "KeepsNothing"])
@pytest.mark.parametrize("benchmark", STORING.values(), ids=STORING)
def test_a_target_that_loses_writes_gets_no_figures(benchmark: Benchmark, name: str) -> None:
    bench = Bench(target=place_of(name), seconds=0.001)
    with pytest.raises((LostWrites, AssertionError)):
        benchmark.function(**TINY[benchmark.full_name], bench=bench)


STORAGE = [each for name, each in OURS.items() if name.startswith("storage.")]


@pytest.mark.parametrize("benchmark", STORAGE, ids=lambda each: each.name)
def test_a_dictionary_that_claims_persistence_gets_no_figures(benchmark: Benchmark) -> None:
    bench = Bench(target=place_of("DictionaryThatClaimsPersistence"), seconds=0.001)
    with pytest.raises(LostWrites, match=r"missing of .* after the store was closed and opened again"):
        benchmark.function(**TINY[benchmark.full_name], bench=bench)


@pytest.mark.parametrize("benchmark", STORAGE, ids=lambda each: each.name)
def test_a_dictionary_that_claims_nothing_gets_its_figures(benchmark: Benchmark) -> None:
    assert benchmark.function(**TINY[benchmark.full_name], bench=Bench(target=LIGHT, seconds=0.001))


def test_half_of_the_memories_lost_is_half_of_the_count() -> None:
    bench = Bench(target=place_of("LosesHalf"))
    with pytest.raises(LostWrites) as problem, bench.target() as target:
        bench.store(target, [Item("ann", f"text {number}") for number in range(3000)])
    lost = int(str(problem.value).partition(" changed of 200")[0].rpartition(" ")[2])
    assert "acknowledged 3,000 memories" in str(problem.value)
    assert 60 < lost < 140, problem.value


def test_changed_contents_are_counted_apart() -> None:
    bench = Bench(target=place_of("ChangesContent"))
    message = "loud acknowledged 3 memories, but 2 changed of 3"
    with pytest.raises(LostWrites, match=message), bench.target() as target:
        bench.store(target, [Item("ann", text) for text in ("quiet", "LOUD", "soft")])


class _Ids:
    name = "short"

    def get(self, agent_id: str, ids: Sequence[str]) -> list[None]:
        return [None] * len(ids)


def test_fewer_ids_than_memories_are_an_error() -> None:
    with pytest.raises(LostWrites, match="short returned 1 ids for 2 memories"):
        Acknowledged().take(_Ids(), ["1"], [Item("ann", "a"), Item("ann", "b")])  # type: ignore[arg-type]


def test_an_exception_of_the_benchmark_is_not_hidden_by_the_check() -> None:
    def fail(bench: Bench) -> None:
        with bench.target() as target:
            bench.store(target, [Item("ann", "x")])
            1 / 0  # noqa: B018

    with pytest.raises(ZeroDivisionError):
        fail(Bench(target=place_of("KeepsNothing")))


def test_the_round_fails_and_the_summary_has_the_count(tmp_path: Path) -> None:
    done = membench(
        "run", "--benchmark", "write_throughput", "--profile", "quick", "--rounds", 1, "--set",
        "seconds=0.001", "--target", place_of("DictionaryThatClaimsPersistence"), "--output-dir",
        tmp_path / "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 1
    assert "dictionary declares durability process, but it lost memories" in done.err
    assert "3 of 3" in done.err
    _, run = only_run(tmp_path / "out")
    assert run.status == "failed"
    assert not run.results


@pytest.mark.parametrize(
    ("name", "when"),
    [
        ("VariableThatClaimsPersistence", "after its process was killed"),
        ("VariableWithoutDurability", "by a process that has ended"),
        ("WritesItsFileInClose", "after its process was killed"),
    ],
)
def test_what_survives_only_in_its_own_process_gets_no_figures(
    name: str, when: str, tmp_path: Path
) -> None:
    done = membench(
        "run", "--benchmark", "read_latency", "--profile", "quick", "--rounds", 1, "--set",
        "seconds=0.001", "--target", place_of(name), "--target", LIGHT, "--output-dir", tmp_path / "out",
        cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 1
    assert f"as it was stored {when}, got None, and so for 3 of 3): its figures do not count" in done.out
    _, run = only_run(tmp_path / "out")
    assert [result.target for result in run.results] == [LIGHT]
    assert [failure.case for failure in run.failures] == [
        case.key for case in run.cases if case.target != LIGHT
    ]
