"""A scratch folder for both sides; the folders of killed comparisons are deleted."""

from __future__ import annotations

import fcntl
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.benchmarking.errors import ResultNotSaved
from memory.benchmarking.model.files import delete_if_empty
from memory.benchmarking.model.regular_files import open_regular

_LOCK = "lock"


@contextmanager
def scratch_below(folder: Path) -> Iterator[Path]:
    """Make an empty folder in `folder`, locked while in use, and delete it afterwards."""
    if folder.is_symlink():  # its subfolders would be deleted
        raise ResultNotSaved(f"{folder} is a symbolic link: delete it")
    folder = folder.resolve()
    try:
        _delete_abandoned(folder)
        own = folder / secrets.token_hex(4)
        own.mkdir(parents=True)
        lock = open(own / _LOCK, "w")  # noqa: SIM115 - closed below
    except OSError as problem:
        raise ResultNotSaved(f"{folder} can't be used: {problem.strerror or problem}") from problem
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            yield own
        finally:
            shutil.rmtree(own, ignore_errors=True)
            delete_if_empty(folder)


def _delete_abandoned(folder: Path) -> None:
    for path in folder.glob(f"*/{_LOCK}"):
        with open(open_regular(path)) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # in use
            shutil.rmtree(path.parent, ignore_errors=True)
