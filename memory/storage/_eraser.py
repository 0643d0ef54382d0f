"""Removes the bytes of deleted and replaced content from all files of the database.

Four things keep such bytes after a commit:

- Free space in the pages. SQLite overwrites it with zeros (`PRAGMA secure_delete`).
- Copies of rows that SQLite leaves in a page when it splits or merges pages. `secure_delete` does not reach
  them: 8 of 1,005 deleted memories left some. Only a rewrite of the whole file (`VACUUM`) removes them.
- The log, until it is truncated. That is possible only while no reader uses it.
- The saved search indexes (`_index_files.py`). Those that hold deleted content are removed first.

The setting "deleted" marks a file that may have such bytes. It is written in the transaction that deletes,
so that it survives the process, and any process can erase.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from collections.abc import Callable

from memory.errors import EraseIncomplete, StoreError
from memory.storage.connections import Connections

_log = logging.getLogger(__name__)

_MARK = "deleted"
_LOG_DONE = "log truncated, "
"""How the mark begins if only the rewrite is left to do."""
_POLL_SECONDS = 0.005
_WRITE_SECONDS = 0.1
"""How long a call of `maintain` waits for other processes that write: much longer than a write takes."""
_MAX_REWRITE_BYTES = 32 * 1024 * 1024
"""Maintenance rewrites files up to this size. A rewrite holds the write lock for 10 to 25 ms a megabyte."""
_REWRITE_SHARE = 1000
"""In the background, a thousandth of the time at most is spent on rewriting."""


def mark_deleted(connection: sqlite3.Connection) -> None:
    """Record in the caller's transaction that the files hold deleted content."""
    # A new value each time: `_unmark` must not remove the mark of a deletion that came after the erasing.
    connection.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_MARK, os.urandom(8).hex()),
    )


class Eraser:
    """The methods `erase` and `erase_in_maintenance` of `MemoryStore`, which documents them."""

    def __init__(self, connections: Connections, erase_indexes: Callable[[], None]) -> None:
        """`erase_indexes` removes the files of search indexes that hold deleted content."""
        self._connections = connections
        self._erase_indexes = erase_indexes
        self._rewrite_again_at = 0.0
        """When maintenance in the background may rewrite the file again, on the monotonic clock."""

    def erase(self, wait_seconds: float) -> None:
        mark = self._mark()
        if mark is None:
            return
        self._erase_indexes()
        # Truncate the log first: while a reader needs it, a rewrite would only make it larger.
        self._truncate_log(wait_seconds)
        try:
            self._connections.rewrite()
        except StoreError as problem:
            raise EraseIncomplete(
                f"the memories are deleted, but the file could not be rewritten without them ({problem}): "
                "call again with erase=True"
            ) from problem
        self._truncate_log(wait_seconds)
        self._set_mark(mark, None)

    def _truncate_log(self, wait_seconds: float) -> None:
        if not self._truncates_log(wait_seconds):
            raise EraseIncomplete(
                "the memories are deleted, but the log still holds their content, because a reader has "
                f"used it for {wait_seconds:g} s: the next maintenance erases it, or end the long read "
                "and call again with erase=True"
            )

    def _truncates_log(self, wait_seconds: float) -> bool:
        """Truncate the log; return False if others that read or write have used it all the time."""
        # Ask again and again instead of letting SQLite wait: it would block all writers meanwhile.
        deadline = time.monotonic() + wait_seconds
        while not self._connections.checkpoint().is_truncated:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        return True

    def erase_in_maintenance(self, *, in_background: bool = False) -> None:
        mark = None if self._connections.read_only else self._mark()
        if mark is None:
            return
        self._erase_indexes()
        may_rewrite = self._may_rewrite(in_background)
        if mark.startswith(_LOG_DONE) and not may_rewrite:
            return
        wait_seconds = 0.0 if in_background else _WRITE_SECONDS
        if not self._truncates_log(wait_seconds):
            return
        is_rewritten = may_rewrite and self._rewrite() and self._truncates_log(wait_seconds)
        self._set_mark(mark, None if is_rewritten else _LOG_DONE + mark.removeprefix(_LOG_DONE))

    def _may_rewrite(self, in_background: bool) -> bool:
        (pages,), (size,) = map(self._connections.fetch_one, ("PRAGMA page_count", "PRAGMA page_size"))
        is_due = not in_background or time.monotonic() >= self._rewrite_again_at
        return is_due and bool(pages * size <= _MAX_REWRITE_BYTES)

    def _rewrite(self) -> bool:
        """Rewrite the file; return False if that failed, for example on a full disk."""
        start = time.monotonic()
        try:
            self._connections.rewrite()
        except StoreError as problem:
            # The deleted content is overwritten with zeros all the same, except for stray copies.
            _log.warning("the file was not rewritten without deleted memories: %s", problem)
            return False
        finally:
            end = time.monotonic()
            self._rewrite_again_at = end + (end - start) * _REWRITE_SHARE
        return True

    def _mark(self) -> str | None:
        found = self._connections.fetch_one("SELECT value FROM settings WHERE name = ?", (_MARK,))
        return None if found is None else str(found[0])

    def _set_mark(self, old: str, new: str | None) -> None:
        """Replace the mark, unless a deletion has replaced it meanwhile; None removes it."""
        if new == old:
            return

        def change(connection: sqlite3.Connection) -> None:
            if new is None:
                connection.execute("DELETE FROM settings WHERE name = ? AND value = ?", (_MARK, old))
            else:
                connection.execute(
                    "UPDATE settings SET value = ? WHERE name = ? AND value = ?", (new, _MARK, old)
                )

        self._connections.write(change)
        self._connections.checkpoint()
