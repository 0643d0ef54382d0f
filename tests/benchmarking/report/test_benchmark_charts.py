"""The charts of results: declared ones, curves through the figures, slopes in words, default charts."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np
import pytest
from membench import membench, once
from result_builders import figure, make_result, make_run, storage_figures

from memory.benchmarking.benchmarks import built_in
from memory.benchmarking.measure.statistics import over_rounds
from memory.benchmarking.model.benchmark import Benchmark
from memory.benchmarking.model.files import ResultFile, samples_path, write_samples
from memory.benchmarking.model.loaded_result import LoadedResult
from memory.benchmarking.model.presentation import (
    BarChart,
    Goal,
    LineChart,
    Presentation,
    ScatterChart,
    TimelineChart,
    stored_presentation,
)
from memory.benchmarking.model.records import Figure, Round, Samples
from memory.benchmarking.report.benchmark_charts import charts_of, order_of, presentation_of
from memory.benchmarking.report.charts import Chart
from memory.benchmarking.report.curves import curves
from memory.benchmarking.report.differences import Difference, compare_sources, differences, forest
from memory.benchmarking.report.gather import GatheredResults, gather
from memory.benchmarking.report.makers import make_chart
from memory.benchmarking.report.sources import Source
from memory.benchmarking.results import BenchmarkResults

REAL = (
    "storage.read_latency", "retrieval.search_accuracy", "memory_transition.importance_scoring",
    "scalability.resource_utilization", "agent_execution.session_creation",
)  # fmt: skip
"""Quick ones, of every kind of picture."""


def gathered(*figures: Mapping[str, Figure], name: str = "mine.own", **tree: object) -> GatheredResults:
    """A benchmark measured by as many sources as there are figures; `tree` is recorded beside them."""
    category, _, benchmark = name.partition(".")
    loaded = []
    for number, metrics in enumerate(figures):
        result = make_result(metrics, category=category, benchmark=benchmark)
        result.results.update(tree)
        file = ResultFile("20260801_101500", Path("nowhere.json"), category, benchmark, f"run {number}")
        loaded.append((number, LoadedResult(file, result)))
    (made,) = gather(loaded)
    return made


# -- ours -------------------------------------------------------------------------------------


@pytest.mark.parametrize("benchmark", built_in().values(), ids=built_in())
def test_every_benchmark_of_the_package_has_sentences_and_charts(benchmark: Benchmark) -> None:
    presentation = benchmark.presentation
    assert presentation.charts
    assert presentation.summary.endswith((".", "?"))
    assert presentation.category.endswith(".")
    stored = msgspec.json.decode(msgspec.json.encode(presentation))
    assert stored_presentation({"presentation": stored}) == msgspec.convert(stored, Presentation)


def test_a_presentation_that_another_version_wrote_is_not_used() -> None:
    assert stored_presentation({"presentation": {"charts": [{"type": "CakeChart", "title": "x"}]}}) is None
    assert stored_presentation({}) is None


def test_a_page_has_our_benchmarks_in_the_order_of_the_documents() -> None:
    names = ["mine.own", "storage.other", "storage.read_latency", "storage.write_throughput"]
    pages = sorted((gathered({}, name=name) for name in names), key=order_of)
    assert [each.name for each in pages] == [
        "storage.write_throughput", "storage.read_latency", "storage.other", "mine.own",
    ]  # fmt: skip


def test_a_stored_presentation_counts_more_than_that_of_the_package() -> None:
    chart = BarChart("Mine", metric="p50_ms", names=["part"])
    own = gathered({"a/p50_ms": figure(1), "b/p50_ms": figure(2)}, name="storage.read_latency")
    ((_, loaded),) = own.results
    loaded.result.metadata["presentation"] = msgspec.to_builtins(
        Presentation(summary="My summary.", charts=(chart,), goals={"p50_ms": Goal(5.0)})
    )
    assert presentation_of(own).summary == "My summary."
    (drawn,) = charts_of(own)
    assert (drawn.title, drawn.limits) == ("Mine", ((5.0, "goal: 5 ms"),))


@pytest.fixture(scope="module")
def real_run(tmp_path_factory: pytest.TempPathFactory) -> list[GatheredResults]:
    def run(folder: Path) -> None:
        chosen = [part for name in REAL for part in ("--benchmark", name)]
        done = membench(
            "run", "--profile", "quick", "--rounds", 1, *chosen, "--output-dir", "out", cwd=folder
        )
        assert done.code == 0, done.err

    manager = BenchmarkResults(once(tmp_path_factory, "pictured", run) / "out")
    return gather((0, each) for each in manager.load_results(manager.list_results()))


@pytest.mark.parametrize("name", REAL)
def test_a_real_result_has_all_its_charts(real_run: list[GatheredResults], name: str) -> None:
    (each,) = (each for each in real_run if each.name == name)
    charts = charts_of(each)
    assert len(charts) == len(built_in()[name].presentation.charts)
    for chart in charts:
        assert all(line.points for line in chart.lines)
        assert "" not in chart.names or len(chart.names) == 1


def test_another_benchmark_with_one_of_our_names_gets_default_charts() -> None:
    other = gathered(
        {f"users_{n}/requests_per_second": figure(n) for n in (1, 5)}, name="storage.read_latency"
    )
    assert [chart.x.label for chart in charts_of(other)] == ["users"]


# -- percentile curves ------------------------------------------------------------------------


def a_round(number: int, times: np.ndarray, calls: int) -> Round:
    def packed(values: object) -> bytes:
        return np.asarray(values, dtype="<i8").tobytes()

    samples = Samples(
        wall_ns=packed(times), block_samples=packed([len(times)]), block_wall_ns=packed([times.sum()]),
        block_cpu_ns=packed([times.sum()]), calls_per_sample=calls, work=1,
    )  # fmt: skip
    return Round(
        number=number, seed=0, figures={}, samples={"stm/single": samples, "im/single": samples}, other={},
        not_available={}, started_at=0, load_seconds=0, seconds=1, peak_rss_bytes=1, wall_to_cpu=1,
    )  # fmt: skip


@pytest.mark.parametrize("calls", [1, 4])
def test_a_curve_goes_through_the_figures_of_its_timing(tmp_path: Path, calls: int) -> None:
    draw = np.random.default_rng(1)
    rounds = [draw.lognormal(12, 0.5, 400).astype("i8") for _ in range(3)]
    wanted = {
        share: over_rounds([float(np.quantile(times, share)) / 1e6 / calls for times in rounds])
        for share in (0.5, 0.95, 0.99)
    }
    metrics = {"stm/single/p50_ms": figure(1), "im/single/p50_ms": figure(1)}
    folder = make_run(tmp_path, results=[make_result(metrics, benchmark="read_latency")])
    manager = BenchmarkResults(tmp_path)
    (file,) = manager.list_results()
    write_samples(samples_path(file.path), [a_round(n, times, calls) for n, times in enumerate(rounds)])
    (each,) = gather((0, found) for found in manager.load_results([file]))
    (curve,) = curves(each, lambda place: place.tier == "stm")
    assert curve.calls_per_sample == calls
    for share, estimate in wanted.items():
        (point,) = (point for point in curve.points if point.x == share)
        assert (point.y, point.low, point.high) == pytest.approx(
            (estimate.value, estimate.low, estimate.high)
        )
    assert max(point.x for point in curve.points) == 0.995, "two of 400 samples lie beyond"
    assert folder.is_dir()


def test_without_samples_or_with_damaged_ones_there_is_no_curve(tmp_path: Path) -> None:
    make_run(tmp_path, results=[make_result({"stm/single/p50_ms": figure(1)}, benchmark="read_latency")])
    manager = BenchmarkResults(tmp_path)
    (file,) = manager.list_results()
    (each,) = gather((0, found) for found in manager.load_results([file]))
    assert curves(each, lambda place: True) == []
    samples_path(file.path).write_bytes(b"PK no zip at all")
    assert curves(each, lambda place: True) == []
    assert charts_of(each) == []


# -- over sizes -------------------------------------------------------------------------------


def over_size(made: GatheredResults, goal: float | None = None, **changes: object) -> Chart:
    wanted = {"x_label": "memories", "label": "time", "lines": ("part",)} | changes
    spec = LineChart("Cost", "p50_ms", "size", **wanted)  # type: ignore[arg-type]
    chart = make_chart(spec, made, {} if goal is None else {"p50_ms": Goal(goal)})
    assert chart is not None
    return chart


def test_the_slope_is_that_of_the_rounds_with_a_sentence() -> None:
    def cost(size: int, exponent: float) -> Figure:
        rounds = [size**exponent * factor for factor in (0.9, 1.0, 1.1)]
        return Figure(value=rounds[1], low=rounds[0], high=rounds[2], rounds=rounds)

    made = gathered({f"size_{10**n}/search/p50_ms": cost(10**n, 0.5) for n in (1, 2, 3)})
    chart = over_size(made, fit=True)
    assert (chart.x.scale, chart.y.scale) == ("log", "log")
    assert chart.findings == ("Ten times the memories cost 3.2 times as much (n^0.50, 0.50 to 0.50).",)
    (fit,) = (line for line in chart.lines if line.drawn == "fit")
    assert [point.y for point in fit.points] == pytest.approx([10**0.5, 1000**0.5])


def test_a_single_size_is_drawn_as_bars() -> None:
    made = gathered({"size_10/search/p50_ms": figure(1), "size_10/read/p50_ms": figure(2)})
    chart = over_size(made, fit=True)
    assert chart.horizontal
    assert chart.x.names == ("search", "read")


def test_every_source_has_its_own_line() -> None:
    one, two = ({f"size_{n}/search/p50_ms": figure(n * scale) for n in (10, 100)} for scale in (1, 2))
    chart = over_size(gathered(one, two))
    assert [(line.source, [point.y for point in line.points]) for line in chart.lines] == [
        (0, [10, 100]),
        (1, [20, 200]),
    ]


def test_a_goal_is_drawn_with_a_sentence() -> None:
    made = gathered({f"size_{n}/search/p50_ms": figure(n) for n in (1, 5)})
    near = over_size(made, goal=10.0)
    assert near.findings == ("All of it stays below the goal of 10 ms.",)
    assert near.limits == ((10.0, "goal: 10 ms"),)
    missed = over_size(made, goal=3.0)
    assert missed.findings == ("The goal of 3 ms is missed.",)


def test_tiers_have_one_colour_everywhere() -> None:
    tiers = {f"size_{n}/{tier}/p50_ms": figure(n) for n in (10, 100) for tier in ("ltm", "stm")}
    chart = over_size(gathered(tiers), lines=("tier",))
    assert {line.name: chart.colour_of(line) for line in chart.lines} == {"stm": 0, "ltm": 2}
    others = {f"size_{n}/other/p50_ms": figure(n) for n in (10, 100)}
    mixed = over_size(gathered(tiers | others), lines=("tier", "part"))
    assert len({mixed.colour_of(line) for line in mixed.lines}) == 3


def test_a_goal_is_a_minimum_where_higher_is_better() -> None:
    made = gathered({f"{part}/hits_per_second": figure(n) for part, n in (("a", 5), ("b", 9))})
    spec = BarChart("Hits", metric="hits_per_second", names=["part"])
    reached, missed = (make_chart(spec, made, {"hits_per_second": Goal(limit)}) for limit in (4, 6))
    assert reached is not None
    assert missed is not None
    assert reached.findings == ("All of it stays above the goal of 4 /s.",)
    assert missed.findings == ("The goal of 6 /s is missed.",)


# -- other kinds ------------------------------------------------------------------------------


def test_one_figure_is_drawn_against_another_by_name() -> None:
    made = gathered(
        {"codecs/int8/bytes_per_vector": figure(256), "codecs/int8/recall": figure(0.99),
         "codecs/pq/bytes_per_vector": figure(16), "codecs/pq/recall": figure(0.8),
         "codecs/lost/recall": figure(0.1)}
    )  # fmt: skip
    spec = ScatterChart(
        "x", x_metric="bytes_per_vector", y_metric="recall", x_label="bytes", share=True, names=["part1"]
    )
    chart = make_chart(spec, made)
    assert chart is not None
    assert [(point.text, point.x, point.y) for point in chart.lines[0].points] == [
        ("int8", 256, 0.99),
        ("pq", 16, 0.8),
    ]


def test_a_reliability_diagram_has_the_diagonal_and_both_axes_from_0_to_1() -> None:
    made = gathered(
        {f"chats/target/bin_{n}/{leaf}": figure(value) for n, *values in ((0, 0.01, 0.0), (7, 0.7, 0.6))
         for leaf, value in zip(("mean_confidence", "relevant_share"), values, strict=True)}
    )  # fmt: skip
    (spec,) = [
        each
        for each in built_in()["quality.retrieval_quality"].presentation.charts
        if isinstance(each, ScatterChart)
    ]
    chart = make_chart(spec, made)
    assert chart is not None
    points, diagonal = chart.lines
    assert [(point.x, point.y) for point in points.points] == [(0.01, 0.0), (0.7, 0.6)]
    assert [(point.x, point.y) for point in diagonal.points] == [(0, 0), (1, 1)]
    assert (diagonal.name, diagonal.drawn) == ("calibrated", "fit")
    assert (chart.x.low, chart.x.high, chart.x.scale) == (0, 1, "linear")
    assert (chart.y.low, chart.y.high) == (0, 1)


def test_a_timeline_is_drawn_as_means_without_invalid_readings() -> None:
    readings = [{"seconds": n / 10, "rss_mb": 100 + n} for n in range(1000)]
    made = gathered({"p50_ms": figure(1)}, timeline=[*readings, "odd", {"seconds": 5}, {"rss_mb": None}])
    spec = TimelineChart("RSS", leaf="timeline", field="rss_mb", label="RSS", unit="MB")
    chart = make_chart(spec, made)
    assert chart is not None
    points = chart.lines[0].points
    assert len(points) == 120
    assert np.mean([point.y for point in points]) == pytest.approx(100 + 999 / 2, rel=1e-3)
    assert chart.note == "The last round. 1000 readings, drawn as 120 means."
    nothing = TimelineChart("x", leaf="nothing", field="rss_mb", label="RSS", unit="MB", from_zero=True)
    assert make_chart(nothing, made) is None


def test_bars_stand_in_the_order_of_the_tiers() -> None:
    made = gathered({f"{tier}/disk_bytes": figure(n) for n, tier in enumerate(("ltm", "im", "stm"), 1)})
    chart = make_chart(BarChart("Space", metric="disk_bytes", names=["tier"]), made)
    assert chart is not None
    assert chart.x.names == ("stm", "im", "ltm")


# -- a user's own -----------------------------------------------------------------------------


def test_a_users_benchmark_is_drawn_over_the_parameter_with_the_most_values() -> None:
    made = gathered(
        {
            f"users_{users}/depth_{depth}/requests_per_second": figure(users / depth)
            for users in (1, 5, 25)
            for depth in (1, 2)
        }
    )
    (chart,) = charts_of(made)
    assert (chart.title, chart.x.label, chart.y.unit) == ("Requests, by users", "users", "/s")
    assert chart.names == ["depth 1", "depth 2"]
    assert chart.note == "Higher is better."
    assert presentation_of(made).summary == ""


def test_a_users_benchmark_without_parameters_is_drawn_as_bars() -> None:
    (chart,) = charts_of(gathered({"red/error_rate": figure(0.1), "blue/error_rate": figure(0.2)}))
    assert chart.horizontal
    assert chart.x.names == ("red", "blue")


def test_many_lines_become_panels() -> None:
    made = gathered(
        {
            f"users_{u}/depth_{d}/{part}/value_ms": figure(u)
            for u in (1, 2, 3, 4)
            for d in (1, 2, 3)
            for part in ("a", "b", "c", "d")
        }
    )
    (chart,) = charts_of(made)
    assert all(len(panel.lines) <= 8 for panel in chart.panels)
    assert len(chart.panels) > 1


def test_a_single_figure_gets_no_chart() -> None:
    assert charts_of(gathered({"p50_ms": figure(1)})) == []


# -- differences ------------------------------------------------------------------------------


def compared_runs(each: GatheredResults, *, headlines: bool) -> list[Difference]:
    """The differences between the runs that measured one benchmark."""
    sources = [Source(f"run {number}", f"run {number}", None, "agentmemory") for number, _ in each.results]
    return differences([each], compare_sources([each], sources), headlines=headlines)


def test_differences_are_turned_so_that_right_is_better() -> None:
    slow, fast = storage_figures(1), storage_figures(2)
    found = compared_runs(gathered(slow, fast), headlines=False)
    assert {each.word for each in found} == {"improved"}
    assert all(each.goodness[0] == pytest.approx(2) for each in found)
    assert {each.ratio > 1 for each in found if each.path.endswith("_ms")} == {False}


def test_figures_of_other_sizes_are_not_compared() -> None:
    one = gathered({"size_10/p50_ms": figure(1)}, {"size_20/p50_ms": figure(1)})
    assert compared_runs(one, headlines=True) == []
    assert forest([], ["a", "b"]) is None
