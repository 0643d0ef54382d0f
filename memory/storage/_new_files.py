"""Creating files so that other processes see a whole file or none."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_SQLITE_SUFFIXES = ("", "-wal", "-shm", "-journal")


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield the path of a draft file; publish the draft as `path` when the block ends without an error.

    If `path` exists by then, that file stays and the draft is deleted."""
    draft = path.with_name(f"{path.name}.new-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        yield draft
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
