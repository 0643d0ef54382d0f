"""Describes the machine and the versions that figures depend on, with a digest of them."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import sqlite3
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memory._base.native import CORE_KIND
from memory.benchmarking.measure.resources import load_psutil
from memory.benchmarking.model.records import Environment, Source

_PACKAGES = ("numpy", "msgspec", "zstandard", "simsimd", "PyStemmer")
"""Packages that the memory's speed depends on."""
WORKLOADS_VERSION = "2"
"""The version of the generated data (`workloads/`). Raise it with every change of the data: figures of
other data can't be compared, so the version is part of the fingerprint. Runs without one used templates of
660 words; 2 is texts with the vocabulary of real text."""

CURRENT_FOLDER, MEMBENCH = "current folder", "membench"


def describe(
    scratch: Path, sources: Mapping[str, Sequence[Path]] | None = None, embedder: str = ""
) -> Environment:
    """Describe this machine and the state of the code in git.

    Args:
        scratch: the folder of the stores under test and of the results; its own files never count as
            changes of the code.
        sources: files and folders with code, by name; `current folder` stands for its whole repository.
        embedder: what the vectors of all targets come from; empty for the default embedder.
    """
    lasting: dict[str, Any] = {
        "cpu": _cpu_model(),
        "cores": available_cores(),
        "memory_gb": _memory_gb(),
        "os": f"{platform.system()} {platform.machine()}",
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "packages": {
            **_versions(),
            "sqlite": sqlite3.sqlite_version,
            "core": CORE_KIND,
            "generated data": WORKLOADS_VERSION,
        },
        "file_system": _file_system(scratch),
        **({"embedder": embedder} if embedder else {}),
    }
    found = {name: _source(name, paths, scratch) for name, paths in (sources or {}).items()}
    main = _main_source(found)
    return Environment(
        fingerprint=fingerprint_of(lasting),
        git_revision=main.revision,
        git_dirty=main.dirty,
        sources=found,
        **lasting,
    )


def _main_source(sources: Mapping[str, Source]) -> Source:
    """Return the source whose revision names the run: the user's repository, not that of membench."""
    order = sorted(
        (name for name in sources if name != MEMBENCH),
        key=lambda name: (name != CURRENT_FOLDER, not name.startswith("benchmarks")),
    )
    return next((sources[name] for name in order if sources[name].revision), Source(path=""))


def fingerprint_of(lasting: dict[str, Any]) -> str:
    """Return a digest that is the same for all runs on one machine with the same versions."""
    return hashlib.sha256(json.dumps(lasting, sort_keys=True).encode()).hexdigest()[:12]


def lasting_fields(where: Environment) -> dict[str, Any]:
    """Return what the fingerprint of an environment is the digest of."""
    names = ("cpu", "cores", "memory_gb", "os", "python", "packages", "file_system")
    fields: dict[str, Any] = {name: getattr(where, name) for name in names}
    return fields | ({"embedder": where.embedder} if where.embedder else {})


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


def _source(name: str, paths: Sequence[Path], scratch: Path) -> Source:
    """Return the git revision of files or folders, and whether they have uncommitted changes."""
    first = paths[0].resolve()
    folder = first if first.is_dir() else first.parent
    shown = str(first if len(paths) == 1 else folder)
    try:
        revision = _run_git(folder, "rev-parse", "--short=12", "HEAD")
        if name == CURRENT_FOLDER:
            where = _all_but(Path(_run_git(folder, "rev-parse", "--show-toplevel")), scratch.resolve())
        else:
            where = [str(path.resolve()) for path in paths]
            if not _run_git(folder, "ls-files", "--", *where) and _is_installed(folder, where):
                return Source(path=shown)
        return Source(
            path=shown,
            revision=revision,
            dirty=bool(_run_git(folder, "status", "--porcelain", "--", *where)),
        )
    except (OSError, subprocess.SubprocessError):
        return Source(path=shown)  # not in a repository, or there is no git


def _all_but(top: Path, results: Path) -> list[str]:
    """Return the git arguments that select a repository without the folder of the results."""
    inside = results != top and results.is_relative_to(top)
    return [":(top)", *([f":(top,exclude){results.relative_to(top)}"] if inside else [])]


def _is_installed(folder: Path, paths: Sequence[str]) -> bool:
    """Return whether untracked files are an installed copy, for instance in a .venv inside a repository."""
    if {"site-packages", "dist-packages"} & set(folder.parts):
        return True
    ignored = subprocess.run(
        ["git", "check-ignore", "-q", "--", *paths], cwd=folder, capture_output=True, timeout=10
    )
    return ignored.returncode == 0


def _run_git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", *arguments], cwd=folder, capture_output=True, text=True, check=True, timeout=10
    ).stdout.strip()
