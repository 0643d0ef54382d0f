"""Runs: a failure loses its round only and is named at the end; the rest is saved."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import psutil
import pytest
from membench import (
    COMMAND,
    GOOD,
    LIGHT,
    MISBEHAVING,
    PATIENCE,
    Done,
    membench,
    once,
    only_run,
    options,
    surroundings,
    write,
)

from memory.benchmarking.config import BenchmarkConfig
from memory.benchmarking.errors import BenchmarkError, DamagedResult, InvalidBenchmarkConfig
from memory.benchmarking.model.files import read_result, read_run, read_times, samples_path, write_run
from memory.benchmarking.model.paths import NO_FIGURES
from memory.benchmarking.model.records import Case, Run
from memory.benchmarking.run.execution import Execution, _exclusive_lock, new_run, resumable_run
from memory.benchmarking.run.executors.local import LOG_BYTES
from memory.benchmarking.runner import BenchmarkRunner

# -- benchmarks that misbehave ----------------------------------------------------------------

FAILURES = {
    "raises": ("exception", r"ValueError: first line second line \(.*misbehaving.py, line \d+\)"),
    "raises_with_a_note": ("exception", r"ValueError: what went wrong \(.*misbehaving.py, line \d+\)"),
    "raises_what_cannot_be_written": ("exception", r"ValueError: half a sign: \\ud800 .*"),
    "raises_a_page": ("exception", r"ValueError: (word ){90}.*…? \(.*misbehaving.py, line \d+\)"),
    "exits_with_7": ("crash", "exited with code 7"),
    "exits_with_3": ("crash", "exited with code 3"),
    "exits_with_0": ("crash", "exited without writing its result"),
    "ends_the_interpreter": ("exception", "SystemExit: 0 .*"),
    "segfaults": ("crash", "crashed with SIGSEGV"),
    "is_killed": ("killed", "killed by SIGKILL: .*"),
    "leaks": ("memory", r"used \d+ MB of RAM, more than 150 MB \(memory_limit_mb\)"),
    "leaves_a_process": ("left processes", "left processes running.*"),
    "prints_a_lot": ("exception", "ValueError: after many lines .*"),
    "returns_nan": ("exception", "deep/down is nan: a figure must be finite"),
    "returns_infinity": ("exception", "deep/down is -inf: a figure must be finite"),
    "returns_a_list": ("exception", "the benchmark returned list: it must return a dictionary"),
    "returns_nothing": ("exception", "the benchmark returned NoneType: it must return a dictionary"),
    "returns_one_key_twice": ("exception", "1 is in the result twice: .*"),
    "returns_an_empty_key": ("exception", "'' can't be a key of the result: .*"),
    "returns_a_control_sign": ("exception", r"'red \\x1b\[31m' can't be a key of the result: .*"),
    "returns_an_object": ("exception", "what is a lock: use numbers, texts, lists and dictionaries"),
    "returns_itself": ("exception", "again.* is more than 50 levels deep: does it contain itself\\?"),
}
FINE = {
    "good", "leaves_a_thread", "leaves_a_dead_process", "shares_memory", "closes_its_output",
    "goes_elsewhere", "returns_odd_things", "is_not_available",
}  # fmt: skip
WITHOUT_FIGURES = {"returns_an_empty_dictionary", "returns_only_text"}


@pytest.fixture(scope="module")
def misbehaved(tmp_path_factory: pytest.TempPathFactory) -> tuple[Done, Path, Run]:
    def run(folder: Path) -> None:
        done = membench(
            *options(MISBEHAVING, Path("out"), "--set", "memory_limit_mb=150"),
            "--parallel", "--workers", 4,
            cwd=folder,
        )  # fmt: skip
        (folder / "done.json").write_bytes(msgspec.json.encode(done))

    folder = once(tmp_path_factory, "misbehaved", run)
    done = msgspec.json.decode((folder / "done.json").read_bytes(), type=Done)
    return done, *only_run(folder / "out")


def key(benchmark: str) -> str:
    return Case(category="misbehaving", benchmark=benchmark, target=LIGHT, params={}).key


@pytest.mark.parametrize("benchmark", FAILURES)
def test_a_failed_benchmark_is_listed_with_its_reason(
    misbehaved: tuple[Done, Path, Run], benchmark: str
) -> None:
    done, folder, run = misbehaved
    reason, message = FAILURES[benchmark]
    (failure,) = [failure for failure in run.failures if failure.case == key(benchmark)]
    assert failure.reason == reason
    assert re.fullmatch(message, failure.message)
    assert "\n" not in failure.message
    assert f"{failure.case} round 1: {failure.message}" in done.out
    assert not list(folder.rglob(f"{benchmark}_*.json"))


@pytest.mark.parametrize("benchmark", sorted(FINE))
def test_the_other_benchmarks_are_saved(misbehaved: tuple[Done, Path, Run], benchmark: str) -> None:
    _, folder, run = misbehaved
    (ref,) = [ref for ref in run.results if ref.benchmark == benchmark]
    result = read_result(folder / ref.file)
    assert result.metadata["rounds"] == ref.rounds == 1
    assert result.metrics


@pytest.mark.parametrize("benchmark", sorted(WITHOUT_FIGURES))
def test_a_benchmark_without_figures_is_a_warning(
    misbehaved: tuple[Done, Path, Run], benchmark: str
) -> None:
    done, folder, run = misbehaved
    (ref,) = [ref for ref in run.results if ref.benchmark == benchmark]
    assert read_result(folder / ref.file).metadata["not_available"] == {"": NO_FIGURES}
    assert f"WARNING: misbehaving.{benchmark} on light: {NO_FIGURES}\n" in done.out


def test_every_benchmark_has_a_result_or_a_failure(misbehaved: tuple[Done, Path, Run]) -> None:
    done, _, run = misbehaved
    assert done.code == 1
    assert run.status == "failed"
    assert {ref.benchmark for ref in run.results} == FINE | WITHOUT_FIGURES
    assert len(run.failures) == len(FAILURES)
    assert len(run.cases) == len(FINE) + len(WITHOUT_FIGURES) + len(FAILURES)
    assert f"continue with: membench run --resume {run.id} --output-dir out" in done.err
    assert "Traceback" not in done.out + done.err


def test_the_end_of_a_failed_rounds_output_is_kept(misbehaved: tuple[Done, Path, Run]) -> None:
    _, folder, run = misbehaved
    logs = {failure.case: failure.log for failure in run.failures}
    assert "Segmentation fault" in (folder / str(logs[key("segfaults")])).read_text()
    assert 'raise ValueError("first line' in (folder / str(logs[key("raises")])).read_text()
    long = (folder / str(logs[key("prints_a_lot")])).read_bytes()
    assert len(long) <= LOG_BYTES
    assert b"line 299999\n" in long
    assert long.rstrip().endswith(b"ValueError: after many lines")


def test_unusual_leaves_are_recorded(misbehaved: tuple[Done, Path, Run]) -> None:
    _, folder, run = misbehaved
    (ref,) = [ref for ref in run.results if ref.benchmark == "returns_odd_things"]
    result = read_result(folder / ref.file)
    assert result.results == {
        "a∕b": 1.0,
        "größe ⚙": {"x y": 0.5, "7": 7.0},
        "zero_dimensions": 3.0,
        "list": [1, 2],
        "array": [0, 1, 2],
        "none": None,
        "text": "text",
        "true": True,
        "('tuple', 1)": 2.0,
    }
    assert set(result.metrics) == {
        "a∕b", "größe ⚙/x y", "größe ⚙/7", "zero_dimensions", "('tuple', 1)",
    }  # fmt: skip


def test_a_figure_that_is_not_available_is_shown_with_its_reason(
    misbehaved: tuple[Done, Path, Run],
) -> None:
    done, folder, run = misbehaved
    (ref,) = [ref for ref in run.results if ref.benchmark == "is_not_available"]
    result = read_result(folder / ref.file)
    assert result.results == {"there": None, "here": 1.0}
    assert result.metadata["not_available"] == {"there": "nobody is there"}
    assert re.search(r"misbehaving\.is_not_available on \S+ there: n/a, nobody is there\n", done.out)


def test_no_scratch_folder_and_no_process_is_left(misbehaved: tuple[Done, Path, Run]) -> None:
    _, folder, _ = misbehaved
    assert not (folder.parent / ".scratch").exists()
    assert not (folder / ".lock").exists()
    here = str(MISBEHAVING.parent)
    assert not [
        process
        for process in psutil.process_iter()
        if "signal.pause()" in "".join(cmdline(process)) and here in environment(process)
    ]


def cmdline(process: psutil.Process) -> list[str]:
    try:
        return list(process.cmdline())
    except psutil.Error:
        return []


def environment(process: psutil.Process) -> str:
    try:
        return str(process.environ())
    except psutil.Error:
        return ""


def test_a_parallel_run_is_marked_and_never_gates(misbehaved: tuple[Done, Path, Run]) -> None:
    done, folder, run = misbehaved
    assert run.parallel == 4
    assert not run.times_count
    assert "4 rounds ran in parallel: they disturb each other, so times are not judged" in done.out
    for ref in run.results:
        assert read_result(folder / ref.file).metadata["parallel"] is True


def test_a_round_that_hangs_is_killed_and_the_next_one_runs(tmp_path: Path) -> None:
    """The timeout includes the start of the process, so this run measures nothing else."""
    file = write(
        tmp_path / "hanging.py",
        """
        import threading
        def benchmark_waits(): threading.Event().wait()
        def benchmark_turns():
            while True: pass
        def benchmark_counts(): sum(range(10**15))
        """,
    )
    done = membench(*options(file, tmp_path / "out", "--timeout", 1), cwd=tmp_path)
    folder, run = only_run(tmp_path / "out")
    assert done.code == 1
    assert {failure.reason for failure in run.failures} == {"timeout"}
    assert len(run.failures) == 3
    assert run.status == "failed"
    assert done.err.splitlines()[-1] == (
        f"membench: no round gave a figure: did not end within 1 s (--timeout) (see {folder})"
    )


# -- a successful run -------------------------------------------------------------------------

SEEDS = """
import os, random, tempfile
from memory.benchmarking.workloads import agent_states

def benchmark_data(bench=None):
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")
    return {
        "figure": bench.seed,
        "states": agent_states(2, seed=bench.seed),
        "hash_seed": os.environ["PYTHONHASHSEED"],
        "hash": str(hash("text")),
        "threads": [os.environ[name] for name in names],
        "in_scratch": str(bench._scratch) == tempfile.gettempdir(),
        "empty": os.listdir(tempfile.gettempdir()) == [],
    }

def benchmark_clock(bench=None):
    return {"upper": bench.time("a".upper)}
"""


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Run]:
    """Run two benchmarks on two targets, three rounds each."""

    def run(folder: Path) -> None:
        file = write(folder / "seeds.py", SEEDS)
        other = f"{shutil.copy(MISBEHAVING.parent / 'light_target.py', folder / 'other.py')}:LightTarget"
        done = membench(
            *options(file, folder / "out", "--rounds", 3, "--seed", 5, "--target", other), cwd=folder
        )
        assert done.code == 0, done.err

    return only_run(once(tmp_path_factory, "finished", run) / "out")


def test_all_targets_get_the_same_data_and_each_round_gets_other_data(
    finished: tuple[Path, Run],
) -> None:
    folder, run = finished
    seeds = []
    for ref in run.results:
        if ref.benchmark == "data":
            result = read_result(folder / ref.file)
            seeds.append(result.metadata["seeds"])
            assert result.metrics["figure"].rounds == pytest.approx(result.metadata["seeds"])
    assert len(seeds) == 2
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == 3


def test_the_last_rounds_of_both_targets_had_the_same_data(finished: tuple[Path, Run]) -> None:
    folder, run = finished
    results = [read_result(folder / ref.file) for ref in run.results if ref.benchmark == "data"]
    one, other = (result.results for result in results)
    assert one == other
    assert one["threads"] == ["1"] * 4
    assert one["in_scratch"]
    assert one["empty"]
    assert one["hash_seed"] == str(results[0].metadata["seeds"][-1])


def test_rounds_of_different_cases_are_shuffled(finished: tuple[Path, Run]) -> None:
    _, run = finished
    order = [(moment.case, moment.round) for moment in sorted(run.moments, key=lambda m: m.started_at)]
    assert [number for _, number in order] == [0] * 4 + [1] * 4 + [2] * 4
    turns = [[case for case, _ in order[start : start + 4]] for start in (0, 4, 8)]
    assert all(sorted(turn) == sorted(turns[0]) for turn in turns)
    assert len(set(map(tuple, turns))) > 1


def test_run_json_describes_the_run(finished: tuple[Path, Run]) -> None:
    folder, run = finished
    assert run.status == "complete"
    assert run.seed == run.config["seed"] == 5
    assert run.rounds == run.config["rounds"] == 3
    assert " run --path " in run.command
    assert shlex.split(run.command)[0].endswith(("membench", Path(sys.executable).name))
    assert run.finished_at >= run.started_at
    assert [ref.rounds for ref in run.results] == [3] * 4
    assert [(ref.category, ref.benchmark, ref.target) for ref in run.results] == [
        (case.category, case.benchmark, case.target) for case in run.cases
    ]
    for ref in run.results:
        assert (folder / ref.file).is_file()
    for moment in run.moments:
        assert moment.seconds > 0
        assert 0 <= moment.busy_percent <= 100
    assert {"start", "load", "benchmark", "save and end", "all"} == set(run.timings)
    assert not (folder / "rounds").exists()
    assert not (folder / "logs").exists()


def test_the_files_have_the_format_of_the_specification(finished: tuple[Path, Run]) -> None:
    folder, run = finished
    for ref in run.results:
        path = folder / ref.file
        assert re.fullmatch(rf"{ref.benchmark}_\d{{8}}_\d{{6}}_.+\.json", path.name)
        document = json.loads(path.read_bytes())
        assert list(document)[:5] == ["benchmark", "category", "timestamp", "results", "metadata"]
        assert document["timestamp"] == run.id[:15]
        assert document["metadata"]["params"] == {}
        assert document["metadata"]["execution_time"] > 0


def test_every_sample_is_kept(finished: tuple[Path, Run]) -> None:
    folder, run = finished
    (path, *_) = [folder / ref.file for ref in run.results if ref.benchmark == "clock"]
    result = read_result(path)
    rounds = read_times(samples_path(path), ["upper"])["upper"]
    assert len(rounds) == 3
    for _, nanoseconds in rounds:
        assert len(nanoseconds) >= result.metrics["upper/p50_ms"].samples > 0


def test_a_copied_run_can_be_read_elsewhere(finished: tuple[Path, Run], tmp_path: Path) -> None:
    folder, run = finished
    copied = Path(shutil.copytree(folder, tmp_path / "elsewhere" / folder.name))
    assert read_run(copied) == run
    done = membench("results", "show", copied, cwd=tmp_path)
    assert done.code == 0, done.err
    assert "seeds.clock" in done.out


# -- Ctrl-C -----------------------------------------------------------------------------------

WAITING = """
import os, pathlib, time
HERE = pathlib.Path(__file__).parent

def benchmark_waits(bench=None):
    (HERE / f"at-work.{os.getpid()}").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return {"figure": 1.0}

def benchmark_works(bench=None):
    return {"upper": bench.time("a".upper)}
"""


@contextmanager
def running_command(*arguments: object, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command that is still running."""
    with subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=surroundings(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def wait_for(condition: object, what: str) -> None:
    """Wait until a condition holds, for at most PATIENCE seconds."""
    assert callable(condition)
    ended = threading.Event()
    alarm = threading.Timer(PATIENCE, ended.set)
    alarm.start()
    try:
        while not condition():
            assert not ended.wait(0.01), f"never: {what}"
    finally:
        alarm.cancel()


def waiting_workers(folder: Path) -> list[int]:
    return [int(path.suffix[1:]) for path in folder.glob("at-work.*")]


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_ctrl_c_once_finishes_the_round_and_saves_it(tmp_path: Path) -> None:
    file = write(tmp_path / "waiting.py", WAITING)
    with running_command(*options(file, tmp_path / "out", "--rounds", 3), cwd=tmp_path) as process:
        assert process.stderr is not None
        assert re.match(r"run \S+: 6 rounds", process.stderr.readline())
        wait_for(lambda: waiting_workers(tmp_path), "a round that waits")
        process.send_signal(signal.SIGINT)
        line = process.stderr.readline()
        while line.startswith("["):
            line = process.stderr.readline()
        assert line == ("stopping after the rounds in progress; press Ctrl-C again to stop at once\n")
        (tmp_path / "go").touch()
        _, err = process.communicate(timeout=PATIENCE)
    folder, run = only_run(tmp_path / "out")
    assert process.returncode == 130, err
    assert run.status == "interrupted"
    assert run.failures == []
    assert [ref.rounds for ref in run.results if ref.benchmark == "waits"] == [1]
    assert f"continue with: membench run --resume {run.id} --output-dir {tmp_path / 'out'}" in err
    assert not (tmp_path / "out" / ".scratch").exists()

    done = membench("run", "--resume", "--output-dir", tmp_path / "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert read_run(folder).status == "complete"
    assert [ref.rounds for ref in read_run(folder).results] == [3, 3]
    assert re.search(r"6 rounds, [1-5] of them done already", done.err)


def test_ctrl_c_twice_stops_at_once_and_leaves_nothing_corrupt(tmp_path: Path) -> None:
    file = write(tmp_path / "waiting.py", WAITING)
    with running_command(*options(file, tmp_path / "out"), cwd=tmp_path) as process:
        wait_for(lambda: waiting_workers(tmp_path), "a round that waits")
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        while not process.stderr.readline().startswith("stopping"):
            pass
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=PATIENCE)
    folder, run = only_run(tmp_path / "out")
    assert process.returncode == 130, err
    assert run.status == "interrupted"
    assert run.failures == []
    assert "Traceback" not in err
    assert not any(map(is_alive, waiting_workers(tmp_path)))
    assert not (tmp_path / "out" / ".scratch").exists()
    (tmp_path / "go").touch()
    done = membench("run", "--resume", run.id, "--output-dir", tmp_path / "out", cwd=tmp_path)
    assert done.code == 0, done.err
    assert read_run(folder).status == "complete"


def test_the_workers_of_a_killed_runner_end_and_its_run_can_be_resumed(tmp_path: Path) -> None:
    file = write(
        tmp_path / "waiting.py",
        WAITING
        + """
def benchmark_keeps_a_file(bench=None):
    "As the specification's example does: a fixed name in the folder for temporary files."
    import tempfile
    path = pathlib.Path(tempfile.gettempdir()) / "store.db"
    assert not path.exists(), "this is what another round left"
    path.touch()
    (HERE / f"at-work.{os.getpid()}").touch()
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return {"figure": 1.0}
""",
    )
    out = tmp_path / "out"
    with running_command(*options(file, out, "--parallel", "--workers", 3), cwd=tmp_path) as process:
        wait_for(lambda: len(waiting_workers(tmp_path)) == 2, "two rounds that wait")
        process.kill()
        process.communicate(timeout=PATIENCE)
    wait_for(lambda: not any(map(is_alive, waiting_workers(tmp_path))), "the end of the workers")
    folder, run = only_run(out)
    assert run.status == "running"
    assert (out / ".scratch").exists()
    (tmp_path / "go").touch()
    done = membench("run", "--resume", "--output-dir", out, cwd=tmp_path)
    assert done.code == 0, done.err + done.out
    assert [ref.benchmark for ref in read_run(folder).results] == ["waits", "works", "keeps_a_file"]
    assert not (out / ".scratch").exists()


def test_a_worker_that_holds_the_gil_ends_with_its_runner_too(tmp_path: Path) -> None:
    """While C code holds the GIL, no other thread of the worker can run."""
    file = write(
        tmp_path / "counting.py",
        """
        import os, pathlib
        def benchmark_counts():
            pathlib.Path(__file__).with_name(f"at-work.{os.getpid()}").touch()
            sum(range(10**15))
        """,
    )
    with running_command(*options(file, tmp_path / "out"), cwd=tmp_path) as process:
        wait_for(lambda: waiting_workers(tmp_path), "a round that counts")
        process.kill()
        process.communicate(timeout=PATIENCE)
    wait_for(lambda: not any(map(is_alive, waiting_workers(tmp_path))), "the end of the worker")


def test_the_next_run_deletes_the_scratch_folder_of_a_killed_one(tmp_path: Path) -> None:
    waiting, good = write(tmp_path / "waiting.py", WAITING), write(tmp_path / "good.py", GOOD)
    out = tmp_path / "out"
    with running_command(*options(waiting, out), cwd=tmp_path) as process:
        wait_for(lambda: waiting_workers(tmp_path), "a round that waits")
        going = membench(*options(good, out), cwd=tmp_path)
        assert going.code == 0, going.err
        (of_both,) = (out / ".scratch").iterdir()
        resumed = membench("run", "--resume", of_both.name, "--output-dir", out, cwd=tmp_path)
        assert resumed.code == 1
        assert resumed.error == f"membench: run {of_both.name} is in progress in another process"
        process.kill()
        process.communicate(timeout=PATIENCE)
    wait_for(lambda: not any(map(is_alive, waiting_workers(tmp_path))), "the end of the workers")
    (out / ".scratch" / "of a run that was removed").mkdir()
    done = membench(*options(good, out), cwd=tmp_path)
    assert done.code == 0, done.err
    assert not (out / ".scratch").exists()


def test_sigterm_stops_at_once(tmp_path: Path) -> None:
    file = write(tmp_path / "waiting.py", WAITING)
    with running_command(*options(file, tmp_path / "out"), cwd=tmp_path) as process:
        wait_for(lambda: waiting_workers(tmp_path), "a round that waits")
        process.terminate()
        process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert only_run(tmp_path / "out")[1].status == "interrupted"
    assert not any(map(is_alive, waiting_workers(tmp_path)))


# -- resuming ---------------------------------------------------------------------------------


def test_a_complete_run_is_not_resumed(finished: tuple[Path, Run]) -> None:
    folder, run = finished
    done = membench("run", "--resume", run.id, "--output-dir", folder.parent, cwd=folder.parent)
    assert done.code == 1
    assert done.error == f"membench: run {run.id} is complete: there is nothing to resume"


@pytest.mark.parametrize(
    "more",
    [
        ("--category", "storage"), ("--benchmark", "x"), ("--target", "x"), ("--path", "x.py"),
        ("--profile", "quick"), ("--config", "x.json"), ("--params", "{}"), ("--set", "rounds=1"),
        ("--rounds", "1"), ("--seed", "0"), ("--timeout", "1"), ("--parallel",), ("--dry-run",),
    ],
)  # fmt: skip
def test_a_resumed_run_can_not_be_changed(
    more: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from memory.benchmarking.cli import main

    assert main(["run", "--resume", *more, "--output-dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"membench: {more[0]} can't be used with --resume: "
        "a resumed run keeps its options; start a new run to change them\n"
    )


@pytest.fixture
def stopped(tmp_path: Path) -> tuple[Path, Run]:
    """Return a run that was planned and saved, without any rounds."""
    file = write(tmp_path / "good.py", GOOD)
    config = BenchmarkConfig(output_dir=tmp_path / "out")
    config.rounds, config.targets, config.seconds = 2, [LIGHT], 0.001
    cases = BenchmarkRunner(config, paths=[file]).plan(["good"])
    return new_run(config, cases)


def test_a_run_of_another_machine_or_revision_is_not_resumed(stopped: tuple[Path, Run]) -> None:
    folder, run = stopped
    there = msgspec.structs.replace(run.environment, fingerprint="another")
    write_run(folder, msgspec.structs.replace(run, environment=there))
    with pytest.raises(InvalidBenchmarkConfig, match="on another machine or with other versions"):
        resumable_run(folder)
    old = msgspec.structs.replace(run.environment, git_revision="abc123", sources={})
    there = msgspec.structs.replace(
        run.environment,
        sources={
            name: msgspec.structs.replace(source, revision="abc123")
            for name, source in run.environment.sources.items()
        },
    )
    for environment, name in ((old, "membench"), (there, "benchmarks")):
        write_run(folder, msgspec.structs.replace(run, environment=environment))
        with pytest.raises(InvalidBenchmarkConfig, match=f"started with revision abc123 of {name}"):
            resumable_run(folder)


def test_a_run_is_not_resumed_with_another_version_of_its_target(stopped: tuple[Path, Run]) -> None:
    folder, run = stopped
    (name,) = run.target_info
    other = msgspec.structs.replace(run.target_info[name], sha256="0" * 64)
    write_run(folder, msgspec.structs.replace(run, target_info={name: other}))
    with pytest.raises(InvalidBenchmarkConfig, match="the target light has changed since run"):
        resumable_run(folder)


def test_rounds_that_were_measured_but_not_saved_are_saved_on_resuming(
    stopped: tuple[Path, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner was killed after the last round ended and before the results were saved."""
    folder, run = stopped
    monkeypatch.setattr(Execution, "_save_outcome", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    for _ in range(run.rounds):
        with pytest.raises(KeyboardInterrupt):
            Execution(folder, read_run(folder)).execute()
    assert len(list((folder / "rounds").iterdir())) == run.rounds
    monkeypatch.undo()
    shutil.rmtree(folder / "good")
    left = read_run(folder)
    left.results, left.status = [], "running"
    finished = Execution(folder, left).execute()
    assert finished.status == "complete"
    (ref,) = finished.results
    assert read_result(folder / ref.file).metadata["rounds"] == run.rounds


def test_a_run_whose_benchmark_file_is_gone_fails_without_results(stopped: tuple[Path, Run]) -> None:
    folder, run = stopped
    Execution(folder, run).execute()
    Path(str(run.cases[0].source)).unlink()
    again, twice = new_run_like(folder, run, rounds=3)
    finished = Execution(again, twice).execute()
    assert finished.status == "failed"
    assert "is not a file" in finished.failures[0].message
    assert finished.results == []


def new_run_like(folder: Path, run: Run, rounds: int) -> tuple[Path, Run]:
    other = folder.with_name("20260801_101500_ab12")
    other.mkdir()
    fresh = msgspec.structs.replace(
        run, id=other.name, rounds=rounds, status="interrupted", results=[], failures=[], moments=[]
    )
    write_run(other, fresh)
    return other, fresh


def test_the_error_names_a_damaged_round_and_keeps_its_file(stopped: tuple[Path, Run]) -> None:
    folder, run = stopped
    path = folder / "rounds" / f"{run.cases[0].key}.0.msgpack"
    path.parent.mkdir()
    path.write_bytes(b"cut sh")
    with pytest.raises(DamagedResult, match=rf"{re.escape(path.name)} is damaged: .*; delete it"):
        Execution(folder, run).execute()
    assert path.read_bytes() == b"cut sh"


def test_only_one_process_executes_a_run(stopped: tuple[Path, Run]) -> None:
    folder, run = stopped
    with _exclusive_lock(folder), pytest.raises(BenchmarkError, match="is in progress in another process"):
        Execution(folder, run).execute()
    with _exclusive_lock(folder):
        pass
    assert not (folder / ".lock").exists()


def test_two_runs_at_once_in_one_folder_both_succeed(tmp_path: Path) -> None:
    file = write(tmp_path / "good.py", GOOD)
    processes = [
        subprocess.Popen(
            [*COMMAND, *map(str, options(file, tmp_path / "out", "--rounds", 2, "--quiet"))],
            cwd=tmp_path,
            env=surroundings(),
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    folders = [Path(process.communicate(timeout=PATIENCE)[0].strip()) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(set(folders)) == 2
    for folder in folders:
        assert read_run(folder).status == "complete"
    assert not (tmp_path / "out" / ".scratch").exists()


# -- disks that can't be written to -----------------------------------------------------------


def small_disk(megabytes: float = 1) -> tuple[str, ...]:
    """Return what to put before a command to make /mnt a small disk."""
    mount = ["unshare", "--mount", *(["--user", "--map-root-user"] if os.geteuid() else [])]
    if subprocess.run([*mount, "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True).returncode:
        pytest.skip("needs the right to mount a file system")
    prepare = f"mount -t tmpfs -o size={int(megabytes * 1000)}k none /mnt"
    return (*mount, "sh", "-c", f'{prepare} && "$@"; code=$?; ls -A /mnt/out >&2; exit $code', "sh")


def test_the_error_names_a_full_disk_and_its_space_is_freed(tmp_path: Path) -> None:
    file = write(
        tmp_path / "filling.py",
        """
        import pathlib, tempfile
        def benchmark_fills(bench=None):
            with open(pathlib.Path(tempfile.gettempdir()) / "large", "wb") as file:
                try:
                    while True:
                        file.write(bytes(1024)); file.flush()
                except OSError:
                    pass
            return {"figure": 1.0}
        """,
    )
    done = membench(*options(file, Path("/mnt/out"), "--rounds", 2), cwd=tmp_path, before=small_disk())
    *_, last, listed = done.err.splitlines()
    assert done.code == 1
    assert "Traceback" not in done.err
    assert "No space left on device" in last or "can't be written" in last
    assert re.fullmatch(r"\d{8}_\d{6}_[0-9a-f]{4}", listed), "the scratch folder is gone"


@pytest.mark.parametrize("inside", ["", "deeper"])
def test_the_error_names_a_file_in_place_of_the_output_folder(tmp_path: Path, inside: str) -> None:
    (tmp_path / "out").write_text("mine")
    file = write(tmp_path / "good.py", GOOD)
    done = membench(*options(file, tmp_path / "out" / inside), cwd=tmp_path)
    assert done.code == 1
    assert str(tmp_path / "out" / inside) in done.error
    assert done.error.endswith("Not a directory")
    assert (tmp_path / "out").read_text() == "mine"


def test_the_error_names_a_folder_that_can_not_be_written_to(tmp_path: Path) -> None:
    file = write(tmp_path / "good.py", GOOD)
    mount = "mount -t tmpfs -o ro none /mnt"
    before = small_disk()[:-2]
    read_only = (*before[: before.index("sh")], "sh", "-c", f'{mount} && "$@"', "sh")
    done = membench(*options(file, Path("/mnt/out")), cwd=tmp_path, before=read_only)
    assert done.code == 1
    assert re.search(r"/mnt/out\S* can't be created: Read-only file system$", done.error)


def test_every_case_has_a_unique_file_name() -> None:
    targets = ["a/b.py:T", "a-b.py:T", "a b.py:T", "agentmemory", "x" * 300 + ":T", "x" * 301 + ":T"]
    cases = [Case(category="c", benchmark="b", target=target, params={}) for target in targets]
    keys = {case.key for case in cases}
    assert len(keys) == len(targets)
    assert all(len(f"{key}.9999.msgpack.0000000000.00000000") < 255 for key in keys)
    assert "c.b@agentmemory" in keys
