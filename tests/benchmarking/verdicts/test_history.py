"""One metric over many runs: series, changes of level, and how they are shown."""

from __future__ import annotations

import json
import math
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from membench import membench
from result_builders import ENVIRONMENT, figure, make_result, make_run

from memory.benchmarking.errors import NothingMeasured, UnknownName
from memory.benchmarking.metrics import Metric
from memory.benchmarking.text.display import text_width
from memory.benchmarking.verdicts.changes import SHORTEST, best_step, find_changes, needed
from memory.benchmarking.verdicts.history import HistoryPoint, Series, level_changes, series_of
from memory.benchmarking.verdicts.history_text import (
    ASCII,
    UNICODE,
    characters_for,
    date_texts,
    history_text,
)

FIVE_PERCENT = math.log(1.05)


def noise(seed: int, count: int = 60, spread: float = 0.02, phi: float = 0.0) -> list[float]:
    source = random.Random(seed)
    points = [source.gauss(0, 1)]
    for _ in range(count - 1):
        points.append(phi * points[-1] + math.sqrt(1 - phi * phi) * source.gauss(0, 1))
    return [spread * point for point in points]


def stepped(points: list[float], place: int, size: float) -> list[float]:
    return [point + (size if number >= place else 0) for number, point in enumerate(points)]


# -- finding changes --------------------------------------------------------------------------


def test_a_step_is_found_where_it_is() -> None:
    for seed in range(20):
        (place,) = find_changes(stepped(noise(seed), 40, 0.2), FIVE_PERCENT)
        assert abs(place - 40) <= 1


def test_a_step_up_and_a_step_down_are_two_changes() -> None:
    points = stepped(stepped(noise(1), 20, 0.2), 40, -0.2)
    assert find_changes(points, FIVE_PERCENT) == [20, 40]


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_a_change_is_rarely_found_in_a_series_without_one(phi: float) -> None:
    false = sum(bool(find_changes(noise(seed, spread=0.05, phi=phi), 0.03)) for seed in range(100))
    assert false <= 8  # the script finds 2 to 4 %


@pytest.mark.parametrize("phi", [0.0, 0.6])
def test_the_limit_for_a_step_is_rarely_reached_without_one(phi: float) -> None:
    import numpy as np

    reached = [best_step(np.array(noise(seed, phi=phi, spread=1.0))) for seed in range(600)]
    above = sum(value > needed(phi) for value in reached) / 600
    assert 0.002 < above < 0.045  # 2 % and three standard errors, on both sides


@given(st.integers(0, 59), st.floats(0.5, 100), st.booleans())
@settings(max_examples=40)
def test_one_odd_run_is_never_a_change(place: int, size: float, is_up: bool) -> None:
    points = noise(3)
    points[place] += size if is_up else -size
    assert find_changes(points, FIVE_PERCENT) == []


@given(st.lists(st.floats(-1e3, 1e3), max_size=40), st.floats(1e-3, 1))
@settings(max_examples=60)
def test_levels_are_never_shorter_than_three_points(points: list[float], magnitude: float) -> None:
    places = find_changes(points, magnitude)
    bounds = [0, *places, len(points)]
    assert bounds == sorted(set(bounds)) or not points
    if places:
        assert min(end - start for start, end in pairwise(bounds)) >= SHORTEST


def test_a_step_without_any_noise_is_found_exactly() -> None:
    assert find_changes([1.0] * 30, FIVE_PERCENT) == []
    assert find_changes([1.0] * 20 + [2.0] * 10, FIVE_PERCENT) == [20]
    assert find_changes([1.0] * 20 + [1.01] * 10, FIVE_PERCENT) == []


def test_too_few_runs_have_no_changes() -> None:
    assert find_changes([1.0, 1.0, 5.0, 5.0, 5.0], FIVE_PERCENT) == []
    assert find_changes([], FIVE_PERCENT) == []


def points_of(values: list[float]) -> list[HistoryPoint]:
    return [
        HistoryPoint(
            run_id=f"run {number}", started_at=f"2026-08-{1 + number % 28:02d}", revision="", value=value
        )
        for number, value in enumerate(values)
    ]


@pytest.mark.parametrize(
    ("better", "expected"), [("lower", "worse"), ("higher", "better"), ("neither", "neither")]
)
def test_a_change_has_the_direction_of_its_metric(better: Any, expected: str) -> None:
    values = [math.exp(value) for value in stepped(noise(2), 30, 0.3)]
    (change,) = level_changes(points_of(values), Metric("ms", better))
    assert (change.index, change.run_id, change.direction) == (30, "run 30", expected)
    assert change.after / change.before == pytest.approx(math.exp(0.3), rel=0.02)


def test_shares_change_by_points() -> None:
    values = [0.9 + value / 10 for value in noise(4)]
    assert level_changes(points_of(values), Metric("", "higher")) == []
    dropped = [value - (0.05 if number >= 30 else 0) for number, value in enumerate(values)]
    assert [change.index for change in level_changes(points_of(dropped), Metric("", "higher"))] == [30]


# -- series from runs -------------------------------------------------------------------------


def add_run(output_dir: Path, number: int, value: float, **changes: Any) -> Path:
    run_id = f"202608{1 + number // 24:02d}_{number % 24:02d}1500_{number:04x}"
    metrics = {
        "stm/p50_ms": figure(value, samples=200),
        "stm/cpu_ms": figure(value, samples=200),
        "recall_at_10": figure(0.9),
    }
    result = make_result(metrics, benchmark="read_latency", timestamp=run_id[:15])
    started = f"2026-08-{1 + number // 24:02d}T{number % 24:02d}:15:00"
    return make_run(output_dir, run_id, [result], **{"started_at": started, **changes})


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("many")
    for number, value in enumerate(stepped(noise(5, 30), 20, 0.2)):
        add_run(folder, number, 3 * math.exp(value))
    return folder


def test_a_series_has_every_run_in_order(many: Path) -> None:
    (series,) = series_of(many, "*/p50_ms")
    assert (series.name, series.target, series.path) == (
        "storage.read_latency",
        "agentmemory",
        "stm/p50_ms",
    )
    assert len(series.points) == 30
    assert [point.started_at for point in series.points] == sorted(p.started_at for p in series.points)
    (change,) = series.changes
    assert change.index == 20
    assert change.direction == "worse"
    assert change.revision.startswith("7d927a8")


def test_metrics_are_named_by_leaf_path_or_benchmark(many: Path) -> None:
    assert len(series_of(many, "p50_ms")) == 1
    assert len(series_of(many, "stm/*")) == 2
    assert len(series_of(many, "storage.read_latency:*")) == 3
    assert len(series_of(many, "*", benchmark="storage.read_latency")) == 3
    assert [len(each.points) for each in series_of(many, "p50_ms", last=5)] == [5]


def test_an_unknown_name_is_an_error_that_names_it(many: Path, tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="did you mean 'p50_ms'"):
        series_of(many, "p5_ms")
    with pytest.raises(UnknownName, match="did you mean 'read_latency'"):
        series_of(many, "p50_ms", benchmark="raed_latency")
    with pytest.raises(NothingMeasured, match="there are no runs"):
        series_of(tmp_path, "p50_ms")


def test_runs_of_another_machine_or_with_other_parameters_are_another_series(tmp_path: Path) -> None:
    for number in range(4):
        add_run(tmp_path, number, 1.0)
    elsewhere = msgspec.structs.replace(ENVIRONMENT, fingerprint="beef")
    add_run(tmp_path, 4, 9.0, environment=elsewhere)
    folder = add_run(tmp_path, 5, 5.0)
    record = json.loads((folder / "run.json").read_text())
    record["results"][0]["params_digest"] = "other"
    (folder / "run.json").write_text(json.dumps(record))
    assert [series.values for series in series_of(tmp_path, "p50_ms")] == [[1.0] * 4, [9.0], [5.0]]


def test_times_of_parallel_rounds_and_damaged_runs_are_left_out(tmp_path: Path) -> None:
    add_run(tmp_path, 0, 1.0)
    add_run(tmp_path, 1, 7.0, parallel=4)
    (add_run(tmp_path, 2, 1.0) / "run.json").write_text("{")
    assert [series.values for series in series_of(tmp_path, "p50_ms")] == [[1.0]]
    assert [len(series.points) for series in series_of(tmp_path, "recall_at_10")] == [2]


# -- as text and as a picture -----------------------------------------------------------------


def drawn(values: list[float], **changes: Any) -> Series:
    given: dict[str, Any] = {
        "category": "storage", "benchmark": "read_latency", "target": "agentmemory", "path": "stm/p50_ms",
        "unit": "ms", "better": "lower", "fingerprint": "f00d", "params_digest": "0",
        "points": points_of(values), "changes": level_changes(points_of(values), Metric("ms", "lower")),
    }  # fmt: skip
    return Series(**(given | changes))


def test_the_plot_shows_every_run_and_names_the_change() -> None:
    series = drawn([math.exp(value) for value in stepped(noise(6, 30), 20, 0.2)])
    text = history_text([series], width=100)
    plot = text.splitlines()
    assert sum(line.count(UNICODE.point) for line in plot) == 30
    assert max(map(text_width, plot)) <= 100
    assert any(
        line.startswith(f"  {UNICODE.mark} worse since run 20") and "% slower" in line for line in plot
    )


@given(st.floats(1e-6, 1e9), st.floats(1e-7, 1e-2), st.sampled_from(["ms", "B", "/s", ""]))
def test_the_ticks_of_a_plot_differ(value: float, change: float, unit: str) -> None:
    text = history_text([drawn([value, value * (1 + change)], unit=unit, changes=[])], width=100)
    ticks = [line.split(UNICODE.axis)[0].strip() for line in text.splitlines() if UNICODE.axis in line]
    labels = [tick for tick in ticks if tick]
    assert len(set(labels)) == len(labels) == 3


def test_dates_are_as_long_as_they_need_to_differ() -> None:
    days = ["2026-11-17T10:00:00+00:00", "2026-11-18T10:00:00+00:00"]
    minutes = ["2026-11-18T10:00:00+00:00", "2026-11-18T10:01:00+00:00"]
    seconds = ["2026-11-18T10:00:00+00:00", "2026-11-18T10:00:01+00:00"]
    assert date_texts(days, shortest=10) == ["2026-11-17", "2026-11-18"]
    assert date_texts(days, shortest=16) == ["2026-11-17T10:00", "2026-11-18T10:00"]
    assert date_texts(minutes, shortest=10) == ["2026-11-18T10:00", "2026-11-18T10:01"]
    assert date_texts(seconds, shortest=10) == ["2026-11-18T10:00:00", "2026-11-18T10:00:01"]


def test_one_odd_run_does_not_flatten_the_plot() -> None:
    values = [1 + value for value in noise(6, 40)]
    values[10] = 50.0
    text = history_text([drawn(values)], width=100)
    assert UNICODE.outside in text
    assert "50" not in text.splitlines()[1]


@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=300), st.integers(20, 200))
@settings(max_examples=50)
def test_a_plot_is_never_wider_than_its_limit(values: list[float], width: int) -> None:
    plot = history_text([drawn(values, changes=[])], width=width).splitlines()[1:11]
    assert max(map(text_width, plot)) <= max(width, 40)


def test_many_series_are_one_line_each_with_changed_ones_first() -> None:
    calm = [drawn([1.0] * 10, path=f"calm {number}", changes=[]) for number in range(5)]
    changed = drawn([1.0] * 10 + [2.0] * 10, path="changed")
    lines = history_text([*calm, changed]).splitlines()
    assert "changed" in lines[1]
    assert "6 series, 1 with changes" in lines[-1]


def test_a_terminal_without_unicode_gets_ascii_characters() -> None:
    assert characters_for("utf-8") is UNICODE
    assert characters_for("ascii") is ASCII
    assert characters_for(None) is ASCII
    series = drawn([math.exp(value) / 1e3 for value in stepped(noise(6, 30), 20, 0.2)])
    history_text([series] * 1, characters=ASCII).encode("ascii")
    history_text([series] * 5, characters=ASCII).encode("ascii")


def test_the_history_command(many: Path, tmp_path: Path) -> None:
    picture = tmp_path / "history.png"
    done = membench("history", "*/p50_ms", "--output-dir", many, "--png", picture, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "worse since 20260801_201500_0014" in done.out
    assert picture.read_bytes().startswith(b"\x89PNG")
    done = membench("history", "p50_ms", "--output-dir", many, "--json", cwd=tmp_path)
    (series,) = json.loads(done.out)["series"]
    assert [change["index"] for change in series["changes"]] == [20]
    done = membench("history", "nothing", "--output-dir", many, cwd=tmp_path)
    assert done.code == 1
    assert "no metric fits 'nothing'" in done.error
    assert membench("history", "p50_ms", "--last", 0, "--output-dir", many, cwd=tmp_path).code == 1
