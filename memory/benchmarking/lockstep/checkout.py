"""The files of a git revision, unpacked once into a cache folder.

This is not a git worktree: git does not track it, so the cache can be deleted at any time.
"""

from __future__ import annotations

import io
import secrets
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path

from memory.benchmarking.errors import BenchmarkError, InvalidBenchmarkConfig


@dataclass(frozen=True)
class Checkout:
    """A revision of a repository."""

    repository: Path
    revision: str
    folder: Path

    def path_in_revision(self, path: Path) -> Path | None:
        """Return where a path of the repository is in this revision; None if it has no such path."""
        path = path.resolve()
        if not path.is_relative_to(self.repository):
            return None
        unpacked = self.folder / path.relative_to(self.repository)
        return unpacked if unpacked.exists() else None


def cache_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("agentmemory") / "ab"


def checkout(name: str, where: Path, cache: Path) -> Checkout:
    """Unpack the revision that git calls `name`, from the repository that contains `where`."""
    try:
        repository = Path(_git(where, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    except (OSError, subprocess.CalledProcessError):
        raise InvalidBenchmarkConfig(
            f"--base {name} needs git, and {where} is in no repository: "
            "start it inside the repository that has the revision"
        ) from None
    try:
        revision = _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        raise InvalidBenchmarkConfig(
            f"--base {name}: {repository} has no such revision; `git log --oneline` lists them"
        ) from None
    sha = revision.decode().strip()
    folder = cache / "revisions" / sha
    if not folder.exists():
        _unpack(repository, sha, folder)
    return Checkout(repository, sha, folder)


def _unpack(repository: Path, sha: str, folder: Path) -> None:
    """Unpack a revision atomically: another process may unpack the same one at the same time."""
    scratch = folder.with_name(f".{sha}.{secrets.token_hex(4)}")
    try:
        scratch.mkdir(parents=True)
        archive = _git(repository, "archive", "--format=tar", sha)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(scratch, filter="data")
        _build_core(scratch, sha)
        scratch.rename(folder)
    except (OSError, subprocess.CalledProcessError, tarfile.TarError) as problem:
        if not folder.exists():
            raise BenchmarkError(
                f"revision {sha[:12]} can't be unpacked into {folder}: {problem}"
            ) from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _build_core(folder: Path, sha: str) -> None:
    """Compile the core of a revision of this memory: else pure Python is measured against compiled code."""
    builder = folder / "build_core.py"
    if builder.exists() and (folder / "memory" / "_native").is_dir():
        done = subprocess.run([sys.executable, str(builder)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise BenchmarkError(f"revision {sha[:12]}: {done.stderr.strip()}")


def _git(where: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=where, capture_output=True, check=True).stdout
