"""What every executor promises (run/executors/base.py). Inherit from it, and add the fixture `make`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from membench import LIGHT, write

from memory.benchmarking.model.records import Case, Job, Round
from memory.benchmarking.run.executors.base import Executor, Limits

SOURCE = """
import os, pathlib, signal, subprocess, sys, threading
from beside import WORD

def benchmark_good(size=3, bench=None):
    return {"upper": bench.time(WORD.upper), "size": size}

def benchmark_raises():
    print("printed before")
    raise ValueError("what went wrong")

def benchmark_segfaults():
    os.kill(os.getpid(), signal.SIGSEGV)

def benchmark_waits(marks=""):
    pathlib.Path(marks, f"at-work.{os.getpid()}").touch()
    while not pathlib.Path(marks, "release").exists():
        threading.Event().wait(0.02)
    return {"figure": 1}

def benchmark_leaves_a_process():
    subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"], start_new_session=True)
    return {"figure": 1}
"""

Make = Callable[..., AbstractContextManager[Executor]]
"""Makes an executor for jobs, with limits."""


def pids_of(marks: Path) -> list[int]:
    """Return the processes of the rounds that have begun to wait."""
    return [int(path.suffix[1:]) for path in marks.glob("at-work.*")]


def until(condition: Callable[[], Any]) -> None:
    """Return when a condition holds; pytest's own timeout ends it otherwise."""
    while not condition():
        threading.Event().wait(0.02)


class Jobs:
    """Makes jobs of the benchmarks above, in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        self.source = write(folder / "code" / "mine.py", SOURCE)
        write(folder / "code" / "beside.py", "WORD = 'word'")

    def of(self, benchmark: str, number: int = 0) -> Job:
        params = {"marks": str(self.marks)} if benchmark == "waits" else {}
        case = Case(
            category="mine", benchmark=benchmark, target=LIGHT, params=params, source=str(self.source)
        )
        name = f"{case.key}.{number}"
        return Job(
            case=case,
            number=number,
            seed=number,
            seconds=0.001,
            scratch=str(self.folder / "scratch" / name),
            answer=str(self.folder / "rounds" / f"{name}.msgpack"),
        )


class ExecutorConformance:
    """Inherit from it, and define the fixture `make`."""

    @pytest.fixture
    def jobs(self, tmp_path: Path) -> Jobs:
        return Jobs(tmp_path)

    def test_each_job_gets_one_outcome_with_its_record_on_disk(self, make: Make, jobs: Jobs) -> None:
        planned = [jobs.of("good", 0), jobs.of("good", 1)]
        with make(planned, Limits()) as executor:
            outcomes = list(executor.run(planned))
        assert sorted(outcome.job.number for outcome in outcomes) == [0, 1]
        for outcome in outcomes:
            assert outcome.round is not None, outcome.message
            assert outcome.round.number == outcome.job.number
            assert outcome.round.figures["size"] == 3
            assert outcome.seconds > 0
            assert outcome.job in planned
            stored = msgspec.msgpack.decode(Path(outcome.job.answer).read_bytes(), type=Round)
            assert stored == outcome.round
            assert not Path(outcome.job.scratch).exists()

    def test_a_round_that_fails_loses_only_itself(self, make: Make, jobs: Jobs) -> None:
        planned = [jobs.of(name) for name in ("raises", "segfaults", "leaves_a_process", "good")]
        with make(planned, Limits()) as executor:
            found = {outcome.job.case.benchmark: outcome for outcome in executor.run(planned)}
        assert found["raises"].reason == "exception"
        assert "what went wrong" in found["raises"].message
        assert "printed before" in found["raises"].log
        assert found["segfaults"].reason == "crash"
        assert "SIGSEGV" in found["segfaults"].message
        assert found["leaves_a_process"].reason == "left processes"
        assert found["good"].reason is None
        failed = [outcome for outcome in found.values() if outcome.round is None]
        assert len(failed) == 3
        assert not any(Path(outcome.job.answer).exists() for outcome in failed)

    def test_a_round_that_takes_too_long_is_killed(self, make: Make, jobs: Jobs) -> None:
        planned = [jobs.of("waits")]
        with make(planned, Limits(timeout_seconds=3.0)) as executor:
            (outcome,) = executor.run(planned)
        assert outcome.reason == "timeout"
        self._are_gone(pids_of(jobs.marks))

    def test_finish_lets_running_rounds_end_and_starts_no_more(self, make: Make, jobs: Jobs) -> None:
        planned = [jobs.of("waits", number) for number in range(4)]

        def stop(executor: Executor) -> None:
            until(lambda: pids_of(jobs.marks))
            executor.finish()
            (jobs.marks / "release").touch()

        with make(planned, Limits()) as executor:
            thread = threading.Thread(target=stop, args=(executor,))
            thread.start()
            outcomes = list(executor.run(planned))
            thread.join()
        assert 1 <= len(outcomes) < 4
        assert all(outcome.round is not None for outcome in outcomes)

    def test_abort_kills_running_rounds(self, make: Make, jobs: Jobs) -> None:
        planned = [jobs.of("waits"), jobs.of("good")]

        def stop(executor: Executor) -> None:
            until(lambda: pids_of(jobs.marks))
            executor.abort()

        with make(planned, Limits()) as executor:
            thread = threading.Thread(target=stop, args=(executor,))
            thread.start()
            outcomes = [each for each in executor.run(planned) if each.job.case.benchmark == "waits"]
            thread.join()
        assert [outcome.reason for outcome in outcomes] == ["killed"]
        self._are_gone(pids_of(jobs.marks))

    def test_closing_the_generator_leaves_nothing_running(self, make: Make, jobs: Jobs) -> None:
        planned = [jobs.of("good", 0), jobs.of("waits", 0)]
        with make(planned, Limits()) as executor:
            outcomes = executor.run(planned)
            next(outcomes)
            # The second round starts when the generator goes on, which this thread can't wait for.
            thread = threading.Thread(target=lambda: next(outcomes, None))
            thread.start()
            until(lambda: pids_of(jobs.marks))
            executor.abort()
            thread.join()
            outcomes.close()
        self._are_gone(pids_of(jobs.marks))

    @staticmethod
    def _are_gone(pids: Sequence[int]) -> None:
        """Wait until processes have ended: those of a cluster end a moment after their task."""
        assert pids
        until(lambda: not any(map(psutil.pid_exists, pids)))
