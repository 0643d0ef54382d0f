"""Unit and direction of a figure, from its name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memory.benchmarking.measure.timing import time_calls
from memory.benchmarking.metrics import TIMED, Declaration, Metric, declaration_of, declare, metric_of
from memory.benchmarking.run.discovery import discover


@pytest.mark.parametrize(
    ("leaf", "unit", "better"),
    [
        ("throughput_ops_per_second", "/s", "higher"),
        ("memories_per_mb", "/MB", "higher"),
        ("execution_seconds", "s", "lower"),
        ("total_time_seconds", "s", "neither"),  # of all calls: it grows with their number
        ("p95_ms", "ms", "lower"),
        ("call_us", "µs", "lower"),
        ("call_ns", "ns", "lower"),
        ("peak_rss_bytes", "B", "lower"),
        ("disk_bytes_per_memory", "B", "lower"),
        ("memory_mb", "MB", "lower"),
        ("cpu_percent", "%", "neither"),
        ("compression_ratio", "×", "neither"),
        ("wall_to_cpu", "", "neither"),
        ("items_processed", "", "neither"),
        ("recall_at_10", "", "higher"),
        ("precision", "", "higher"),
        ("f1", "", "higher"),
        ("ndcg_at_5", "", "higher"),
        ("mrr", "", "higher"),
    ],
)
def test_a_name_gives_unit_and_direction(leaf: str, unit: str, better: str) -> None:
    metric = metric_of(leaf)
    assert (metric.unit, metric.better) == (unit, better)


def test_our_benchmarks_declare_every_figure_without_a_direction() -> None:
    """Otherwise a name that says nothing would keep a loss from ever being called a regression."""
    silent = {"total_time_seconds", "items_processed", "wall_to_cpu", "cpu_percent"}
    for benchmark in discover().benchmarks:
        declaration = declaration_of(benchmark.function)
        for leaf in set(declaration.reports) - set(declaration.metrics or {}) - silent:
            assert metric_of(leaf).better != "neither", f"{benchmark.name}: {leaf}"


@pytest.mark.parametrize(
    ("leaf", "better"),
    [
        ("hit_rate", "higher"),
        ("success_rate", "higher"),
        ("error_rate", "lower"),
        ("cache_miss_rate", "lower"),
        ("operation_rate", "neither"),
    ],
)
def test_a_rate_is_good_or_bad_by_what_it_counts(leaf: str, better: str) -> None:
    assert metric_of(leaf).better == better


def test_the_ending_of_a_name_counts_more_than_its_start() -> None:
    assert metric_of("recall_ms") == Metric("ms", "lower")
    assert metric_of("precision_index_bytes") == Metric("B", "lower")
    assert metric_of("recall_percent") == Metric("%", "higher")


@settings(deadline=None)
@given(st.text(max_size=20))
def test_a_declared_metric_counts_more_than_its_name(leaf: str) -> None:
    declared = Metric("apples", "higher")
    assert metric_of(leaf, {leaf: declared}) == declared
    assert metric_of(leaf, {f"{leaf}x": declared}) == metric_of(leaf)


def test_every_figure_of_a_timing_is_known() -> None:
    timing = time_calls(lambda: sum(range(1000)), calls=50)
    assert tuple(timing) == TIMED
    without_direction = {name for name in timing if metric_of(name).better == "neither"}
    assert without_direction == {"total_time_seconds", "items_processed", "wall_to_cpu"}


def test_a_function_carries_what_it_declares() -> None:
    @declare(headline="*/p50_ms", apples=Metric("apples", "higher"))
    def benchmark_orchard() -> int:
        return 1

    assert benchmark_orchard() == 1
    found = declaration_of(benchmark_orchard)
    assert found.headline == "*/p50_ms"
    assert found.metric("apples") == Metric("apples", "higher")
    assert found.reports == ("apples",)
    assert declaration_of(lambda: None) == Declaration()
