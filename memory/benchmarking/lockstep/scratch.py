"""A folder for what both sides write while they run; one that a killed process left behind is swept."""

from __future__ import annotations

import fcntl
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from memory.benchmarking.errors import ResultNotSaved

_LOCK = "lock"


@contextmanager
def scratch_below(folder: Path) -> Iterator[Path]:
    """An empty folder that is gone afterwards. Its lock says that somebody is using it."""
    folder = folder.resolve()
    try:
        _sweep(folder)
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
            _remove_if_empty(folder)


def _sweep(folder: Path) -> None:
    for left in folder.glob(f"*/{_LOCK}"):
        with open(left) as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                continue  # in use
            shutil.rmtree(left.parent, ignore_errors=True)


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # another comparison uses it
