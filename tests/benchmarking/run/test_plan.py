"""What will run: parameters of each case, seeds and the order of rounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from membench import LIGHT, write

from memory.benchmarking import BenchmarkConfig, BenchmarkRunner
from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, UnknownName
from memory.benchmarking.model.records import Case
from memory.benchmarking.run.plan import make_cases, order_of_rounds, round_seed


def runner(tmp_path: Path, source: str, **settings: Any) -> BenchmarkRunner:
    config = BenchmarkConfig("quick")
    config.update({"targets": [LIGHT], **settings})
    return BenchmarkRunner(config, paths=[write(tmp_path / "mine.py", source)])


def test_every_benchmark_runs_on_every_target(tmp_path: Path) -> None:
    source = "def benchmark_x(): pass\ndef benchmark_y(): pass"
    cases = runner(tmp_path, source, targets=["sqlite-baseline", LIGHT]).plan(["mine"])
    assert [(case.name, case.target) for case in cases] == [
        ("mine.x", "sqlite-baseline"),
        ("mine.x", LIGHT),
        ("mine.y", "sqlite-baseline"),
        ("mine.y", LIGHT),
    ]
    assert {case.source for case in cases} == {str(tmp_path / "mine.py")}
    assert len({case.key for case in cases}) == 4


def test_the_precedence_of_parameter_values(tmp_path: Path) -> None:
    """--params comes first, then the benchmark's setting, the category's, and the function's default."""
    planner = runner(tmp_path, "def benchmark_x(a=1, b=1, c=1, d=1): pass\ndef benchmark_y(d=1): pass")
    planner.found  # noqa: B018 - adds their parameters to the configuration
    for assignment in ("mine.a=2", "mine.b=2", "mine.c=2", "mine.x.a=3", "mine.x.b=3"):
        planner.config.set_text(assignment)
    x, y = planner.plan(["mine"], params={"a": 4, "d": 4})
    assert x.params == {"a": 4, "b": 3, "c": 2, "d": 4}
    assert y.params == {"d": 4}


def test_a_profile_gives_the_parameters() -> None:
    config = BenchmarkConfig("quick")
    config.storage.batch_sizes = [7]
    cases = {case.benchmark: case.params for case in BenchmarkRunner(config).plan(["storage"])}
    both = ["states", "texts"]
    assert cases["read_latency"] == {
        "num_samples": 200, "batch_sizes": [7], "settle_memories": 0, "contents": both,
    }  # fmt: skip
    assert cases["write_throughput"]["batch_sizes"] == [7]
    assert "batch_sizes" not in cases["memory_efficiency"]


def test_a_benchmark_may_need_fewer_rounds_in_one_profile() -> None:
    def most(profile: str) -> dict[str, int | None]:
        cases = BenchmarkRunner(BenchmarkConfig(profile)).plan(["scalability"])
        return {case.benchmark: case.most_rounds for case in cases}

    assert most("full")["resource_utilization"] == 2
    assert most("standard")["resource_utilization"] is None
    assert most("full")["memory_size_scaling"] == most("quick")["memory_size_scaling"] == 3


def test_who_asks_for_more_rounds_gets_them_where_they_tell_more() -> None:
    config = BenchmarkConfig("quick")
    config.rounds = 7
    found = {
        case.benchmark: case.most_rounds
        for case in BenchmarkRunner(config).plan(["retrieval", "compression"])
    }
    assert found.pop("embedding_quality") == 1
    assert set(found.values()) == {None}


@pytest.mark.parametrize(("profile", "most"), [("quick", 1), ("standard", 3), ("full", None)])
def test_a_benchmark_declares_its_rounds_by_profile(profile: str, most: int | None, tmp_path: Path) -> None:
    source = """
    from memory.benchmarking import declare
    @declare(rounds={"quick": 1, "standard": 3})
    def benchmark_x(): pass
    """
    config = BenchmarkConfig(profile)
    (case,) = BenchmarkRunner(config, paths=[write(tmp_path / "mine.py", source)]).plan(["mine"])
    assert case.most_rounds == most


def test_defaults_are_stored_as_json_values(tmp_path: Path) -> None:
    (case,) = runner(tmp_path, "def benchmark_x(sizes=(1, 2), by_size={1: 'a'}, none=None): pass").plan(
        ["mine"]
    )
    assert case.params == {"sizes": [1, 2], "by_size": {"1": "a"}, "none": None}


@pytest.mark.parametrize(
    ("source", "params", "message"),
    [
        ("(size=1)", {"siz": 2}, "--params: no chosen benchmark takes 'siz': did you mean 'size'?"),
        ("()", {"size": 2}, "--params: no chosen benchmark takes 'size': there are none"),
        ("(size: int = 1)", {"size": "two"}, "mine.x.size is 'two': expected `int`, got `str`"),
        ("(size=print)", {}, "mine.x has a parameter that can't be stored as JSON: .*"),
    ],
)
def test_invalid_parameters_are_named(
    source: str, params: dict[str, Any], message: str, tmp_path: Path
) -> None:
    planner = runner(tmp_path, f"def benchmark_x{source}: pass")
    with pytest.raises(InvalidBenchmarkConfig, match=message.replace("?", r"\?")):
        planner.plan(["mine"], params=params)


def test_a_wrong_target_is_an_error_before_anything_runs(tmp_path: Path) -> None:
    planner = runner(tmp_path, "def benchmark_x(): pass", targets=["agentmemori"])
    with pytest.raises(UnknownName, match="there is no target 'agentmemori': did you mean 'agentmemory'"):
        planner.plan(["mine"])


def test_an_empty_plan_is_an_error() -> None:
    with pytest.raises(NothingMeasured, match="there is no benchmark to run"):
        make_cases([], BenchmarkConfig())


# -- properties -------------------------------------------------------------------------------


def case_named(number: int, most_rounds: int | None = None) -> Case:
    return Case(category="c", benchmark=f"b{number}", target="t", params={}, most_rounds=most_rounds)


@given(
    st.lists(st.none() | st.integers(1, 6), min_size=1, max_size=6),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
)
def test_every_round_of_every_case_comes_once_first_rounds_first(
    most: list[int | None], rounds: int, seed: int
) -> None:
    cases = [case_named(number, limit) for number, limit in enumerate(most)]
    order = list(order_of_rounds(cases, rounds, seed))
    assert order == list(order_of_rounds(cases, rounds, seed)), "a resumed run has the same order"
    wanted = {
        (case.key, number) for case in cases for number in range(min(rounds, case.most_rounds or rounds))
    }
    assert len(order) == len(wanted)
    assert {(case.key, number) for case, number in order} == wanted
    numbers = [number for _, number in order]
    assert numbers == sorted(numbers)


def test_ten_targets_take_turns_round_by_round_in_random_order() -> None:
    names = [f"target {number}" for number in range(10)]
    cases = [Case(category="a", benchmark="b", target=name, params={}) for name in names]
    order = [(case.target, number) for case, number in order_of_rounds(cases, 4, seed=3)]
    rounds = [[target for target, number in order if number == each] for each in range(4)]
    assert [number for _, number in order] == [each for each in range(4) for _ in names]
    assert all(sorted(targets) == names for targets in rounds), "every target once in every round"
    assert len({tuple(targets) for targets in rounds}) == 4, "in another order each time"


def test_the_order_depends_on_the_seed() -> None:
    cases = [case_named(number) for number in range(6)]
    orders = {tuple(case.benchmark for case, _ in order_of_rounds(cases, 1, seed)) for seed in range(10)}
    assert len(orders) > 5


@settings(max_examples=30)
@given(st.integers(0, 2**32 - 1))
def test_seeds_are_repeatable_and_differ_between_rounds(seed: int) -> None:
    seeds = [round_seed(seed, number) for number in range(50)]
    assert seeds == [round_seed(seed, number) for number in range(50)]
    assert len(set(seeds)) == 50
    assert all(0 <= each < 2**32 for each in seeds), "Python takes no other hash seed"
