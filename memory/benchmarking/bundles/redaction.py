"""Removes the names of the user, the host and the folders from what is published.

All texts of a file go through `Redaction.text`: messages, commands, parameters, logs. A folder becomes `…`,
and the file's own name stays, because `…/my_target.py` still says which file it was.
"""

from __future__ import annotations

import getpass
import re
import socket
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

GONE = "…"
LEFT_OUT = ("user name", "host name", "folders")
_FOLDER = re.compile(r"(?<![\w/.:~…-])~?(?:/[\w.@+…-]+)+/")
"""The folders at the beginning of an absolute path; not those of an address such as https://…/."""
_SHARED_NAMES = frozenset({"root", "user", "admin", "ubuntu", "debian", "runner", "vagrant", "localhost"})
"""Names that thousands of machines share, and that are ordinary words: they tell nothing."""
_SHORTEST_NAME = 3
"""Shorter names would be found inside of ordinary texts."""


class Redaction:
    """Replaces known names and all absolute folders.

    Args:
        folders: folders that may occur in the texts, in addition to those of this process.
        names: names that may occur, in addition to those of the user and of the host.
    """

    def __init__(self, folders: Iterable[str] = (), names: Iterable[str] = ()) -> None:
        own = {str(Path.home()), str(Path.cwd()), sys.prefix, tempfile.gettempdir()}
        found = {folder.rstrip("/") for folder in {*own, *folders} if folder.startswith("/")} - {""}
        # The longest first: a folder's name begins with that of the folder around it.
        self._folders = sorted(found, key=len, reverse=True)
        known = {_user(), socket.gethostname(), socket.gethostname().partition(".")[0], *names}
        self._names = sorted(
            (each for each in known if len(each) >= _SHORTEST_NAME and each.lower() not in _SHARED_NAMES),
            key=len,
            reverse=True,
        )

    def text(self, text: str) -> str:
        """Return a text without the names and folders."""
        if "/" in text:
            for folder in self._folders:
                text = re.sub(rf"{re.escape(folder)}(?=/|\W|$)", GONE, text)
            text = _FOLDER.sub(f"{GONE}/", text)
            text = re.sub(rf"{GONE}(?:/[\w.@+-]+)*/(?=[\w.@+-])", f"{GONE}/", text)
        for name in self._names:
            text = re.sub(rf"(?<![^\W_]){re.escape(name)}(?![^\W_])", GONE, text, flags=re.IGNORECASE)
        return text

    def tree(self, value: Any) -> Any:
        """Return JSON values with all their texts and keys replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.tree(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.tree(inner) for inner in value]
        return value


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""  # a user id without a name, as in some containers
