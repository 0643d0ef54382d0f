"""Rounds as processes: limits, processes left behind, stopping."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
from membench import LIGHT, write

from memory.benchmarking.errors import ResultNotSaved
from memory.benchmarking.model.records import Case, Job
from memory.benchmarking.run.executors.local import LocalExecutor, Outcome, _end_group

SOURCE = """
import os, pathlib, signal, subprocess, sys, tempfile, threading
HERE = pathlib.Path(__file__).parent

def benchmark_good(size=3, bench=None):
    print("hello")
    return {"upper": bench.time("a".upper, label="upper"), "size": size}

def benchmark_waits():
    (HERE / f"at-work.{os.getpid()}").touch()
    threading.Event().wait()

def benchmark_meets(other=""):
    "Ends when the other one is at work too."
    (HERE / f"met.{os.getpid()}").touch()
    while len(list(HERE.glob("met.*"))) < 2:
        threading.Event().wait(0.01)
    return {"figure": 1}

def benchmark_waits_with_a_child():
    child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
    (HERE / f"child.{child.pid}").touch()
    benchmark_waits()

def benchmark_finds_its_folder():
    where = pathlib.Path(tempfile.gettempdir())
    found = sorted(path.name for path in where.iterdir())
    (where / "left").touch()
    return {"figure": 1, "found": found, "where": str(where)}

def benchmark_answers_and_dies():
    "Everything is well until the very end."
    def end():
        while not list(HERE.glob("answers/*.msgpack")):
            pass
        os.kill(os.getpid(), signal.SIGSEGV)
    threading.Thread(target=end).start()
    os._exit = lambda code: threading.Event().wait()
    return {"figure": 1}
"""


@pytest.fixture
def make_job(tmp_path: Path) -> Callable[..., Job]:
    file = write(tmp_path / "mine.py", SOURCE)

    def make(benchmark: str, number: int = 0, **params: Any) -> Job:
        case = Case(category="mine", benchmark=benchmark, target=LIGHT, params=params, source=str(file))
        return Job(
            case=case,
            number=number,
            seed=number,
            seconds=0.001,
            scratch=str(tmp_path / "scratch" / f"{benchmark}.{number}"),
            answer=str(tmp_path / "answers" / f"{benchmark}.{number}.msgpack"),
        )

    return make


def at_work(folder: Path, what: str = "at-work") -> list[int]:
    return [int(path.suffix[1:]) for path in folder.glob(f"{what}.*")]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_successful_round_gives_its_record(make_job: Callable[..., Job], tmp_path: Path) -> None:
    heard: list[Mapping[str, Any]] = []
    started: list[Job] = []
    executor = LocalExecutor(on_start=started.append, on_event=lambda job, event: heard.append(event))
    job = make_job("good", size=4)
    (outcome,) = executor.run([job])
    assert outcome.round is not None
    assert (outcome.reason, outcome.message) == (None, "")
    assert outcome.round.figures["size"] == 4
    assert outcome.log == "hello\n"
    assert 0 < outcome.start_seconds < outcome.seconds
    assert started == [job]
    assert [event["event"] for event in heard] == ["loaded", "timing"]
    assert not Path(job.scratch).exists()
    assert Path(job.answer).is_file()


def test_a_round_has_an_empty_folder_of_its_own_which_is_gone_afterwards(
    make_job: Callable[..., Job],
) -> None:
    job = make_job("finds_its_folder")
    (outcome,) = LocalExecutor().run([job])
    assert outcome.round is not None
    assert outcome.round.other == {"found": [], "where": job.scratch}
    assert not Path(job.scratch).exists()


def test_a_hung_round_is_killed_with_its_children(make_job: Callable[..., Job], tmp_path: Path) -> None:
    executor = LocalExecutor(timeout_seconds=3600)

    def shorten(job: Job, event: Mapping[str, Any]) -> None:
        """Set the deadline to now, once its child has started."""
        while not at_work(tmp_path, "child"):
            time.sleep(0.01)
        for running in executor._running.values():
            running.deadline = 0.0

    executor.on_event = shorten
    (outcome,) = executor.run([make_job("waits_with_a_child")])
    assert (outcome.round, outcome.reason) == (None, "timeout")
    assert outcome.message == "did not end within 3600 s (--timeout)"
    (child,) = at_work(tmp_path, "child")
    assert not is_alive(child)


def test_two_workers_run_two_rounds_at_the_same_time(make_job: Callable[..., Job]) -> None:
    outcomes = list(LocalExecutor(workers=2).run([make_job("meets", 0), make_job("meets", 1)]))
    assert [outcome.reason for outcome in outcomes] == [None, None]


def test_no_round_starts_after_finish(make_job: Callable[..., Job]) -> None:
    executor = LocalExecutor()
    executor.on_start = lambda job: executor.finish()
    outcomes = list(executor.run(make_job("good", number) for number in range(3)))
    assert [outcome.job.number for outcome in outcomes] == [0]
    assert outcomes[0].round is not None


def test_abort_kills_all_rounds_at_once(make_job: Callable[..., Job], tmp_path: Path) -> None:
    executor = LocalExecutor(workers=2)

    def abort(job: Job, event: Mapping[str, Any]) -> None:
        executor.abort()

    executor.on_event = abort
    outcomes = list(executor.run([make_job("waits", 0), make_job("waits", 1), make_job("good", 2)]))
    assert {(outcome.reason, outcome.message) for outcome in outcomes} == {
        ("killed", "the run was stopped")
    }
    assert sorted(outcome.job.number for outcome in outcomes) == [0, 1]
    assert not any(map(is_alive, at_work(tmp_path)))
    assert not any((tmp_path / "scratch").iterdir())


def test_closing_the_generator_kills_running_rounds(make_job: Callable[..., Job], tmp_path: Path) -> None:
    outcomes = LocalExecutor(workers=2).run([make_job("good"), make_job("waits")])
    next(outcomes)
    outcomes.close()  # type: ignore[attr-defined]
    assert not any(map(is_alive, at_work(tmp_path)))
    assert not any((tmp_path / "scratch").iterdir())


def test_a_result_written_before_a_crash_does_not_count(make_job: Callable[..., Job]) -> None:
    job = make_job("answers_and_dies")
    (outcome,) = LocalExecutor().run([job])
    assert (outcome.round, outcome.message) == (None, "crashed with SIGSEGV")
    assert not Path(job.answer).exists(), "a resumed run would take it up"


def test_a_round_above_the_memory_limit_is_killed(make_job: Callable[..., Job]) -> None:
    (outcome,) = LocalExecutor(memory_limit_bytes=1).run([make_job("waits")])
    assert (outcome.round, outcome.reason) == (None, "memory")
    assert outcome.message.endswith("MB of RAM, more than 0 MB (memory_limit_mb)")


def test_the_error_names_a_folder_that_can_not_be_created(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    (tmp_path / "scratch").write_text("in the way")
    with pytest.raises(ResultNotSaved, match=r"scratch/good\.0 can't be created: Not a directory"):
        list(LocalExecutor().run([make_job("good")]))


def test_no_descriptor_and_no_child_is_left(make_job: Callable[..., Job]) -> None:
    list(LocalExecutor().run([make_job("good")]))  # loads modules that are loaded once
    before = os.listdir("/proc/self/fd")
    outcomes: list[Outcome] = list(LocalExecutor(workers=2).run([make_job("good", n) for n in range(2)]))
    assert len(outcomes) == 2
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert psutil.Process().children() == []


# -- processes left behind --------------------------------------------------------------------


def start_group(program: str) -> psutil.Popen:
    return psutil.Popen([sys.executable, "-c", program], start_new_session=True)


def test_a_process_group_without_a_live_process_counts_as_ended() -> None:
    process = start_group("")
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # it has ended, and was not waited for
    assert not _end_group(process.pid)
    process.wait()
    assert not _end_group(process.pid), "there is no such group any more"


def test_a_live_process_of_the_group_is_killed_and_reported() -> None:
    process = start_group("import signal; signal.pause()")
    assert _end_group(process.pid)
    assert process.wait() == -signal.SIGKILL
