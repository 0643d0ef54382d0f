"""The environments of targets on disk: where they are, which ones are complete, who uses them.

    <folder>/chroma.lock.json       what is installed; written last: an environment without it is not used
    <folder>/chroma.1a2b3c4d/       the virtual environment that the file above names
    <folder>/chroma.flock           held by a process that installs, removes (exclusive) or uses it (shared)
    <folder>/chroma.check.json      what `membench targets check` found (conformance/)
    <folder>/code/…                 links to membench's own code and data, for those interpreters

A new build gets a new folder, and the lock file then names that one. So an installation that fails or is
killed leaves the previous environment in use. What no lock file names is deleted later. The folder keeps
its place from the first to the last moment, because the programs of an environment contain its path.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from memory.benchmarking.errors import BenchmarkError, DamagedResult, ResultNotSaved
from memory.benchmarking.targets.spelling import parse_target

_LOCK, _BUSY, CHECK = ".lock.json", ".flock", ".check.json"


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """What an environment contains: the content of its lock file."""

    target: str
    """As written after `targets install`: chroma, mem0@1.0.0, /home/ann/my_target.py:MyTarget."""
    folder: str
    """The name of the environment's folder, beside the lock file."""
    python: str
    """The version of its interpreter."""
    requirements: list[str]
    """What was asked for, without the packages of membench's worker."""
    unneeded: list[str] = []
    """What was left out (`Target.unneeded`)."""
    packages: dict[str, str]
    """Every installed distribution and its version, by normalised name."""
    npm_requirements: list[str] = []
    npm_packages: dict[str, str] = {}
    built_with: str = ""
    """`uv 0.9.2` or `pip 25.3`."""

    @property
    def digest(self) -> str:
        """A digest of everything that is installed."""
        known = repr((self.python, sorted(self.packages.items()), sorted(self.npm_packages.items())))
        return hashlib.sha256(known.encode()).hexdigest()[:12]

    @property
    def system(self) -> str:
        """The distribution of the system itself; empty if it is not a Python package."""
        return distribution_of(self.requirements[0]) if self.requirements else ""

    @property
    def version(self) -> str:
        """The installed version of the system itself."""
        if self.system:
            return self.packages.get(self.system, "")
        return next(iter(self.npm_packages.values()), "")

    def asked_of_npm(self, name: str) -> bool:
        """Return whether a package of npm was asked for, and not only needed by another one."""
        return any(each == name or each.startswith(f"{name}@") for each in self.npm_requirements)

    @property
    def path(self) -> Path:
        """The environment's folder."""
        return targets_folder() / self.folder

    @property
    def interpreter(self) -> Path:
        return self.path / "bin" / "python"


def targets_folder() -> Path:
    """Return the folder of all environments: MEMBENCH_TARGETS, else one in the user's cache."""
    own = os.environ.get("MEMBENCH_TARGETS")
    if own:
        return Path(own).expanduser().absolute()
    from platformdirs import user_cache_path

    return user_cache_path("agentmemory") / "targets"


def distribution_of(requirement: str) -> str:
    """Return the normalised name of the distribution that a requirement asks for."""
    match = re.match(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)", requirement)
    return normalised(match[1]) if match else ""


def normalised(name: str) -> str:
    """Return the name of a distribution as all tools compare it: `PyStemmer` is `pystemmer`."""
    return re.sub(r"[-_.]+", "-", name).lower()


def slug_of(text: str) -> str:
    """Return the file name of a target's environment; an address is not part of it."""
    name = parse_target(text).environment
    if ":" not in name:
        return name
    source, _, kind = name.rpartition(":")
    where = str(Path(source).resolve()) if source.endswith(".py") else source
    return f"{kind}-{hashlib.sha256(f'{where}:{kind}'.encode()).hexdigest()[:8]}"


def find_environment(text: str) -> Lock | None:
    """Return the lock of a target's environment; None if there is none, or not a whole one."""
    return _read(targets_folder() / f"{slug_of(text)}{_LOCK}")


def environments() -> list[Lock]:
    """Return all complete environments, by the name of their target."""
    found = [_read(path) for path in sorted(targets_folder().glob(f"*{_LOCK}"))]
    return [lock for lock in found if lock is not None]


def _read(path: Path) -> Lock | None:
    try:
        lock = msgspec.json.decode(path.read_bytes(), type=Lock)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, msgspec.MsgspecError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise DamagedResult(f"{path} can't be read: {reason}; delete it and install again") from None
    return lock if (path.parent / lock.folder / "bin" / "python").exists() else None


def write_lock(lock: Lock, slug: str) -> None:
    """Make an environment the one that is used; the file is replaced as a whole."""
    from memory.benchmarking.model.files import write_whole

    data = msgspec.json.format(msgspec.json.encode(lock), indent=1)
    write_whole(targets_folder() / f"{slug}{_LOCK}", data + b"\n")


def remove_environment(text: str, waits: Callable[[], None] = lambda: None) -> Lock | None:
    """Delete a target's environment and the record of its check; return its lock, None without one."""
    slug = slug_of(text)
    folder = targets_folder()
    if not any(folder.glob(f"{slug}.*")):
        return None
    with held(slug, exclusive=True, waits=waits):
        lock = find_environment(text)
        # The lock file goes first: a deletion that is interrupted leaves nothing that would be used.
        for ending in (_LOCK, CHECK):
            (folder / f"{slug}{ending}").unlink(missing_ok=True)
        delete_leftovers(slug)
    return lock


def delete_leftovers(slug: str) -> None:
    """Delete the folders of this target that its lock file does not name. The caller holds the lock."""
    folder = targets_folder()
    lock = _read(folder / f"{slug}{_LOCK}")
    for path in _builds_of(slug):
        if lock is None or path.name != lock.folder:
            shutil.rmtree(path, ignore_errors=True)


def delete_all_leftovers() -> None:
    """Delete what interrupted installations left, except where another process is at work."""
    folder = targets_folder()
    slugs = {path.name.rpartition(".")[0] for path in folder.glob("*.*") if _is_build(path)}
    for slug in slugs:
        with suppress(BlockingIOError, BenchmarkError), held(slug, exclusive=True, wait=False):
            delete_leftovers(slug)


def _builds_of(slug: str) -> list[Path]:
    paths = targets_folder().glob("*.*")
    return [path for path in paths if path.name.rpartition(".")[0] == slug and _is_build(path)]


def _is_build(path: Path) -> bool:
    return bool(re.search(r"\.[0-9a-f]{8}$", path.name)) and path.is_dir()


@contextmanager
def held(
    slug: str, *, exclusive: bool, wait: bool = True, waits: Callable[[], None] = lambda: None
) -> Iterator[int]:
    """Hold the lock of a target's environment; yield the descriptor that holds it.

    A child process that inherits the descriptor holds the lock too: a program that outlives a killed
    membench still counts as at work.

    Args:
        slug: see `slug_of`.
        exclusive: to change the environment; else to use it.
        wait: whether to wait for other processes; else BlockingIOError.
        waits: called once if this process has to wait.
    """
    path = targets_folder() / f"{slug}{_BUSY}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        raise ResultNotSaved(
            f"{path.parent} can't be written to: {problem.strerror or problem}; "
            "MEMBENCH_TARGETS names another folder"
        ) from problem
    how = fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH
    try:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if not wait:
                raise
            waits()
            fcntl.flock(descriptor, how)
        yield descriptor
    finally:
        os.close(descriptor)


def code_folder() -> Path:
    """Return a folder with links to membench's own code and to the embedder's files, and nothing else.

    The folder that `memory` was imported from may be our site-packages: its compiled modules must not
    be found by another interpreter.
    """
    import memory
    from memory.embedding import files_folder

    linked = [Path(memory.__path__[0]).resolve(), files_folder().resolve()]
    digest = hashlib.sha256("\0".join(map(str, linked)).encode()).hexdigest()[:12]
    folder = targets_folder() / "code" / digest
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for source in linked:
            with suppress(FileExistsError):
                (folder / source.name).symlink_to(source)
    except OSError as problem:
        raise ResultNotSaved(f"{folder} can't be made: {problem.strerror or problem}") from problem
    return folder
