"""What a build puts into the wheel and the sdist, and what an installation needs."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path
from types import ModuleType

import pytest
from packaging.requirements import Requirement

from memory._base import native
from memory.embedding import files
from memory.errors import AgentMemoryError

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def hook() -> ModuleType:
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a copy of the files that git tracks or would add."""
    folder = tmp_path_factory.mktemp("sources")
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    for name in listed.stdout.split("\0"):
        if (ROOT / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, folder / name)
    return folder


def build(kind: str, sources: Path, into: Path, **environment: str) -> Path:
    """Build a wheel or an sdist with the backend itself, which has no network client."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(into)]
    done = subprocess.run(
        command,
        cwd=sources,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (built,) = into.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(sources: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("sdist", sources, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a wheel that was built from the sdist, as pip does it."""
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    (folder,) = unpacked.iterdir()
    return build("wheel", folder, tmp_path_factory.mktemp("wheel"))


def test_the_sdist_has_the_hook_and_no_data_of_others(sdist: Path, hook: ModuleType) -> None:
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    assert {"hatch_build.py", "NOTICE", "LICENSE", "memory/embedding/files.py"} <= set(names)
    assert {"build_core.py", "memory/_native/core.h", "memory/_native/module.c"} <= set(names)
    assert [name for name in names if name.endswith(".so")] == []
    others = {Path(name).name for name in hook.SHA256}
    assert [name for name in names if Path(name).name in others or files.FOLDER in name] == []


def test_the_wheel_has_the_files_of_the_embedder_with_their_licences(wheel: Path, hook: ModuleType) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        for name, digest in hook.SHA256.items():
            data = archive.read(f"{files.FOLDER}/{Path(name).name}")
            assert hashlib.sha256(data).hexdigest() == digest
        assert b"Lee Miller" in archive.read(f"{files.FOLDER}/LICENSE-wordllama")
        (notice,) = (name for name in names if name.endswith("licenses/NOTICE"))
        assert b"LLAMA 2 Community License" in archive.read(notice)
    folders = {name.partition("/")[0] for name in names}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"memory", files.FOLDER}


def test_the_wheel_has_the_compiled_core_and_the_tag_of_its_platform(wheel: Path) -> None:
    if native.core is None:
        pytest.skip("there is no compiler, or AGENTMEMORY_PURE is set")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert "memory/_core.abi3.so" in names
    assert [name for name in names if name.startswith("memory/_native")] == []
    assert "-cp311-abi3-" in wheel.name
    assert "-any" not in wheel.name


def test_without_a_compiler_the_wheel_is_pure_and_works(sources: Path, tmp_path: Path) -> None:
    no_tools = {"CC": "no-such-compiler", "PATH": str(tmp_path)}
    wheel = build("wheel", sources, tmp_path / "wheel", **no_tools)
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        assert [name for name in archive.namelist() if name.endswith((".so", ".c"))] == []
        archive.extractall(tmp_path / "installed")
    program = "from memory._base.native import CORE_KIND; print(CORE_KIND)"
    assert run_installed(program, tmp_path) == ["pure"]


def test_an_editable_install_has_the_files_too(sources: Path, tmp_path: Path) -> None:
    wheel = build("wheel:editable", sources, tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    assert f"{files.FOLDER}/{files._WEIGHTS}" in names
    assert f"{files.FOLDER}/{files._VOCABULARY}" in names
    assert [name for name in names if name.startswith("memory/")] == []


def test_a_plain_install_needs_seven_packages(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = Parser().parsestr(archive.read(name).decode())
    requirements = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    plain = {each.name for each in requirements if each.marker is None or "extra" not in str(each.marker)}
    assert plain == {
        "msgspec", "numpy", "platformdirs", "pystemmer", "safetensors", "simsimd", "zstandard",
    }  # fmt: skip


def test_the_unpacked_wheel_embeds_texts(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    program = (
        "import memory.embedding.files as files; print(files.files_folder());"
        "from memory.embedding import WordLlamaEmbedder; print(WordLlamaEmbedder().embed(['a cat']).shape);"
        "from memory._base.native import CORE_KIND; print(CORE_KIND)"
    )
    folder, shape, kind = run_installed(program, tmp_path)
    assert folder == str(tmp_path / "installed" / files.FOLDER)
    assert shape == "(1, 256)"
    assert kind == native.CORE_KIND


def run_installed(program: str, folder: Path) -> list[str]:
    """Run a program with the package that was unpacked into `installed`, and return its lines."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


def test_the_hook_and_the_memory_mean_the_same_folder(hook: ModuleType) -> None:
    assert hook.FOLDER == files.FOLDER
    assert {files._WEIGHTS, files._VOCABULARY} == {Path(name).name for name in hook.SHA256}


# -- files that are missing or different -----------------------------------------------------------


def other_wordllama(folder: Path, *names: str) -> None:
    """Make an installed package `wordllama` with other contents."""
    metadata = folder / "wordllama-9.0.dist-info" / "METADATA"
    for path in (metadata, *(folder / name for name in names)):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("Metadata-Version: 2.1\nName: wordllama\nVersion: 9.0\n")


def test_a_build_with_another_vocabulary_is_refused(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other_wordllama(tmp_path, *hook.SHA256)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SystemExit, match=r"wordllama 9\.0 is another file than expected"):
        hook.find_files()


def test_a_build_without_the_files_is_refused(
    hook: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    with pytest.raises(SystemExit, match="needs the files of wordllama: run `pip install --no-deps"):
        hook.find_files()
    other_wordllama(tmp_path)
    with pytest.raises(SystemExit, match=r"wordllama 9\.0 has no wordllama/weights/"):
        hook.find_files()


def test_missing_files_are_one_line_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FOLDER", "agentmemory_no_such_folder")
    for read in (files.files_folder, files.read_vectors, files.read_vocabulary):
        with pytest.raises(AgentMemoryError, match="are missing: install agentmemory-tiers anew") as caught:
            read()
        assert "\n" not in str(caught.value)


def test_damaged_files_are_one_line_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "agentmemory_damaged_files"
    folder.mkdir()
    for name in (files._WEIGHTS, files._VOCABULARY):
        (folder / name).write_bytes((files.files_folder() / name).read_bytes()[:1000])
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(files, "FOLDER", folder.name)
    for read, name in ((files.read_vectors, files._WEIGHTS), (files.read_vocabulary, files._VOCABULARY)):
        with pytest.raises(AgentMemoryError, match=f"{name} can't be read .*: install") as caught:
            read()
        assert "\n" not in str(caught.value)
