"""Rounds as processes: limits, processes left behind, stopping."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from membench import LIGHT, write

from memory.benchmarking.errors import BenchmarkError, ResultNotSaved
from memory.benchmarking.model.records import Case, Job
from memory.benchmarking.run.events import decode_event
from memory.benchmarking.run.executors import local
from memory.benchmarking.run.executors.base import Outcome
from memory.benchmarking.run.executors.local import Launch, LocalExecutor

SOURCE = r"""
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
    program = [sys.executable, "-c", "import signal; signal.pause()"]
    child = subprocess.Popen(program, start_new_session=True)
    (HERE / f"child.{child.pid}").touch()
    benchmark_waits()

def benchmark_finds_its_folder():
    where = pathlib.Path(tempfile.gettempdir())
    found = sorted(path.name for path in where.iterdir())
    (where / "left").touch()
    return {"figure": 1, "found": found, "where": str(where)}

def events():
    "The descriptor of the event pipe: the last argument of the worker."
    return int(sys.argv[1])

def benchmark_writes_rubbish():
    os.write(events(), (HERE / "rubbish").read_bytes())
    benchmark_waits()

def benchmark_writes_without_end():
    while True:
        os.write(events(), b"x" * 65536)

def benchmark_floods():
    while True:
        os.write(events(), b'{"event": "timing", "label": "x", "p50_ms": 1}\n' * 1000)

PAUSE = "import signal; signal.pause()"
NOTE = f"import os, pathlib; pathlib.Path({str(HERE)!r}, f'left.{{os.getpid()}}').touch(); "
CHAIN = '''
import os, subprocess, sys
while True:
    subprocess.Popen([sys.executable, "-S", *sys.argv], start_new_session=True)
    os._exit(0)
'''

def benchmark_leaves(way="", end=""):
    program = [sys.executable, "-c", NOTE + PAUSE]
    if way == "plain":
        subprocess.Popen(program)
    elif way == "session":
        subprocess.Popen(program, start_new_session=True)
    elif way == "empty environment":
        subprocess.Popen(program, start_new_session=True, env={})
    elif way == "double fork":
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.execv(program[0], program)
            os._exit(0)
        os.wait()
    elif way == "chain":
        chain = HERE / "chain"
        chain.write_text(CHAIN)
        subprocess.Popen([sys.executable, "-S", str(chain)], start_new_session=True)
        return {"figure": 1}
    while not list(HERE.glob("left.*")):
        threading.Event().wait(0.01)
    (HERE / f"at-work.{os.getpid()}").touch()
    if end == "raise":
        raise ValueError
    elif end == "segfault":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif end == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif end == "kill supervisor":
        os.kill(os.getppid(), signal.SIGKILL)
        threading.Event().wait()
    elif end == "wait":
        threading.Event().wait()
    elif end == "memory":
        kept = b"x" * 300_000_000
        threading.Event().wait()
    return {"figure": 1}

def benchmark_fills_a_child(mb=1):
    fill = f"kept = b'x' * {mb * 1_000_000}; " + PAUSE
    subprocess.Popen([sys.executable, "-c", fill], start_new_session=True)
    benchmark_waits()

def benchmark_forks(mb=1):
    "Ends when the executor has counted the memory of all five processes."
    kept = b"x" * (mb * 1_000_000)
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            signal.pause()
        children.append(child)
    while not (HERE / "counted").exists():
        threading.Event().wait(0.01)
    for child in children:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    return {"figure": 1}

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
    children = psutil.Process().children()  # earlier tests of this process may have left some
    outcomes: list[Outcome] = list(LocalExecutor(workers=2).run([make_job("good", n) for n in range(2)]))
    assert len(outcomes) == 2
    assert len(os.listdir("/proc/self/fd")) == len(before)
    assert set(psutil.Process().children()) <= set(children)


# -- events that are none ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"rubbish", "b'rubbish' is not an event: JSON is malformed"),
        (b"\xff\xfe", "is not an event"),
        (b"", "b'' is not an event"),
        (b"[]", "is not an event: Expected `object`, got `array`"),
        (b"{}", "missing required field `event`"),
        (b'{"event": "unknown"}', "Invalid value 'unknown'"),
        (b'{"event": "began", "at": "soon"}', "Expected `float`, got `str`"),
        (b'{"event": "failed", "message": null}', "Expected `str`, got `null`"),
        (b'{"event": "timing", "label": {}, "p50_ms": 1}', "Expected `str`, got `object`"),
        (b"[" * 100_000, "is not an event"),
        (b'{"event": "timing", "label": "' + b"\xff" * 9 + b'", "p50_ms": 1}', "is not an event"),
    ],
)
def test_a_line_that_is_not_an_event_is_named(line: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape(reason)):
        decode_event(line)


@pytest.mark.parametrize("written", [b"rubbish\n", b"[" * 100_000 + b"\n"])
def test_a_round_that_writes_rubbish_to_the_event_pipe_fails_alone(
    make_job: Callable[..., Job], tmp_path: Path, written: bytes
) -> None:
    (tmp_path / "rubbish").write_bytes(written)
    bad, good = LocalExecutor().run([make_job("writes_rubbish"), make_job("good")])
    assert (bad.round, bad.reason) == (None, "crash")
    assert re.match(r"wrote to the pipe of membench's events: b'.{1,60}' is not an event", bad.message)
    assert good.round is not None


def test_a_line_without_an_end_does_not_outlive_the_limits(make_job: Callable[..., Job]) -> None:
    bad, good = LocalExecutor(timeout_seconds=60).run([make_job("writes_without_end"), make_job("good")])
    assert (bad.round, bad.reason) == (None, "crash")
    assert bad.message == (
        "wrote to the pipe of membench's events: a line of more than 1,000,000 bytes is not an event"
    )
    assert bad.seconds < 60
    assert good.round is not None


def test_a_flood_of_valid_events_does_not_outlive_the_timeout(make_job: Callable[..., Job]) -> None:
    (outcome,) = LocalExecutor(timeout_seconds=2).run([make_job("floods")])
    assert (outcome.round, outcome.reason) == (None, "timeout")


def test_replies_that_nobody_reads_end_the_round(
    make_job: Callable[..., Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "_REPLY_SECONDS", 0.1)
    executor = LocalExecutor(launch=lambda job: Launch(replies=True))
    executor.on_event = lambda job, event: executor.reply(job, "x" * 200_000)
    (outcome,) = executor.run([make_job("waits")])
    assert (outcome.reason, outcome.message) == ("crash", "did not read a reply within 0.1 s")


# -- processes left behind --------------------------------------------------------------------

WAYS = ("plain", "session", "double fork", "empty environment")


@pytest.mark.parametrize("way", WAYS)
def test_a_process_that_a_round_leaves_is_reported_and_killed(
    make_job: Callable[..., Job], tmp_path: Path, way: str
) -> None:
    (outcome,) = LocalExecutor().run([make_job("leaves", way=way)])
    (child,) = at_work(tmp_path, "left")
    assert not is_alive(child)
    assert (outcome.round, outcome.reason) == (None, "left processes")
    assert f"(process {child})" in outcome.message


@pytest.mark.parametrize("end", ["raise", "segfault", "kill", "memory", "kill supervisor"])
def test_nothing_is_left_however_a_round_ends(
    make_job: Callable[..., Job], tmp_path: Path, end: str
) -> None:
    children = psutil.Process().children()  # earlier tests of this process may have left some
    executor = LocalExecutor(memory_limit_bytes=150_000_000)
    (outcome,) = executor.run([make_job("leaves", way="double fork", end=end)])
    reasons = {
        "raise": "exception",
        "segfault": "crash",
        "kill": "killed",
        "memory": "memory",
        "kill supervisor": "killed",
    }
    assert outcome.reason == reasons[end]
    (child,) = at_work(tmp_path, "left")
    assert not is_alive(child)
    assert set(psutil.Process().children()) <= set(children)


def test_nothing_is_left_when_membench_itself_is_killed(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    """No handler of Python runs: the supervisor notices that its socket was closed."""
    job = make_job("leaves", way="double fork", end="wait")
    (tmp_path / "job.json").write_bytes(msgspec.json.encode(job))
    program = """if True:
        import sys, msgspec
        from memory.benchmarking.model.records import Job
        from memory.benchmarking.run.executors.local import LocalExecutor
        job = msgspec.json.decode(open(sys.argv[1], "rb").read(), type=Job)
        list(LocalExecutor().run([job]))
    """
    executor = subprocess.Popen([sys.executable, "-c", program, tmp_path / "job.json"])
    while not at_work(tmp_path):
        assert executor.poll() is None
        time.sleep(0.01)
    tree = psutil.Process(executor.pid).children(recursive=True)
    assert {*at_work(tmp_path), *at_work(tmp_path, "left")} <= {process.pid for process in tree}
    executor.kill()
    executor.wait()
    _, alive = psutil.wait_procs(tree, timeout=30)
    assert not [process for process in alive if is_alive(process.pid)]


def test_a_process_that_goes_on_starting_others_is_ended(
    make_job: Callable[..., Job], tmp_path: Path
) -> None:
    (outcome,) = LocalExecutor().run([make_job("leaves", way="chain")])
    assert outcome.reason == "left processes"
    assert [p.pid for p in psutil.process_iter() if str(tmp_path / "chain") in cmdline(p)] == []


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def test_the_memory_of_child_processes_counts(make_job: Callable[..., Job]) -> None:
    (outcome,) = LocalExecutor(memory_limit_bytes=200_000_000).run([make_job("fills_a_child", mb=300)])
    assert (outcome.round, outcome.reason) == (None, "memory")
    assert re.fullmatch(
        r"used \d+ MB of RAM in 2 processes, more than 200 MB \(memory_limit_mb\)", outcome.message
    )


@pytest.mark.skipif(sys.platform != "linux", reason="the share of a page is known on Linux only")
def test_memory_that_processes_share_counts_once(make_job: Callable[..., Job], tmp_path: Path) -> None:
    """Four forks of a process with 100 MB: 500 MB if each counted them, about 100 MB in truth."""

    class Watched(LocalExecutor):
        def _resident_bytes(self, running: Any, limit: int) -> tuple[int, int]:
            used, processes = super()._resident_bytes(running, limit)
            if processes == 5:
                (tmp_path / "counted").touch()
            return used, processes

    (outcome,) = Watched(memory_limit_bytes=300_000_000).run([make_job("forks", mb=100)])
    assert (outcome.reason, outcome.message) == (None, "")


def test_a_program_that_does_not_exist_is_named(make_job: Callable[..., Job], tmp_path: Path) -> None:
    executor = LocalExecutor(launch=lambda job: Launch(("/no/such/python",)))
    with pytest.raises(BenchmarkError, match="/no/such/python can't be run: there is no such program"):
        list(executor.run([make_job("good")]))
    broken = tmp_path / "broken"
    broken.write_text("#!/no/such/interpreter\n")
    broken.chmod(0o755)
    (outcome,) = LocalExecutor(launch=lambda job: Launch((str(broken),))).run([make_job("good")])
    assert (outcome.reason, outcome.message) == (
        "crash", f"{broken} can't be run: No such file or directory",
    )  # fmt: skip
