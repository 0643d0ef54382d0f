"""Every code block of the documents runs by itself, in a fresh folder, as a new user would run it."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest
from code_blocks import ROOT, SHELL, Block, all_blocks, blocks_of
from membench import membench, once, surroundings
from smallest import smallest_config

from memory.benchmarking.model.files import run_folders

TIMEOUT_SECONDS = 120
"""Ends a block that hangs. A block takes one to ten seconds on an idle machine."""
LANGUAGES = {*SHELL, "python", "toml", "yaml", "json", "sql", "text"}
BLOCKS = all_blocks()


def names(blocks: list[Block]) -> list[object]:
    return [pytest.param(block, id=block.name) for block in blocks]


# -- Python ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "block", names([block for block in BLOCKS if block.language == "python" and block.runs])
)
def test_a_python_block_runs_by_itself(block: Block, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", block.code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_DATA_HOME": str(tmp_path / "data")},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, done.stderr


# -- commands -------------------------------------------------------------------------------------

# `membench` and `python` with less work. A run without a choice measures one benchmark, a run of a category
# one benchmark of it (`test_specification.py` measures all), and every run has one round. `view` is stopped
# as soon as it has printed its link.
ONE_OF = {
    "storage": "read_latency",
    "retrieval": "search_delay",
    "agent_execution": "session_creation",
    "memory_search": "short_query",
    "context_build": "baseline",
}
PROGRAM = """#!{python}
import signal, subprocess, sys
from pathlib import Path
arguments = sys.argv[1:]
if Path(sys.argv[0]).name == "membench":
    arguments = ["-m", "memory.benchmarking.cli", *arguments]
module, command = (arguments[1], arguments[2:3]) if arguments[:1] == ["-m"] else ("", [])
if module.startswith("memory.benchmarking.benchmarks."):
    arguments += ["--iterations", "2"]
if command == ["run"]:
    if not {{"--category", "--benchmark", "--path"}} & set(arguments):
        arguments += ["--benchmark", "read_latency"]
    elif "--benchmark" not in arguments:
        for category, benchmark in {one_of}.items():
            arguments += ["--benchmark", benchmark] if category in arguments else []
    arguments += ["--rounds", "1", "--set", "seconds=0.002"]
if command != ["view"]:
    sys.exit(subprocess.run([sys.executable, *arguments]).returncode)
if "--port" in arguments:
    arguments[arguments.index("--port") + 1] = "0"  # another test may use the port
server = subprocess.Popen([sys.executable, *arguments, "--no-open"], stdout=subprocess.PIPE, text=True)
with server:
    line = server.stdout.readline()
    server.send_signal(signal.SIGINT)
sys.exit("http://" not in line)
"""
PIP = "#!/bin/sh\n# The packages are installed already; a test needs no network.\n"


@pytest.fixture(scope="module")
def after_two_runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two runs, the baseline `main`, `results/baseline`, and the programs above."""

    def fill(folder: Path) -> None:
        env = surroundings(MEMBENCH_CONFIG=str(smallest_config(folder / "smallest.json")))
        run = ("run", "--benchmark", "read_latency", "--target", "agentmemory")
        for targets in (("--target", "sqlite-baseline"), (), ()):
            done = membench(*run, *targets, cwd=folder, env=env)
            assert done.code == 0, done.err
        assert membench("baseline", "set", "main", cwd=folder, env=env).code == 0
        newest = run_folders(folder / "benchmark_results")[-1]
        shutil.copytree(newest, folder / "results" / "baseline" / newest.name)
        programs = folder / "programs"
        programs.mkdir()
        for name, source in (("membench", PROGRAM), ("python", PROGRAM), ("pip", PIP)):
            (programs / name).write_text(source.format(python=sys.executable, one_of=ONE_OF))
            (programs / name).chmod(0o755)

    return once(tmp_path_factory, "after_two_runs", fill)


@pytest.mark.parametrize(
    "block", names([block for block in BLOCKS if block.language in SHELL and block.runs])
)
def test_a_shell_block_runs_by_itself(block: Block, after_two_runs: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(after_two_runs, tmp_path / "folder")
    for other in blocks_of(block.document):
        if other.file_name:
            (folder / other.file_name).write_text(other.code)
    ids = cycle(run.name for run in run_folders(folder / "benchmark_results")[-2:])
    commands = re.sub(r"\bRUN\b", lambda _: next(ids), block.code).replace(" DIR", " benchmark_results")
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", commands],
        cwd=folder,
        env={
            **surroundings(MEMBENCH_CONFIG=str(folder / "smallest.json"), PYTHONPATH=str(ROOT)),
            "PATH": f"{folder / 'programs'}{os.pathsep}{os.environ['PATH']}",
        },
        capture_output=True,
        stdin=subprocess.DEVNULL,
        text=True,
        timeout=TIMEOUT_SECONDS,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"


# -- all of them ----------------------------------------------------------------------------------


def test_every_block_has_a_known_language() -> None:
    """Output without a language would run as a command, and with an unknown one nothing is checked."""
    assert {block.name for block in BLOCKS if block.language not in LANGUAGES} == set()


@pytest.mark.parametrize("block", names([block for block in BLOCKS if block.language == "text"]))
def test_a_text_block_holds_no_command(block: Block) -> None:
    for line in block.code.splitlines():
        if line.startswith("membench "):
            assert set(line) & set("[|.") or not shlex.split(line), f"{block.name} can run: {line}"


@pytest.mark.parametrize("block", names([block for block in BLOCKS if block.language == "json"]))
def test_a_json_block_is_json(block: Block) -> None:
    json.loads(block.code)


def test_the_documents_have_blocks() -> None:
    run = [block.language for block in BLOCKS if block.runs]
    assert run.count("python") >= 20
    assert sum(language in SHELL for language in run) >= 15
