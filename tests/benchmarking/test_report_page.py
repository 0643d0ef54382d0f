"""The page of results: complete, correct, and every text a text."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.errors import NothingMeasured, UnknownName
from memory.benchmarking.files import ResultFile
from memory.benchmarking.records import Failure
from memory.benchmarking.report.page import page
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.tidy import LoadedResult

FAILURE = Failure(
    case="storage.read_latency@agentmemory", round=2, reason="timeout", message="took 60 s & more"
)


class Reader(HTMLParser):
    """Elements and texts of a page; notices tags that are not closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.texts: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.texts.append(data.strip())


@pytest.fixture
def results(tmp_path: Path) -> BenchmarkResults:
    return BenchmarkResults(tmp_path / "benchmark_results")


def test_the_page_says_what_ran_where_and_what_came_out(results: BenchmarkResults) -> None:
    headline = f"complexity_5/batch_100/stm/{THROUGHPUT}"
    result = make_result(
        storage_figures(),
        headline=headline,
        params={"batch_sizes": [10, 100]},
        not_available={"im": "no such tier"},
    )
    make_run(results.output_dir, results=[result], failures=[FAILURE])
    read = Reader(results.generate_report(category="storage").read_text())
    text = "\n".join(read.texts)
    for expected in (
        "Benchmark results: storage", "Run 20260801_101500_ab12", "membench run --profile quick",
        "Test CPU @ 2.0 GHz, 2 cores, 7.8 GB, Linux 6.1", "7d927a8b1c2d with changes", "numpy 2.0.0",
        "storage.write_throughput on agentmemory", "batch_sizes = [10, 100]", "2,000 /s", headline,
        "(1,900–2,100)", "no such tier", "1 round failed", "took 60 s & more", "48 figures",
    ):  # fmt: skip
        assert expected in text
    assert read.texts.count("p99_ms") == 8


def test_the_page_stands_alone(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    read = Reader(results.generate_report().read_text())
    assert not {"script", "link", "img", "iframe"} & set(read.tags)
    assert not {"src", "href"} & {name for name, _ in read.attributes}


@given(
    st.text(min_size=1, max_size=20)
    | st.sampled_from(["<script>", '" onload="x', "</style>", "&lt;", "]]>"])
)
def test_every_name_stays_a_text(hostile: str) -> None:
    result = make_result(
        {f"{hostile}/p50_ms": figure(1)},
        target=hostile,
        params={hostile: hostile},
        not_available={hostile: hostile},
    )
    file = ResultFile("20260801_101500", Path("x.json"), "storage", "x")
    read = Reader(page([LoadedResult(file, result)], {}, category=hostile, problems=[ValueError(hostile)]))
    plain = Reader(
        page(
            [
                LoadedResult(
                    file, make_result({"a/p50_ms": figure(1)}, not_available={"a": "b"}, params={"a": 1})
                )
            ],
            {},
            problems=[ValueError()],
        )
    )
    assert read.tags == plain.tags
    assert read.attributes == plain.attributes


def test_the_page_shows_the_newest_run_and_what_was_saved_by_hand(results: BenchmarkResults) -> None:
    for number in range(1, 4):
        make_run(results.output_dir, f"2026080{number}_101500_ab12")
    results.save_result("storage", "by_hand", {"p50_ms": 1.5})
    text = results.generate_report(category="storage").read_text()
    assert "Run 20260803_101500_ab12" in text
    assert "20260802_101500_ab12" not in text
    assert "2 older runs are not on this page" in text
    assert "storage.by_hand" in text


def test_a_run_is_reported_by_its_id_where_it_was_asked_for(
    results: BenchmarkResults, tmp_path: Path
) -> None:
    for number in range(1, 3):
        make_run(results.output_dir, f"2026080{number}_101500_ab12")
    path = results.generate_report(run="20260801", path=tmp_path / "sub" / "page.html")
    assert path == tmp_path / "sub" / "page.html"
    assert "Run 20260801_101500_ab12" in path.read_text()
    assert "20260802" not in path.read_text()


def test_a_run_of_failures_alone_has_a_page_that_says_so(results: BenchmarkResults) -> None:
    make_run(results.output_dir, results=[], failures=[FAILURE])
    assert "1 round failed" in results.generate_report(run="latest").read_text()


def test_a_report_of_nothing_is_an_error_that_says_what_to_do(results: BenchmarkResults) -> None:
    with pytest.raises(NothingMeasured, match="membench run"):
        results.generate_report()
    make_run(results.output_dir)
    with pytest.raises(UnknownName, match="did you mean 'storage'"):
        results.generate_report(category="strage")


def test_a_name_can_not_lead_the_page_out_of_its_folder(results: BenchmarkResults) -> None:
    folder = make_run(results.output_dir)
    path = results.generate_report(run=str(folder))
    assert path.parent == results.output_dir / "reports"
