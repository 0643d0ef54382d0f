"""The league: what is measured, what is compared with what, whom it recommends, and how it continues."""

from __future__ import annotations

import csv
import io
import json
import signal
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
from league_builders import exact, league_run, share
from membench import COMMAND, LIGHT, membench, surroundings
from result_builders import figure

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.league.axes import RECALL_FLOOR
from memory.benchmarking.league.export import as_csv, as_json
from memory.benchmarking.league.gather import league_of
from memory.benchmarking.league.model import Axis, Cell, League, System
from memory.benchmarking.league.pictures import front, pictures_of
from memory.benchmarking.league.situations import SITUATIONS, rule_texts, verdicts_of
from memory.benchmarking.league.standing import Measured, with_standings
from memory.benchmarking.league.suite import PARTS, parts_of
from memory.benchmarking.league.text import league_text
from memory.benchmarking.model.files import read_run, run_folders
from memory.benchmarking.model.records import Figure, Result
from memory.benchmarking.report.charts import Point
from memory.benchmarking.run.discovery import discover


@pytest.fixture
def league(tmp_path: Path) -> League:
    return league_of([league_run(tmp_path, 5)])


# -- the suite --------------------------------------------------------------------------------


def test_every_part_of_the_suite_exists_with_its_parameters() -> None:
    known = {benchmark.full_name: benchmark for benchmark in discover([]).benchmarks}
    for part in PARTS:
        if part.optional and part.benchmark not in known:
            continue
        for params in part.params.values():
            assert set(params) <= set(known[part.benchmark].types), part.benchmark
    for profile in ("quick", "standard", "full"):
        names = {part.benchmark for part in parts_of(profile, list(known))}
        assert {"storage.footprint", "retrieval.search_by_size", "quality.retrieval_quality"} <= names
        assert sum(name.startswith("promises.") for name in names) == 12


# -- cells ------------------------------------------------------------------------------------


def test_every_cell_has_a_figure_or_a_reason(league: League) -> None:
    for system in league.systems:
        for axis in league.axes:
            cell = league.cell(system.target, axis.key)
            assert (cell.figure is None) == bool(cell.reason), (system.target, axis.key)


def test_a_failed_benchmark_costs_only_its_own_cells_and_gives_the_reason(league: League) -> None:
    assert league.cell("system-2", "disk").reason == "failed: took > 240 s"
    assert league.cell("system-2", "write_one").figure is not None
    assert league.cell("system-1", "disk").figure is not None


def test_latency_is_compared_at_equal_recall(league: League) -> None:
    """The fastest setting of system-1 has recall 0.8: the fastest that reaches the floor counts."""
    cell = league.cell("system-1", "vector_at_recall")
    assert cell.detail == "recall 0.970, ef 100"
    assert cell.figure is not None
    fastest = min(point.milliseconds.value for point in league.curves["system-1"])
    assert cell.figure.value > fastest
    assert len(league.curves["system-1"]) >= 4
    assert "can't be searched by a vector" in league.cell("system-2", "vector_at_recall").reason


def test_a_system_that_never_reaches_the_recall_has_no_time_but_a_reason(tmp_path: Path) -> None:
    league = league_of([league_run(tmp_path, 16)])
    cell = league.cell("system-15", "vector_at_recall")
    assert cell.figure is None
    assert f"no setting reaches recall {RECALL_FLOOR:g}: the most is 0.900" in cell.reason


# -- standings --------------------------------------------------------------------------------

AXIS = Axis("read", "Read", "Read", "ms", "lower", "")


def standings(
    tmp_path: Path, values: dict[str, Figure], axis: Axis = AXIS, **classes: str
) -> dict[str, str]:
    _, run = league_run(tmp_path, 1)
    result = Result(category="a", benchmark="b", timestamp="", results={}, metadata={"seeds": [1, 2, 3]})
    row = [
        Measured(
            System(name, name, "", classes.get(name, "ram"), ""), Cell(value, path="p50_ms"), result, run
        )
        for name, value in values.items()
    ]
    return {name: cell.standing for (name, _), cell in with_standings({axis: row}).items()}


def noisy(value: float, spread: float = 0.3) -> Figure:
    rounds = [value * (1 - spread), value, value * (1 + spread)]
    return Figure(value=value, low=value / 2, high=value * 2, rounds=rounds)


def test_the_best_is_marked_and_what_is_clearly_slower_is_worse(tmp_path: Path) -> None:
    found = standings(tmp_path, {"one": figure(1.0), "two": figure(1.01), "three": figure(3.0)})
    assert found == {"one": "best", "two": "tied", "three": "worse"}


def test_what_noise_can_explain_is_not_called_worse(tmp_path: Path) -> None:
    assert standings(tmp_path, {"one": noisy(1.0), "two": noisy(1.4)}) == {"one": "best", "two": "tied"}


def test_a_single_round_is_not_judged(tmp_path: Path) -> None:
    one, two = Figure(value=1.0, rounds=[1.0]), Figure(value=90.0, rounds=[90.0])
    assert standings(tmp_path, {"one": one, "two": two}) == {"one": "best", "two": ""}


def test_a_knee_of_one_round_is_judged_by_its_own_interval_and_the_spread_between_rounds(
    tmp_path: Path,
) -> None:
    axis = Axis("load", "Load", "Load", "/s", "higher", "", by_durability=True)

    def knee(rate: float) -> Figure:
        return Figure(value=rate, low=rate / 1.05, high=rate * 1.05, rounds=[rate], interval_from="units")

    found = standings(tmp_path, {"one": knee(5000), "two": knee(4100), "three": knee(1000)}, axis)
    assert found == {"one": "best", "two": "tied", "three": "worse"}


def test_writes_are_ranked_within_their_durability(tmp_path: Path) -> None:
    axis = Axis("write_one", "Write", "Write", "/s", "higher", "", by_durability=True)
    values = {"fast": figure(9000), "slow": figure(900), "synced": figure(300), "alone": figure(5)}
    classes = {"fast": "process", "slow": "process", "synced": "machine", "alone": "ram"}
    found = standings(tmp_path, values, axis, **classes)
    assert found == {"fast": "best", "slow": "worse", "synced": "", "alone": ""}


def test_holms_correction_is_over_the_whole_table(tmp_path: Path) -> None:
    """Of two hundred comparisons of the same noise, none may be called worse."""
    _, run = league_run(tmp_path, 1)
    import random

    rng = random.Random(7)
    table = {}
    for number in range(20):
        row = []
        for place in range(11):
            rounds = [rng.gauss(100, 8) for _ in range(4)]
            value = Figure(value=sum(rounds) / 4, rounds=rounds)
            result = Result(category="a", benchmark="b", timestamp="", results={}, metadata={})
            row.append(Measured(System(f"s{place}", f"s{place}", "", "", ""), Cell(value), result, run))
        table[Axis(f"a{number}", f"a{number}", "Read", "ms", "lower", "")] = row
    cells = with_standings(table)
    assert [key for key, cell in cells.items() if cell.standing == "worse"] == []


def test_shares_are_compared_by_points(tmp_path: Path) -> None:
    axis = Axis("quality.x", "Quality", "Quality", "", "higher", "")
    found = standings(tmp_path, {"one": share(0.8), "two": share(0.79), "three": share(0.3)}, axis)
    assert found == {"one": "best", "two": "tied", "three": "worse"}
    counts = Axis("promises", "Promises", "Promises", "", "higher", "")
    single = {"one": Figure(value=1.0, rounds=[1.0]), "two": Figure(value=0.9, rounds=[0.9])}
    _, run = league_run(tmp_path / "more", 1)
    row = [Measured(System(n, n, "", "", ""), Cell(v), None, run) for n, v in single.items()]
    assert with_standings({counts: row})["two", "promises"].standing == "worse"


# -- for whom ---------------------------------------------------------------------------------


def test_a_system_fits_if_it_meets_every_part_of_the_rule_that_is_shown(league: League) -> None:
    for situation in SITUATIONS:
        verdicts = verdicts_of(league, situation)
        assert len(verdicts) == len(league.systems)
        assert len([*rule_texts(league, situation)]) == len(situation.conditions)
        for verdict in verdicts:
            assert len(verdict.facts) + len(verdict.misses) == len(situation.conditions)
            assert bool(verdict.fits) == (not verdict.misses)
    device = next(each for each in SITUATIONS if each.key == "device")
    fits = {verdict.system.target: verdict.fits for verdict in verdicts_of(league, device)}
    assert fits["system-0"] is True
    assert fits["system-4"] is False
    assert "RAM when open at most 150 MB" in [*rule_texts(league, device)]


def test_a_broken_promise_rules_a_system_out_with_its_evidence(league: League) -> None:
    erasable = next(each for each in SITUATIONS if each.key == "erasable")
    broken = next(v for v in verdicts_of(league, erasable) if v.system.target == "system-3")
    assert broken.fits is False
    assert any("12 of 100 writes were lost" in text for text in broken.misses)


# -- pictures and files -----------------------------------------------------------------------


def test_the_front_has_the_points_that_nobody_beats() -> None:
    points = [Point(1, 0.5), Point(2, 0.4), Point(3, 0.9), Point(4, 0.9), Point(5, 0.95)]
    assert [(point.x, point.y) for point in front(points)] == [(1, 0.5), (3, 0.9), (5, 0.95)]


def test_the_pictures_show_every_measured_system(league: League) -> None:
    found = {anchor: chart for anchor, chart, _ in pictures_of(league)}
    assert set(found) == {
        "picture-quality-synthetic", "picture-recall", "picture-sizes", "picture-writes", "picture-space",
    }  # fmt: skip
    assert len(found["picture-sizes"].sources) == 5
    assert found["picture-sizes"].x.scale == found["picture-sizes"].y.scale == "log"


def test_csv_and_json_have_every_cell(league: League) -> None:
    rows = [*csv.DictReader(io.StringIO(as_csv(league).decode()))]
    assert len(rows) == len(league.systems) * len(league.axes)
    assert {row["standing"] for row in rows} == {"best", "tied", "worse", ""}
    tree = json.loads(as_json(league))
    assert len(tree["cells"]) == len(rows)
    assert tree["situations"][0]["rule"]


def test_the_table_of_the_terminal_fits_its_width(league: League) -> None:
    for width in (80, 100, 160):
        assert max(map(len, league_text(league, width).splitlines())) <= width


# -- several runs -----------------------------------------------------------------------------


def test_runs_of_other_machines_or_profiles_are_not_mixed(tmp_path: Path) -> None:
    first = league_run(tmp_path / "a", 2)
    other = league_run(tmp_path / "b", 2, profile="standard")
    with pytest.raises(InvalidBenchmarkConfig, match="the profile differs"):
        league_of([first, other])


def test_a_system_is_taken_from_its_newest_run(tmp_path: Path) -> None:
    old = league_run(tmp_path / "a", 3)
    new = league_run(tmp_path / "b", 1, started_at="2026-09-01T10:00:00")
    league = league_of([new, old])
    assert [system.target for system in league.systems] == ["system-0", "system-1", "system-2"]


def test_exact_figures_have_no_noise(tmp_path: Path) -> None:
    found = standings(tmp_path, {"one": exact(300.0), "two": exact(310.0), "three": exact(400.0)})
    assert found == {"one": "best", "two": "tied", "three": "worse"}


# -- the command ------------------------------------------------------------------------------

TINY = (
    "--set", "retrieval.search_by_size.data_volumes=60,120", "--set", "retrieval.search_by_size.queries=3",
    "--set", "storage.num_samples=20", "--set", "storage.num_memories=60", "--set", "storage.memories=20",
    "--set", "storage.batch_sizes=5", "--set", "quality.conversations=1", "--set", "quality.sessions=2",
    "--set", "promises.checks=no_id_is_used_twice",
)  # fmt: skip


def test_a_league_that_is_killed_continues_where_it_was(tmp_path: Path) -> None:
    """Kill the whole league with SIGKILL after the first rounds; then resume it."""
    arguments = ("league", "--profile", "quick", "--rounds", 1, "--target", LIGHT)
    command = [*COMMAND, *map(str, (*arguments, *TINY, "--output-dir", "results"))]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=surroundings(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and len([*tmp_path.glob("results/*/rounds/*.msgpack")]) < 2:
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.05)
        assert process.returncode is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = run_folders(tmp_path / "results")
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("rounds/*.msgpack")}
    assert len(before) >= 2
    resumed = membench("league", "--resume", "--output-dir", "results", "--csv", "t.csv", cwd=tmp_path)
    assert resumed.code == 0, resumed.err
    run = read_run(folder)
    assert run.suite == "league"
    assert len(run.results) == len(run.cases)
    assert "light" in resumed.out
    assert (folder / "league.html").stat().st_size > 10_000
    # What was measured before the kill was not measured again.
    measured = {f"{moment.case}.{moment.round}.msgpack" for moment in run.moments}
    assert len(measured) == len(run.moments)
    rows = [*csv.DictReader(io.StringIO((tmp_path / "t.csv").read_text(encoding="utf-8")))]
    assert {row["axis"] for row in rows} >= {"read", "write_one", "first_open", "promises"}
    bundled = membench("results", "bundle", "--output-dir", "results", "-o", "league.zip", cwd=tmp_path)
    assert bundled.code == 0, bundled.err
    assert membench("results", "verify", "league.zip", cwd=tmp_path).code == 0
    shown = membench("league", "--show", "league.zip", "--output", "again.html", cwd=tmp_path)
    assert shown.code == 0, shown.err
    assert (tmp_path / "again.html").stat().st_size > 10_000


def test_options_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    assert (
        "--target can't be used with --resume"
        in membench("league", "--resume", "--target", "agentmemory", cwd=tmp_path).error
    )
    assert "there is no league to continue" in membench("league", "--resume", cwd=tmp_path).error


def test_a_dry_run_lists_the_plan(tmp_path: Path) -> None:
    done = membench(
        "league", "--profile", "quick", "--target", "sqlite-baseline", "--dry-run", cwd=tmp_path
    )
    assert done.code == 0, done.err
    assert "retrieval.search_by_size on sqlite-baseline" in done.out
    assert "nothing was run" in done.out
