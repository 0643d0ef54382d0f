"""Two stored runs compared: by folder, id, name or age; every exit code through the real command."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from membench import GOOD, Done, membench, options, write
from result_builders import ENVIRONMENT, make_result, make_run

from memory.benchmarking.errors import NothingMeasured
from memory.benchmarking.measure.statistics import over_rounds
from memory.benchmarking.model.files import read_run, run_folders, write_run
from memory.benchmarking.model.records import Figure, Unit
from memory.benchmarking.verdicts.compare import compare_runs
from memory.benchmarking.verdicts.noise import Calibration, metric_key, store_noise
from memory.benchmarking.verdicts.records import Comparison, MetricVerdict, decode

MIRRORED = {"regressed": "improved", "improved": "regressed", "new": "missing", "missing": "new"}
SEEDS = list(range(6))


def rounds_of(values: Sequence[float], samples: int = 200) -> Figure:
    estimate = over_rounds(values)
    return Figure(
        value=estimate.value, low=estimate.low, high=estimate.high, rounds=list(values), samples=samples
    )


def times(factor: float = 1.0, seed: int = 1, rounds: int = 6, spread: float = 0.01) -> dict[str, Figure]:
    """Timings of two tiers, with a little noise."""
    noise = random.Random(seed)
    found = {}
    for tier, scale in (("stm", 1.0), ("ltm", 5.0)):
        for leaf in ("cpu_ms", "p50_ms", "p99_ms", "mean_ms"):
            values = [scale * factor * (1 + noise.gauss(0, spread)) for _ in range(rounds)]
            found[f"{tier}/{leaf}"] = rounds_of(values)
    return found


def saved(
    output_dir: Path, run_id: str, metrics: Mapping[str, Figure], *, params: Any = None, **changes: Any
) -> Path:
    rounds = max(len(figure.rounds) for figure in metrics.values())
    metadata = {"params": params or {}, "seeds": SEEDS[:rounds]}
    result = make_result(metrics, benchmark="read_latency", timestamp=run_id[:15], **metadata)
    return make_run(output_dir, run_id, [result], **{"rounds": 6, **changes})


BASE, NOW = "20260801_101500_aaaa", "20260802_101500_bbbb"


@pytest.fixture
def compared(tmp_path: Path) -> Callable[..., Comparison]:
    """Compares two sets of figures."""

    def compare(before: Mapping[str, Figure], now: Mapping[str, Figure], **options: Any) -> Comparison:
        folders = [saved(tmp_path, run_id, metrics) for run_id, metrics in ((BASE, before), (NOW, now))]
        return compare_runs(*folders, **options)

    return compare


def by_path(comparison: Comparison) -> dict[str, MetricVerdict]:
    return {each.path: each for each in comparison.metrics}


def verdicts(comparison: Comparison) -> dict[str, str | None]:
    return {each.path: each.verdict for each in comparison.metrics}


# -- figures ----------------------------------------------------------------------------------


def test_slower_code_is_found_and_nothing_else(compared: Callable[..., Comparison]) -> None:
    now = times(1.0, seed=2) | {
        path: figure for path, figure in times(1.3, seed=2).items() if "stm" in path
    }
    found = compared(times(), now)
    assert {each.path for each in found.of("regressed")} == {"stm/cpu_ms", "stm/p50_ms"}
    assert {each.path for each in found.of("unchanged")} == {"ltm/cpu_ms", "ltm/p50_ms"}
    slower = by_path(found)["stm/p50_ms"]
    assert slower.ratio == pytest.approx(1.3, abs=0.03)
    assert slower.low is not None
    assert slower.high is not None
    assert slower.low < 1.3 < slower.high
    assert slower.p is not None
    assert slower.p < 0.001
    assert by_path(found)["stm/p99_ms"].verdict is None
    assert found.exit_code() == 2


def test_a_run_compared_with_its_copy_has_no_regression(tmp_path: Path) -> None:
    one = saved(tmp_path, BASE, times(spread=0.2) | {"recall": rounds_of([0.5] * 6, 0)})
    two = tmp_path / NOW
    shutil.copytree(one, two)
    found = compare_runs(one, two)
    assert {each.verdict for each in found.metrics} <= {"unchanged", "inconclusive", None}
    assert all(each.ratio == 1 for each in found.metrics)
    assert found.exit_code() == 0


@pytest.mark.parametrize("seed", range(5))
def test_swapping_the_runs_mirrors_every_verdict(compared: Callable[..., Comparison], seed: int) -> None:
    one = times(1.0, seed, spread=0.03)
    two = times(1.15, seed + 100, spread=0.03)
    del two["ltm/cpu_ms"]
    one |= {"recall": rounds_of([0.9, 0.8, 0.85, 0.9, 0.8, 0.85], 0)}
    two |= {"recall": rounds_of([0.8, 0.7, 0.75, 0.8, 0.7, 0.75], 0)}
    there, back = verdicts(compared(one, two)), verdicts(compared(two, one))
    assert back == {path: MIRRORED.get(verdict or "", verdict) for path, verdict in there.items()}
    assert there["recall"] == "regressed"
    assert there["ltm/cpu_ms"] == "missing"


def test_one_round_is_inconclusive_with_a_reason(compared: Callable[..., Comparison]) -> None:
    found = compared(times(rounds=1), times(2.0, rounds=1))
    judged = [each for each in found.metrics if each.verdict is not None]
    assert {each.verdict for each in judged} == {"inconclusive"}
    assert {each.reason for each in judged} == {"a single round: no interval"}
    assert found.exit_code(strict=True) == 4


def test_two_rounds_find_only_large_changes(compared: Callable[..., Comparison]) -> None:
    found = by_path(compared(times(rounds=2, spread=0.03), times(1.2, seed=2, rounds=2, spread=0.03)))
    assert found["stm/p50_ms"].verdict == "inconclusive"
    assert (found["stm/p50_ms"].detectable or 0) > 0.2


def test_figures_that_follow_from_the_data_are_compared_round_by_round(
    compared: Callable[..., Comparison],
) -> None:
    sizes = [1000.0, 2000.0, 1500.0, 3000.0, 1200.0, 900.0]  # Another seed has other data, so another size.
    same = compared({"disk_bytes": rounds_of(sizes, 0)}, {"disk_bytes": rounds_of(sizes, 0)})
    assert verdicts(same) == {"disk_bytes": "unchanged"}
    more = {"disk_bytes": rounds_of([size * 1.2 for size in sizes], 0)}
    assert verdicts(compared({"disk_bytes": rounds_of(sizes, 0)}, more)) == {"disk_bytes": "regressed"}


def test_one_round_is_enough_for_figures_that_follow_from_the_data_alone(tmp_path: Path) -> None:
    def run(run_id: str, similarity: float, seconds: float) -> Path:
        metrics = {
            "cosine_similarity": rounds_of([similarity], 0),
            "fit_seconds": rounds_of([seconds], 0),
            "ram_bytes": rounds_of([1e6 * seconds], 0),
        }
        folder = saved(tmp_path, run_id, metrics)
        record = read_run(folder)
        record.cases = [msgspec.structs.replace(case, most_rounds=1) for case in record.cases]
        write_run(folder, record)
        return folder

    units = {"cosine_similarity": {"unit": "", "better": "higher"}}
    one, two = run(BASE, 0.97, 1.0), run(NOW, 0.90, 2.0)
    for folder in (one, two):
        (file,) = folder.glob("*/*.json")
        record = json.loads(file.read_text())
        record["units"] |= units
        file.write_text(json.dumps(record))
    assert verdicts(compare_runs(one, two)) == {
        "cosine_similarity": "regressed",
        "fit_seconds": "inconclusive",
        "ram_bytes": "inconclusive",
    }


@pytest.mark.parametrize(
    ("wall_before", "wall_now", "judged"),
    [
        (1.0, 1.02, False),  # it computes, and wall time is CPU time
        (1.5, 1.5, True),  # it waits
        (0.5, 0.5, True),  # it uses threads
        (1.0, 1.15, True),  # it has begun to wait
    ],
)
def test_wall_time_is_judged_where_it_tells_more_than_cpu_time(
    wall_before: float, wall_now: float, judged: bool, compared: Callable[..., Comparison]
) -> None:
    def timing(wall: float) -> dict[str, Figure]:
        rounds = [2.0, 2.02, 1.98, 2.01, 1.99]
        walls = [wall * value for value in rounds]
        return {
            "get/cpu_ms": Figure(value=2.0, rounds=rounds, steady=rounds, samples=100),
            "get/p50_ms": Figure(value=2.0 * wall, rounds=walls, steady=walls, samples=100),
        }

    found = by_path(compared(timing(wall_before), timing(wall_now)))
    assert found["get/cpu_ms"].verdict is not None
    assert (found["get/p50_ms"].verdict is not None) is judged


def test_a_share_is_compared_by_its_interval_over_units(compared: Callable[..., Comparison]) -> None:
    def recall(value: float, half_width: float) -> dict[str, Figure]:
        return {
            "recall_at_10": Figure(
                value=value, low=value - half_width, high=value + half_width, rounds=[value]
            )
        }

    found = by_path(compared(recall(0.90, 0.01), recall(0.80, 0.01)))["recall_at_10"]
    assert (found.verdict, found.scale) == ("regressed", "difference")
    assert found.low == pytest.approx(-0.1 - 0.01 * 2**0.5)
    assert found.high == pytest.approx(-0.1 + 0.01 * 2**0.5)
    wide = by_path(compared(recall(0.90, 0.1), recall(0.80, 0.1)))["recall_at_10"]
    assert wide.verdict == "inconclusive"
    same = by_path(compared(recall(0.90, 0.1), recall(0.90, 0.1)))["recall_at_10"]
    assert same.verdict == "unchanged"  # The same questions had the same answers.


def test_an_interval_over_units_counts_only_where_the_figure_names_it_as_one(
    compared: Callable[..., Comparison],
) -> None:
    def recall(values: Sequence[float], interval_from: Any) -> dict[str, Figure]:
        value = sum(values) / len(values)
        figure = Figure(
            value=value, low=value - 0.2, high=value + 0.2, rounds=list(values), interval_from=interval_from
        )
        return {"recall_at_10": figure}

    before, now = [0.90, 0.91, 0.90, 0.92], [0.80, 0.81, 0.80, 0.82]
    for interval_from, verdict in (("units", "inconclusive"), ("rounds", "regressed"), ("", "regressed")):
        found = compared(recall(before, interval_from), recall(now, interval_from))
        assert verdicts(found) == {"recall_at_10": verdict}


def test_a_rate_that_was_zero_can_get_worse(compared: Callable[..., Comparison]) -> None:
    zero, some = rounds_of([0.0] * 6, 0), rounds_of([0.2, 0.25, 0.2, 0.22, 0.21, 0.2], 0)
    assert verdicts(compared({"error_rate": zero}, {"error_rate": some})) == {"error_rate": "regressed"}
    assert verdicts(compared({"error_rate": zero}, {"error_rate": zero})) == {"error_rate": "unchanged"}


def test_a_metric_of_one_run_only_is_new_or_missing(compared: Callable[..., Comparison]) -> None:
    found = compared(times() | {"old_ms": rounds_of([1.0] * 6)}, times() | {"new_ms": rounds_of([1.0] * 6)})
    assert verdicts(found)["old_ms"] == "missing"
    assert verdicts(found)["new_ms"] == "new"


def test_two_runs_without_a_common_metric_are_an_error(compared: Callable[..., Comparison]) -> None:
    with pytest.raises(NothingMeasured, match="no metric in common"):
        compared({"a_ms": rounds_of([1.0, 2.0])}, {"b_ms": rounds_of([1.0, 2.0])})


def test_other_parameters_are_never_compared(tmp_path: Path) -> None:
    one = saved(tmp_path, BASE, times(), params={"batch_sizes": [10, 100], "k": 3})
    two = saved(tmp_path, NOW, times(2.0), params={"batch_sizes": [10], "k": 3})
    (only,) = compare_runs(one, two).metrics
    assert (only.verdict, only.path) == ("incomparable", "")
    assert "batch_sizes [10, 100] → [10]" in only.reason
    assert compare_runs(one, two).exit_code() == 3


def test_a_unit_that_changed_is_never_compared(tmp_path: Path) -> None:
    one, two = saved(tmp_path, BASE, times()), saved(tmp_path, NOW, times())
    (file,) = two.glob("*/*.json")
    record = json.loads(file.read_text())
    record["units"]["p50_ms"] = msgspec.to_builtins(Unit(unit="s", better="lower"))
    file.write_text(json.dumps(record))
    assert by_path(compare_runs(one, two))["stm/p50_ms"].verdict == "incomparable"


def test_times_of_rounds_in_parallel_are_shown_and_not_judged(tmp_path: Path) -> None:
    recall = {"recall": rounds_of([0.9] * 6, 0)}
    one, two = (
        saved(tmp_path, BASE, times() | recall),
        saved(tmp_path, NOW, times(3.0) | recall, parallel=4),
    )
    found = compare_runs(one, two)
    assert {path for path, verdict in verdicts(found).items() if verdict} == {"recall"}
    assert any("4 rounds in parallel" in note for note in found.notes)


def test_a_damaged_result_is_named_and_the_rest_is_compared(tmp_path: Path) -> None:
    results = [
        make_result(times(), benchmark=name, params={}, seeds=SEEDS) for name in ("read_latency", "write")
    ]
    one, two = make_run(tmp_path, BASE, results), make_run(tmp_path, NOW, results)
    next(two.glob("*/write*.json")).write_text("{")
    found = compare_runs(one, two)
    assert any("write" in problem and "damaged" in problem for problem in found.problems)
    assert [each.path for each in found.of("missing")] == [""]
    assert found.of("unchanged")


def test_runs_of_version_0_1_can_be_read_and_compared(tmp_path: Path) -> None:
    """They have a load average for each round, and no `interval_from`."""
    one, two = saved(tmp_path, BASE, times()), saved(tmp_path, NOW, times(1.5, seed=2))
    record = json.loads((one / "run.json").read_text())
    state = {"case": "c", "round": 0, "started_at": 0.0, "seconds": 1.0, "busy_percent": 50.0}
    record["moments"] = [state | {"wall_to_cpu": 1.0, "load_average": 2.5}]
    (one / "run.json").write_text(json.dumps(record))
    (file,) = one.glob("*/*.json")
    assert "interval_from" not in file.read_text()
    assert len(compare_runs(one, two).of("regressed")) == 4


@pytest.mark.parametrize("calibrated", [False, True])
def test_a_busier_machine_is_not_a_regression_of_wall_times(tmp_path: Path, calibrated: bool) -> None:
    def run(run_id: str, factor: float, contention: float) -> Path:
        metrics = {
            path: figure
            for by, leaf in ((factor, "p50_ms"), (1.0, "cpu_ms"))
            for path, figure in times(by, seed=len(run_id + leaf)).items()
            if path.endswith(leaf)
        }
        contentions = [contention] * 6
        result = make_result(metrics, params={}, seeds=SEEDS, wall_to_cpu=contentions)
        return make_run(tmp_path, run_id, [result], rounds=6)

    if calibrated:
        calibration = Calibration(made_at="2026-08-01T00:00:00", comparisons=5, floors={}, default=0.02)
        store_noise(tmp_path, ENVIRONMENT.fingerprint, "stored", calibration)
    quiet, busy = run(BASE, 1.0, 1.1), run(NOW, 2.0, 2.3)
    found = compare_runs(quiet, busy)
    assert {each.path for each in found.of("unchanged")} == {"stm/cpu_ms", "ltm/cpu_ms"}
    assert not found.of("regressed")
    assert any("not equally busy: wall ÷ CPU time was 1.10 and is 2.30" in note for note in found.notes)
    slower = run("20260803_101500_cccc", 2.0, 1.1)
    assert {each.path for each in compare_runs(quiet, slower).of("regressed")} == {
        "stm/p50_ms",
        "ltm/p50_ms",
    }


def test_the_calibrated_noise_is_used(tmp_path: Path) -> None:
    one, two = saved(tmp_path, BASE, times()), saved(tmp_path, NOW, times(1.15))
    assert compare_runs(one, two).of("regressed")
    floors = {
        metric_key("storage", "read_latency", "agentmemory", f"{tier}/{leaf}"): 0.3
        for tier in ("stm", "ltm")
        for leaf in ("cpu_ms", "p50_ms")
    }
    calibration = Calibration(made_at="2026-08-01T00:00:00", comparisons=5, floors=floors)
    store_noise(tmp_path, ENVIRONMENT.fingerprint, "stored", calibration)
    calm = compare_runs(one, two)
    assert not calm.of("regressed")
    assert {each.floor for each in calm.of("unchanged")} == {0.3}


def test_a_note_says_that_everything_became_slower(tmp_path: Path) -> None:
    def results(factor: float) -> list[Any]:
        names = ("read_latency", "write", "search")
        return [make_result(times(factor, seed=n), benchmark=name) for n, name in enumerate(names)]

    one, two = make_run(tmp_path, BASE, results(1.0)), make_run(tmp_path, NOW, results(1.08))
    assert any("nearly everything is slower, by 8%" in note for note in compare_runs(one, two).notes)


# -- environments -----------------------------------------------------------------------------


@pytest.fixture
def elsewhere(tmp_path: Path) -> tuple[Path, Path]:
    other = msgspec.structs.replace(
        ENVIRONMENT, fingerprint="beef", cores=8, packages={"numpy": "2.1.0", "msgspec": "0.19.0"}
    )
    one = saved(tmp_path / "there", BASE, times())
    return one, saved(tmp_path / "here", NOW, times(1.5), environment=other)


def test_different_environments_are_not_compared_unless_forced(elsewhere: tuple[Path, Path]) -> None:
    found = compare_runs(*elsewhere)
    assert found.environment_differences == ["cores: 2 → 8", "numpy: 2.0.0 → 2.1.0"]
    assert not found.comparable
    assert {each.verdict for each in found.metrics} == {"incomparable", None}
    assert found.exit_code() == 3
    forced = compare_runs(*elsewhere, force=True)
    assert forced.exit_code() == 2
    assert forced.environment_differences


# -- the command ------------------------------------------------------------------------------


def compare(where: Path, *arguments: object) -> Done:
    return membench("compare", *arguments, cwd=where)


def test_compare_finds_a_regression_between_two_folders_of_runs(tmp_path: Path) -> None:
    saved(tmp_path / "results/baseline", BASE, times())
    current = tmp_path / "results/current"
    saved(current, "20260801_235959_cccc", times())
    saved(current, NOW, times(1.3, seed=2))
    folders = ("--current-dir", "results/current", "--baseline-dir", "results/baseline")
    done = compare(tmp_path, *folders, "--threshold", "0.1")
    assert done.code == 2, done.err
    assert "REGRESSED (4)" in done.out
    assert "% slower (" in done.out
    assert "4 of 4 metrics regressed." in done.out
    assert compare(tmp_path, *folders, "--threshold", "0.5").code == 0


def test_another_environment_is_exit_code_3_and_can_be_forced(elsewhere: tuple[Path, Path]) -> None:
    one, two = elsewhere
    done = compare(one.parent, one, two)
    assert done.code == 3
    assert "cores: 2 → 8" in done.out
    assert compare(one.parent, one, two, "--force").code == 2


def test_an_undecided_metric_is_exit_code_4_with_strict(tmp_path: Path) -> None:
    saved(tmp_path / "benchmark_results", BASE, times(rounds=1))
    saved(tmp_path / "benchmark_results", NOW, times(rounds=1))
    assert compare(tmp_path, "--last").code == 0
    assert compare(tmp_path, "--last", "--strict").code == 4
    assert compare(tmp_path, "aaaa", "bbbb", "--strict").code == 4


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([], "name what to compare"),
        (["aaaa"], "name what to compare"),
        (["aaaa", "nothing"], "there is no run 'nothing'"),
        (["aaaa", "aaaa"], "is named for both sides: name two different runs"),
        (["--last", "--baseline", "main"], "--last and --baseline both name the base"),
        (["--last", "aaaa"], "leave out the other runs"),
        (["--baseline", "main"], "there is no baseline 'main'"),
        (["--baseline", "../main"], "a baseline can't be called '../main'"),
        (["--baseline-dir", "nowhere"], "there is no folder nowhere"),
        (["--last", "--threshold", "-1"], "threshold is -1.0: use a number ≥ 0"),
        (["--last", "--threshold", "nan"], "threshold is nan: use a number ≥ 0"),
        (["--last", "--output", "report.pdf"], "has an unknown ending: use one of .json, .md, .xml, .txt"),
        (["--last", "--config", "nothing.toml"], "there is no file nothing.toml"),
    ],
)
def test_bad_input_is_one_clear_line(
    tmp_path: Path,
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from memory.benchmarking.cli import main

    saved(tmp_path / "benchmark_results", BASE, times())
    saved(tmp_path / "benchmark_results", NOW, times())
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEMBENCH_CONFIG", raising=False)
    assert main(["compare", *arguments]) == 1
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_without_a_complete_run_the_error_names_the_command_to_finish_one(tmp_path: Path) -> None:
    saved(tmp_path / "base", BASE, times())
    saved(tmp_path / "now", NOW, times(), status="failed")
    done = compare(tmp_path, "--baseline-dir", "base", "--current-dir", "now")
    assert done.code == 1
    assert f"the newest run, {NOW}, failed" in done.error
    assert "--resume" in done.error


def test_the_format_of_a_file_follows_from_its_ending(tmp_path: Path) -> None:
    saved(tmp_path / "benchmark_results", BASE, times())
    saved(tmp_path / "benchmark_results", NOW, times(1.3))
    files = ["report.md", "report.xml", "report.json", "report.txt"]
    done = compare(tmp_path, "--last", "--json", *(part for file in files for part in ("--output", file)))
    assert done.code == 2
    whole = decode(done.out.encode())
    assert json.loads(done.out)["exit_code"] == 2
    assert decode((tmp_path / "report.json").read_bytes()) == whole
    assert (tmp_path / "report.md").read_text().startswith("### 4 of 4 metrics regressed.")
    assert (tmp_path / "report.xml").read_text().count("<failure ") == 4
    assert "REGRESSED (4)" in (tmp_path / "report.txt").read_text()
    assert "::error title=Benchmark regressed::" in compare(tmp_path, "--last", "--format", "github").out


def test_the_command_line_overrides_the_thresholds_of_the_configuration(tmp_path: Path) -> None:
    saved(tmp_path / "benchmark_results", BASE, times())
    saved(tmp_path / "benchmark_results", NOW, times(1.3))
    config = write(
        tmp_path / "membench.toml",
        """
        [compare]
        threshold = 0.5
        [compare.thresholds]
        "storage.read_latency:ltm/p50_ms" = 0.2
        """,
    )
    done = compare(tmp_path, "--last", "--config", config, "--json")
    assert {each.path for each in decode(done.out.encode()).of("regressed")} == {"ltm/p50_ms"}
    done = compare(tmp_path, "--last", "--config", config, "--json", "--threshold", 0.1)
    assert len(decode(done.out.encode()).of("regressed")) == 4


def test_real_runs_of_the_same_code_are_compared(tmp_path: Path) -> None:
    file = write(tmp_path / "own.py", GOOD)
    for _ in range(2):
        assert membench(*options(file, tmp_path / "out", "--rounds", 3), cwd=tmp_path).code == 0
    done = compare(tmp_path, "--last", "--output-dir", "out", "--json", "--threshold", 20)
    assert done.code == 0, done.err
    whole = decode(done.out.encode())
    one, two = run_folders(tmp_path / "out")
    assert whole.base.startswith(read_run(one).id)
    assert whole.current.startswith(read_run(two).id)
    judged = {each.path for each in whole.metrics if each.verdict}
    # Wall time is judged only where it tells more than CPU time, as on a busy machine.
    assert judged in ({"upper/cpu_ms"}, {"upper/cpu_ms", "upper/p50_ms"})
    assert all(each.low is not None for each in whole.metrics)
