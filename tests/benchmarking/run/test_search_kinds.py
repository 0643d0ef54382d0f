"""What a search compares stands beside every search figure; two kinds are never compared without a word."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from lacking_targets import lacking
from membench import membench
from result_builders import figure, make_result, make_run

from memory.benchmarking.model.figure_kinds import search_by_of
from memory.benchmarking.model.records import Result

PATH = "all/p50_ms"


def searched(target: str, search_by: str, **metadata: Any) -> Result:
    info = {"name": target, "search_by": search_by}
    declared = {"search_figures": "*", **metadata}
    return make_result({PATH: figure(10)}, target=target, target_info=info, **declared)


def test_only_search_figures_have_a_kind() -> None:
    assert search_by_of(searched("chroma", "both"), PATH) == "both"
    assert search_by_of(searched("chroma", "both", search_figures="text/*"), PATH) == ""
    by_vector = searched("chroma", "both", search_figures="", vector_figures="*")
    assert search_by_of(by_vector, PATH) == "vector", "whatever its text search compares"
    assert search_by_of(make_result({PATH: figure(1)}), PATH) == "", "an old result"


@pytest.fixture
def two_kinds(tmp_path: Path) -> Path:
    results = [searched("agentmemory", "both"), searched("chroma", "vector")]
    make_run(tmp_path / "out", results=results, headline=PATH)
    return tmp_path


def test_the_kind_is_shown_beside_the_figure(two_kinds: Path) -> None:
    shown = membench("results", "show", "--output-dir", "out", cwd=two_kinds).out
    assert f"{PATH}, search by: both" in shown
    assert "vector: a search compares the vector of the question" in " ".join(shown.split())
    membench("results", "report", "--output-dir", "out", "--output", "page.html", cwd=two_kinds)
    page = (two_kinds / "page.html").read_text()
    assert "search by both and vector" in page
    assert "Searches do not compare the same" in page


def test_a_comparison_of_two_kinds_says_so(two_kinds: Path) -> None:
    done = membench(
        "results", "compare-report", "--output-dir", "out", "agentmemory", "chroma",
        "--output", "page.html", cwd=two_kinds,
    )  # fmt: skip
    assert done.code == 0, done.err
    page = (two_kinds / "page.html").read_text()
    assert "Searches do not compare the same" in page
    assert "search by both ⟷ vector" in page


def test_a_run_of_two_kinds_says_so_in_its_summary(tmp_path: Path) -> None:
    done = membench(
        "run", "--benchmark", "search_delay", "--profile", "quick", "--rounds", 1, "--set",
        "retrieval.memories=2", "--target", "sqlite-baseline", "--target", lacking("WithoutVectors"),
        "--output-dir", "out", cwd=tmp_path,
    )  # fmt: skip
    assert done.code == 0, done.err
    assert "searchable_after_ms, search by: vector\n" in done.out
    assert "searchable_after_ms, search by: words\n" in done.out
    text = " ".join(done.out.split())
    assert "searches do not compare the same: those of sqlite-baseline compare the vector" in text
    assert "those of without-vectors compare the words" in text
    shown = json.loads(membench("results", "show", "--json", "--output-dir", "out", cwd=tmp_path).out)
    infos = [each["result"]["metadata"]["target_info"] for each in shown["results"]]
    assert [info["search_by"] for info in infos] == ["vector", "words"]
