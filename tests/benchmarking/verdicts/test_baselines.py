"""Baselines: copies that stay when their run is deleted, and are complete after a kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from membench import PATIENCE, membench
from result_builders import make_result, make_run, storage_figures

from memory.benchmarking.errors import DamagedResult, InvalidBenchmarkConfig, NothingMeasured, UnknownName
from memory.benchmarking.model.files import delete_run, read_result, read_run, run_folders
from memory.benchmarking.results import BenchmarkResults
from memory.benchmarking.verdicts.baselines import (
    baseline_folder,
    list_baselines,
    remove_baseline,
    set_baseline,
)

ONE, TWO = "20260801_101500_aaaa", "20260802_101500_bbbb"


def copies(output_dir: Path) -> list[str]:
    return sorted(path.name for path in (output_dir / "baselines").iterdir() if path.is_dir())


def test_a_baseline_stays_when_its_run_is_deleted(tmp_path: Path) -> None:
    run = make_run(tmp_path, ONE)
    set_baseline(tmp_path, "main", run)
    before = [read_result(run / ref.file) for ref in read_run(run).results]
    delete_run(run)
    kept = baseline_folder(tmp_path, "main")
    assert [read_result(kept / ref.file) for ref in read_run(kept).results] == before


def test_a_name_can_be_moved_to_another_run(tmp_path: Path) -> None:
    set_baseline(tmp_path, "main", make_run(tmp_path, ONE))
    set_baseline(tmp_path, "main", make_run(tmp_path, TWO))
    set_baseline(tmp_path, "other", tmp_path / ONE)
    assert [(each.name, each.run_id) for each in list_baselines(tmp_path)] == [
        ("main", TWO),
        ("other", ONE),
    ]
    assert len(copies(tmp_path)) == 2
    remove_baseline(tmp_path, "main")
    assert [each.name for each in list_baselines(tmp_path)] == ["other"]
    assert len(copies(tmp_path)) == 1


def test_baselines_are_neither_runs_nor_results(tmp_path: Path) -> None:
    run = make_run(tmp_path, ONE)
    results = BenchmarkResults(tmp_path).list_results()
    set_baseline(tmp_path, "main", run)
    assert run_folders(tmp_path) == [run]
    assert BenchmarkResults(tmp_path).list_results() == results


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a/b", "../a", "a b", "-x", "a\n", "ä", "x" * 65, "a@b", "*"]
)
def test_a_name_that_is_not_safe_as_a_file_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidBenchmarkConfig, match="can't be called"):
        set_baseline(tmp_path, name, make_run(tmp_path, ONE))


def test_an_unknown_name_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="set one with"):
        baseline_folder(tmp_path, "main")
    set_baseline(tmp_path, "main", make_run(tmp_path, ONE))
    with pytest.raises(UnknownName, match="did you mean 'main'"):
        baseline_folder(tmp_path, "mian")
    with pytest.raises(NothingMeasured, match="has no results"):
        set_baseline(tmp_path, "empty", make_run(tmp_path, TWO, []))
    (tmp_path / "baselines" / "main.json").write_text("{")
    with pytest.raises(DamagedResult, match="set the baseline again"):
        baseline_folder(tmp_path, "main")


def test_a_killed_copy_leaves_the_old_baseline_and_blocks_nothing(tmp_path: Path) -> None:
    many = [make_result(storage_figures(), benchmark=f"number_{number}") for number in range(150)]
    set_baseline(tmp_path, "main", make_run(tmp_path, ONE))
    make_run(tmp_path, TWO, many)
    program = (
        "import sys; from pathlib import Path\n"
        "from memory.benchmarking.verdicts.baselines import set_baseline\n"
        "print('ready', flush=True)\n"
        "set_baseline(Path(sys.argv[1]), 'main', Path(sys.argv[1]) / sys.argv[2])"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path), TWO], stdout=subprocess.PIPE, text=True
    ) as copying:
        assert copying.stdout is not None
        assert copying.stdout.readline() == "ready\n"
        deadline = time.monotonic() + PATIENCE
        while not list((tmp_path / "baselines").glob("main@*/storage/number_1*")):
            assert time.monotonic() < deadline
        os.kill(copying.pid, signal.SIGKILL)
    kept = read_run(baseline_folder(tmp_path, "main"))
    assert kept.id in (ONE, TWO)
    assert len(kept.results) == (1 if kept.id == ONE else 150)
    set_baseline(tmp_path, "main", tmp_path / ONE)
    assert len(copies(tmp_path)) == 1


def test_the_baseline_commands(tmp_path: Path) -> None:
    make_run(tmp_path / "benchmark_results", ONE)
    make_run(tmp_path / "benchmark_results", TWO)

    def baseline(*arguments: str) -> str:
        done = membench("baseline", *arguments, cwd=tmp_path)
        assert done.code == 0, done.err
        return done.out

    assert "There are no baselines" in baseline("list")
    assert f"main is now {TWO}" in baseline("set", "main")
    baseline("set", "first", "aaaa")
    assert ONE in baseline("list")
    listed = json.loads(baseline("list", "--json"))["baselines"]
    assert [each["name"] for each in listed] == ["first", "main"]
    assert "write_throughput" in baseline("show", "first")
    compared = membench("compare", "--baseline", "first", cwd=tmp_path)
    assert compared.code == 0, compared.err
    assert ONE in compared.out
    baseline("rm", "first")
    gone = membench("baseline", "show", "first", cwd=tmp_path)
    assert gone.code == 1
    assert "there is no baseline 'first'" in gone.error
