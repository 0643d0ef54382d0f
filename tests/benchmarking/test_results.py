"""Results on disk are saved, loaded, found, compared and plotted; damaged files are named."""

from __future__ import annotations

import json
import math
import re
import string
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from result_builders import THROUGHPUT, figure, make_result, make_run, storage_figures

from memory.benchmarking.bench import not_available
from memory.benchmarking.errors import (
    DamagedResult,
    InvalidBenchmarkConfig,
    InvalidResult,
    MissingDependency,
    NothingMeasured,
    UnknownName,
)
from memory.benchmarking.model.paths import ROW_COLUMNS, flatten, read_path
from memory.benchmarking.model.records import Figure
from memory.benchmarking.report.markup import asset
from memory.benchmarking.report.palette import COLOURS
from memory.benchmarking.results import BenchmarkResults

SPEC_RESULT = {
    "complexity_1": {
        "batch_100": {
            "throughput_ops_per_second": 1250.5,
            "total_time_seconds": 0.08,
            "items_processed": 100,
        }
    }
}
SPEC_METADATA = {
    "execution_time": 15.2,
    "params": {"batch_sizes": [10, 100, 1000, 10000], "data_complexity_levels": [1, 5, 10]},
}
SPEC_ANALYSIS = """
from memory.benchmarking.results import BenchmarkResults

# Initialize results manager
results = BenchmarkResults("benchmark_results")

# List results
storage_results = results.list_results(category="storage")

# Compare results
comparison_df = results.compare_results(storage_results)

# Generate a report
report_path = results.generate_report(category="storage")

# Create visualization
fig = results.plot_comparison(
    storage_results, 
    metric="throughput_ops_per_second",
    x_axis="batch_size"
)
results.save_plot(fig, "storage_throughput.png")
"""


@pytest.fixture
def results(tmp_path: Path) -> BenchmarkResults:
    return BenchmarkResults(tmp_path / "benchmark_results")


def test_the_analysis_of_the_specification_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    make_run(Path("benchmark_results"))
    names: dict[str, Any] = {}
    exec(SPEC_ANALYSIS, names)
    assert len(names["storage_results"]) == 1
    assert len(names["comparison_df"]) == 48
    assert names["report_path"].read_text().startswith("<!doctype html>")
    picture = Path("benchmark_results/plots/storage_throughput.png")
    assert picture.read_bytes().startswith(b"\x89PNG")


# -- saving and loading -----------------------------------------------------------------------


def test_a_saved_result_has_the_format_of_the_specification(results: BenchmarkResults) -> None:
    file = results.save_result(
        "storage", "write_throughput", SPEC_RESULT, SPEC_METADATA, timestamp="20250323_145623"
    )
    assert file.path == results.output_dir / "storage" / "write_throughput_20250323_145623.json"
    document = json.loads(file.path.read_text())
    assert list(document)[:5] == ["benchmark", "category", "timestamp", "results", "metadata"]
    assert document["results"] == SPEC_RESULT
    assert document["metadata"] == SPEC_METADATA
    assert document["metrics"][f"complexity_1/batch_100/{THROUGHPUT}"]["value"] == 1250.5
    assert document["units"][THROUGHPUT] == {"unit": "/s", "better": "higher"}


some_names = st.text(string.ascii_letters + string.digits + "_-. é", min_size=1, max_size=20)
some_leaves = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63) + 1, 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=10)
    | st.lists(st.integers(0, 9), max_size=3)
)
some_trees = st.dictionaries(
    some_names,
    st.recursive(some_leaves, lambda inner: st.dictionaries(some_names, inner, max_size=3), max_leaves=8),
    min_size=1,
    max_size=4,
)


@given(tree=some_trees)
def test_a_saved_result_is_loaded_unchanged(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, Any]
) -> None:
    results = BenchmarkResults(tmp_path_factory.mktemp("results"))
    file = results.save_result("storage", "anything", tree, {"note": "x"})
    loaded = results.load_result(file)
    assert loaded.results == tree
    assert {path: fig.value for path, fig in loaded.metrics.items()} == flatten(tree)
    assert msgspec.to_builtins(loaded) == json.loads(file.path.read_text())


@given(name=st.text(max_size=12))
def test_any_name_is_found_again_under_that_name_or_refused(
    tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    results = BenchmarkResults(tmp_path_factory.mktemp("results"))
    try:
        saved = results.save_result("storage", name, {"value": 1})
    except InvalidResult:
        assert results.list_results() == []
    else:
        assert results.list_results(benchmark=name) == [saved]


@pytest.mark.parametrize(
    "name",
    ["", " ", "..", ".hidden", "a/b", "a\\b", "../../x", "a\nb", "a\0b", "x_20250101_101010", 7, None],
)
def test_a_name_that_would_leave_the_folder_is_refused(results: BenchmarkResults, name: Any) -> None:
    with pytest.raises(InvalidResult, match="category"):
        results.save_result(name, "x", {"value": 1})
    with pytest.raises(InvalidResult, match="benchmark"):
        results.save_result("storage", name, {"value": 1})
    assert not results.output_dir.exists()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_is_no_figure_is_refused_with_its_path(
    results: BenchmarkResults, value: float
) -> None:
    with pytest.raises(InvalidResult, match=r"a/b is .*finite"):
        results.save_result("storage", "x", {"a": {"b": value}})
    with pytest.raises(InvalidResult, match=r"a/1 is .*finite"):
        results.save_result("storage", "x", {"a": [1.0, value]})
    with pytest.raises(InvalidResult, match="metadata/load is"):
        results.save_result("storage", "x", {"a": 1}, {"load": value})


@pytest.mark.parametrize("bad", [{}, None, [1], {"a": object()}, {"a": 2**70}, {1: 1, "1": 2}])
def test_results_that_json_can_not_hold_are_refused(results: BenchmarkResults, bad: Any) -> None:
    with pytest.raises(InvalidResult):
        results.save_result("storage", "x", bad)


def test_results_that_contain_themselves_are_refused(results: BenchmarkResults) -> None:
    endless: dict[str, Any] = {}
    endless["inner"] = endless
    with pytest.raises(InvalidResult, match="levels deep"):
        results.save_result("storage", "x", endless)


@pytest.mark.parametrize("timestamp", ["yesterday", "20251341_000000", "2025-03-23", "", 5])
def test_a_timestamp_that_is_no_time_is_refused(results: BenchmarkResults, timestamp: Any) -> None:
    with pytest.raises(InvalidResult, match="20250323_145623"):
        results.save_result("storage", "x", {"a": 1}, timestamp=timestamp)


def test_numbers_of_numpy_and_timings_are_numbers(results: BenchmarkResults) -> None:
    import numpy as np

    from memory.benchmarking.bench import Bench

    tree = {
        "a_ms": np.float32(0.5),
        "n": np.int64(3),
        "list": np.arange(3),
        "timed": Bench().time(len, [""], calls=5),
    }
    loaded = results.load_result(results.save_result("storage", "x", tree))
    assert loaded.results["a_ms"] == 0.5
    assert loaded.results["list"] == [0, 1, 2]
    assert {"a_ms", "n", "timed/p50_ms"} <= set(loaded.metrics)


def test_an_unavailable_figure_keeps_its_reason(results: BenchmarkResults) -> None:
    file = results.save_result(
        "storage", "x", {"stm": {"p50_ms": 1.0}, "im": not_available("no such tier")}
    )
    assert results.load_result(file).results["im"] is None
    (loaded,) = results.load_results([file])
    assert loaded.not_available == {"im": "no such tier"}


def test_results_of_the_same_second_are_all_kept(results: BenchmarkResults) -> None:
    files = [results.save_result("storage", "x", {"n": n}, timestamp="20250323_145623") for n in range(5)]
    assert len({file.path for file in files}) == 5
    assert [results.load_result(file).results["n"] for file in files] == [*range(5)]
    assert {file.benchmark for file in results.list_results()} == {"x"}


def test_a_result_is_loaded_by_file_path_or_name(
    results: BenchmarkResults, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = results.save_result("storage", "x", {"n": 1})
    monkeypatch.chdir(tmp_path)
    for ref in (file, file.path, str(file), f"storage/{file.path.name}", file.path.relative_to(tmp_path)):
        assert results.load_result(ref).results == {"n": 1}
    with pytest.raises(UnknownName, match=r"nothing\.json"):
        results.load_result("nothing.json")


# -- listing ----------------------------------------------------------------------------------


def test_results_are_listed_oldest_first_and_by_name_alone(results: BenchmarkResults) -> None:
    make_run(results.output_dir, "20260802_101500_cd34")
    make_run(results.output_dir, "20260801_101500_ab12")
    by_hand = results.save_result("retrieval", "search_latency", {"p50_ms": 1}, timestamp="20260801_120000")
    by_hand.path.write_bytes(b"not opened")
    listed = results.list_results()
    assert [file.timestamp for file in listed] == ["20260801_101500", "20260801_120000", "20260802_101500"]
    assert [file.run_id for file in listed] == ["20260801_101500_ab12", "", "20260802_101500_cd34"]
    assert results.list_results(category="retrieval") == [by_hand]
    assert results.list_results(benchmark="write_throughput", run="latest") == listed[2:]
    assert results.list_results(run="ab12") == listed[:1]
    assert results.list_results(category="nothing") == []
    with pytest.raises(UnknownName):
        results.list_results(run="zz99")


def test_a_copied_run_can_be_read(results: BenchmarkResults, tmp_path: Path) -> None:
    folder = make_run(results.output_dir)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    folder.rename(elsewhere / folder.name)
    for place in (elsewhere, elsewhere / folder.name):
        moved = BenchmarkResults(place)
        (file,) = moved.list_results()
        assert file.run_id == folder.name
        assert len(moved.compare_results([file])) == 48


# -- comparing --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "parameters", "tier", "part", "metric"),
    [
        ("complexity_5/batch_9/stm/hot/p50_ms", {"complexity": 5, "batch_size": 9}, "stm", "hot", "p50_ms"),
        ("threshold_0.6/recall", {"threshold": 0.6}, None, "", "recall"),
        ("p50_ms", {}, None, "", "p50_ms"),
        ("rounds_3/a/value", {}, None, "rounds_3/a", "value"),
        ("size_1/size_2/stm/im/value", {"size": 1}, "stm", "size_2/im", "value"),
        ("num_agents_10/value", {"num_agents": 10}, None, "", "value"),
        (f"size_{10**30}/value", {"size": 1e30}, None, "", "value"),
        ("_5/5_5/value", {}, None, "_5/5_5", "value"),
    ],
)  # fmt: skip
def test_a_path_gives_parameters_tier_and_part(
    path: str, parameters: dict[str, float], tier: str | None, part: str, metric: str
) -> None:
    place = read_path(path)
    assert (place.parameters, place.tier, place.part, place.metric) == (parameters, tier, part, metric)


def test_comparing_gives_one_row_per_run_and_metric(results: BenchmarkResults) -> None:
    make_run(results.output_dir, "20260801_101500_ab12")
    make_run(results.output_dir, "20260802_101500_cd34")
    frame = results.compare_results(results.list_results())
    assert set(ROW_COLUMNS) | {"batch_size", "complexity"} == set(frame.columns)
    assert not frame.duplicated(["run_id", "path"]).any()
    row = frame[
        (frame["run_id"] == "20260801_101500_ab12")
        & (frame["path"] == f"complexity_5/batch_100/ltm/{THROUGHPUT}")
    ].iloc[0]
    assert (row["metric"], row["batch_size"], row["complexity"], row["tier"]) == (THROUGHPUT, 100, 5, "ltm")
    assert (row["value"], row["low"], row["high"]) == (1000, 950, 1050)
    assert (row["unit"], row["better"], row["rounds"], row["samples"]) == ("/s", "higher", 3, 200)
    assert row["target"] == "agentmemory"
    assert row["timestamp"].isoformat() == "2026-08-01T10:15:00"
    assert [str(frame[name].dtype) for name in ("value", "batch_size", "rounds")] == [
        "float64",
        "Int64",
        "int64",
    ]


def test_a_result_of_the_five_keys_alone_is_compared_and_plotted(results: BenchmarkResults) -> None:
    path = results.output_dir / "storage" / "write_throughput_20250323_145623.json"
    path.parent.mkdir(parents=True)
    document = {
        "benchmark": "write_throughput", "category": "storage", "timestamp": "20250323_145623",
        "results": SPEC_RESULT, "metadata": SPEC_METADATA,
    }  # fmt: skip
    path.write_text(json.dumps(document))
    frame = results.compare_results(results.list_results())
    assert frame.set_index("metric")["value"].to_dict() == SPEC_RESULT["complexity_1"]["batch_100"]
    assert frame["low"].isna().all()
    results.save_plot(results.plot_comparison([path], THROUGHPUT, "batch_size"), "one")


def test_no_results_compare_to_an_empty_table(results: BenchmarkResults) -> None:
    assert list(results.compare_results([]).columns) == list(ROW_COLUMNS)


def test_a_whole_run_is_compared_by_its_id(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    assert len(results.compare_results(["latest"])) == 48
    assert len(results.compare_results("ab12")) == 48


# -- damage -----------------------------------------------------------------------------------


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def empty(path: Path) -> None:
    path.write_bytes(b"")


def change(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"results": {', b'"results": [', 1))


def newer(path: Path) -> None:
    document = json.loads(path.read_text()) | {"format": 99}
    path.write_text(json.dumps(document))


def too_deep(path: Path) -> None:
    tree = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    path.write_bytes(
        b'{"benchmark":"x","category":"storage","timestamp":"20250321_145623","results":' + tree + b"}"
    )


def too_large(path: Path) -> None:
    document = json.loads(path.read_text())
    path.write_text(json.dumps(document | {"metrics": {}, "results": {"a": 10**400}}))


@pytest.mark.parametrize("damage", [cut, empty, change, newer, too_deep, too_large])
def test_a_damaged_file_is_named_and_the_others_still_load(
    results: BenchmarkResults, damage: Callable[[Path], None]
) -> None:
    files = [
        results.save_result("storage", "x", SPEC_RESULT, timestamp=f"2025032{n}_145623") for n in range(3)
    ]
    damage(files[1].path)
    with pytest.raises(DamagedResult, match=files[1].path.name):
        results.load_result(files[1])
    with pytest.warns(UserWarning, match=files[1].path.name):
        frame = results.compare_results(files)
    assert frame["timestamp"].nunique() == 2
    assert [files[1].path.name in str(problem) for problem in results.problems] == [True]
    with pytest.warns(UserWarning, match="left out"):
        page = results.generate_report().read_text()
    assert f"Left out: {files[1].path}" in page
    results.load_results(files[:1])
    assert results.problems == []


def test_only_damaged_files_is_an_error_and_not_an_empty_table(results: BenchmarkResults) -> None:
    file = results.save_result("storage", "x", SPEC_RESULT)
    cut(file.path)
    with pytest.raises(DamagedResult, match="no result can be read"):
        results.compare_results([file])


def test_a_damaged_run_file_leaves_its_results_readable(results: BenchmarkResults) -> None:
    folder = make_run(results.output_dir)
    cut(folder / "run.json")
    loaded = results.load_results(results.list_results())
    assert len(loaded) == 1
    assert results.runs_of(loaded) == {}
    assert "run.json" in str(results.problems[0])


def test_a_file_in_place_of_the_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidBenchmarkConfig, match="is a file"):
        BenchmarkResults(tmp_path / "file")


# -- plotting ---------------------------------------------------------------------------------


def lines_of(fig: Any) -> dict[str, int]:
    """Return the number of panels that have each label."""
    found: dict[str, int] = {}
    for axes in fig.get_axes():
        for label in axes.get_legend_handles_labels()[1]:
            found[label] = found.get(label, 0) + 1
    return found


def test_a_plot_has_a_line_for_each_combination_with_bars_and_units(results: BenchmarkResults) -> None:
    make_run(results.output_dir, results=[make_result(storage_figures(complexities=(1,)))])
    fig = results.plot_comparison(results.list_results(), THROUGHPUT, x_axis="batch_size")
    (axes,) = fig.get_axes()
    assert lines_of(fig) == {"stm": 1, "ltm": 1}
    assert axes.get_xlabel() == "batch size"
    assert fig.get_supylabel() == "throughput (per second)"
    line, _caps, bars = axes.containers[0]
    assert list(line.get_xdata()) == pytest.approx([10, 100], rel=0.1)
    (low, high), *_ = [segment[:, 1] for segment in bars[0].get_segments()]
    assert (low, high) == pytest.approx((line.get_ydata()[0] * 0.95, line.get_ydata()[0] * 1.05))
    assert axes.get_xscale() == "linear"


def test_values_over_many_decades_get_a_logarithmic_scale(results: BenchmarkResults) -> None:
    figures = {f"batch_{10**n}/value_ms": figure(10.0**n) for n in range(4)}
    make_run(results.output_dir, results=[make_result(figures)])
    (axes,) = results.plot_comparison(["latest"], "value_ms").get_axes()
    assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")


def test_figures_without_an_axis_are_listed_below_each_other(results: BenchmarkResults) -> None:
    figures = {
        f"{tier}/disk_bytes": figure(1500.0 * (n + 1)) for n, tier in enumerate(("stm", "im", "ltm"))
    }
    make_run(results.output_dir, results=[make_result(figures)])
    (axes,) = results.plot_comparison(["latest"], "disk_bytes").get_axes()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["stm", "im", "ltm"]
    assert axes.get_xlabel() == "disk (KB)"
    assert [each[0].get_xdata()[0] for each in axes.containers] == pytest.approx([1.5, 3.0, 4.5])


def test_times_are_drawn_in_a_readable_unit(results: BenchmarkResults) -> None:
    figures = {f"batch_{n}/p50_ms": figure(0.002 * n) for n in (1, 2, 4)}
    make_run(results.output_dir, results=[make_result(figures)])
    fig = results.plot_comparison(["latest"], "p50_ms")
    assert fig.get_supylabel() == "median time (µs)"
    assert list(fig.get_axes()[0].containers[0][0].get_ydata()) == pytest.approx([2, 4, 8])


def test_a_wide_interval_does_not_squeeze_the_figures(results: BenchmarkResults) -> None:
    wide = {
        f"batch_{n}/p50_ms": Figure(value=n, low=n / 100, high=n * 1e6, rounds=[n, n]) for n in (10, 11)
    }
    make_run(results.output_dir, results=[make_result(wide)])
    (axes,) = results.plot_comparison(["latest"], "p50_ms").get_axes()
    assert axes.get_ylim()[1] < 30


def test_plots_and_pages_have_the_same_colours() -> None:
    found = re.findall(r"--series-\d+: light-dark\((#\w{6}),", asset("style.css"))
    assert tuple(found) == COLOURS


def test_a_pdf_has_fonts_that_publishers_accept(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    data = results.save_plot(results.plot_comparison(["latest"], "p50_ms"), "paper.pdf").read_bytes()
    assert b"/Type3" not in data
    assert b"/Type42" in data or b"/CIDFontType2" in data


def test_many_lines_are_split_into_panels(results: BenchmarkResults, tmp_path: Path) -> None:
    figures = storage_figures(tiers=("stm", "im", "ltm"), complexities=(1, 5, 10))
    for number in range(2):
        some = [make_result(figures, target=target) for target in ("agentmemory", "sqlite-baseline")]
        make_run(results.output_dir, f"2026080{number + 1}_101500_ab12", some)
    fig = results.plot_comparison(results.list_results(), "p50_ms", "batch_size")
    assert len(fig.get_axes()) > 1
    assert all(len(axes.get_legend_handles_labels()[1]) <= 6 for axes in fig.get_axes())
    assert sum(lines_of(fig).values()) == 36
    assert results.save_plot(fig, tmp_path / "many.svg").read_bytes().startswith(b"<?xml")


def test_runs_are_plotted_over_time_and_by_id(results: BenchmarkResults) -> None:
    for number in range(3):
        make_run(
            results.output_dir,
            f"2026080{number + 1}_101500_ab12",
            [make_result({"p50_ms": figure(number + 1)}, timestamp=f"2026080{number + 1}_101500")],
        )
    for x_axis in (None, "run_id", "timestamp", "run"):
        fig = results.plot_comparison(results.list_results(), "p50_ms", x_axis)
        assert lines_of(fig) == {"": 1} or lines_of(fig) == {}
        assert len(fig.get_axes()[0].containers[0][0].get_xdata()) == 3
        results.save_plot(fig, "over_time")


def test_a_name_can_not_break_a_plot(results: BenchmarkResults) -> None:
    figures = {
        f"{part}/batch_1/p50_ms": figure(1.0) for part in ("$\\frac{", "_hidden", "日本", "\x1b[31m")
    }
    make_run(results.output_dir, results=[make_result(figures, target="$x$")])
    fig = results.plot_comparison(["latest"], "p50_ms", "batch_size")
    assert sum(lines_of(fig).values()) == 4
    assert results.save_plot(fig, "hostile.png").stat().st_size > 1000


def test_a_wrong_metric_or_axis_suggests_the_nearest(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    files = results.list_results()
    with pytest.raises(UnknownName, match="did you mean 'throughput_ops_per_second'"):
        results.plot_comparison(files, "throughput")
    with pytest.raises(UnknownName, match="did you mean 'batch_size'"):
        results.plot_comparison(files, "p50_ms", "batchsize")
    with pytest.raises(NothingMeasured):
        results.plot_comparison([], "p50_ms")


def test_an_axis_that_the_metric_does_not_have_is_named(results: BenchmarkResults) -> None:
    make_run(results.output_dir, results=[make_result({"a_1/p50_ms": figure(1), "b_1/p99_ms": figure(1)})])
    with pytest.raises(UnknownName, match="no figure of 'p50_ms' has a 'b'"):
        results.plot_comparison(["latest"], "p50_ms", "b")


def test_a_plot_of_an_unknown_format_is_refused(results: BenchmarkResults) -> None:
    make_run(results.output_dir)
    fig = results.plot_comparison(["latest"], "p50_ms")
    with pytest.raises(InvalidBenchmarkConfig, match=r"\.png, \.svg or \.pdf"):
        results.save_plot(fig, "x.exe")


@pytest.mark.parametrize("package", ["pandas", "matplotlib.figure"])
def test_a_missing_library_is_named_with_what_to_install(
    results: BenchmarkResults, monkeypatch: pytest.MonkeyPatch, package: str
) -> None:
    make_run(results.output_dir)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingDependency, match=r"pip install .*\[bench\]"):
        results.plot_comparison(["latest"], "p50_ms")


def test_a_file_with_unknown_keys_is_still_read(results: BenchmarkResults) -> None:
    file = results.save_result("storage", "x", SPEC_RESULT)
    document = json.loads(file.path.read_text()) | {"added later": [1, 2]}
    file.path.write_bytes(msgspec.json.encode(document))
    assert results.load_result(file).results == SPEC_RESULT
