"""Returns free pages of the file to the file system, a few at a time.

Moved and deleted memories leave free pages, which the next memories reuse. So some pages are kept:
otherwise a file in steady use would shrink and grow all the time. Pages change their place in the file, but
rows do not change: caches stay valid and no version changes.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from memory._base.yielding import yield_gil
from memory.storage.connections import Connections

_SLICE_PAGES = 64
"""Pages returned in one transaction: a quarter of a megabyte, faster than a batch of moves."""
_MIN_FREE_PAGES = 8
"""Up to this many free pages (32 KB), nothing is returned."""
_MIN_FREE_SHARE = 8
"""Pages are returned only if more than one page in 8 is free."""
_RESERVE_SHARE = 32
"""One free page is kept for every 32 pages in use."""
_SLICES_A_CHECKPOINT = 16
_MAX_LOG_PAGES = 1000
"""Stop if more pages than this stay in the log because of a long read: going on would only grow the log."""

_INCREMENTAL = 2  # the value of `PRAGMA auto_vacuum` for files that can return pages


class Shrinker:
    """The method `shrink` of `MemoryStore`, which documents it."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    def shrink(self) -> Iterator[int]:
        if self._connections.read_only:
            return
        if not self._is_worth_it():
            return
        while self._connections.checkpoint().pages_left <= _MAX_LOG_PAGES:
            for _ in range(_SLICES_A_CHECKPOINT):
                returned = self._return_slice()
                if returned == 0:
                    self._connections.checkpoint()
                    return
                yield returned

    def _is_worth_it(self) -> bool:
        def read(connection: sqlite3.Connection) -> bool:
            # Files of the first versions were created without incremental vacuum and keep their size.
            if _pragma(connection, "auto_vacuum") != _INCREMENTAL:
                return False
            pages, free = _pragma(connection, "page_count"), _pragma(connection, "freelist_count")
            return free > max(_MIN_FREE_PAGES, pages // _MIN_FREE_SHARE)

        return self._connections.read(read)

    def _return_slice(self) -> int:
        """Give one slice of pages to the file system; return its bytes, 0 if only the reserve is left."""

        def give_back(connection: sqlite3.Connection) -> int:
            before, free = _pragma(connection, "page_count"), _pragma(connection, "freelist_count")
            surplus = free - max(_MIN_FREE_PAGES // 2, (before - free) // _RESERVE_SHARE)
            for _ in range(min(surplus, _SLICE_PAGES)):
                yield_gil()
                # One page a statement: Python's driver ends the statement after its first page.
                connection.execute("PRAGMA incremental_vacuum(1)").close()
            pages = before - _pragma(connection, "page_count")
            return pages * _pragma(connection, "page_size")

        return self._connections.write(give_back)


def _pragma(connection: sqlite3.Connection, name: str) -> int:
    (value,) = connection.execute(f"PRAGMA {name}").fetchone()
    return int(value)
