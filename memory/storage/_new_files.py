"""Creating files so that other processes see a whole file or none, and moving files aside."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

if sys.platform != "win32":
    import fcntl

_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")
PRIVATE_FILE = 0o600
_PRIVATE_FOLDER = 0o700


@contextmanager
def new_file(path: Path, *, replace: bool = False) -> Iterator[Path]:
    """Yield the path of an empty draft that only its owner can read; publish it as `path` at the end.

    If the block raises an error, nothing is published. If `path` exists by then, that file stays and the
    draft is deleted; with `replace` the draft takes its place."""
    draft = path.with_name(f"{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        os.close(os.open(draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, PRIVATE_FILE))
        yield draft
        if replace:
            sync(draft)
            draft.replace(path)
        else:
            _publish(draft, path)
    finally:
        for suffix in _SQLITE_SUFFIXES:
            Path(f"{draft}{suffix}").unlink(missing_ok=True)


def _publish(draft: Path, path: Path) -> None:
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:
        # A file system without hard links (exFAT, some network mounts). A rename could replace the file of
        # another process that creates it in the same instant; such a file system has no better way.
        if not path.exists():
            draft.rename(path)


def sync(file: Path) -> None:
    """Wait until the disk has the file's content."""
    descriptor = os.open(file, os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def like_file(file: Path, model: Path) -> None:
    """Give a new file the permissions of another one, and its owner if this process may.

    Otherwise a file that one user made could lock out another, who may use the database."""
    found = os.stat(model)
    os.chmod(file, stat.S_IMODE(found.st_mode) & 0o666)
    if hasattr(os, "chown"):
        with contextlib.suppress(PermissionError):
            os.chown(file, found.st_uid, found.st_gid)


def make_folder(folder: Path) -> None:
    """Create a folder and its parents if they do not exist; only their owner can enter new ones."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=_PRIVATE_FOLDER, exist_ok=True)


def move_aside(file: Path) -> Path:
    """Rename a file so that nobody uses it; return its new path."""
    aside = aside_name(file)
    file.rename(aside)
    return aside


def aside_name(file: Path) -> Path:
    """Return a new path for a file that is moved aside."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    return file.with_name(f"{file.name}.aside-{stamp}-{os.urandom(2).hex()}")


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Hold a lock among the processes that create a file in a folder. It ends with the process."""
    if sys.platform == "win32":  # Windows can't move a file that is in use
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
