"""The files of a git revision in a folder of their own, made once and kept.

Not a git worktree: the repository knows nothing of it, so removing the cache by hand breaks nothing.
"""

from __future__ import annotations

import io
import secrets
import shutil
import subprocess
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

    def there(self, path: Path) -> Path | None:
        """Where a file of the repository is in this revision; None where it is not part of it."""
        path = path.resolve()
        if not path.is_relative_to(self.repository):
            return None
        found = self.folder / path.relative_to(self.repository)
        return found if found.exists() else None


def cache_folder() -> Path:
    from platformdirs import user_cache_path

    return user_cache_path("agentmemory") / "ab"


def checkout(name: str, where: Path, cache: Path) -> Checkout:
    """The revision that `name` means in the repository around `where`."""
    try:
        repository = Path(_git(where, "rev-parse", "--show-toplevel").decode().strip()).resolve()
    except (OSError, subprocess.CalledProcessError):
        raise InvalidBenchmarkConfig(
            f"--base {name} needs git and a repository, and {where} is in none: "
            "start it inside of the repository that holds the revision"
        ) from None
    try:
        revision = _git(repository, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    except subprocess.CalledProcessError:
        raise InvalidBenchmarkConfig(
            f"--base {name}: {repository} has no such revision; `git log --oneline` shows those it has"
        ) from None
    sha = revision.decode().strip()
    folder = cache / "revisions" / sha
    if not folder.exists():
        _unpack(repository, sha, folder)
    return Checkout(repository, sha, folder)


def _unpack(repository: Path, sha: str, folder: Path) -> None:
    """Whole or not at all: another process may do the same just now."""
    partly = folder.with_name(f".{sha}.{secrets.token_hex(4)}")
    try:
        partly.mkdir(parents=True)
        archive = _git(repository, "archive", "--format=tar", sha)
        with tarfile.open(fileobj=io.BytesIO(archive)) as files:
            files.extractall(partly, filter="data")
        partly.rename(folder)
    except (OSError, subprocess.CalledProcessError, tarfile.TarError) as problem:
        if not folder.exists():
            raise BenchmarkError(
                f"revision {sha[:12]} can't be unpacked into {folder}: {problem}"
            ) from None
    finally:
        shutil.rmtree(partly, ignore_errors=True)


def _git(where: Path, *arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=where, capture_output=True, check=True).stdout
