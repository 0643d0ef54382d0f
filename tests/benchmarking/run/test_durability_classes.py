"""What a write survives stands beside every write figure; two classes are never compared without a word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from membench import membench, only_run
from result_builders import figure, make_result, make_run

from memory.benchmarking.errors import BrokenBenchmark
from memory.benchmarking.model.figure_kinds import durability_of
from memory.benchmarking.model.files import read_result
from memory.benchmarking.model.records import Result
from memory.benchmarking.targets.base import Capabilities

PATH = "stm/throughput_ops_per_second"


def written(target: str, durability: str, **versions: str) -> Result:
    info: dict[str, Any] = {"name": target, "durability": durability, "versions": versions}
    return make_result({PATH: figure(1000)}, target=target, write_figures="*", target_info=info)


def test_a_class_follows_from_persistence_and_can_be_declared() -> None:
    assert Capabilities().durability == "process"
    assert Capabilities(persistence=False).durability == "ram"
    assert Capabilities(durability="ram").persistence, "an index that is saved when it is closed"
    with pytest.raises(BrokenBenchmark, match="durability is 'machine', but persistence is False"):
        Capabilities(persistence=False, durability="machine")
    with pytest.raises(BrokenBenchmark, match="durability is 'disk': use 'ram', 'process', 'machine'"):
        Capabilities(durability="disk")  # type: ignore[arg-type]


def test_an_unknown_capability_is_named_with_the_nearest_known_one() -> None:
    with pytest.raises(BrokenBenchmark, match="no capability 'thread': did you mean 'threads'"):
        Capabilities(thread=True)  # type: ignore[call-arg]
    assert replace(Capabilities(), threads=True).threads, "known ones can be replaced"


def test_only_write_figures_have_a_class() -> None:
    result = written("agentmemory", "process")
    assert durability_of(result, PATH) == "process"
    result.metadata["write_figures"] = "store/*"
    assert durability_of(result, PATH) == ""
    assert durability_of(make_result({PATH: figure(1)}), PATH) == "", "an old result"


@pytest.fixture
def two_classes(tmp_path: Path) -> Path:
    results = [written("agentmemory", "process"), written("chroma", "machine")]
    make_run(tmp_path / "out", results=results, headline=PATH)
    return tmp_path


def test_the_class_is_shown_beside_the_figure(two_classes: Path) -> None:
    shown = membench("results", "show", "--output-dir", "out", cwd=two_classes).out
    assert f"{PATH}, durability: process" in shown
    assert "machine: a write survives a power failure" in shown
    membench("results", "report", "--output-dir", "out", "--output", "page.html", cwd=two_classes)
    page = (two_classes / "page.html").read_text()
    assert "durability process and machine" in page


def test_a_comparison_of_two_classes_says_so(two_classes: Path) -> None:
    done = membench(
        "results", "compare-report", "--output-dir", "out", "agentmemory", "chroma",
        "--output", "page.html", cwd=two_classes,
    )  # fmt: skip
    assert done.code == 0, done.err
    page = (two_classes / "page.html").read_text()
    assert "Writes do not promise the same" in page
    assert "durability process ⟷ machine" in page


def test_compare_says_the_class_of_both_sides(tmp_path: Path) -> None:
    make_run(tmp_path, "20260801_101500_ab12", [written("chroma", "machine", chromadb="1.5.9")])
    make_run(tmp_path, "20260802_101500_ab12", [written("chroma", "machine", chromadb="1.6.0")])
    out = membench("compare", "--output-dir", ".", "20260801", "20260802", cwd=tmp_path).out
    assert "two versions of the system are compared: chroma: chromadb 1.5.9 → 1.6.0" in out
    assert "durability of the writes on both sides: machine" in out


def test_a_run_of_two_classes_warns_in_its_summary(tmp_path: Path) -> None:
    done = membench(
        "run", "--benchmark", "write_throughput", "--profile", "quick", "--rounds", 1, "--set",
        "seconds=0.001", "--set", "storage.batch_sizes=3", "--set", "storage.contents=texts", "--target",
        "agentmemory", "--target", "agentmemory-disk", "--output-dir", "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    headline = "texts/batch_3/stm/one_by_one/throughput_ops_per_second"
    assert f"{headline}, durability: process\n" in done.out
    assert f"{headline}, durability: machine\n" in done.out
    assert "writes do not promise the same: those of agentmemory survive a killed process" in done.out
    folder, run = only_run(tmp_path / "out")
    infos = [read_result(folder / ref.file).metadata["target_info"] for ref in run.results]
    assert [info["durability"] for info in infos] == ["process", "machine"]


def test_the_help_promises_only_what_is_measured(tmp_path: Path) -> None:
    text = membench("--help", cwd=tmp_path).out
    promised = ("quality", "latency", "throughput", "space", "what they promise")
    assert all(words in " ".join(text.split()) for words in promised)
    assert "cost" not in text, "no benchmark measures money"
