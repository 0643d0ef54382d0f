"""`pytest --membench` in real sessions: records of the same form, each round in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from membench import membench, only_run, surroundings, write

from memory.benchmarking.bundles.verify import verify_bundle
from memory.benchmarking.bundles.write import make_bundle
from memory.benchmarking.model.files import read_result_of

PLUGIN = ("-p", "memory.benchmarking.pytest_plugin")
TESTS = """
import os
import pytest

def test_upper(membench):
    timing = membench.time(lambda: "a".upper(), name="upper")
    assert timing["p50_ms"] > 0
    membench.record("process", {"pid_mod": os.getpid() % 100_000, "answer": 42})

@pytest.mark.parametrize("size", [10, 1000])
def test_sum(membench, size):
    assert membench(sum, range(size)) == size * (size - 1) // 2

def test_without():
    pass

def test_fails(membench):
    membench.time(lambda: None)
    assert False
"""


def session(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    import importlib.metadata

    known = [point.value for point in importlib.metadata.entry_points(group="pytest11")]
    plugin = () if "memory.benchmarking.pytest_plugin" in known else PLUGIN
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *arguments],
        cwd=folder,
        env=surroundings(PYTEST_ADDOPTS=" ".join(plugin)),
        capture_output=True,
        text=True,
        timeout=240,
    )


def test_without_the_option_each_operation_is_called_once_and_nothing_is_saved(tmp_path: Path) -> None:
    write(tmp_path / "test_calls.py", """
        def test_once(membench):
            calls = []
            membench.time(lambda item: calls.append(item), [1, 2, 3])
            assert calls == [1]
    """)  # fmt: skip
    done = session(tmp_path)
    assert done.returncode == 0, done.stdout
    assert not (tmp_path / "benchmark_results").exists()


def test_with_it_a_run_is_saved_that_can_be_shown_compared_and_verified(tmp_path: Path) -> None:
    write(tmp_path / "test_own.py", TESTS)
    done = session(tmp_path, "--membench", "--membench-rounds", "2", "--membench-seconds", "0.005")
    assert done.returncode == 1, done.stdout
    assert "3 tests measured: " in done.stdout
    folder, run = only_run(tmp_path / "benchmark_results")
    assert [ref.benchmark for ref in run.results] == ["upper", "sum_10", "sum_1000"]
    assert run.status == "complete"
    result = read_result_of(folder, run.results[0])
    assert len(result.metrics["upper/p50_ms"].rounds) == 2
    first, second = result.metrics["process/pid_mod"].rounds
    assert first != second, "each round has a process of its own"
    assert result.metrics["process/answer"].value == 42
    path = tmp_path / "run.zip"
    path.write_bytes(make_bundle([folder]))
    found = verify_bundle(path)
    assert found.problems == []
    assert found.counts.from_samples
    shown = membench("results", "export", "--format", "pytest-benchmark", cwd=tmp_path)
    assert shown.code == 0, shown.err


def test_wrong_options_are_usage_errors(tmp_path: Path) -> None:
    write(tmp_path / "test_own.py", "def test_nothing(): pass")
    done = session(tmp_path, "--membench", "--membench-rounds", "0")
    assert done.returncode == 4
    assert "--membench-rounds has to be at least 1" in done.stderr
    assert "nothing was measured" in session(tmp_path, "--membench").stdout
