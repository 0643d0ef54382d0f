"""The interpreter of a revision: the running one where it needs the same packages, else one built for it.

What is installed is what the revision's pyproject.toml asks for, and what the harness needs; the code
itself comes from the checkout. Environments are kept by what is in them, so that revisions share them.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import BenchmarkError
from memory.benchmarking.lockstep.checkout import Checkout

_PROJECT = "pyproject.toml"
_EXTRA = "bench"
_WHOLE = ".whole"


def interpreter_of(checkout: Checkout, cache: Path, say: Callable[[str], None]) -> str:
    """The Python that runs a revision."""
    here, there = _asked_for(checkout.repository), _asked_for(checkout.folder)
    if there is None or there == here:
        return sys.executable
    wanted = sorted({*there, *_harness(checkout)})
    key = hashlib.sha256(json.dumps([sys.version, wanted]).encode()).hexdigest()[:16]
    folder = cache / "environments" / key
    python = folder / "bin" / "python"
    if not (folder / _WHOLE).exists():
        say(f"building an environment for {checkout.revision[:12]}, whose dependencies differ")
        _build(folder, python, wanted)
    return str(python)


def _asked_for(folder: Path) -> list[str] | None:
    """The requirements of a project and of its benchmark; None where there is no project."""
    project = _project(folder)
    if project is None:
        return None
    return sorted({*project.get("dependencies", []), *_extra(project)})


def _harness(checkout: Checkout) -> list[str]:
    project = _project(checkout.repository)
    return [] if project is None else _extra(project)


def _extra(project: dict[str, Any]) -> list[str]:
    found: list[str] = project.get("optional-dependencies", {}).get(_EXTRA, [])
    return found


def _project(folder: Path) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = tomllib.loads((folder / _PROJECT).read_text()).get("project", {})
    except FileNotFoundError:
        return None
    except (OSError, tomllib.TOMLDecodeError) as problem:
        raise BenchmarkError(f"{folder / _PROJECT} can't be read: {problem}") from None
    return found


def _build(folder: Path, python: Path, requirements: list[str]) -> None:
    shutil.rmtree(folder, ignore_errors=True)  # half of one, from a build that was stopped
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "--quiet", *requirements])
    except subprocess.CalledProcessError as problem:
        last = (problem.stderr or "").strip().rpartition("\n")[2]
        raise BenchmarkError(
            f"an environment with {', '.join(requirements)} can't be built: {last}"
        ) from None
    (folder / _WHOLE).touch()


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True)
