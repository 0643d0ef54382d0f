"""The description of machine and versions, and its digest."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from membench import surroundings

from memory.benchmarking.model.environment import available_cores, describe, fingerprint_of
from memory.benchmarking.model.records import Environment

LASTING = {"cpu", "cores", "memory_gb", "os", "python", "packages", "file_system"}


def test_the_description_has_everything_that_figures_depend_on(tmp_path: Path) -> None:
    here = describe(tmp_path)
    assert here.cpu
    assert here.cores == available_cores() == len(os.sched_getaffinity(0))
    assert here.memory_gb > 0
    assert here.os.startswith("Linux") or here.os.startswith("Darwin")
    assert here.python.endswith(".".join(map(str, sys.version_info[:3])))
    assert here.file_system
    assert {"numpy", "sqlite", "msgspec"} <= set(here.packages)
    assert "none" not in here.packages.values()


def test_the_fingerprint_is_a_digest_of_the_lasting_fields(tmp_path: Path) -> None:
    here = msgspec.to_builtins(describe(tmp_path))
    assert here["fingerprint"] == fingerprint_of({name: here[name] for name in LASTING})
    assert set(here) == LASTING | {"fingerprint", "git_revision", "git_dirty", "sources", "embedder"}


def test_two_processes_have_the_same_fingerprint(tmp_path: Path) -> None:
    """Their hash seeds, working folders, environment variables and load differ."""
    program = (
        "import sys, msgspec; from pathlib import Path;"
        "from memory.benchmarking.model.environment import *;"
        "sys.stdout.buffer.write(msgspec.json.encode(describe(Path(sys.argv[1]))))"
    )
    others = [
        msgspec.json.decode(
            subprocess.run(
                [sys.executable, "-c", program, str(tmp_path / "not there yet")],
                cwd=folder,
                env=surroundings(PYTHONHASHSEED=seed, OMP_NUM_THREADS="1"),
                capture_output=True,
                check=True,
            ).stdout,
            type=Environment,
        )
        for folder, seed in ((tmp_path, "1"), (Path("/"), "2"))
    ]
    assert {each.fingerprint for each in others} == {describe(tmp_path).fingerprint}
    assert [(each.git_revision, each.git_dirty) for each in others] == [("", None)] * 2


def test_a_ram_disk_has_another_fingerprint_than_a_disk(tmp_path: Path) -> None:
    ram = Path("/dev/shm")
    if not ram.is_dir() or describe(ram).file_system == describe(tmp_path).file_system:
        pytest.skip("there is no RAM disk, or all is one")
    assert describe(ram).fingerprint != describe(tmp_path).fingerprint


values = st.text() | st.integers() | st.dictionaries(st.text(), st.text(), max_size=3)


@given(st.dictionaries(st.text(), values, min_size=1), st.data())
def test_a_fingerprint_changes_with_any_field_and_not_with_their_order(
    lasting: dict[str, Any], data: st.DataObject
) -> None:
    names = data.draw(st.permutations(list(lasting)))
    assert fingerprint_of({name: lasting[name] for name in names}) == fingerprint_of(lasting)
    assert fingerprint_of({**lasting, names[0]: "something else entirely"}) != fingerprint_of(lasting)


def test_the_environment_says_whether_the_core_is_compiled(tmp_path: Path) -> None:
    program = (
        "from memory.benchmarking.model.environment import describe; from pathlib import Path; import sys\n"
    )
    program += "where = describe(Path(sys.argv[1])); print(where.packages['core'], where.fingerprint)"
    pure, other = (
        subprocess.run(
            [sys.executable, "-c", program, str(tmp_path)],
            env={**os.environ, "AGENTMEMORY_PURE": value},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        for value in ("1", "0")
    )
    assert pure[0] == "pure"
    assert (other == pure) == (other[0] == "pure")
