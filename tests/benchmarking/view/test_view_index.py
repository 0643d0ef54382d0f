"""The index of runs of `membench view`, and the filter of its list."""

from __future__ import annotations

import fcntl
import gc
import os
import shutil
import tracemalloc
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from many_runs import make_many_runs
from result_builders import make_run

from memory.benchmarking.errors import UnknownName
from memory.benchmarking.model.files import read_run, write_run
from memory.benchmarking.model.records import Failure, MachineState
from memory.benchmarking.view.app import App
from memory.benchmarking.view.index import RunIndex, benchmarks_of, running_rounds
from memory.benchmarking.view.run_filter import RunFilter

FIRST, SECOND = "20260801_101500_ab11", "20260802_101500_ab12"


def test_the_newest_run_is_the_first(tmp_path: Path) -> None:
    for run_id in (SECOND, FIRST):
        make_run(tmp_path, run_id)
    assert [line.id for line in RunIndex(tmp_path).lines()] == [SECOND, FIRST]


def test_what_changes_on_disk_is_read_again_and_nothing_else(tmp_path: Path) -> None:
    folders = [make_run(tmp_path, run_id) for run_id in (FIRST, SECOND)]
    index = RunIndex(tmp_path)
    first, version = index.lines(), index.version
    assert index.lines() is first
    assert index.version == version
    # Change the file, but neither its time nor its size: only reading it again would show the change.
    path = folders[0] / "run.json"
    before = path.stat()
    with open(path, "r+b") as file:
        data = file.read().replace(b'"quick"', b'"QUICK"')
        file.seek(0)
        file.write(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    run = read_run(folders[1])
    run.profile = "standard"
    write_run(folders[1], run)
    assert [line.profile for line in index.lines()] == ["standard", "quick"]
    assert index.version > version
    os.utime(path)
    assert [line.profile for line in index.lines()] == ["standard", "QUICK"]


def test_a_deleted_run_disappears(tmp_path: Path) -> None:
    folder = make_run(tmp_path, FIRST)
    make_run(tmp_path, SECOND)
    index = RunIndex(tmp_path)
    assert len(index.lines()) == 2
    shutil.rmtree(folder)
    assert [line.id for line in index.lines()] == [SECOND]
    with pytest.raises(UnknownName, match=FIRST):
        index.line(FIRST)


def test_a_part_of_an_id_is_not_accepted(tmp_path: Path) -> None:
    make_run(tmp_path, FIRST)
    index = RunIndex(tmp_path)
    assert index.line(FIRST).id == FIRST
    for name in (
        "",
        "latest",
        "ab11",
        f"./{FIRST}",
        f"{FIRST}/",
        str(tmp_path / FIRST),
        f"../{tmp_path.name}",
    ):
        with pytest.raises(UnknownName):
            index.line(name)


def test_folders_without_a_run_are_ignored(tmp_path: Path) -> None:
    make_run(tmp_path, FIRST)
    (tmp_path / "storage").mkdir()
    (tmp_path / ".scratch").mkdir()
    (tmp_path / "plain.txt").touch()
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    assert [line.id for line in RunIndex(tmp_path).lines()] == [FIRST]


# -- going on ---------------------------------------------------------------------------------


def test_a_run_is_running_while_a_process_holds_its_lock(tmp_path: Path) -> None:
    folder = make_run(tmp_path, FIRST, status="running")
    index = RunIndex(tmp_path)
    assert index.line(FIRST).status == "interrupted"  # there is no lock
    with open(folder / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert index.line(FIRST).status == "running"
        version = index.version
    assert index.line(FIRST).status == "interrupted"  # its process is gone
    assert index.version > version
    with open(folder / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the index must not hold the lock


def test_progress_counts_rounds_once(tmp_path: Path) -> None:
    folder = make_run(tmp_path, FIRST, status="interrupted")
    run = read_run(folder)
    key = run.cases[0].key
    moment = MachineState(case=key, round=0, started_at=0, seconds=1, busy_percent=0, wall_to_cpu=None)
    failure = Failure(case=key, round=1, reason="crash", message="")
    # A resumed run lists a round of both attempts.
    run.moments, run.failures = [moment, moment], [failure]
    write_run(folder, run)
    line = RunIndex(tmp_path).line(FIRST)
    assert (line.done, line.total) == (2, 3)


def test_running_rounds_are_those_with_a_scratch_folder(tmp_path: Path) -> None:
    make_run(tmp_path, FIRST)
    line = RunIndex(tmp_path).line(FIRST)
    assert running_rounds(line) == []
    (tmp_path / ".scratch" / FIRST / "storage.write@x.2").mkdir(parents=True)
    assert running_rounds(line) == ["storage.write@x.2"]


# -- choosing ---------------------------------------------------------------------------------


def ids(folder: Path, **asked: str) -> list[str]:
    chosen = RunFilter.from_query({name: [value] for name, value in asked.items()})
    return [line.id for line in chosen.apply(RunIndex(folder).lines())]


def test_runs_are_chosen_by_each_field(tmp_path: Path) -> None:
    make_run(tmp_path, FIRST)
    failure = Failure(case="x", round=0, reason="crash", message="")
    make_run(
        tmp_path, SECOND, failures=[failure], profile="full", targets=["a", "b"], command="membench run -x"
    )
    assert ids(tmp_path) == [SECOND, FIRST]
    assert ids(tmp_path, profile="full") == ids(tmp_path, status="failed") == [SECOND]
    assert (
        ids(tmp_path, target="b")
        == ids(tmp_path, text="-X")
        == ids(tmp_path, since="2026-08-02")
        == [SECOND]
    )
    assert ids(tmp_path, until="2026-08-01") == ids(tmp_path, text="write_THROUGHPUT quick") == [FIRST]
    assert ids(tmp_path, text="quick full") == []


@pytest.mark.parametrize("page", ["0", "-1", "x", "7", "99999999999999", "１"])
def test_an_invalid_page_number_still_shows_runs(tmp_path: Path, page: str) -> None:
    make_run(tmp_path, FIRST)
    assert FIRST in App(tmp_path).page(f"/?page={quote(page)}").body


def test_an_address_restores_its_filter() -> None:
    choice = RunFilter(text="a&b=<c>", profile="ü", status="failed", since="2026-01-01", page=3)
    asked = parse_qs(urlsplit(choice.address(3)).query)
    assert RunFilter.from_query(asked) == choice
    assert RunFilter().address() == "/"
    assert RunFilter.from_query(parse_qs(urlsplit(choice.address()).query)) == replace(choice, page=1)


def test_all_benchmarks_of_all_runs_are_known(tmp_path: Path) -> None:
    make_run(tmp_path, FIRST)
    assert benchmarks_of(RunIndex(tmp_path).lines()) == [("storage", "write_throughput", "agentmemory")]


def test_a_run_takes_little_memory(tmp_path: Path) -> None:
    count = 200
    make_many_runs(tmp_path, count, with_results=False)
    RunIndex(tmp_path).lines()  # do not count what is allocated only once
    tracemalloc.start()
    try:
        index = RunIndex(tmp_path)
        index.lines()
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / count < 2000
