"""Timing plain functions: results, reports, and the example of the specification."""

from __future__ import annotations

import functools
import io
import json
import math
import re
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.errors import (
    BenchmarkError,
    DamagedResult,
    InvalidBenchmarkConfig,
    InvalidResult,
    NothingMeasured,
    ResultNotSaved,
    UnknownName,
)
from memory.benchmarking.framework import (
    BenchmarkFailure,
    BenchmarkReport,
    BenchmarkResult,
    FunctionSuite,
    benchmark,
    calculate_percentiles,
)

GOOD: dict[str, Any] = {
    "benchmark_name": "search",
    "iterations": 10,
    "mean": 0.002,
    "median": 0.002,
    "std_dev": 0.001,
    "p95": 0.003,
    "p99": 0.004,
    "min": 0.001,
    "max": 0.005,
}
MICROSECONDS = ("3.00", "3.00", "1.41", "3.90", "3.98", "2.00", "4.00")
"""A result of two calls that took 2 and 4 µs."""
seconds = st.floats(0, 1e6)

# -- percentiles --------------------------------------------------------------------------------


def test_the_usual_percentiles_by_name() -> None:
    assert calculate_percentiles(range(101)) == {"p50": 50, "p95": 95, "p99": 99}
    assert calculate_percentiles([3.0]) == {"p50": 3.0, "p95": 3.0, "p99": 3.0}


@settings(deadline=None)
@given(st.lists(seconds, min_size=1, max_size=50), st.integers(0, 100))
def test_percentiles_equal_those_of_numpy(values: list[float], percentile: int) -> None:
    found = calculate_percentiles(iter(values), [percentile])
    assert found == pytest.approx({f"p{percentile}": float(np.percentile(values, percentile))})


def test_a_percentile_may_have_decimals() -> None:
    assert list(calculate_percentiles([1, 2], (0, 50.0, 99.9, 99.99999, 100))) == [
        "p0",
        "p50",
        "p99.9",
        "p99.99999",
        "p100",
    ]


def test_missing_values_nan_and_wrong_percentiles_are_errors() -> None:
    with pytest.raises(InvalidResult, match="no values: give at least one"):
        calculate_percentiles([])
    with pytest.raises(InvalidResult, match="nan"):
        calculate_percentiles([1.0, math.nan])
    for wrong in (-1, 101, math.nan):
        with pytest.raises(InvalidResult, match="from 0 to 100"):
            calculate_percentiles([1.0], [wrong])


# -- results ------------------------------------------------------------------------------------


@settings(deadline=None)
@given(st.lists(seconds, min_size=1, max_size=40))
def test_a_result_has_the_statistics_of_its_calls(calls: list[float]) -> None:
    found = BenchmarkResult.of("search", calls, entries_created=3)
    assert found.iterations == len(calls)
    assert found.mean == pytest.approx(np.mean(calls))
    assert found.median == pytest.approx(np.median(calls))
    assert found.std_dev == pytest.approx(statistics.stdev(calls) if len(calls) > 1 else 0)
    assert (found.min, found.max) == (min(calls), max(calls))
    assert found.p95 == pytest.approx(np.percentile(calls, 95))
    assert found.p99 == pytest.approx(np.percentile(calls, 99))
    assert found.entries_created == 3


@settings(deadline=None)
@given(st.floats(1e-9, 1e3), st.integers(1, 60))
def test_equal_times_give_a_valid_result(call: float, count: int) -> None:
    found = BenchmarkResult.of("search", [call] * count)
    assert found.min == found.mean == found.median == found.p99 == found.max == call


def test_a_result_as_a_dictionary_has_every_figure_and_its_unit() -> None:
    result = BenchmarkResult(**GOOD)
    plain = result.to_dict()
    assert plain == {**GOOD, "entries_created": 0, "unit": "s", "timestamp": result.timestamp}
    assert BenchmarkResult(**json.loads(json.dumps(plain))) == result


@pytest.mark.parametrize(
    "wrong",
    [
        {"benchmark_name": ""},
        {"benchmark_name": None},
        {"iterations": 0},
        {"iterations": 1.5},
        {"entries_created": -1},
        {"mean": math.nan},
        {"mean": "0.002"},
        {"mean": 0.006},
        {"std_dev": -0.1},
        {"max": math.inf},
        {"min": -0.001},
    ],
)
def test_an_impossible_result_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidResult, match=next(iter(wrong))):
        BenchmarkResult(**{**GOOD, **wrong})


def test_percentiles_out_of_order_are_refused() -> None:
    with pytest.raises(InvalidResult, match="must not decrease"):
        BenchmarkResult(**{**GOOD, "p99": 0.0025})


# -- timing a function --------------------------------------------------------------------------


@pytest.mark.parametrize("iterations", [1, 2, 99, 100, 1001])
def test_a_function_is_called_exactly_as_often_as_asked(iterations: int) -> None:
    calls: list[int] = []
    result = benchmark(lambda: calls.append(1), iterations)
    assert len(calls) == result.iterations == iterations


def test_a_function_is_called_100_times_by_default() -> None:
    assert benchmark(lambda: None).iterations == 100


def test_warm_up_calls_are_additional_and_not_measured() -> None:
    calls: list[int] = []
    result = benchmark(lambda: calls.append(1), iterations=10, warm_up=3)
    assert len(calls) == 13
    assert result.iterations == 10


def test_a_result_is_named_after_its_function() -> None:
    def short_query() -> None:
        pass

    class Query:
        def __call__(self) -> None:
            pass

    assert benchmark(short_query, 1).benchmark_name == "short_query"
    assert benchmark(Query(), 1).benchmark_name == "Query"
    assert benchmark(functools.partial(short_query), 1).benchmark_name == "partial"
    assert benchmark(short_query, 1, name="short").benchmark_name == "short"


def test_entries_created_are_given_or_counted() -> None:
    store: list[int] = []

    def add_two() -> None:
        store.extend((1, 2))

    assert benchmark(add_two, 10).entries_created == 0
    assert benchmark(add_two, 10, entries_created=20).entries_created == 20
    assert benchmark(add_two, 500, warm_up=7, entries_created=lambda: len(store)).entries_created == 1000
    with pytest.raises(InvalidResult, match="entries_created fell from"):
        benchmark(store.clear, 1, entries_created=lambda: len(store))


@pytest.mark.parametrize("iterations", [0, -1, 2.5, "100", True, None])
def test_iterations_must_be_a_whole_number_above_zero(iterations: Any) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match=r"iterations is .*: use a whole number ≥ 1"):
        benchmark(lambda: None, iterations)
    suite = FunctionSuite()
    with pytest.raises(BenchmarkError, match="broken: iterations is"):
        suite.add_benchmark("broken", lambda: None, iterations)
    with pytest.raises(NothingMeasured):
        suite.run()


def test_invalid_input_is_refused_before_anything_runs() -> None:
    async def query() -> None:
        raise AssertionError("never awaited")

    with pytest.raises(InvalidBenchmarkConfig, match="is async"):
        benchmark(query)
    with pytest.raises(InvalidBenchmarkConfig, match="can't be called"):
        benchmark(3, name="three")  # type: ignore[arg-type]
    with pytest.raises(InvalidBenchmarkConfig, match="warm_up"):
        benchmark(lambda: None, warm_up=-1)
    with pytest.raises(InvalidBenchmarkConfig, match="entries_created"):
        benchmark(lambda: None, entries_created=-1)
    with pytest.raises(InvalidBenchmarkConfig, match=r"name is .*: use a text that is not empty"):
        benchmark(lambda: None, name=" ")


def test_benchmark_passes_on_the_exception_of_the_function() -> None:
    with pytest.raises(ZeroDivisionError):
        benchmark(lambda: 1 / 0)


# -- a suite and its report ---------------------------------------------------------------------


def finished_suite() -> FunctionSuite:
    suite = FunctionSuite("memory search")
    suite.add_benchmark("short query", lambda: sum(range(10)), iterations=5)
    suite.add_benchmark("broken", lambda: 1 / 0, iterations=5)
    suite.add_benchmark("leaves", lambda: sys.exit("done"), iterations=5)
    suite.add_benchmark("long query", lambda: sum(range(100)), iterations=7, entries_created=7)
    suite.run()
    return suite


def test_a_function_that_raises_goes_into_failures_and_the_others_run() -> None:
    report = finished_suite().report
    assert [result.benchmark_name for result in report.results] == ["short query", "long query"]
    assert [result.iterations for result in report.results] == [5, 7]
    broken, leaves = report.failures
    assert broken.benchmark_name == "broken"
    assert broken.error.startswith("ZeroDivisionError: division by zero (")
    assert "test_framework.py, line" in broken.error
    assert leaves == BenchmarkFailure("leaves", leaves.error)
    assert leaves.error.startswith("SystemExit: done")


def test_an_interruption_ends_the_run() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        FunctionSuite().add_benchmark("interrupted", interrupted).run()


def test_two_benchmarks_of_one_name_are_an_error() -> None:
    suite = FunctionSuite().add_benchmark("search", lambda: None)
    with pytest.raises(InvalidBenchmarkConfig, match="already a benchmark 'search'"):
        suite.add_benchmark("search", lambda: None)


def test_a_suite_runs_again() -> None:
    suite = FunctionSuite().add_benchmark("search", lambda: None, iterations=3)
    first, second = suite.run(), suite.run()
    assert first is not second
    assert suite.report is second


def test_a_report_without_benchmarks_or_a_run_is_an_error(tmp_path: Path) -> None:
    suite = FunctionSuite()
    with pytest.raises(NothingMeasured, match="add_benchmark"):
        suite.run()
    suite.add_benchmark("search", lambda: None)
    with pytest.raises(NothingMeasured, match="call run"):
        suite.save_report(tmp_path / "report.json")
    with pytest.raises(NothingMeasured, match="call run"):
        suite.print_summary()
    assert not list(tmp_path.iterdir())


def test_a_saved_report_is_loaded_unchanged(tmp_path: Path) -> None:
    suite = finished_suite()
    path = suite.save_report(str(tmp_path / "new" / "memory_search_results.json"))
    assert path == tmp_path / "new" / "memory_search_results.json"
    loaded = BenchmarkReport.load(path)
    assert loaded == suite.report
    plain = json.loads(path.read_text())
    assert plain == suite.report.to_dict() == json.loads(suite.report.to_json())
    assert plain["results"][1]["benchmark_name"] == "long query"
    assert plain["results"][1]["entries_created"] == 7
    assert plain["results"][1]["unit"] == "s"
    assert plain["environment"]["python"]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_report_returns_a_result_by_name() -> None:
    report = finished_suite().report
    assert report.result("long query").iterations == 7
    with pytest.raises(UnknownName, match="no result of 'broken'"):
        report.result("broken")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"\xff", b'{"results": []}', b'{"name": "x", "results": [{}]}'],
)
def test_the_error_names_a_damaged_report(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "report.json"
    path.write_bytes(content)
    with pytest.raises(DamagedResult, match=r"report\.json is damaged"):
        BenchmarkReport.load(path)


def test_a_report_with_impossible_figures_counts_as_damaged(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    BenchmarkReport("search", (BenchmarkResult(**GOOD),)).save(path)
    path.write_text(path.read_text().replace('"iterations": 10', '"iterations": 0'))
    with pytest.raises(DamagedResult, match="iterations is 0"):
        BenchmarkReport.load(path)


def test_the_error_names_a_file_that_can_not_be_read_or_written(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="there is no file"):
        BenchmarkReport.load(tmp_path / "nowhere.json")
    with pytest.raises(DamagedResult, match="can't be read"):
        BenchmarkReport.load(tmp_path)
    with pytest.raises(ResultNotSaved, match="can't be written"):
        BenchmarkReport("search").save(tmp_path)
    assert not list(tmp_path.iterdir())


def test_the_summary_is_an_aligned_table_with_the_failures(capsys: pytest.CaptureFixture[str]) -> None:
    report = BenchmarkReport(
        "memory search",
        (
            BenchmarkResult(**GOOD),
            BenchmarkResult.of("a much longer name", [2e-6, 4e-6], entries_created=1200),
        ),
        (BenchmarkFailure("broken", "ValueError: no"),),
    )
    title, *table, failed, reason = report.summary().splitlines()
    assert title == "memory search"
    assert [re.split(r"  +", line) for line in table] == [
        ["benchmark", "iterations", "mean", "median", "std dev", "p95", "p99", "min", "max", "entries"],
        ["search", "10", *(f"{size}.00 ms" for size in (2, 2, 1, 3, 4, 1, 5)), "0"],
        ["a much longer name", "2", *(f"{size} µs" for size in MICROSECONDS), "1,200"],
    ]
    assert len({len(line) for line in table}) == 1
    assert (failed, reason) == ("1 of 3 failed:", "  broken: ValueError: no")
    suite = finished_suite()
    suite.print_summary()
    assert capsys.readouterr().out == suite.report.summary() + "\n"
    file = io.StringIO()
    suite.print_summary(file)
    assert file.getvalue() == suite.report.summary() + "\n"


# -- imports ------------------------------------------------------------------------------------


def test_framework_imports_no_heavy_library() -> None:
    program = (
        "import memory.benchmarking.framework as small, sys\n"
        "small.FunctionSuite().add_benchmark('x', lambda: 1).run().summary()\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert not {"numpy", "scipy", "pandas", "matplotlib", "psutil", "rich"} & set(done.stdout.split())


def test_the_example_of_the_specification_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = Path(__file__).parents[2] / "docs" / "performance" / "benchmarks.md"
    example = re.findall(r"```python\n(.*?)```", document.read_text(), re.DOTALL)[-1]
    monkeypatch.chdir(tmp_path)
    exec(compile(example, str(document), "exec"), {})
    shown = capsys.readouterr().out
    assert "my memory" in shown
    report = BenchmarkReport.load("my_results.json")
    assert [result.iterations for result in report.results] == [50, 20]
    assert report.result("add").entries_created == 50
    assert not report.failures
