"""Second names for settings and arguments, and results and runs that are read like dictionaries."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from membench import LIGHT, membench, write

from memory.benchmarking import BenchmarkConfig, BenchmarkResults, BenchmarkRunner
from memory.benchmarking import config as config_module
from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.config import BuiltInSettings, CompressionConfig, RetrievalConfig, StorageConfig
from memory.benchmarking.errors import InvalidBenchmarkConfig, UnknownName
from memory.benchmarking.model.files import read_result

SOURCE = """
def benchmark_first(size: int = 3):
    return {"size": size}
def benchmark_second(size: int = 3):
    return {"size": size}
"""


@pytest.fixture
def runner(tmp_path: Path) -> BenchmarkRunner:
    config = BenchmarkConfig("quick", output_dir=tmp_path / "out")
    config.update({"rounds": 1, "targets": [LIGHT], "seconds": 0.001})
    return BenchmarkRunner(config, paths=[write(tmp_path / "mine.py", SOURCE)])


# -- configuration ------------------------------------------------------------------------------


def test_save_without_a_path_writes_into_the_output_dir_and_returns_the_path(tmp_path: Path) -> None:
    config = BenchmarkConfig(output_dir=tmp_path / "results")
    config.storage.num_samples = 2000
    path = config.save()
    assert path == tmp_path / "results" / "benchmark_config.json"
    assert json.loads(path.read_text())["storage"]["num_samples"] == 2000
    assert BenchmarkConfig.load(path) == config
    assert BenchmarkResults(config.output_dir).list_results() == []


def test_every_category_has_a_class_of_its_name() -> None:
    config = BenchmarkConfig()
    for category in {benchmark.category for benchmark in built_in().values()}:
        name = "".join(word.capitalize() for word in category.split("_")) + "Config"
        kind: type[BuiltInSettings] = getattr(config_module, name)
        assert isinstance(getattr(config, category), kind)
        assert kind() == getattr(config, category)


def test_the_settings_of_a_category_are_passed_to_the_configuration(tmp_path: Path) -> None:
    config = BenchmarkConfig(
        "quick",
        storage=StorageConfig(batch_sizes=[5, 50], num_samples=7),
        retrieval={"similarity_thresholds": [0.5]},
        output_dir=tmp_path,
    )
    expected = BenchmarkConfig("quick", output_dir=tmp_path)
    expected.storage.batch_sizes = [5, 50]
    expected.storage.num_samples = 7
    expected.retrieval.similarity_thresholds = [0.5]
    assert config == expected, "what was not set keeps the value of the profile"
    one_only = StorageConfig()
    one_only.read_latency.num_samples = 9
    config.storage = one_only
    assert config.storage.read_latency.num_samples == 9


def test_wrong_settings_of_a_category_are_named() -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=r"storage\.batchsizes is not a parameter: did you"):
        StorageConfig(batchsizes=[1])
    with pytest.raises(InvalidBenchmarkConfig, match="batch_sizes"):
        StorageConfig(batch_sizes="many")
    with pytest.raises(InvalidBenchmarkConfig, match="storage can't have the settings of retrieval"):
        BenchmarkConfig(storage=RetrievalConfig())
    with pytest.raises(InvalidBenchmarkConfig, match="stoage is not a setting or a category: did you mean"):
        BenchmarkConfig(stoage={})
    with pytest.raises(UnknownName, match="there is no profile 'quik'"):
        CompressionConfig(profile="quik")


# -- results ------------------------------------------------------------------------------------


def test_results_are_found_by_the_other_names(tmp_path: Path) -> None:
    results = BenchmarkResults(results_dir=str(tmp_path))
    assert results.results_dir == results.output_dir == tmp_path
    file = results.save_result(category="storage", benchmark_name="writes", results={"p50_ms": 1.5})
    results.save_result("storage", "reads", {"p50_ms": 0.5})
    assert results.list_results(category="storage", benchmark_name="writes") == [file]
    assert os.path.basename(file).startswith("writes_")
    page = results.generate_report(benchmark_name="writes", output_dir=tmp_path / "pages")
    assert page.parent == tmp_path / "pages"
    assert "reads" not in page.read_text()
    with pytest.raises(InvalidBenchmarkConfig, match="benchmark and benchmark_name are two words"):
        results.list_results(benchmark="writes", benchmark_name="writes")
    with pytest.raises(InvalidBenchmarkConfig, match="output_dir and results_dir are two words"):
        BenchmarkResults(tmp_path, results_dir=tmp_path)


def test_a_loaded_result_is_read_like_a_dictionary(tmp_path: Path) -> None:
    results = BenchmarkResults(tmp_path)
    file = results.save_result("storage", "writes", {"stm": {"p50_ms": 1.5}}, {"n": 3})
    result = results.load_result(file)
    assert result["results"]["stm"]["p50_ms"] == 1.5
    assert result.get("benchmark") == "writes"
    assert result.get("nothing", "default") == "default"
    assert "category" in result
    assert "nothing" not in result
    assert list(result)[:5] == ["benchmark", "category", "timestamp", "results", "metadata"]
    assert dict(result)["metadata"] == {"n": 3}
    assert dict(result.items()) == dict(zip(result.keys(), result.values(), strict=True))
    with pytest.raises(KeyError, match="nothing"):
        result["nothing"]


# -- runner -------------------------------------------------------------------------------------


def test_a_text_is_the_name_of_the_report(tmp_path: Path) -> None:
    runner = BenchmarkRunner("agent_execution")
    runner.add_benchmark("nothing", lambda: None, iterations=3)
    runner.run()
    file = runner.save_report(tmp_path / "agent_execution_results.json")
    assert json.loads(file.read_text())["name"] == "agent_execution"
    with pytest.raises(InvalidBenchmarkConfig, match="two names, 'a' and 'b': pass one"):
        BenchmarkRunner("a", name="b")


def test_results_go_to_the_folder_of_the_results_manager(tmp_path: Path, runner: BenchmarkRunner) -> None:
    manager = BenchmarkResults(tmp_path / "elsewhere")
    runner.results_manager = manager
    finished = runner.run_benchmark("mine", benchmark_name="first", params={"size": 7})
    assert finished.folder.parent == tmp_path / "elsewhere"
    assert [manager.load_result(file)["results"] for file in runner.results_manager.list_results()] == [
        {"size": 7.0}
    ]
    assert BenchmarkRunner(results_manager=manager).config.output_dir == str(tmp_path / "elsewhere")


def test_benchmarks_are_discovered_by_category(runner: BenchmarkRunner) -> None:
    everything = runner.discover_benchmarks()
    assert {"storage", "mine"} <= set(everything)
    assert set(runner.discover_benchmarks("mine")) == {"mine"}
    assert everything["mine"]["first"](size=4) == {"size": 4}
    with pytest.raises(UnknownName, match="there is no category 'stroage': did you mean 'storage'"):
        runner.discover_benchmarks("stroage")


def test_parameters_can_be_given_by_category(
    runner: BenchmarkRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = {case.name: case.params for case in runner.plan(params={"mine": {"size": 8}})}
    assert plan["mine.first"] == plan["mine.second"] == {"size": 8}
    with pytest.raises(InvalidBenchmarkConfig, match="no chosen benchmark takes 'sise': did you"):
        runner.plan(params={"mine": {"sise": 8}})
    # All others would take long.
    monkeypatch.setattr(runner, "found", type(runner.found)(tuple(runner.found.select(["mine"]))))
    finished = runner.run_all(params={"mine": {"size": 8}}, parallel_benchmarks=True, max_workers=2)
    assert finished.run.parallel == 2
    assert [read_result(path).results for path in finished["mine"]] == [{"size": 8.0}, {"size": 8.0}]


def test_a_finished_run_is_a_dictionary_of_result_files(runner: BenchmarkRunner) -> None:
    finished = runner.run_category("mine", {"size": 5})
    assert list(finished) == ["mine"]
    assert dict(finished) == {"mine": finished.paths}
    assert all(path.is_file() for paths in finished.values() for path in paths)
    assert sum(len(paths) for paths in finished.values()) == 2
    with pytest.raises(KeyError):
        finished["storage"]


# -- command line -------------------------------------------------------------------------------


def test_the_results_folder_has_two_names_on_the_command_line(
    tmp_path: Path, runner: BenchmarkRunner
) -> None:
    finished = runner.run_category("mine")
    listed = membench("results", "list", "--results-dir", "out", cwd=tmp_path)
    assert finished.folder.name in listed.out
    report = ("results", "report", "--results-dir", "out", "--output-dir", "pages", "--benchmark", "first")
    reported = membench(*report, cwd=tmp_path)
    assert (reported.code, reported.out) == (0, "pages/first.html\n"), reported.err
    assert (tmp_path / "pages" / "first.html").is_file()
