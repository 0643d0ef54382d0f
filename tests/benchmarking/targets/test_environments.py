"""Environments of targets: built from wheels made by hand, whole or not at all, and used by run and ab."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from local_packages import BENCHMARK, ENTRY_POINT, TARGET, make_packages, make_wheel, offline
from membench import COMMAND, PATIENCE, Done, membench, once, only_run, write

from memory.benchmarking.errors import EXIT_FAILED, EXIT_FINE, EXIT_INTERRUPTED
from memory.benchmarking.model.files import read_result_of
from memory.benchmarking.model.records import Run
from memory.benchmarking.targets.building import reason_of, worker_requirements

VERSIONS = ("tiny@1.0", "tiny@2.0")


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of wheels."""
    return once(tmp_path_factory, "packages", make_packages)


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH: the package with the target is installed where membench runs."""

    def fill(folder: Path) -> None:
        write(folder / "tiny_target.py", TARGET)
        info = folder / "tiny_target-1.0.dist-info"
        write(info / "entry_points.txt", ENTRY_POINT)
        write(info / "METADATA", "Metadata-Version: 2.1\nName: tiny_target\nVersion: 1.0\n")
        write(info / "RECORD", "tiny_target.py,,\n")

    return once(tmp_path_factory, "here", fill)


@pytest.fixture(scope="module")
def installed(packages: Path, here: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the environments of both versions, built once for all tests."""

    def fill(folder: Path) -> None:
        env = offline(packages, folder, PYTHONPATH=str(here))
        for name in VERSIONS:
            done = membench("targets", "install", name, cwd=folder, env=env)
            assert done.code == EXIT_FINE, done.err

    return once(tmp_path_factory, "installed", fill)


@pytest.fixture
def env(packages: Path, here: Path, installed: Path) -> dict[str, str]:
    """The environment of a command that has both versions."""
    return offline(packages, installed, PYTHONPATH=str(here), OURS=str(Path(sys.prefix)))


@pytest.fixture
def empty(packages: Path, here: Path, tmp_path: Path) -> dict[str, str]:
    """The environment of a command without any environment of a target."""
    return offline(packages, tmp_path / "targets", PYTHONPATH=str(here))


def folders(targets: Path) -> list[str]:
    """Return the environments in a folder, whole or not."""
    names = [path.name for path in targets.iterdir() if path.is_dir() and path.name != "code"]
    return sorted(names) if targets.is_dir() else []


# -- what is installed ------------------------------------------------------------------------


def test_the_lock_file_has_every_version(installed: Path) -> None:
    for name, version in (("tiny@1.0", "1.0"), ("tiny@2.0", "2.0")):
        lock = json.loads((installed / f"{name}.lock.json").read_text())
        assert lock["requirements"] == [f"tinystore=={version}", "tiny_target==1.0"]
        assert lock["packages"]["tinystore"] == version
        assert {"numpy", "msgspec", "psutil", "bm25s"} <= set(lock["packages"])
        assert not {"scipy", "pandas", "matplotlib", "rich"} & set(lock["packages"])
        assert (installed / lock["folder"] / "bin" / "python").exists()


def test_the_worker_needs_what_our_distribution_declares() -> None:
    names = worker_requirements()
    assert "msgspec>=0.19" in names
    assert "psutil>=6.0" in names
    assert not any("extra" in each for each in names)


def test_the_list_shows_state_version_and_limits(env: dict[str, str], tmp_path: Path) -> None:
    done = membench("targets", cwd=tmp_path, env=env)
    lines = [line.split() for line in done.out.splitlines()]
    assert ["tiny", "not", "installed", "process", "vector", "—"] in lines
    assert ["tiny@1.0", "installed", "1.0", "process", "vector", "not", "checked"] in lines
    assert "can't be used by several threads, be opened by several processes; It is small" in done.out
    assert ["cognee", "can't", "run", "—", "—", "—"] in lines
    rows = json.loads(membench("targets", "--json", cwd=tmp_path, env=env).out)["targets"]
    by_name = {row["target"]: row for row in rows}
    assert by_name["tiny@2.0"]["environment"]["packages"]["tinystore"] == "2.0"
    assert by_name["tiny"]["install"] == "membench targets install tiny"
    assert by_name["agentmemory"]["state"] == "built in"
    assert "without a memory server" in by_name["letta"]["reason"]


def test_an_environment_is_checked_in_its_own_interpreter(env: dict[str, str], tmp_path: Path) -> None:
    done = membench("targets", "check", "tiny@1.0", cwd=tmp_path, env=env)
    assert done.code == EXIT_FINE, done.out
    assert "0 broken" in done.out
    listed = membench("targets", cwd=tmp_path, env=env).out
    assert [line.split()[-1] for line in listed.splitlines() if line.startswith("tiny@1.0")] == ["kept"]


# -- used by run, ab and reports --------------------------------------------------------------


def in_run(tmp_path: Path, env: dict[str, str], *more: object) -> Done:
    file = write(tmp_path / "mine.py", BENCHMARK)
    quick = ("--path", file, "--category", "mine", "--set", "seconds=0.001", "--output-dir", "out")
    return membench("run", *quick, *more, cwd=tmp_path, env=env)


def figures(folder: Path, run: Run) -> dict[str, dict[str, Any]]:
    return {ref.target: read_result_of(folder, ref).results for ref in run.results}


def test_two_versions_are_measured_in_one_run(env: dict[str, str], tmp_path: Path) -> None:
    both = [option for name in VERSIONS for option in ("--target", name)]
    done = in_run(tmp_path, env, *both, "--rounds", 1)
    assert done.code == EXIT_FINE, done.err
    folder, run = only_run(tmp_path / "out")
    found = figures(folder, run)
    for name, version in zip(VERSIONS, (1.0, 2.0), strict=True):
        assert found[name]["version"] == version
        assert found[name]["own"] == 1.0, "it ran in another environment's interpreter"
        assert found[name]["ours"] == 0.0, "modules of our site-packages were in reach"
        info = run.target_info[name]
        assert info.versions == {"tinystore": str(version), "tiny_target": "1.0"}
        assert info.packages["tinystore"] == str(version)
        (ref,) = [ref for ref in run.results if ref.target == name]
        assert info.lock
        assert read_result_of(folder, ref).metadata["target_info"]["lock"] == info.lock
    one, two = run.results
    assert one.fingerprint != two.fingerprint
    page = membench(
        "results", "compare-report", *(f"latest@{name}" for name in VERSIONS), "--output-dir", "out",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert page.code == EXIT_FINE, page.err
    alone = membench("results", "compare-report", *VERSIONS, "--output-dir", "out", cwd=tmp_path, env=env)
    assert alone.code == EXIT_FINE, alone.err
    wrong = membench(
        "results", "compare-report", "latest@tiny@1.0", "latest@tiny@9", "--output-dir", "out",
        cwd=tmp_path, env=env,
    )  # fmt: skip
    assert wrong.error == "membench: latest has no target 'tiny@9': did you mean 'tiny@2.0'?"


def test_two_versions_are_compared_in_lockstep(env: dict[str, str], tmp_path: Path) -> None:
    file = write(tmp_path / "mine.py", BENCHMARK)
    done = membench(
        "ab", "--path", file, "--category", "mine", "--base-target", "tiny@1.0", "--current-target",
        "tiny@2.0", "--set", "seconds=0.001", "--output-dir", "out", cwd=tmp_path, env=env,
    )  # fmt: skip
    (saved,) = (tmp_path / "out" / "ab").glob("*.json")
    record = json.loads(saved.read_text())
    assert record["failures"] == {}, done.err
    (pairs,) = record["pairs"].values()
    assert {(pair["base"]["version"], pair["current"]["version"]) for pair in pairs} == {(1.0, 2.0)}
    assert [info["versions"]["tinystore"] for info in record["target_info"].values()] == ["1.0", "2.0"]


def test_a_run_is_resumed_only_with_the_same_environment(env: dict[str, str], tmp_path: Path) -> None:
    failing = (
        BENCHMARK
        + "\ndef benchmark_failing(bench=None):\n    import os; os.stat('now')\n    return {'x': 1}\n"
    )
    file = write(tmp_path / "mine.py", f"{BENCHMARK}\n{failing}")
    done = membench(
        "run", "--path", file, "--category", "mine", "--set", "seconds=0.001", "--rounds", 1,
        "--target", "tiny@1.0", "--output-dir", "out", cwd=tmp_path, env=env,
    )  # fmt: skip
    assert done.code == EXIT_FAILED
    folder, run = only_run(tmp_path / "out")
    assert run.status == "failed"
    stored = json.loads((folder / "run.json").read_text())
    stored["target_info"]["tiny@1.0"]["lock"] = "000000000000"
    other = tmp_path / "other" / folder.name
    other.parent.mkdir()
    folder.rename(other)
    (other / "run.json").write_text(json.dumps(stored))
    refused = membench("run", "--resume", "--output-dir", "other", cwd=tmp_path, env=env)
    assert refused.error.startswith("membench: the target tiny has changed since run")
    stored["target_info"]["tiny@1.0"]["lock"] = run.target_info["tiny@1.0"].lock
    (other / "run.json").write_text(json.dumps(stored))
    (tmp_path / "now").touch()
    resumed = membench("run", "--resume", "--output-dir", "other", cwd=tmp_path, env=env)
    assert resumed.code == EXIT_FINE, resumed.err


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "--target", "tiny"),
        ("run", "--target", "tiny", "--dry-run"),
        ("ab", "--base-target", "sqlite-baseline", "--current-target", "tiny"),
        ("targets", "check", "tiny"),
    ],
)
def test_the_error_for_a_target_that_is_not_installed_is_the_command(
    arguments: tuple[str, ...], env: dict[str, str], tmp_path: Path
) -> None:
    done = membench(*arguments, cwd=tmp_path, env=env)
    assert done.code == EXIT_FAILED
    assert done.error == "membench: tiny is not installed: run `membench targets install tiny`"


def test_a_version_has_to_be_the_exact_one(env: dict[str, str], tmp_path: Path) -> None:
    done = membench("run", "--target", "tiny@1.1", cwd=tmp_path, env=env)
    assert done.error == "membench: tiny@1.1 is not installed: run `membench targets install tiny@1.1`"
    none = membench("run", "--target", "agentmemory@1.0", cwd=tmp_path, env=env)
    assert none.error == "membench: there is no agentmemory@1.0: the target has no versions"


def test_a_system_that_can_be_imported_here_is_used_from_here(
    empty: dict[str, str], here: Path, tmp_path: Path
) -> None:
    also = tmp_path / "also"
    write(also / "tinystore" / "__init__.py", "VERSION = '1.5'\n")
    write(also / "tinystore-1.5.dist-info" / "METADATA", "Name: tinystore\nVersion: 1.5\n")
    env = {**empty, "PYTHONPATH": os.pathsep.join((str(here), str(also)))}
    done = in_run(tmp_path, env, "--target", "tiny", "--target", "tiny@1.5", "--rounds", 1)
    assert done.code == EXIT_FINE, done.err
    folder, run = only_run(tmp_path / "out")
    assert [each["version"] for each in figures(folder, run).values()] == [1.5, 1.5]
    assert run.target_info["tiny"].versions == {"tinystore": "1.5", "tiny_target": "1.0"}
    other = membench("run", "--target", "tiny@2.0", cwd=tmp_path, env=env)
    assert other.error.startswith("membench: tiny@2.0 is not installed (here is version 1.5): run `memb")


def test_a_revision_can_not_be_measured_in_an_environment(env: dict[str, str], tmp_path: Path) -> None:
    done = membench("ab", "--base", "HEAD", "--target", "tiny@1.0", cwd=tmp_path, env=env)
    assert done.error.startswith("membench: --base can't measure tiny@1.0, which has an environment of its")


# -- installing: whole or not at all ----------------------------------------------------------


def test_two_installations_at_once_build_one_environment(empty: dict[str, str], tmp_path: Path) -> None:
    write(tmp_path / "own.py", TARGET)
    command = [*COMMAND, "targets", "install", "own.py:Tiny"]
    both = [
        subprocess.Popen(
            command, cwd=tmp_path, env=empty, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    said = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [EXIT_FINE, EXIT_FINE], said
    outputs = sorted(out for out, _ in said)
    assert "tinystore 2.0 already installed" in outputs[0]
    assert "tinystore 2.0 installed" in outputs[1]
    (folder,) = folders(tmp_path / "targets")
    measured = in_run(tmp_path, empty, "--target", "own.py:Tiny", "--rounds", 1)
    assert measured.code == EXIT_FINE, measured.err
    # A failed upgrade leaves it as it is.
    nowhere = {**empty, "PIP_FIND_LINKS": str(tmp_path), "UV_FIND_LINKS": str(tmp_path)}
    failed = membench("targets", "install", "--upgrade", "own.py:Tiny", cwd=tmp_path, env=nowhere)
    assert failed.code == EXIT_FAILED
    assert folders(tmp_path / "targets") == [folder]
    assert "already installed" in membench(*command[len(COMMAND) :], cwd=tmp_path, env=empty).out
    removed = membench("targets", "remove", "own.py:Tiny", cwd=tmp_path, env=empty)
    assert (removed.code, removed.out) == (EXIT_FINE, "own.py:Tiny: removed\n")
    assert folders(tmp_path / "targets") == []
    again = membench("targets", "remove", "own.py:Tiny", cwd=tmp_path, env=empty)
    assert again.error == "membench: own.py:Tiny has no environment: there are none"


def test_a_version_that_does_not_exist_is_one_line_and_leaves_nothing(
    empty: dict[str, str], tmp_path: Path
) -> None:
    done = membench("targets", "install", "tiny@7.0", cwd=tmp_path, env=empty)
    assert done.code == EXIT_FAILED
    (line,) = [line for line in done.err.splitlines() if line.startswith("membench: ")]
    python = ".".join(map(str, sys.version_info[:3]))
    assert line.startswith(f"membench: tiny@7.0 can't be installed for Python {python}: ")
    assert "tinystore==7.0" in line
    assert line.endswith("; nothing was changed")
    assert folders(tmp_path / "targets") == []


def test_a_wheel_for_another_python_is_one_line(
    empty: dict[str, str], packages: Path, tmp_path: Path
) -> None:
    only = tmp_path / "only"
    only.mkdir()
    make_wheel(only, "foreign", "1.0", {"foreign.py": ""}).rename(only / "foreign-1.0-cp27-cp27m-any.whl")
    write(tmp_path / "mine.py", TARGET.replace('"tinystore>=1.0"', '"foreign"'))
    links = {"PIP_FIND_LINKS": f"{packages} {only}", "UV_FIND_LINKS": f"{packages},{only}"}
    done = membench("targets", "install", "mine.py:Tiny", cwd=tmp_path, env={**empty, **links})
    (line,) = [line for line in done.err.splitlines() if line.startswith("membench: ")]
    assert "foreign" in line
    assert done.code == EXIT_FAILED


def test_libraries_for_a_graphics_card_are_refused(
    empty: dict[str, str], packages: Path, tmp_path: Path
) -> None:
    heavy = tmp_path / "heavy"
    heavy.mkdir()
    make_wheel(heavy, "bigtorch", "1.0", {"bigtorch.py": ""}, ["nvidia-cublas-cu12"])
    make_wheel(heavy, "nvidia_cublas_cu12", "12.0", {"nvidia.py": ""})
    write(tmp_path / "mine.py", TARGET.replace('"tinystore>=1.0"', '"bigtorch"'))
    links = {"PIP_FIND_LINKS": f"{packages} {heavy}", "UV_FIND_LINKS": f"{packages},{heavy}"}
    done = membench("targets", "install", "mine.py:Tiny", cwd=tmp_path, env={**empty, **links})
    assert done.code == EXIT_FAILED
    assert "would install PyTorch for graphics cards (nvidia-cublas-cu12 and 0 more" in done.err
    assert folders(tmp_path / "targets") == []


def test_unneeded_packages_are_left_out_with_what_only_they_need(
    empty: dict[str, str], packages: Path, tmp_path: Path
) -> None:
    heavy = tmp_path / "heavy"
    heavy.mkdir()
    requires = ["Big.Torch>=1", "helper[fast]", "shared", "never; python_version < '3'"]
    make_wheel(heavy, "tinyheavy", "1.0", {"tinyheavy.py": ""}, requires)
    make_wheel(heavy, "big_torch", "1.0", {"bigtorch.py": ""}, ["nvidia-cublas-cu12", "shared"])
    make_wheel(heavy, "nvidia_cublas_cu12", "12.0", {"nvidia.py": ""}, ["helper[unused]"])
    extras = ("fast", "unused")
    metadata = "Metadata-Version: 2.1\nName: helper\nVersion: 1.0\n"
    metadata += "".join(f"Provides-Extra: {extra}\n" for extra in extras)
    metadata += "".join(f"Requires-Dist: for_{extra}; extra == '{extra}'\n" for extra in extras)
    make_wheel(heavy, "helper", "1.0", {"helper.py": "", "/METADATA": metadata})
    for name in ("shared", "for_fast", "for_unused", "never"):
        make_wheel(heavy, name, "1.0", {f"{name}.py": ""})
    whole = TARGET.replace('("tinystore>=1.0",)', '("tinyheavy", "tinystore")')
    light = whole.replace("distributions = ()", 'distributions = ()\n    unneeded = ("big_torch",)')
    links = {"PIP_FIND_LINKS": f"{packages} {heavy}", "UV_FIND_LINKS": f"{packages},{heavy}"}
    command, env = ("targets", "install", "mine.py:Tiny"), {**empty, **links}

    write(tmp_path / "mine.py", light)
    done = membench(*command, cwd=tmp_path, env=env)
    assert done.code == EXIT_FINE, done.err
    (file,) = (tmp_path / "targets").glob("*.lock.json")
    lock = json.loads(file.read_text())
    assert lock["unneeded"] == ["big_torch"]
    assert {"tinyheavy", "tinystore", "helper", "for-fast", "shared", "numpy"} <= set(lock["packages"])
    assert not {"big-torch", "nvidia-cublas-cu12", "for-unused", "never"} & set(lock["packages"])
    assert "already installed" in membench(*command, cwd=tmp_path, env=env).out

    write(tmp_path / "mine.py", whole)
    refused = membench(*command, cwd=tmp_path, env=env)
    assert "its requirements have changed" in refused.err
    assert "would install PyTorch for graphics cards (nvidia-cublas-cu12 and 0 more" in refused.err


def test_no_network_is_one_line(empty: dict[str, str], tmp_path: Path) -> None:
    closed = "http://127.0.0.1:9/simple"
    env = {**empty, "PIP_INDEX_URL": closed, "UV_INDEX_URL": closed}
    for name in ("PIP_NO_INDEX", "PIP_FIND_LINKS", "UV_CONFIG_FILE", "UV_FIND_LINKS"):
        del env[name]
    done = membench("targets", "install", "tiny", cwd=tmp_path, env=env)
    assert done.code == EXIT_FAILED
    (line,) = [line for line in done.err.splitlines() if line.startswith("membench: ")]
    assert "the package index can't be reached" in line
    assert folders(tmp_path / "targets") == []


@pytest.fixture
def silent_index() -> Iterator[socket.socket]:
    """A package index on loopback that never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(PATIENCE)
        yield server


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_an_interrupted_installation_leaves_nothing_that_is_used(
    number: signal.Signals, silent_index: socket.socket, empty: dict[str, str], tmp_path: Path
) -> None:
    address = f"http://127.0.0.1:{silent_index.getsockname()[1]}/simple"
    env = {**empty, "PIP_INDEX_URL": address, "UV_INDEX_URL": address}
    for name in ("PIP_NO_INDEX", "UV_CONFIG_FILE", "PIP_FIND_LINKS", "UV_FIND_LINKS"):
        del env[name]
    command = [*COMMAND, "targets", "install", "tiny"]
    process = subprocess.Popen(command, cwd=tmp_path, env=env, text=True, stderr=subprocess.PIPE)
    connection, _ = silent_index.accept()  # the environment is half built, and a package is asked for
    with connection:
        connection.settimeout(PATIENCE)
        assert len(folders(tmp_path / "targets")) == 1
        process.send_signal(number)
        _, said = process.communicate(timeout=PATIENCE)
        while connection.recv(65536):
            pass  # the program that asked has ended with membench
    if number == signal.SIGINT:
        assert process.returncode == EXIT_INTERRUPTED
        assert said.splitlines()[-1] == "membench: stopped"
        assert folders(tmp_path / "targets") == []
    listed = membench("targets", cwd=tmp_path, env=empty)
    assert re.search(r"^tiny +not installed", listed.out, re.MULTILINE)
    assert folders(tmp_path / "targets") == []


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MB."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_full_disk_is_one_line_and_leaves_nothing(
    empty: dict[str, str], small_disk: Path, tmp_path: Path
) -> None:
    env = {**empty, "MEMBENCH_TARGETS": str(small_disk), "UV_CACHE_DIR": str(tmp_path / "cache")}
    done = membench("targets", "install", "tiny", cwd=tmp_path, env=env)
    assert done.code == EXIT_FAILED
    (line,) = [line for line in done.err.splitlines() if line.startswith("membench: ")]
    assert f"the disk is full ({small_disk})" in line
    assert folders(small_disk) == []


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        (
            "ERROR: Could not find a version that satisfies x\nERROR: No matching",
            "Could not find a version",
        ),
        (
            "  × No solution found when resolving:\n  ╰─▶ Because there is no x",
            "No solution found when resol",
        ),
        ("error: Failed to fetch: `https://ann:secret@host/x`\n", "Failed to fetch: `https://host/x`"),
        ("", "it ended without a message"),
    ],
)
def test_the_reason_is_one_line_without_secrets(output: str, reason: str, tmp_path: Path) -> None:
    found = reason_of(output, tmp_path)
    assert found.startswith(reason)
    assert "\n" not in found
