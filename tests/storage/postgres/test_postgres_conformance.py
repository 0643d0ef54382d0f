"""The PostgreSQL store passes the tests of every store, on a real server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from conformance import DurableConformance, OpenStore, StoreConformance

from memory.storage import MemoryStore
from memory.storage._writer import LOG_LENGTH
from memory.storage.postgres.store import PostgresStore


class TestPostgres(StoreConformance, DurableConformance):
    changes_kept = LOG_LENGTH

    @pytest.fixture
    def open_store(self, url: str) -> Iterator[OpenStore]:
        opened: list[MemoryStore] = []

        def open_one() -> MemoryStore:
            opened.append(PostgresStore(url))
            return opened[-1]

        yield open_one
        for store in opened:
            store.close()
