"""The Python that runs a revision: this one if it needs the same packages, else a new environment.

A new environment has the packages of the revision's pyproject.toml and those of the benchmark; the code
itself comes from the checkout. The files of the default embedder are neither packages nor in the checkout:
they are copied from this environment. Revisions with the same packages share an environment.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.lockstep.checkout import Checkout

_PROJECT = "pyproject.toml"
_EXTRA = "bench"
_EMBEDDER_FILES = "agentmemory_embedder_files"  # as in memory/embedding/files.py
_COMPLETE = ".whole"
"""A file that marks an environment whose build is complete."""


def interpreter_of(checkout: Checkout, cache: Path, report: Callable[[str], None]) -> str:
    """Return the path of the Python that runs a revision; `report` is called before a long build."""
    current, revision = _project(checkout.repository), _project(checkout.folder)
    if revision is None or (current is not None and _requirements(revision) == _requirements(current)):
        return sys.executable
    packages = sorted({*_requirements(revision), *_benchmark_requirements(current or {})})
    key = hashlib.sha256(json.dumps([sys.version, packages]).encode()).hexdigest()[:16]
    folder = cache / "environments" / key
    python = folder / "bin" / "python"
    if not (folder / _COMPLETE).exists():
        report(f"building an environment for {checkout.revision[:12]}, whose dependencies differ")
        _build(folder, python, packages)
    return str(python)


def _requirements(project: dict[str, Any]) -> list[str]:
    return sorted({*project.get("dependencies", []), *_benchmark_requirements(project)})


def _benchmark_requirements(project: dict[str, Any]) -> list[str]:
    requirements: list[str] = project.get("optional-dependencies", {}).get(_EXTRA, [])
    return requirements


def _project(folder: Path) -> dict[str, Any] | None:
    """Return the `project` table of a folder's pyproject.toml; None if there is no such file."""
    try:
        project: dict[str, Any] = tomllib.loads((folder / _PROJECT).read_text()).get("project", {})
    except FileNotFoundError:
        return None
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise BenchmarkError(f"{folder / _PROJECT} can't be read: {problem}") from None
    return project


def _build(folder: Path, python: Path, requirements: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # delete what an interrupted build left
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", *requirements])
        packages = _run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"])
        _copy_embedder_files(Path(packages.strip()))
    except subprocess.CalledProcessError as problem:
        last = (problem.stderr or "").strip().rpartition("\n")[2]
        raise BenchmarkError(
            f"an environment with {', '.join(requirements)} can't be built: {last}"
        ) from None
    (folder / _COMPLETE).touch()


def _copy_embedder_files(packages: Path) -> None:
    spec = find_spec(_EMBEDDER_FILES)
    for folder in (spec and spec.submodule_search_locations) or ():
        shutil.copytree(folder, packages / _EMBEDDER_FILES, dirs_exist_ok=True)


def _run(command: list[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
