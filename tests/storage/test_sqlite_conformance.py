"""The SQLite store passes the tests of every store, in a file and in RAM."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conformance import DurableConformance, OpenStore, StoreConformance
from tail_store import TailStore

from memory.storage import MemoryStore, SQLiteStore
from memory.storage._writer import LOG_LENGTH


class TestSQLiteFile(StoreConformance, DurableConformance):
    changes_kept = LOG_LENGTH

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[OpenStore]:
        opened: list[MemoryStore] = []

        def open_one() -> MemoryStore:
            opened.append(SQLiteStore(tmp_path / "store.db"))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()


class TestSQLiteInRam(StoreConformance):
    changes_kept = LOG_LENGTH

    @pytest.fixture
    def open_store(self) -> Iterator[OpenStore]:
        opened: list[MemoryStore] = []

        def open_one() -> MemoryStore:
            opened.append(SQLiteStore(None))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()


class TestSQLiteWithTails(StoreConformance, DurableConformance):
    """The same file, with every row of stm added to a tail if that is possible."""

    changes_kept = LOG_LENGTH

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> Iterator[OpenStore]:
        opened: list[MemoryStore] = []

        def open_one() -> MemoryStore:
            opened.append(TailStore(tmp_path / "store.db"))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()
