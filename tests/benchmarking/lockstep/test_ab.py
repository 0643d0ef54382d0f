"""`membench ab`: two real sides, each in its own processes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from broken_targets import place_of as broken_target
from membench import COMMAND, LIGHT, PATIENCE, Done, membench, surroundings, write

from memory.benchmarking.lockstep.checkout import Checkout
from memory.benchmarking.lockstep.environments import interpreter_of
from memory.benchmarking.lockstep.pair import HARNESS

LIBRARY = """
LOOPS = 300

def work():
    for _ in range(LOOPS):
        pass
"""
BENCHMARKS = """
import library

def benchmark_work(bench=None):
    "Calls what the library has."
    return {"work": bench.time(library.work)}
"""
WIDE = ("--threshold", 0.5)
"""Between noise and the tested change: identical code differs by less, the change is larger."""


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments],
        cwd=folder,
        check=True,
        capture_output=True,
    )


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Make a git repository with a library, its benchmark, and one revision."""
    folder = tmp_path / "project"
    write(folder / "library.py", LIBRARY)
    write(folder / "mine.py", BENCHMARKS)
    git(folder.parent, "init", "--quiet", str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "first")
    return folder


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with a cache of its own, and without settings for git."""
    return surroundings(GIT_DIR=None, XDG_CACHE_HOME=str(folder.parent / "cache"))


def options(*more: object, file: str = "mine.py", category: str = "mine") -> list[object]:
    what = ["--path", file, "--category", category]
    return ["ab", *what, "--set", "seconds=0.005", "--output-dir", "out", *more]


def ab(folder: Path, *more: object, **named: str) -> Done:
    return membench(*options(*more, **named), cwd=folder, env=environment(folder))


def left_over(folder: Path) -> list[psutil.Process]:
    """Return the processes that still use the scratch space of this folder."""
    found = []
    for process in psutil.process_iter():
        try:
            where = process.environ().get("TMPDIR", "")
            if process.is_running() and where.startswith(str(folder)):
                found.append(process)
        except psutil.Error:
            continue
    return found


def is_clean(folder: Path) -> bool:
    return not left_over(folder) and not list((folder / "out").rglob(".scratch"))


# -- revisions --------------------------------------------------------------------------------


def test_a_revision_that_does_less_work_shows_the_working_tree_as_regressed(repository: Path) -> None:
    write(repository / "library.py", LIBRARY.replace("300", "900"))
    done = ab(repository, "--base", "HEAD", "--target", LIGHT, "--format", "json", *WIDE)
    assert done.code == 2, done.err
    (found,) = [each for each in json.loads(done.out)["metrics"] if each["verdict"] == "regressed"]
    assert (found["path"], found["confirmed"]) == ("work/cpu_ms", True)
    assert found["ratio"] > 2  # three times the work, on a machine that may be busy
    assert is_clean(repository)
    again = membench("ab", "--show", "latest", "--output-dir", "out", cwd=repository)
    assert again.code == 2
    assert "mine.work work/cpu_ms" in again.out
    assert ", confirmed" in again.out


def test_an_unchanged_working_tree_exits_with_0(repository: Path) -> None:
    done = ab(repository, "--base", "HEAD", "--target", LIGHT, "--format", "json", *WIDE)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert {each["path"] for each in document["metrics"]} == {"work/cpu_ms", "work/wall_ms"}
    assert document["current"] == "working tree"


def test_a_benchmark_that_the_revision_lacks_is_new(repository: Path) -> None:
    write(repository / "later.py", BENCHMARKS)
    done = ab(repository, "--base", "HEAD", "--target", LIGHT, file="later.py", category="later")
    assert done.code == 1
    assert "later.work is new" in done.error


def test_the_error_names_the_side_whose_code_is_broken(repository: Path) -> None:
    write(repository / "library.py", "raise RuntimeError('half of a change')")
    git(repository, "commit", "--quiet", "-am", "broken")
    write(repository / "library.py", LIBRARY)
    done = ab(repository, "--base", "HEAD", "--target", LIGHT)
    assert done.code == 1
    assert "not compared: mine.work on the side HEAD" in done.err
    assert "half of a change" in done.err
    assert is_clean(repository)


def test_the_current_benchmark_measures_an_older_memory(tmp_path: Path) -> None:
    """`memory` is loaded from the side, `memory.benchmarking` from the comparing process."""
    write(tmp_path / "memory" / "__init__.py", "AGE = 'old'")
    write(tmp_path / "memory" / "errors.py", "class AgentMemoryError(Exception): ...")
    program = f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        sys.path.insert(0, {str(HARNESS / "lockstep")!r})
        import side_process, pathlib
        side_process.use_harness(pathlib.Path({str(HARNESS)!r}))
        import memory, memory.benchmarking.errors as errors
        print(memory.AGE, errors.__file__, errors.AgentMemoryError.__module__)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["old", str(HARNESS / "errors.py"), "memory.errors"]


def test_a_revision_with_other_dependencies_gets_an_environment_of_its_own(tmp_path: Path) -> None:
    project = '[project]\nname = "x"\ndependencies = [{}]\n'
    write(tmp_path / "now" / "pyproject.toml", project.format(""))
    write(tmp_path / "then" / "pyproject.toml", project.format('"pip"'))
    reports: list[str] = []
    then = Checkout(tmp_path / "now", "abc", tmp_path / "then")
    python = interpreter_of(then, tmp_path / "cache", reports.append)
    assert python.startswith(str(tmp_path))
    assert subprocess.run([python, "-c", "import pip"], check=True).returncode == 0
    folder = "import agentmemory_embedder_files as folder; print(*folder.__path__)"
    files = subprocess.run([python, "-c", folder], capture_output=True, text=True, check=True)
    assert {path.name for path in Path(files.stdout.strip()).iterdir()} >= {
        "l2_supercat_256.safetensors",
        "l2_supercat_tokenizer_config.json",
    }
    assert interpreter_of(then, tmp_path / "cache", reports.append) == python
    assert len(reports) == 1  # built once
    assert interpreter_of(
        Checkout(tmp_path / "now", "abc", tmp_path / "now"), tmp_path, reports.append
    ) == (sys.executable)


# -- other sides ------------------------------------------------------------------------------

ROOM = """
from memory.benchmarking.metrics import declare

@declare(rounds=2)
def benchmark_room(size: int = 100, bench=None):
    return {"room_bytes": size, bench.target_name.rpartition(":")[2]: {"seen_bytes": 1}}
"""


def test_two_configurations_are_compared_by_their_common_metrics(tmp_path: Path) -> None:
    write(tmp_path / "rooms.py", ROOM)
    for name, size in (("small", 100), ("large", 150)):
        config = {"targets": [LIGHT], "rooms": {"size": size}}
        (tmp_path / f"{name}.json").write_text(json.dumps(config))
    done = ab(
        tmp_path, "--base-config", "small.json", "--current-config", "large.json",
        file="rooms.py", category="rooms",
    )  # fmt: skip
    assert done.code == 2, done.err
    assert "room_bytes" in done.out
    assert "50.0 %" in done.out


def test_metrics_of_one_target_only_are_new_or_missing(tmp_path: Path) -> None:
    write(tmp_path / "rooms.py", ROOM)
    write(
        tmp_path / "light_target.py",
        Path(LIGHT.rpartition(":")[0]).read_text() + "\n\nclass Other(LightTarget):\n    name = 'other'\n",
    )
    other = f"{tmp_path / 'light_target.py'}:Other"
    done = ab(
        tmp_path, "--base-target", LIGHT, "--current-target", other, "--format", "json",
        file="rooms.py", category="rooms",
    )  # fmt: skip
    assert done.code == 0, done.err
    found = {each["path"]: each["verdict"] for each in json.loads(done.out)["metrics"]}
    assert found == {
        "room_bytes": "unchanged", "LightTarget/seen_bytes": "missing", "Other/seen_bytes": "new",
    }  # fmt: skip


def test_two_interpreters_are_compared(tmp_path: Path) -> None:
    write(tmp_path / "rooms.py", ROOM)
    done = ab(
        tmp_path, "--base-python", sys.executable, "--current-python", sys.executable, "--target", LIGHT,
        file="rooms.py", category="rooms",
    )  # fmt: skip
    assert done.code == 0, done.err


# -- what goes wrong --------------------------------------------------------------------------

GOING_WRONG = """
import os, signal, threading, pathlib

def benchmark_dies(who: str = "", bench=None):
    bench.time("a".upper)
    if who == "current":
        os.kill(os.getpid(), signal.SIGSEGV)
    return {"figure_ms": 1.0}

def benchmark_hangs(who: str = "", bench=None):
    if who == "current":
        pathlib.Path("at-work").touch()
        threading.Event().wait()
    return {"figure_ms": 1.0}
"""


def going_wrong(folder: Path, benchmark: str) -> list[object]:
    write(folder / "wrong.py", GOING_WRONG)
    for side in ("base", "current"):
        config = {"targets": [LIGHT], "wrong": {"who": side}}
        (folder / f"{side}.json").write_text(json.dumps(config))
    return options(
        "--benchmark", benchmark, "--base-config", "base.json", "--current-config", "current.json",
        file="wrong.py", category="wrong",
    )  # fmt: skip


def test_a_side_that_crashes_is_named_and_the_other_is_killed(tmp_path: Path) -> None:
    done = membench(*going_wrong(tmp_path, "dies"), cwd=tmp_path)
    assert done.code == 1
    assert "not compared: wrong.dies on the side current.json: crashed with SIGSEGV" in done.err
    assert is_clean(tmp_path)


def test_a_side_that_hangs_is_killed_with_the_other(tmp_path: Path) -> None:
    done = membench(*going_wrong(tmp_path, "hangs"), "--timeout", 1, cwd=tmp_path)
    assert done.code == 1
    assert "on the side current.json: did not end within 2 s" in done.err
    assert is_clean(tmp_path)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_stopping_a_comparison_leaves_no_process_running(tmp_path: Path, number: signal.Signals) -> None:
    process = subprocess.Popen(
        [*COMMAND, *map(str, going_wrong(tmp_path, "hangs"))],
        cwd=tmp_path,
        env=surroundings(),
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(lambda: (tmp_path / "at-work").exists() or process.poll() is not None)
    process.send_signal(number)
    _, said = process.communicate(timeout=PATIENCE)
    wait_for(lambda: not left_over(tmp_path))
    if number == signal.SIGINT:
        assert (process.returncode, said) == (130, "membench: stopped\n")
        assert is_clean(tmp_path)
    else:  # after a kill, the next comparison deletes the scratch folder
        assert list((tmp_path / "out").rglob(".scratch"))
        membench(*going_wrong(tmp_path, "dies"), cwd=tmp_path)
        assert is_clean(tmp_path)


def wait_for(what: Callable[[], bool]) -> None:
    import time

    deadline = time.monotonic() + PATIENCE
    while not what():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ([], "nothing to compare is given: use --base REVISION"),
        (["--base", "x", "--base-target", "a", "--current-target", "b"], "base and target are both given"),
        (["--base-target", "a"], "--base-target has no other side: add --current-target"),
        (["--base", "no-such-revision"], "has no such revision"),
        (["--base", "HEAD", "--pairs", "3"], "--pairs is 3: use at least 6"),
        (
            ["--base-python", "nowhere", "--current-python", "nowhere"],
            "nowhere is not a Python",
        ),
        (["--base-target", "agentmemory", "--current-target", "agentmem"], "did you mean 'agentmemory'?"),
        (["--show", "latest"], "there is no comparison 'latest'"),
        (["--base", "HEAD", "--output", "a.pdf"], "has an unknown ending: use one of"),
        (["--base", "HEAD", "--threshold", "-1"], "threshold is -1.0"),
    ],
)
def test_bad_input_gives_a_one_line_error(repository: Path, given: list[str], said: str) -> None:
    done = ab(repository, *given)
    assert done.code == 1
    assert said in done.error


def test_a_target_that_loses_what_it_claims_to_keep_is_not_compared(tmp_path: Path) -> None:
    sides = ("--base-target", LIGHT, "--current-target", broken_target("WritesItsFileInClose"))
    done = membench("ab", "--benchmark", "read_latency", *sides, cwd=tmp_path)
    assert done.code == 1
    assert "late declares durability process, but it lost memories" in done.error


def test_a_revision_outside_of_a_repository_is_an_error(tmp_path: Path) -> None:
    write(tmp_path / "mine.py", BENCHMARKS)
    write(tmp_path / "library.py", LIBRARY)
    done = ab(tmp_path, "--base", "HEAD")
    assert done.code == 1
    assert "is in no repository" in done.error
