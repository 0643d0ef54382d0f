"""Runs the command `membench` in a process; shares runs between tests."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from memory.benchmarking.model.files import read_run, run_folders
from memory.benchmarking.model.records import Run

HERE = Path(__file__).parent
COMMAND = (sys.executable, "-m", "memory.benchmarking.cli")
LIGHT = f"{HERE / 'light_target.py'}:LightTarget"
"""A target that imports no library, so that a round starts fast."""
MISBEHAVING = HERE / "misbehaving.py"
PATIENCE = 120
"""Seconds after which a process that has not ended fails the test."""

GOOD = """
def benchmark_good(size: int = 3, bench=None):
    "Writes something in capitals."
    return {"upper": bench.time(lambda: ("a" * size).upper())}
"""


def surroundings(**changes: str | None) -> dict[str, str]:
    """Return the environment of a command: without colours and git revision."""
    names = {"NO_COLOR", "TERM", "PYTHONHASHSEED", "COLUMNS"}
    kept = {name: value for name, value in os.environ.items() if name not in names}
    changed = {"GIT_DIR": "/nowhere", **changes}
    return kept | {name: value for name, value in changed.items() if value is not None}


@dataclass(frozen=True)
class Done:
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str

    @property
    def error(self) -> str:
        """The error, which must be a single line."""
        assert self.err.count("\n") == 1, self.err
        assert self.err.startswith("membench"), self.err
        return self.err.strip()


def membench(
    *arguments: object, cwd: Path, env: Mapping[str, str] | None = None, before: tuple[str, ...] = ()
) -> Done:
    done = subprocess.run(
        [*before, *COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=surroundings() if env is None else env,
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=PATIENCE,
    )
    return Done(done.returncode, done.stdout, done.stderr)


def write(path: Path, source: str) -> Path:
    """Write a user's file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(source))
    return path


def options(file: Path, output_dir: Path, *more: object, target: str = LIGHT) -> tuple[object, ...]:
    """Return the options of a quick `run` of all benchmarks of one file."""
    return (
        "run", "--path", file, "--category", file.stem, "--target", target, "--set", "seconds=0.001",
        "--output-dir", output_dir, *(() if "--rounds" in more else ("--rounds", 1)), *more,
    )  # fmt: skip


def only_run(output_dir: Path) -> tuple[Path, Run]:
    """Return the only run in a folder."""
    (folder,) = run_folders(output_dir)
    return folder, read_run(folder)


def once(factory: pytest.TempPathFactory, name: str, fill: Callable[[Path], Any]) -> Path:
    """Return a folder that one test process fills and all of them read."""
    base = factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    folder = shared / name
    with open(shared / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            partly = shared / f"{name}.partly"
            partly.mkdir()
            fill(partly)
            partly.rename(folder)
    return folder
