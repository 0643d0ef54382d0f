"""Saved search indexes on a server: over restarts, with several hosts, and within the limit of the cache.

tests/search/test_saved.py has the tests that the files of the embedded store pass too."""

from __future__ import annotations

from typing import BinaryIO

import pytest
from conformance import add, row
from postgres_servers import Server
from threads import together

from memory import AgentMemorySystem, MemoryConfig
from memory.search import cache as cache_module
from memory.storage.postgres.saved_indexes import PART_BYTES
from memory.storage.postgres.store import PostgresStore


def fill(memory: AgentMemorySystem, count: int) -> None:
    memory.add_many(
        {"agent_id": "ann", "content": f"number {number} is near word{number % 30}", "id": str(number)}
        for number in range(count)
    )


def test_a_saved_index_is_used_after_a_restart_and_by_other_hosts(
    server: Server, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cache_module, "LEAST_SAVED", 50)
    config = MemoryConfig(url=url, maintenance="manual")
    with AgentMemorySystem(config) as one, AgentMemorySystem(config) as other:
        fill(one, 100)
        one.maintain()
        server.restart()
        one.add("ann", "a zebra came later", id="later")
        read_after: list[int] = []
        catch_up = other._store.catch_up
        monkeypatch.setattr(
            other._store, "catch_up", lambda *values: read_after.append(values[1]) or catch_up(*values)
        )
        assert [hit.id for hit in other.search("ann", "zebra", 1)] == ["later"]
        assert other.search("ann", "number 7", 1)[0].id == "7"
        assert read_after == [100]  # only the row that came later was read
        # The arrays are in RAM, not in a mapped file. So the limit of the cache counts all of them.
        vectors = 100 * 256
        assert other._indexes.nbytes > vectors
        other._indexes.drop()
        assert other._indexes.nbytes == 0


def test_an_index_is_not_saved_if_the_server_may_have_lost_what_it_holds(server: Server, url: str) -> None:
    store = PostgresStore(url)
    add(store, [row("1")])
    state = store.state("ann")
    server.restart()
    assert not store.save_index("ann", state, lambda file, token: file.write(token.encode()))
    assert store.saved_index("ann") is None
    assert store.save_index("ann", store.state("ann"), lambda file, token: file.write(token.encode()))
    assert not store.save_index("bob", store.state("bob"), lambda file, token: file.write(token.encode()))
    store.close()


def test_hosts_that_save_and_remove_the_same_index_together_leave_one_or_none(url: str) -> None:
    stores = [PostgresStore(url) for _ in range(3)]
    add(stores[0], [row("1")])

    def save(number: int) -> int:
        def write(file: BinaryIO, token: str) -> None:
            file.write(token.encode())
            file.seek(1000 * number)
            file.write(bytes([number]) * PART_BYTES)
            file.truncate(number * 2 * PART_BYTES)

        store = stores[number]
        for _ in range(15):
            assert store.save_index("ann", store.state("ann"), write)
            saved = store.saved_index("ann")
            if saved is not None:
                data = bytes(saved.data)
                size = len(data) // (2 * PART_BYTES)
                assert len(data) == size * 2 * PART_BYTES
                assert data[:32] == saved.token.encode()
                assert data[size * 1000 :][:PART_BYTES] == bytes([size]) * PART_BYTES
        return 0

    def drop() -> int:
        for _ in range(15):
            stores[0].drop_saved_index("ann")
        return 0

    together(lambda: save(1), lambda: save(2), drop)
    stores[0].drop_saved_index("ann")
    assert stores[1].saved_index("ann") is None
    assert stores[1].saved_index_state("ann") is None
    for store in stores:
        store.close()
