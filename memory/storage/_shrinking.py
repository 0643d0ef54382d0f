"""Giving pages that nothing uses any more back to the file system, a few at a time.

What moved or deleted memories leave behind is used by the next ones, so a little of it is kept: a file in
steady use would otherwise shrink and grow all the time. Pages change their place and rows keep theirs:
what is cached stays true, and the pulse is left alone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator

from memory._base.yielding import yield_gil
from memory.storage._writing import SQLiteWriting

_SLICE_PAGES = 64
"""Given back in one transaction, half a megabyte: no longer than a batch of moves takes."""
_WORTH_PAGES = 128
"""Less than this, a megabyte, is always left to the next memories."""
_WORTH_SHARE = 8
"""Nor is it worth the work where less than one page in eight is free."""
_RESERVE_SHARE = 16
"""Once at it, one free page for sixteen in use is left."""
_SLICES_A_CHECKPOINT = 16
_LOG_PAGES = 1000
"""If more than this can't leave the log, whoever reads an earlier state holds it up for long: to go on
would only make the log longer."""

_INCREMENTAL = 2


class SQLiteShrinking(SQLiteWriting):
    """See `MemoryStore` for what `shrink` promises."""

    def shrink(self) -> Iterator[int]:
        if self._connections.read_only or not self._is_worth_it():
            return
        while self._connections.checkpoint() <= _LOG_PAGES:
            for _ in range(_SLICES_A_CHECKPOINT):
                given = self._give_back()
                if given == 0:
                    self._connections.checkpoint()
                    return
                yield given

    def _is_worth_it(self) -> bool:
        with self._connections.reading() as connection:
            # A file of a version that did not ask for it when the file was made can't be shrunk so.
            if _number(connection, "auto_vacuum") != _INCREMENTAL:
                return False
            pages, free = _number(connection, "page_count"), _number(connection, "freelist_count")
        return free > max(_WORTH_PAGES, pages // _WORTH_SHARE)

    def _give_back(self) -> int:
        """One slice; its bytes, 0 when no more than the reserve is left."""
        with self._connections.writing() as connection:
            before, free = _number(connection, "page_count"), _number(connection, "freelist_count")
            surplus = free - max(_WORTH_PAGES // 2, (before - free) // _RESERVE_SHARE)
            for _ in range(min(surplus, _SLICE_PAGES)):
                yield_gil()
                # The statement stops after each page, and Python takes a stop without columns for its end.
                connection.execute("PRAGMA incremental_vacuum(1)").close()
            given = before - _number(connection, "page_count")
            return given * _number(connection, "page_size")


def _number(connection: sqlite3.Connection, pragma: str) -> int:
    (value,) = connection.execute(f"PRAGMA {pragma}").fetchone()
    return int(value)
