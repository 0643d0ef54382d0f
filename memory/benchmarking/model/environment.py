"""Describes the machine and the versions that figures depend on, with a digest of them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from memory.benchmarking.measure.resources import load_psutil
from memory.benchmarking.model.records import Environment

_PACKAGES = ("numpy", "msgspec", "zstandard", "simsimd", "tokenizers", "wordllama", "PyStemmer")
"""Packages that the memory's speed depends on."""


def describe(scratch: Path) -> Environment:
    """Describe this machine; `scratch` is the folder of the stores under test."""
    lasting: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "memory_gb": _memory_gb(),
        "os": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {**_versions(), "sqlite": sqlite3.sqlite_version},
        "file_system": _file_system(scratch),
    }
    revision, dirty = _git()
    return Environment(
        fingerprint=fingerprint_of(lasting), git_revision=revision, git_dirty=dirty, **lasting
    )


def fingerprint_of(lasting: dict[str, Any]) -> str:
    """Return a digest that is the same for all runs on one machine with the same versions."""
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:12]


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model", "cpu model"):
                return " ".join(value.split())
    except OSError:
        pass  # not Linux
    return platform.processor() or platform.machine()


def _memory_gb() -> float:
    return float(round(load_psutil().virtual_memory().total / 2**30))


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _file_system(folder: Path) -> str:
    """Return the type of the file system of a folder: a RAM disk and a disk can't be compared."""
    folder = folder.resolve()
    mounts = {part.mountpoint: part.fstype for part in load_psutil().disk_partitions(all=True)}
    for parent in (folder, *folder.parents):
        if str(parent) in mounts:
            return str(mounts[str(parent)])
    return ""


def _git() -> tuple[str, bool | None]:
    """Return the git revision of this code, and whether it has uncommitted changes."""
    here = Path(__file__).parent
    try:
        revision = _run_git(here, "rev-parse", "--short=12", "HEAD")
        # An installed copy may lie in another project's repository, for instance in its .venv.
        if not _run_git(here, "ls-files", "--", Path(__file__).name):
            return "", None
        return revision, bool(_run_git(here.parents[1], "status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return "", None


def _run_git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
