"""`BenchmarkRunner`: the same runs as by the command, from a program."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from membench import LIGHT, write
from result_builders import make_run

from memory.benchmarking import BenchmarkConfig, BenchmarkRunner
from memory.benchmarking.errors import InvalidBenchmarkConfig, NothingMeasured, UnknownName
from memory.benchmarking.model.files import read_result, read_run
from memory.benchmarking.model.records import Job, Run
from memory.benchmarking.run.execution import Listener, new_run
from memory.benchmarking.run.executors.base import Outcome
from memory.benchmarking.runner import FinishedRun

SOURCE = """
import pathlib
def benchmark_first(size: int = 3, bench=None):
    return {"size": size, "up": bench.time("a".upper)}
def benchmark_second(size: int = 3):
    return {"size": size}
def benchmark_breaks():
    assert not pathlib.Path(__file__).with_name("broken").exists(), "broken"
    return {"size": 9}
"""


@pytest.fixture
def config(tmp_path: Path) -> BenchmarkConfig:
    config = BenchmarkConfig("quick", output_dir=tmp_path / "out")
    config.update({"rounds": 1, "targets": [LIGHT], "seconds": 0.001})
    return config


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write(tmp_path / "mine.py", SOURCE)


def figures(finished: FinishedRun) -> dict[str, float]:
    return {
        ref.benchmark: read_result(finished.folder / ref.file).metrics["size"].value
        for ref in finished.run.results
    }


class Notes(Listener):
    def __init__(self) -> None:
        self.events: list[tuple[str, Any]] = []

    def began(self, run: Run, done: int, total: int) -> None:
        self.events.append(("began", (run.status, done, total)))

    def started(self, job: Job) -> None:
        self.events.append(("started", job.number))

    def progressed(self, job: Job, event: Mapping[str, Any]) -> None:
        self.events.append((event["event"], job.number))

    def ended(self, outcome: Outcome) -> None:
        self.events.append(("ended", outcome.round is not None))


def test_run_benchmark_runs_one_benchmark_with_its_parameters(config: BenchmarkConfig, file: Path) -> None:
    notes = Notes()
    runner = BenchmarkRunner(config, paths=[file], listener=notes)
    finished = runner.run_benchmark("mine", "first", size=7)
    assert finished.succeeded
    assert not finished.interrupted
    assert finished.folder.parent == Path(config.output_dir)
    assert figures(finished) == {"first": 7.0}
    assert notes.events == [
        ("began", ("running", 0, 1)), ("started", 0), ("loaded", 0), ("timing", 0), ("ended", True),
    ]  # fmt: skip


def test_a_category_whose_benchmark_fails_can_be_resumed(config: BenchmarkConfig, file: Path) -> None:
    broken = write(file.with_name("broken"), "")
    runner = BenchmarkRunner(config, paths=[file])
    assert "mine" in runner.found.categories()  # this adds them to the configuration
    config.set_text("mine.size=5")
    finished = runner.run_category("mine")
    assert not finished.succeeded
    assert figures(finished) == {"first": 5.0, "second": 5.0}
    assert [failure.message.partition(" (")[0] for failure in finished.run.failures] == [
        "AssertionError: broken"
    ]
    broken.unlink()
    again = BenchmarkRunner(BenchmarkConfig(output_dir=config.output_dir)).resume()
    assert again.succeeded
    assert again.folder == finished.folder
    assert figures(again) == {"first": 5.0, "second": 5.0, "breaks": 9.0}
    assert again.run.failures == []


def test_resume_latest_takes_the_latest_incomplete_run(config: BenchmarkConfig, file: Path) -> None:
    cases = BenchmarkRunner(config, paths=[file]).plan(["mine"], ["second"])
    folder, _ = new_run(config, cases)
    make_run(Path(config.output_dir), "29990801_101500_ab12")
    damaged = make_run(Path(config.output_dir), "29990802_101500_ab12")
    (damaged / "run.json").write_text("{")
    finished = BenchmarkRunner(config).resume()
    assert finished.folder == folder
    assert finished.succeeded
    (damaged / "run.json").unlink()
    with pytest.raises(InvalidBenchmarkConfig, match="run 29990801_101500_ab12 is complete"):
        BenchmarkRunner(config).resume()


def test_a_run_without_any_figure_raises_an_error_with_the_causes(
    config: BenchmarkConfig, file: Path
) -> None:
    write(file.with_name("broken"), "")
    with pytest.raises(NothingMeasured, match=r"no round gave a figure: AssertionError: broken .*\(see "):
        BenchmarkRunner(config, paths=[file]).run_benchmark("mine", "breaks")


def test_a_run_works_outside_of_the_main_thread(config: BenchmarkConfig, file: Path) -> None:
    """Only the main thread can handle signals; a run elsewhere does not touch them."""
    found: list[FinishedRun] = []
    runner = BenchmarkRunner(config, paths=[file])
    thread = threading.Thread(target=lambda: found.append(runner.run_benchmark("mine", "second")))
    thread.start()
    thread.join()
    assert found[0].succeeded


def test_run_all_runs_every_benchmark(config: BenchmarkConfig, file: Path) -> None:
    runner = BenchmarkRunner(config, paths=[file])
    names = [case.name for case in runner.plan()]
    assert names == [each.full_name for each in runner.found.benchmarks]
    assert {"storage.read_latency", "mine.first"} <= set(names)


def test_invalid_names_and_numbers_are_refused_before_anything_runs(
    config: BenchmarkConfig, file: Path
) -> None:
    runner = BenchmarkRunner(config, paths=[file])
    with pytest.raises(UnknownName, match="did you mean 'mine'"):
        runner.run_category("mein")
    with pytest.raises(UnknownName, match="did you mean 'first'"):
        runner.run_benchmark("mine", "frist")
    with pytest.raises(InvalidBenchmarkConfig, match="did you mean 'size'"):
        runner.run_benchmark("mine", "first", siz=3)
    with pytest.raises(InvalidBenchmarkConfig, match="workers is 0"):
        BenchmarkRunner(config, workers=0)
    with pytest.raises(UnknownName, match="there are no runs yet"):
        runner.resume()
    assert not Path(config.output_dir).exists()


def test_the_same_runner_times_plain_functions(capsys: pytest.CaptureFixture[str]) -> None:
    runner = BenchmarkRunner()
    runner.add_benchmark("sort", lambda: sorted(range(10)), iterations=5)
    assert runner.run().result("sort").iterations == 5
    runner.print_summary()
    assert "sort" in capsys.readouterr().out


def test_a_run_is_saved_before_its_first_round(config: BenchmarkConfig, file: Path) -> None:
    cases = BenchmarkRunner(config, paths=[file]).plan(["mine"])
    folder, run = new_run(config, cases)
    assert read_run(folder) == run
    assert run.status == "interrupted", "nothing is done, and it can be resumed"
