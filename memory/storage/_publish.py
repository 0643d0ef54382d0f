"""Giving a finished file its name: at once, and never over another process's."""

from __future__ import annotations

import os
from pathlib import Path


def publish(draft: Path, path: Path) -> None:
    """Give `draft` the name `path`, unless there is such a file: then that one stays."""
    try:
        os.link(draft, path)
    except FileExistsError:
        return
    except OSError:
        # A file system without links (exFAT, some network mounts). Two processes that make the file
        # in the same instant are the one case that a rename can't decide.
        if not path.exists():
            draft.rename(path)
