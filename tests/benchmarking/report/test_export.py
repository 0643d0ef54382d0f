"""Exported results have the formats that other tools read."""

from __future__ import annotations

import csv
import io
import json
import statistics
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.errors import (
    InvalidBenchmarkConfig,
    MissingDependency,
    NothingMeasured,
    UnknownName,
)
from memory.benchmarking.model.files import ResultFile
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.records import Figure
from memory.benchmarking.report.export import WRITERS, export
from memory.benchmarking.results import BenchmarkResults


@pytest.fixture
def results(tmp_path: Path) -> BenchmarkResults:
    results = BenchmarkResults(tmp_path / "benchmark_results")
    two = [make_result(storage_figures(), target=target) for target in ("agentmemory", "sqlite-baseline")]
    make_run(results.output_dir, results=two)
    return results


def exported(results: BenchmarkResults, format: str) -> bytes:
    return results.export(["latest"], format, results.output_dir / f"out.{format}").read_bytes()


def one_result(metrics: dict[str, Figure], **changes: Any) -> LoadedResult:
    result = make_result(metrics, **changes)
    return LoadedResult(ResultFile("20260801_101500", Path("x.json"), "storage", "x"), result)


@pytest.mark.parametrize("format", WRITERS)
def test_every_format_is_written(results: BenchmarkResults, format: str) -> None:
    assert len(exported(results, format)) > 1000


def test_csv_has_a_line_per_result_and_metric(results: BenchmarkResults) -> None:
    lines = list(csv.DictReader(io.StringIO(exported(results, "csv").decode())))
    frame = results.compare_results(["latest"])
    assert list(lines[0]) == list(frame.columns)
    assert [float(line["value"]) for line in lines] == frame["value"].tolist()
    assert lines[0]["timestamp"] == "2026-08-01T10:15:00"


def test_csv_keeps_names_with_commas_quotes_and_lines() -> None:
    hostile = 'a,"b"\nc'
    text = export([one_result({"p50_ms": figure(1)}, target=hostile)], "csv").decode()
    (line,) = csv.DictReader(io.StringIO(text))
    assert line["target"] == hostile


def test_parquet_has_the_same_table_with_types(results: BenchmarkResults) -> None:
    import pandas as pd

    exported(results, "parquet")
    frame = pd.read_parquet(results.output_dir / "out.parquet")
    expected = results.compare_results(["latest"])
    assert list(frame.columns) == list(expected.columns)
    assert frame["value"].tolist() == expected["value"].tolist()
    assert frame["batch_size"].tolist() == expected["batch_size"].tolist()
    assert frame["timestamp"].dt.year.unique().tolist() == [2026]


def test_parquet_takes_a_parameter_that_only_some_figures_have() -> None:
    data = export([one_result({"size_1/a_ms": figure(1), "rate_0.5/b_ms": figure(1)})], "parquet")
    import pandas as pd

    frame = pd.read_parquet(io.BytesIO(data))
    assert frame["size"].dropna().tolist() == [1]
    assert frame["rate"].dropna().tolist() == [0.5]


def test_json_has_runs_and_results_in_one_document(results: BenchmarkResults) -> None:
    document = json.loads(exported(results, "json"))
    assert list(document["runs"]) == ["20260801_101500_ab12"]
    assert [each["result"]["metadata"]["target"] for each in document["results"]] == [
        "agentmemory",
        "sqlite-baseline",
    ]


def test_pytest_benchmark_has_an_entry_for_each_time_with_its_rounds(
    results: BenchmarkResults,
) -> None:
    document = json.loads(exported(results, "pytest-benchmark"))
    assert {"machine_info", "commit_info", "benchmarks", "datetime", "version"} <= set(document)
    assert document["machine_info"]["cpu"]["brand_raw"] == "Test CPU @ 2.0 GHz"
    assert document["commit_info"]["dirty"] is True
    entries = document["benchmarks"]
    assert len(entries) == len({entry["fullname"] for entry in entries}) == 2 * 8 * 4
    name = "storage.write_throughput::complexity_1/batch_100/stm/mean_ms@agentmemory"
    (entry,) = [entry for entry in entries if entry["fullname"] == name]
    assert entry["group"] == "storage.write_throughput mean_ms"
    assert entry["params"] == {"target": "agentmemory", "tier": "stm", "complexity": 1, "batch_size": 100}
    assert entry["stats"]["data"] == pytest.approx([0.98e-4, 1e-4, 1.02e-4])
    assert entry["stats"]["mean"] == pytest.approx(1e-4)
    assert entry["stats"]["ops"] == pytest.approx(1e4)


@given(st.lists(st.floats(1e-6, 1e6), min_size=1, max_size=30))
def test_the_statistics_of_an_entry_are_in_order(rounds: list[float]) -> None:
    middle = statistics.median(rounds)
    data = export([one_result({"p50_ms": Figure(value=middle, rounds=rounds)})], "pytest-benchmark")
    stats = json.loads(data)["benchmarks"][0]["stats"]
    order = [stats[name] for name in ("min", "ld15iqr", "q1", "median", "q3", "hd15iqr", "max")]
    assert order[0] <= order[1]
    assert order[2] <= order[3] * (1 + 1e-9) <= order[4] * (1 + 2e-9)
    assert order[5] <= order[6]
    assert stats["rounds"] == len(rounds)
    assert stats["median"] == pytest.approx(middle / 1000)
    assert stats["min"] * 0.999 <= stats["mean"] <= stats["max"] * 1.001
    assert stats["stddev_outliers"] + stats["iqr_outliers"] <= 2 * len(rounds)


def test_a_time_of_zero_is_exported_too() -> None:
    entry = json.loads(export([one_result({"p50_ms": Figure(value=0.0)})], "pytest-benchmark"))[
        "benchmarks"
    ][0]
    assert entry["stats"]["ops"] == 0
    assert entry["stats"]["rounds"] == 1


def test_pytest_benchmark_without_a_single_time_is_an_error() -> None:
    with pytest.raises(NothingMeasured, match="only times"):
        export([one_result({"recall": figure(0.9)})], "pytest-benchmark")


def test_bmf_has_value_and_bounds_by_benchmark_and_measure(results: BenchmarkResults) -> None:
    document = json.loads(exported(results, "bmf"))
    assert len(document) == 16
    figures = document["storage.write_throughput/complexity_1/batch_100/stm@sqlite-baseline"]
    assert figures[THROUGHPUT] == {"value": 10000, "lower_value": 9500, "upper_value": 10500}


def test_bmf_leaves_out_bounds_that_are_not_known() -> None:
    document = json.loads(export([one_result({"p50_ms": Figure(value=2.0)}, target="")], "bmf"))
    assert document == {"storage.write_throughput": {"p50_ms": {"value": 2.0}}}


def test_bmf_of_two_runs_is_refused_and_nothing_is_overwritten() -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="export one run"):
        export([one_result({"p50_ms": figure(1)})] * 2, "bmf")


def test_a_wrong_format_suggests_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'parquet'"):
        export([], "parket")


def test_exporting_no_results_is_an_error() -> None:
    with pytest.raises(NothingMeasured):
        export([], "csv")


def test_parquet_without_its_library_says_what_to_install(
    results: BenchmarkResults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(MissingDependency, match=r"\[parquet\]"):
        exported(results, "parquet")
