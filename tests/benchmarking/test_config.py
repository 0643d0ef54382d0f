"""The configuration: which value counts, which values are refused, and files that load as saved."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking import BenchmarkConfig, declare
from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.errors import InvalidBenchmarkConfig, UnknownName
from memory.benchmarking.model.benchmark import Benchmark
from memory.benchmarking.model.parameters import Count, Fraction, Fractions, Names, Positive, Sizes
from memory.benchmarking.model.profiles import PROFILES

BUILT_IN = [*built_in().values()]
CATEGORIES = sorted({benchmark.category for benchmark in BUILT_IN})


def size_and_words(size: int = 1, words=("a",)) -> None:  # type: ignore[no-untyped-def]
    """A benchmark's signature."""


# -- the specification's example --------------------------------------------------------------


def test_the_example_of_the_specification(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    config = BenchmarkConfig()
    config.storage.batch_sizes = [10, 50, 100]
    config.retrieval.similarity_thresholds = [0.6, 0.7, 0.8]
    config.output_dir = "custom_benchmark_results"
    config.save("custom_config.json")
    again = BenchmarkConfig.load("custom_config.json")
    assert again == config
    assert again.storage.batch_sizes == [10, 50, 100]
    assert again.retrieval.similarity_thresholds == [0.6, 0.7, 0.8]
    assert again.output_dir == "custom_benchmark_results"


def test_the_full_profile_has_the_sizes_of_the_specification() -> None:
    storage = BenchmarkConfig("full").storage
    assert storage.write_throughput.batch_sizes == [10, 100, 1000, 10000]
    assert storage.write_throughput.data_complexity_levels == [1, 5, 10]
    assert storage.read_latency.num_samples == 1000
    assert storage.read_latency.batch_sizes == [10, 50, 100]


# -- profiles -----------------------------------------------------------------------------------


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("benchmark", BUILT_IN, ids=lambda benchmark: benchmark.full_name)
def test_a_benchmark_of_ours_has_a_typed_value_for_every_parameter(
    benchmark: Benchmark, profile: str
) -> None:
    assert Any not in benchmark.types.values()
    assert set(benchmark.sizes(profile)) == set(benchmark.types)
    settings = BenchmarkConfig(profile).category(benchmark.category)
    assert settings.parameters(benchmark.name) == benchmark.sizes(profile)


@pytest.mark.parametrize("benchmark", BUILT_IN, ids=lambda benchmark: benchmark.full_name)
def test_a_benchmark_called_by_hand_has_the_sizes_of_the_full_profile(benchmark: Benchmark) -> None:
    plain = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in benchmark.defaults.items()
    }
    assert plain == benchmark.sizes("full")


def test_a_configuration_loads_the_benchmarks_only_when_a_category_is_used() -> None:
    program = (
        "import sys; from memory.benchmarking import BenchmarkConfig; BenchmarkConfig().rounds = 3; "
        "sys.exit('memory.benchmarking.benchmarks.storage' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_an_unknown_profile_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="there is no profile 'quik': did you mean 'quick'"):
        BenchmarkConfig("quik")


def test_a_profile_can_not_be_changed_afterwards() -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=r"BenchmarkConfig\(profile=...\)"):
        BenchmarkConfig().profile = "quick"


def test_changing_a_configuration_changes_no_profile() -> None:
    config = BenchmarkConfig()
    config.storage.batch_sizes.append(7)
    config.storage.read_latency.batch_sizes.append(7)
    assert BenchmarkConfig().storage.batch_sizes == [10, 100, 1000]
    assert BenchmarkConfig().storage.read_latency.batch_sizes == [10, 50, 100]


# -- which value counts -----------------------------------------------------------------------


def test_the_category_counts_more_than_the_profile_and_the_benchmark_more_than_the_category() -> None:
    config = BenchmarkConfig("quick")
    storage = config.storage
    assert storage.parameters("read_latency")["batch_sizes"] == [10]
    storage.batch_sizes = [3]
    assert storage.parameters("read_latency")["batch_sizes"] == [3]
    assert storage.parameters("write_throughput")["batch_sizes"] == [3]
    assert "batch_sizes" not in storage.parameters("memory_efficiency")
    storage.read_latency.batch_sizes = [4]
    assert storage.read_latency.batch_sizes == [4]
    assert storage.write_throughput.batch_sizes == [3]
    storage.batch_sizes = [5]  # said later, and for all of them
    assert storage.read_latency.batch_sizes == [5]


@pytest.mark.parametrize("shared_first", [True, False])
def test_in_a_file_the_benchmark_counts_more_than_the_category_in_either_order(
    shared_first: bool, tmp_path: Path
) -> None:
    parts = [("batch_sizes", [3]), ("read_latency", {"batch_sizes": [4]})]
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"storage": dict(parts if shared_first else parts[::-1])}))
    storage = BenchmarkConfig.load(path).storage
    assert storage.read_latency.batch_sizes == [4]
    assert storage.write_throughput.batch_sizes == [3]


def test_a_file_holds_what_differs_from_its_profile(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('profile = "quick"\nrounds = 7\n[storage]\nnum_samples = 5\n')
    config = BenchmarkConfig.load(path)
    assert (config.profile, config.rounds, config.storage.num_samples) == ("quick", 7, 5)
    assert config.seconds == PROFILES["quick"].seconds
    other = BenchmarkConfig.load(path, profile="full")
    assert (other.profile, other.rounds, other.seconds) == ("full", 7, PROFILES["full"].seconds)


def test_a_benchmark_of_the_user_is_configured_by_its_parameters() -> None:
    config = BenchmarkConfig()
    config.add_benchmark(Benchmark("mine", "first", size_and_words))
    config.set_text("mine.size=3")
    config.set_text("mine.first.words=a,b")
    assert config.category("mine").parameters("first") == {"size": 3, "words": "a,b"}
    with pytest.raises(InvalidBenchmarkConfig, match=r"mine.size is 'three': expected `int`, got `str`"):
        config.set_text("mine.size=three")


@pytest.mark.parametrize(("profile", "size"), [("quick", 2), ("standard", 3), ("full", 1)])
def test_a_benchmark_of_the_user_has_the_sizes_that_it_declares(profile: str, size: int) -> None:
    @declare(profiles={"quick": {"size": 2}, "standard": {"size": 3}})
    def benchmark_first(size: int = 1) -> None: ...

    config = BenchmarkConfig(profile)
    config.add_benchmark(Benchmark("mine", "first", benchmark_first))
    assert config.mine.size == size
    config.set_text("mine.size=7")
    assert config.category("mine").parameters("first") == {"size": 7}


def test_a_user_may_add_to_a_category_of_ours() -> None:
    def own(batch_sizes=(1,), depth: int = 1) -> None: ...  # type: ignore[no-untyped-def]

    config = BenchmarkConfig("quick")
    config.add_benchmark(Benchmark("storage", "own", own))
    config.set_text("storage.depth=2")
    assert config.storage.parameters("own") == {"depth": 2}
    assert config.storage.parameters("read_latency")["batch_sizes"] == [10]


def test_a_target_counts_once() -> None:
    config = BenchmarkConfig()
    config.set_text("targets=agentmemory,sqlite-baseline,agentmemory")
    assert config.targets == ["agentmemory", "sqlite-baseline"]


# -- values as text ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "value"),
    [("10,100", [10, 100]), ("10", [10]), ("[10, 100]", [10, 100]), (" 7 ", [7])],
)
def test_a_list_on_the_command_line_is_numbers_and_commas(text: str, value: list[int]) -> None:
    config = BenchmarkConfig()
    config.set_text(f"storage.batch_sizes={text}")
    assert config.storage.batch_sizes == value


def test_settings_on_the_command_line() -> None:
    config = BenchmarkConfig()
    for assignment in (
        "rounds=3", "seconds=0.5", "memory_limit_mb=100", "output_dir=7", "targets=a.py:A",
        "compression.test_data_categories=navigation,dialogue", "storage.read_latency.num_samples=50",
        "retrieval.noise=1",
    ):  # fmt: skip
        config.set_text(assignment)
    assert (config.rounds, config.seconds, config.memory_limit_mb) == (3, 0.5, 100)
    assert (config.output_dir, config.targets) == ("7", ["a.py:A"])
    assert config.compression.test_data_categories == ["navigation", "dialogue"]
    assert config.storage.read_latency.num_samples == 50
    config.set_text("memory_limit_mb=null")
    assert config.memory_limit_mb is None


# -- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "message"),
    [
        ("rounds", "--set rounds: write it as category.parameter=value"),
        ("=3", "--set =3: write it as category.parameter=value"),
        ("storage=3", "--set storage: name the parameter too: storage.parameter=value"),
        ("data_sets=scifact", "data_sets is a parameter, not a setting: write quality.data_sets"),
        (
            "batch_sizes=3",
            "batch_sizes is a parameter, not a setting: write storage.batch_sizes or "
            "memory_transition.batch_sizes",
        ),
        ("round=3", "round is not a setting or a category: did you mean 'rounds'?"),
        ("storag.batch_sizes=3", "storag is not a setting or a category: did you mean 'storage'?"),
        ("storage.batch_size=3", "storage.batch_size is not a parameter: did you mean 'batch_sizes'?"),
        (
            "storage.read_latenci.batch_sizes=3",
            "storage.read_latenci.batch_sizes: storage has no benchmark 'read_latenci': "
            "did you mean 'read_latency'?",
        ),
        (
            "storage.memory_efficiency.batch_sizes=3",
            "storage.memory_efficiency.batch_sizes is not a parameter: known: "
            "contents, data_complexity_levels, num_memories, settle_memories",
        ),
        ("rounds=0", "rounds is 0: expected `int` >= 1"),
        ("rounds=many", "rounds is 'many': expected `int`, got `str`"),
        ("rounds=1.5", "rounds is 1.5: expected `int`, got `float`"),
        ("rounds=true", "rounds is True: expected `int`, got `bool`"),
        ("seconds=0", "seconds is 0: expected `float` > 0.0"),
        ("seconds=NaN", "seconds is nan: expected `float` > 0.0"),
        ("seed=-1", "seed is -1: expected `int` >= 0"),
        ("seed=4294967296", "seed is 4294967296: expected `int` <= 4294967295"),
        ("storage.batch_sizes=", "storage.batch_sizes is ['']: expected `int`, got `str` - at `$[0]`"),
        ("storage.batch_sizes=0", "storage.batch_sizes is [0]: expected `int` >= 1 - at `$[0]`"),
        (
            "retrieval.similarity_thresholds=0.5,2",
            "retrieval.similarity_thresholds is [0.5, 2]: expected `float` <= 1.0 - at `$[1]`",
        ),
    ],
)
def test_an_invalid_assignment_is_an_error_with_its_value(assignment: str, message: str) -> None:
    config = BenchmarkConfig()
    before = config.to_dict()
    with pytest.raises(InvalidBenchmarkConfig) as problem:
        config.set_text(assignment)
    assert str(problem.value) == message
    assert config.to_dict() == before


def test_unknown_attributes_are_refused() -> None:
    config = BenchmarkConfig()
    with pytest.raises(InvalidBenchmarkConfig, match="did you mean 'rounds'"):
        config.roundz = 3
    with pytest.raises(InvalidBenchmarkConfig, match="did you mean 'storage'"):
        config.storages  # noqa: B018
    with pytest.raises(InvalidBenchmarkConfig, match="did you mean 'batch_sizes'"):
        config.storage.batchsizes = [1]
    with pytest.raises(InvalidBenchmarkConfig, match="did you mean 'num_samples'"):
        config.storage.read_latency.num_sample  # noqa: B018
    with pytest.raises(InvalidBenchmarkConfig, match="storage is 3: a category is a table of parameters"):
        config.storage = 3


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", "{", "is not JSON"),
        ("a.json", "[1]", r"holds \[1\]: it must be a table of settings"),
        ("a.json", "[" * 100_000, "is not JSON"),
        ("a.toml", "rounds =", "is not TOML"),
        ("a.json", '{"rounds": "x"}', "rounds is 'x': expected `int`"),
        ("a.json", '{"storag": {}}', "storag is not a setting or a category: did you mean 'storage'"),
        ("a.json", '{"storage": {"batch": [1]}}', "storage.batch is not a parameter"),
        ("a.json", '{"storage": [1]}', r"storage is \[1\]: a category is a table"),
        ("a.json", '{"profile": "quik"}', "there is no profile 'quik': did you mean 'quick'"),
        ("a.json", '{"profile": ["quick"]}', r"there is no profile \['quick'\]"),
        ("a.json", b"\xff\xfe\x00".decode("latin-1"), "is not JSON"),
    ],
)
def test_an_error_in_a_file_names_the_file(name: str, content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(content, encoding="latin-1")
    with pytest.raises((InvalidBenchmarkConfig, UnknownName), match=message) as problem:
        BenchmarkConfig.load(path)
    assert str(problem.value).startswith(str(path))
    assert "\n" not in str(problem.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=f"there is no file {tmp_path}/none.json"):
        BenchmarkConfig.load(tmp_path / "none.json")
    with pytest.raises(InvalidBenchmarkConfig, match=f"{tmp_path} can't be read: Is a directory"):
        BenchmarkConfig.load(tmp_path)


@pytest.mark.parametrize(("suffix", "value"), [(".toml", None), (".json", {1, 2}), (".toml", print)])
def test_values_that_a_file_can_not_hold_are_an_error_and_nothing_is_written(
    suffix: str, value: object, tmp_path: Path
) -> None:
    config = BenchmarkConfig()
    config.add_benchmark(Benchmark("mine", "first", size_and_words))
    config.category("mine").set("words", [value])
    path = tmp_path / f"config{suffix}"
    with pytest.raises(InvalidBenchmarkConfig, match="can't hold these settings"):
        config.save(path)
    assert list(tmp_path.iterdir()) == []


# -- properties -------------------------------------------------------------------------------

words = st.text(min_size=1, max_size=5)
VALUES: list[tuple[Any, st.SearchStrategy[Any]]] = [
    (Count, st.integers(1, 10**6)),
    (Sizes, st.lists(st.integers(1, 10**6), min_size=1, max_size=4)),
    (Fraction, st.floats(0, 1)),
    (Fractions, st.lists(st.floats(0, 1), min_size=1, max_size=4)),
    (Positive, st.floats(min_value=1e-9, max_value=1e9)),
    (Names, st.lists(words, min_size=1, max_size=3)),
]


def values_of(kind: Any) -> st.SearchStrategy[Any] | None:
    return next((strategy for known, strategy in VALUES if known == kind), None)


@st.composite
def assignments(draw: st.DrawFn) -> tuple[str, str | None, str, Any]:
    """A category, one of its benchmarks or none, a parameter, a value."""
    category = draw(st.sampled_from(CATEGORIES))
    settings = BenchmarkConfig().category(category)
    benchmark = draw(st.sampled_from(settings.benchmarks()))
    names = [
        name
        for name in settings.parameters(benchmark)
        if values_of(settings.type_of(name, benchmark)) is not None
    ]
    name = draw(st.sampled_from(sorted(names)))
    strategy = values_of(settings.type_of(name, benchmark))
    assert strategy is not None
    value = draw(strategy)
    return category, draw(st.sampled_from([benchmark, None])), name, value


settings_values = st.fixed_dictionaries(
    {},
    optional={
        "rounds": st.integers(1, 100),
        "seed": st.integers(0, 2**32 - 1),
        "seconds": st.floats(min_value=1e-6, max_value=1e6),
        "memory_limit_mb": st.none() | st.integers(1, 10**6),
        "targets": st.lists(words, min_size=1, max_size=3, unique=True),
        "output_dir": words,
    },
)


def parameters(config: BenchmarkConfig) -> Mapping[str, Any]:
    """What every benchmark would be called with."""
    return {
        f"{category}.{benchmark}": config.category(category).parameters(benchmark)
        for category in CATEGORIES
        for benchmark in config.category(category).benchmarks()
    }


@settings(deadline=None, max_examples=40)
@given(
    st.sampled_from(sorted(PROFILES)),
    settings_values,
    st.lists(assignments(), max_size=6),
    st.sampled_from([".json", ".toml"]),
)
def test_a_saved_configuration_loads_as_it_was(
    profile: str, changes: dict[str, Any], chosen: list[tuple[str, str | None, str, Any]], suffix: str
) -> None:
    config = BenchmarkConfig(profile)
    config.update(changes)
    for category, benchmark, name, value in chosen:
        config.category(category).set(name, value, benchmark)
    with tempfile.TemporaryDirectory() as folder:
        again = BenchmarkConfig.load(config.save(Path(folder) / f"config{suffix}"))
    assert again == config
    assert parameters(again) == parameters(config)
    assert json.loads(json.dumps(again.to_dict())) == config.to_dict()


@settings(deadline=None)
@given(assignments())
def test_a_value_set_as_text_is_the_same_value(chosen: tuple[str, str | None, str, Any]) -> None:
    category, benchmark, name, value = chosen
    key = ".".join(part for part in (category, benchmark, name) if part)
    config = BenchmarkConfig()
    config.set_text(f"{key}={json.dumps(value)}")
    settings = config.category(category)
    homes = [benchmark] if benchmark else settings.benchmarks()
    values = [settings.parameters(home).get(name, value) for home in homes]
    assert values == [value] * len(homes)
