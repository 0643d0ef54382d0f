"""`run --until-decided`: more rounds of what is undecided only, and a stricter test for each look."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from membench import LIGHT, membench, write
from result_builders import make_result, make_run

from memory.benchmarking.cli import main
from memory.benchmarking.metrics import Declaration
from memory.benchmarking.model.aggregate import make_result as aggregate
from memory.benchmarking.model.files import read_result, read_run, run_folders
from memory.benchmarking.model.records import Case, Figure, Round, Samples
from memory.benchmarking.run.until_decided import REPEATS
from memory.benchmarking.verdicts.compare import compare_runs

BENCHMARKS = """
import math, random

def benchmark_noisy(bench=None):
    "Varies by 6 % from round to round."
    return {"a_ms": math.exp(random.Random(bench.seed).gauss(0, 0.06))}

def benchmark_calm(bench=None):
    "Hardly varies."
    return {"a_ms": math.exp(random.Random(bench.seed).gauss(0, 0.001))}

def benchmark_once(bench=None):
    "Depends on nothing."
    return {"a_bytes": 5}
"""


def run(where: Path, *more: object) -> None:
    file = write(where / "own.py", BENCHMARKS)
    done = membench("run", "--path", file, "--category", "own", "--target", LIGHT, *more, cwd=where)
    assert done.code == 0, done.err


def test_only_what_is_undecided_gets_more_rounds(tmp_path: Path) -> None:
    run(tmp_path, "--rounds", 6, "--quiet")
    assert membench("baseline", "set", "main", cwd=tmp_path).code == 0
    run(tmp_path, "--rounds", 3, "--until-decided", "--baseline", "main", "--budget", 600, "--seed", 5)
    folder = run_folders(tmp_path / "benchmark_results")[-1]
    found = read_run(folder)
    assert found.status == "complete"
    assert found.looks > 1
    rounds = {ref.benchmark: ref.rounds for ref in found.results}
    assert rounds["calm"] == rounds["once"] == 3
    assert rounds["noisy"] == 3 * 2 ** (found.looks - 1)
    (noisy,) = (ref for ref in found.results if ref.benchmark == "noisy")
    assert len(read_result(folder / noisy.file).metrics["a_ms"].rounds) == rounds["noisy"]
    comparison = compare_runs(run_folders(tmp_path / "benchmark_results")[0], folder)
    assert comparison.of("inconclusive") == []
    assert membench("compare", "--baseline", "main", "--strict", cwd=tmp_path).code == 0


def test_added_rounds_repeat_the_data_of_the_baseline(tmp_path: Path) -> None:
    # Its figure depends on how often it was called, not on the data, so more rounds never decide it.
    file = write(
        tmp_path / "own.py",
        f"""
        from pathlib import Path
        calls = Path({str(tmp_path / "calls")!r})

        def benchmark_noisy(bench=None):
            with calls.open("a") as file:
                file.write(".")
            return {{"a_ms": 3.0 ** (calls.stat().st_size * 7 % 5)}}
        """,
    )
    arguments = ("run", "--path", file, "--category", "own", "--target", LIGHT)
    assert membench(*arguments, "--rounds", 4, "--quiet", cwd=tmp_path).code == 0
    assert membench("baseline", "set", "main", cwd=tmp_path).code == 0
    more = ("--until-decided", "--baseline", "main", "--budget", 600)
    assert membench(*arguments, "--rounds", 2, *more, cwd=tmp_path).code == 0
    base, now = run_folders(tmp_path / "benchmark_results")
    seeds = []
    for folder in (base, now):
        (ref,) = read_run(folder).results
        seeds.append(read_result(folder / ref.file).metadata["seeds"])
    assert len(set(seeds[0])) == 4
    assert len(seeds[1]) == 4 * REPEATS
    assert seeds[1] == [seeds[0][number % 4] for number in range(len(seeds[1]))]


def test_the_budget_ends_the_rounds(tmp_path: Path) -> None:
    run(tmp_path, "--rounds", 2, "--quiet")
    assert membench("baseline", "set", "main", cwd=tmp_path).code == 0
    run(tmp_path, "--rounds", 2, "--until-decided", "--baseline", "main", "--budget", 1e-6, "--seed", 5)
    assert read_run(run_folders(tmp_path / "benchmark_results")[-1]).extra_rounds == {}


def test_a_baseline_of_one_round_gets_no_more_rounds(tmp_path: Path) -> None:
    run(tmp_path, "--rounds", 1, "--quiet")
    assert membench("baseline", "set", "main", cwd=tmp_path).code == 0
    run(tmp_path, "--rounds", 1, "--until-decided", "--baseline", "main", "--seed", 5)
    assert read_run(run_folders(tmp_path / "benchmark_results")[-1]).looks == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--until-decided"], "--until-decided has nothing to compare with: add --baseline NAME"),
        (["--baseline", "main"], "--baseline has no effect without --until-decided"),
        (["--budget", "5"], "--budget has no effect without --until-decided"),
        (["--until-decided", "--baseline", "main", "--parallel"], "leave out --parallel"),
        (["--until-decided", "--baseline", "main", "--budget", "-1"], "--budget is -1: use a number"),
        (["--until-decided", "--baseline", "main"], "there is no baseline 'main'"),
    ],
)
def test_bad_input_is_one_clear_line(
    tmp_path: Path,
    arguments: list[str],
    complaint: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["run", "--category", "storage", *arguments]) == 1
    assert complaint in capsys.readouterr().err


def test_every_look_makes_the_test_stricter(tmp_path: Path) -> None:
    def stored(run_id: str, values: list[float], looks: int) -> Path:
        figure = Figure(value=math.exp(sum(map(math.log, values)) / len(values)), rounds=values)
        result = make_result({"a_ms": figure}, timestamp=run_id[:15], params={}, seeds=[0])
        return make_run(tmp_path / str(looks), run_id, [result], rounds=5, looks=looks)

    found = []
    for looks in (1, 2, 50):
        before = stored("20260801_101500_aaaa", [1.0, 1.04, 0.97, 1.02, 0.99], looks)
        now = stored("20260802_101500_bbbb", [1.35, 1.05, 1.3, 1.12, 1.28], looks)
        (metric,) = compare_runs(before, now).metrics
        found.append(metric.verdict)
    assert found[0] == "regressed"
    assert found[-1] == "inconclusive"


def test_a_comparison_uses_the_least_disturbed_block_of_each_round() -> None:
    def integers(*values: int) -> bytes:
        return b"".join(value.to_bytes(8, "little") for value in values)

    def a_round(number: int, disturbance: int) -> Round:
        samples = Samples(
            wall_ns=integers(*[2_000_000] * 6),
            block_samples=integers(2, 4),
            block_wall_ns=integers(4_000_000, 8_000_000 + disturbance),
            block_cpu_ns=integers(2_000_000 + disturbance, 4_000_000),
            calls_per_sample=2,
            work=1,
        )
        return Round(
            number=number, seed=0, figures={"t/cpu_ms": 9.0, "t/p50_ms": 9.0, "t/mean_ms": 9.0},
            samples={"t": samples}, other={}, not_available={}, started_at=0.0, load_seconds=0.0,
            seconds=1.0, peak_rss_bytes=1, wall_to_cpu=None,
        )  # fmt: skip

    case = Case(category="c", benchmark="b", target="t", params={})
    rounds = [a_round(number, 10_000_000 * number) for number in range(3)]
    found = aggregate(case, rounds, Declaration(), "20260801_101500", {}).metrics
    assert found["t/cpu_ms"].steady == [0.5] * 3
    assert found["t/p50_ms"].steady == [1.0] * 3
    assert found["t/mean_ms"].steady == []
