"""The code that is sent to other machines: what is in it, its hash, and paths there and here."""

from __future__ import annotations

import io
import subprocess
import tarfile
from importlib.util import cache_from_source
from marshal import loads
from pathlib import Path

import pytest
from membench import write

from memory.benchmarking.model.records import Case
from memory.benchmarking.run.executors import ray_tasks
from memory.benchmarking.run.executors.archive import make_archive


def case_of(source: Path, target: str = "agentmemory") -> Case:
    return Case(category="mine", benchmark="good", target=target, params={}, source=str(source))


def names_in(data: bytes) -> set[str]:
    with tarfile.open(fileobj=io.BytesIO(data)) as tar:
        return set(tar.getnames())


def test_the_archive_has_the_package_and_the_files_beside_the_users(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.py", "import beside")
    write(tmp_path / "beside.py", "")
    write(tmp_path / "notes.txt", "not code")
    archive = make_archive([case_of(source)])
    names = names_in(archive.data)
    assert {"package/memory/__init__.py", "trees/0/mine.py", "trees/0/beside.py"} <= names
    assert "trees/0/notes.txt" not in names
    assert not any("__pycache__" in name for name in names)


def test_in_a_repository_it_has_what_git_does_not_ignore(tmp_path: Path) -> None:
    source = write(tmp_path / "benchmarks" / "mine.py", "")
    write(tmp_path / "data.json", "{}")
    write(tmp_path / ".gitignore", "ignored.py")
    write(tmp_path / "ignored.py", "")
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    names = {name for name in names_in(make_archive([case_of(source)]).data) if name.startswith("trees")}
    assert names == {"trees/0/benchmarks/mine.py", "trees/0/data.json", "trees/0/.gitignore"}


def test_equal_code_has_an_equal_hash_and_other_code_another(tmp_path: Path) -> None:
    one, same, other = (write(tmp_path / name / "mine.py", name[-1]) for name in ("a1", "b1", "c2"))
    digests = [make_archive([case_of(source)]).digest for source in (one, same, other)]
    assert digests[0] == digests[1] != digests[2]


def test_paths_are_those_of_the_other_machine_and_back(tmp_path: Path) -> None:
    source = write(tmp_path / "mine.py", "")
    archive = make_archive([case_of(source, f"{source}:Kind")])
    assert archive.moved(f"{source}:Kind", "/there/code") == "/there/code/trees/0/mine.py:Kind"
    assert archive.moved("agentmemory", "/there/code") == "agentmemory"
    there = f"ValueError: x (/there/code/{archive.digest}/trees/0/mine.py, line 4)"
    assert archive.moved_back(there) == f"ValueError: x ({source}, line 4)"


def test_a_node_unpacks_the_package_compiled_and_loads_it_from_its_own_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMBENCH_NODE", str(tmp_path / "node"))
    archive = make_archive([])
    folder = Path(ray_tasks.unpack(archive.digest, archive.data))
    package = folder / "package" / "memory"
    compiled = Path(cache_from_source(str(package / "errors.py")))
    assert loads(compiled.read_bytes()[16:]).co_filename == str(package / "errors.py")
    compiled.unlink()
    assert ray_tasks.unpack(archive.digest, archive.data) == str(folder)
    assert not compiled.exists()  # a hash is unpacked once
