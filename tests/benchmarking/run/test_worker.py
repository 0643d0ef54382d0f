"""The worker: flattening a benchmark's result, and running one job."""

from __future__ import annotations

import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from membench import LIGHT, PATIENCE, write

from memory.benchmarking import not_available
from memory.benchmarking.bench import Score
from memory.benchmarking.errors import BrokenBenchmark, InvalidResult
from memory.benchmarking.measure.timing import Timing, time_calls
from memory.benchmarking.model.aggregate import _plant
from memory.benchmarking.model.paths import NO_FIGURES
from memory.benchmarking.model.records import Case, Job, Round
from memory.benchmarking.run.worker import flatten_result, load_benchmark, run_job


def timing() -> Timing:
    return time_calls(lambda: None, calls=20)


# -- results ----------------------------------------------------------------------------------


def test_leaves_are_figures_timings_texts_and_reasons_for_missing_figures() -> None:
    clock = timing()
    leaves = flatten_result(
        {
            "count": 3,
            "deep": {"clock": clock, "ratio": np.float64(0.5)},
            "score": Score(0.5, 0.4, 0.6),
            "score alone": Score(0.25),
            "text": "text",
            "flag": True,
            "there": not_available("why"),
        }
    )
    expected = {f"deep/clock/{name}": value for name, value in clock.items()}
    assert leaves.figures == {
        "count": 3.0, "deep/ratio": 0.5, "score": 0.5, "score alone": 0.25, **expected
    }  # fmt: skip
    assert leaves.timings == {"deep/clock": clock}
    assert leaves.intervals == {"score": (0.4, 0.6)}
    assert leaves.other == {"text": "text", "flag": True}
    assert leaves.not_available == {"there": "why"}


def test_a_timing_alone_is_a_result() -> None:
    leaves = flatten_result(timing())
    assert list(leaves.timings) == [""]
    assert leaves.figures["p50_ms"] > 0


@pytest.mark.parametrize(
    ("tree", "message"),
    [
        (None, "returned NoneType: it must return a dictionary"),
        (3.0, "returned float: it must return a dictionary"),
        ({"a": {"b": math.nan}}, "a/b is nan: a figure must be finite"),
        ({"a": np.float32("inf")}, "a is inf: a figure must be finite"),
        ({"a": Score(1.0, -math.inf, 1.0)}, "a is -inf: a figure must be finite"),
        ({"a": 1, "b": object()}, "b is a object: use numbers"),
        ({"a": 1, "b": {"c": lambda: 1}}, "b/c is a function: use numbers"),
        ({"a": 1, "": 2}, "'' can't be a key"),
        ({"a": {"b\n": 2}}, r"'b\\n' can't be a key"),
        ({"a/b": 1, "a∕b": 2}, "a∕b is in the result twice"),
        ({1: 1, "1": 2}, "1 is in the result twice"),
    ],
)
def test_the_error_names_a_leaf_that_can_not_be_recorded(tree: Any, message: str) -> None:
    with pytest.raises(InvalidResult, match=message):
        flatten_result(tree)


@pytest.mark.parametrize("tree", [{}, {"a": {"b": {}}}, {"a": "text"}])
def test_a_result_without_figures_is_not_available(tree: Any) -> None:
    leaves = flatten_result(tree)
    assert not leaves.figures
    assert leaves.not_available == {"": NO_FIGURES}


keys = st.text(min_size=1, max_size=6).filter(str.isprintable).filter(lambda key: "∕" not in key)
leaves_of_trees = (
    st.integers(-(10**6), 10**6)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans()
    | st.text(max_size=5)
    | st.lists(st.integers(-9, 9), max_size=3)
)
trees = st.dictionaries(
    keys,
    st.recursive(
        leaves_of_trees,
        lambda below: st.dictionaries(keys, below, min_size=1, max_size=3),
        max_leaves=12,
    ),
    max_size=4,
).map(lambda tree: {**tree, "figure": 1.0})


@settings(deadline=None, max_examples=50)
@given(trees)
def test_a_flattened_result_can_be_put_together_again(tree: dict[str, Any]) -> None:
    leaves = flatten_result(tree)
    again: dict[str, Any] = {}
    for path, value in {**leaves.other, **leaves.figures}.items():
        _plant(again, path, value)
    assert again == with_written_keys(tree)


def with_written_keys(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key.replace("/", "∕"): with_written_keys(value) for key, value in tree.items()}


# -- one job ----------------------------------------------------------------------------------


def job_for(file: Path, benchmark: str, tmp_path: Path, **params: Any) -> Job:
    case = Case(category=file.stem, benchmark=benchmark, target=LIGHT, params=params, source=str(file))
    scratch = tmp_path / "scratch"
    scratch.mkdir(exist_ok=True)
    return Job(
        case=case,
        number=2,
        seed=7,
        seconds=0.001,
        scratch=str(scratch),
        answer=str(tmp_path / "rounds" / "answer.msgpack"),
    )


SOURCE = """
from memory.benchmarking.errors import NotSupported
def benchmark_x(size: int = 3, bench=None):
    return {"size": size, "seed": bench.seed, "upper": bench.time("a".upper, label="in capitals")}
def benchmark_without_bench(size=3): return {"size": size}
def benchmark_with_anything(**kwargs): return {"given": len(kwargs), "bench": str("bench" in kwargs)}
def benchmark_not_supported(): raise NotSupported("light can't do this")
"""


def test_a_job_gives_a_round_and_sends_progress_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    file = write(tmp_path / "mine.py", SOURCE)
    told: list[dict[str, Any]] = []
    record = run_job(job_for(file, "x", tmp_path, size=5), lambda **event: told.append(event))
    assert (record.number, record.seed) == (2, 7)
    assert record.figures["size"] == 5
    assert record.figures["seed"] == 7
    assert set(record.samples) == {"upper"}
    assert [event["event"] for event in told] == ["loaded", "timing"]
    assert told[1]["label"] == "in capitals"
    assert told[1]["p50_ms"] == record.figures["upper/p50_ms"]
    assert record.peak_rss_bytes > 1_000_000
    assert record.wall_to_cpu
    for benchmark, figures in (("without_bench", {"size": 4.0}), ("with_anything", {"given": 2.0})):
        found = run_job(job_for(file, benchmark, tmp_path, size=4), lambda **event: None)
        assert found.figures == figures
    refused = run_job(job_for(file, "not_supported", tmp_path), lambda **event: None)
    assert (refused.figures, refused.not_available) == ({}, {"": "light can't do this"})


def test_the_error_names_a_benchmark_that_is_gone(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", SOURCE)
    job = job_for(file, "gone", tmp_path)
    with pytest.raises(BrokenBenchmark, match=f"mine.gone is no longer in {file}"):
        load_benchmark(job.case)


def test_a_worker_reads_its_job_from_a_line_and_writes_its_round(tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", SOURCE)
    job = job_for(file, "x", tmp_path, size=5)
    process = subprocess.Popen(
        [sys.executable, "-m", "memory.benchmarking.run.worker", "2"],
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=tmp_path,
    )
    assert process.stdin is not None
    process.stdin.write(msgspec.json.encode(job) + b"\n")
    process.stdin.flush()
    assert process.stderr is not None
    events = [msgspec.json.decode(line) for line in process.stderr]
    assert process.wait(timeout=PATIENCE) == 0
    process.stdin.close()
    process.stderr.close()
    assert [event["event"] for event in events] == ["began", "loaded", "timing"]
    (answer,) = (tmp_path / "rounds").iterdir()
    assert msgspec.msgpack.decode(answer.read_bytes(), type=Round).figures["size"] == 5


def test_a_worker_started_by_hand_exits_with_an_explanation(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "memory.benchmarking.run.worker", "2"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert done.stderr == "membench worker: no job on standard input; start it with `membench run`\n"
