"""The progress of a run: plain lines anywhere, a live display on a terminal."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from membench import COMMAND, GOOD, PATIENCE, membench, options, surroundings, write
from result_builders import make_run

from memory.benchmarking.model.aggregate import params_digest
from memory.benchmarking.model.files import read_run, write_run
from memory.benchmarking.model.records import Case, Job, Round, Run
from memory.benchmarking.run.executors.base import Outcome
from memory.benchmarking.run.previous_runs import Estimator
from memory.benchmarking.run.progress import (
    STOPPING,
    LiveProgress,
    PlainProgress,
    clock_text,
    make_progress,
)

# -- plain lines ------------------------------------------------------------------------------


def case_named(name: str, target: str = "light") -> Case:
    return Case(category="mine", benchmark=name, target=target, params={})


def job_of(case: Case, number: int = 0) -> Job:
    return Job(case=case, number=number, seed=0, seconds=1.0, scratch="", answer="")


def ended(case: Case, number: int, seconds: float, message: str = "") -> Outcome:
    record = Round(
        number=number, seed=0, figures={"a": 1.0}, samples={}, other={}, not_available={}, started_at=0.0,
        load_seconds=0.0, seconds=seconds, peak_rss_bytes=0, wall_to_cpu=None,
    )  # fmt: skip
    if message:
        return Outcome(job_of(case, number), None, "exception", message, seconds=seconds)
    return Outcome(job_of(case, number), record, seconds=seconds)


def a_run(tmp_path: Path, *cases: Case, rounds: int = 2, parallel: int = 1) -> Run:
    run = read_run(make_run(tmp_path, "20260801_101500_ab12", results=[]))
    run.cases, run.rounds, run.parallel = list(cases), rounds, parallel
    return run


def lines_of(stream: io.StringIO) -> list[str]:
    return stream.getvalue().splitlines()


def test_each_round_prints_a_line_with_the_rounds_done_and_the_time_left(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = make_progress(Estimator(tmp_path, "quick"), stream)
    assert isinstance(progress, PlainProgress)
    one, two = case_named("one"), case_named("two", "other")
    progress.began(a_run(tmp_path, one, two), 0, 4)
    progress.started(job_of(one))
    progress.progressed(job_of(one), {"event": "timing", "label": "x", "p50_ms": 1.0})
    progress.ended(ended(one, 0, 2.0))
    progress.ended(ended(two, 0, 4.0, "ValueError: no\x1b[31m luck"))
    progress.ended(ended(one, 1, 2.0))
    progress.ended(ended(two, 1, 4.0))
    progress.close()
    first, *lines = (re.sub(r"elapsed \d:\d\d", "elapsed", line) for line in lines_of(stream))
    assert first == "run 20260801_101500_ab12: 4 rounds, about ?"
    assert lines == [
        "[1/4] mine.one on light, round 1 of 2: 2.0 s  (elapsed, left ?)",
        "[2/4] mine.two on other, round 1 of 2: 4.0 s"
        "  FAILED: ValueError: no�[31m luck  (elapsed, left 0:06)",
        "[3/4] mine.one on light, round 2 of 2: 2.0 s  (elapsed, left 0:04)",
        "[4/4] mine.two on other, round 2 of 2: 4.0 s  (elapsed, left 0:00)",
    ]


def test_a_resumed_run_shows_how_many_rounds_are_done(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = PlainProgress(Estimator(tmp_path, "quick"), stream)
    progress.began(a_run(tmp_path, case_named("one")), 1, 2)
    progress.stopping()
    assert lines_of(stream) == [
        "run 20260801_101500_ab12: 2 rounds, 1 of them done already, about ?",
        STOPPING,
    ]


def test_the_first_estimate_comes_from_previous_runs(tmp_path: Path) -> None:
    folder = make_run(tmp_path)
    run = read_run(folder)
    (case,) = run.cases
    case = msgspec.structs.replace(case, module="memory.benchmarking.benchmarks.storage")
    estimator = Estimator(tmp_path, "quick")
    declared = msgspec.structs.replace(case, module="memory.benchmarking.benchmarks.storage")
    assert estimator.seconds(declared) == pytest.approx(1.3, abs=1.0), "as the benchmark declares"
    ref = run.results[0]
    run.results = [msgspec.structs.replace(ref, params_digest=params_digest(case), seconds=100.0)]
    write_run(folder, run)
    assert 100 < (Estimator(tmp_path, "quick").seconds(case) or 0) < 102
    assert Estimator(tmp_path, "quick").seconds(case_named("unknown")) is None
    progress = PlainProgress(Estimator(tmp_path, "quick"), io.StringIO())
    progress.began(run, 0, 3)
    assert 300 < (progress.remaining or 0) < 306
    run.parallel = 2
    progress.began(run, 0, 3)
    assert 150 < (progress.remaining or 0) < 153


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0:00"),
        (0.4, "0:00"),
        (59.6, "1:00"),
        (65, "1:05"),
        (3599.7, "1:00:00"),
        (36061, "10:01:01"),
    ],
)
def test_time_is_shown_as_a_clock(seconds: float | None, text: str) -> None:
    assert clock_text(seconds) == text


@given(st.integers(0, 10**6))
def test_a_clock_text_contains_all_seconds(seconds: int) -> None:
    parts = [int(part) for part in clock_text(seconds).split(":")]
    assert sum(part * 60**place for place, part in enumerate(reversed(parts))) == seconds
    assert all(part < 60 for part in parts[1:])


# -- choosing a display ----------------------------------------------------------------------


@pytest.fixture
def terminal() -> Iterator[io.TextIOWrapper]:
    """Open a pseudo-terminal; yield the stream that a program writes to."""
    near, far = pty.openpty()
    with open(far, "w") as stream:
        yield stream
    os.close(near)


@pytest.mark.parametrize(
    ("variables", "kind"),
    [
        ({"TERM": "xterm"}, LiveProgress),
        ({"TERM": "xterm", "NO_COLOR": ""}, LiveProgress),
        ({"TERM": "xterm", "NO_COLOR": "1"}, PlainProgress),
        ({"TERM": "dumb"}, PlainProgress),
    ],
)
def test_a_terminal_gets_a_live_display_unless_its_settings_forbid_it(
    variables: dict[str, str],
    kind: type,
    terminal: io.TextIOWrapper,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    progress = make_progress(Estimator(tmp_path, "quick"), terminal)
    progress.close()
    assert type(progress) is kind


# -- on a terminal ----------------------------------------------------------------------------

WAITING = """
import pathlib, time
def _wait():
    while not pathlib.Path(__file__).with_name("go").exists():
        time.sleep(0.01)
def benchmark_one(bench=None):
    timing = bench.time("a".upper, label="in capitals")
    _wait()
    return {"a": timing}
def benchmark_two():
    _wait()
    raise ValueError("two went wrong")
"""


class Screen:
    """Collects what a terminal received, without control sequences."""

    def __init__(self, near: int) -> None:
        self._near = near
        self.text = ""

    def read_until(self, *wanted: str) -> None:
        while not all(each in self.text for each in wanted):
            assert self.read(), f"the command ended first; seen: {self.text[-2000:]!r}"

    def read(self) -> bool:
        try:
            piece = os.read(self._near, 65536)
        except OSError:  # the other end is closed
            return False
        self.text += re.sub(r"\x1b(\[[0-9;?]*[A-Za-z]|[78=>])", "", piece.decode())
        return bool(piece)


def test_a_terminal_shows_a_bar_and_a_line_for_each_round_in_progress(tmp_path: Path) -> None:
    file = write(tmp_path / "waiting.py", WAITING)
    near, far = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, *map(str, options(file, tmp_path / "out", "--parallel", "--workers", 2))],
        cwd=tmp_path,
        env=surroundings(TERM="xterm", COLUMNS="220", LINES="40"),
        stdout=subprocess.PIPE,
        stderr=far,
        text=True,
    )
    os.close(far)
    watchdog = threading.Timer(PATIENCE, process.kill)
    watchdog.start()
    screen = Screen(near)
    try:
        screen.read_until(
            "0/2 rounds",
            "elapsed",
            "left",
            "waiting.one",
            "waiting.two",
            "round 1 of 1",
            "in capitals",
        )
        (tmp_path / "go").touch()
        while screen.read():
            pass
        out, _ = process.communicate(timeout=PATIENCE)
    finally:
        watchdog.cancel()
        process.kill()
        os.close(near)
    assert process.returncode == 1
    assert re.search(r"  waiting.one.*, round 1 of 1 .*[\d.,]+ (ns|µs|ms)", screen.text)
    assert re.search(r"✗ waiting.two.*, round 1 of 1: ValueError: two went wrong", screen.text)
    assert "waiting.one" in out
    assert "\x1b" not in out, "standard output is no terminal here"


def test_other_streams_get_plain_lines(tmp_path: Path) -> None:
    file = write(tmp_path / "good.py", GOOD)
    done = membench(*options(file, tmp_path / "out"), cwd=tmp_path, env=surroundings(TERM="xterm"))
    assert done.code == 0
    assert "\x1b" not in done.out + done.err
    first, second = done.err.splitlines()
    assert re.fullmatch(r"run \S+: 1 round, about \?", first)
    assert re.fullmatch(
        r"\[1/1\] good.good.*, round 1 of 1: [\d.]+ s  \(elapsed \d:\d\d, left 0:00\)", second
    )


def test_the_target_is_shown_if_there_are_several(tmp_path: Path) -> None:
    stream = io.StringIO()
    progress = make_progress(Estimator(tmp_path, "quick"), stream)
    one = case_named("one")
    other = msgspec.structs.replace(one, target="other")
    progress.began(a_run(tmp_path, one, other), 0, 4)
    progress.ended(ended(other, 0, 2.0))
    assert "mine.one on other, round 1 of 2" in lines_of(stream)[1]
