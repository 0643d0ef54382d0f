"""The machine and the versions that a figure depends on, and a digest of those that last."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import subprocess
from pathlib import Path
from typing import Any

from memory.benchmarking.model.records import Environment

_PACKAGES = ("numpy", "msgspec", "zstandard", "simsimd", "tokenizers", "wordllama", "PyStemmer")
"""What the memory's speed depends on."""


def describe(scratch: Path) -> Environment:
    """Where this run takes place; `scratch` is where the stores under test are kept."""
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
    """The same for two runs on one machine with the same versions; nothing in it changes by itself."""
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:12]


def available_cores() -> int:
    """Those that this process may use."""
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
    from memory.benchmarking.measure.resources import load_psutil

    return float(round(load_psutil().virtual_memory().total / 2**30))


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in _PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "none"
    return found


def _file_system(folder: Path) -> str:
    """The kind of the file system that holds a folder: a figure of a RAM disk says nothing of a disk."""
    from memory.benchmarking.measure.resources import load_psutil

    folder = folder.resolve()
    mounts = {part.mountpoint: part.fstype for part in load_psutil().disk_partitions(all=True)}
    for parent in (folder, *folder.parents):
        if str(parent) in mounts:
            return str(mounts[str(parent)])
    return ""


def _git() -> tuple[str, bool | None]:
    """The revision of the code under test, and whether it has changes that are not committed."""
    here = Path(__file__).parent
    try:
        revision = _git_says(here, "rev-parse", "--short=12", "HEAD")
        # Inside somebody else's repository (a virtual environment in it) its revision says nothing of us.
        if not _git_says(here, "ls-files", "--", Path(__file__).name):
            return "", None
        return revision, bool(_git_says(here.parents[1], "status", "--porcelain", "--", "."))
    except (OSError, subprocess.SubprocessError):
        return "", None


def _git_says(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
