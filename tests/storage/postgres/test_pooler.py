"""Behind a pooler in transaction mode, which gives every transaction another connection."""

from __future__ import annotations

import os
from collections.abc import Iterator
from uuid import uuid4

import pytest
from conformance import DurableConformance, OpenStore, StoreConformance, add, everything, numbered
from poolers import PROGRAM, running_pooler
from postgres_servers import Server
from threads import together

from memory import AgentMemorySystem, MemoryConfig
from memory.storage import MemoryStore
from memory.storage._writer import LOG_LENGTH
from memory.storage.postgres.store import PostgresStore

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed: apt install pgbouncer")


@pytest.fixture(scope="module")
def pooler(server: Server) -> Iterator[str]:
    with running_pooler(server) as folder:
        yield folder


@pytest.fixture
def pooled_url(pooler: str) -> str:
    return f"postgresql://postgres@/postgres?host={pooler}&schema=t_{uuid4().hex}"


def test_threads_share_fewer_connections_than_they_are(pooled_url: str) -> None:
    store = PostgresStore(pooled_url)

    def work(agent: str) -> int:
        stored = add(store, numbered(20, agent))
        store.delete(agent, [stored[0].id])
        assert everything(store, agent) == stored[1:]
        return len(store.get(agent, [one.id for one in stored]))

    assert together(*(lambda n=n: work(f"agent {n}") for n in range(6))) == [19] * 6
    store.close()


def test_a_whole_memory_works_behind_a_pooler(pooled_url: str) -> None:
    config = MemoryConfig(url=pooled_url, maintenance="manual")
    with AgentMemorySystem(config) as one, AgentMemorySystem(config) as other:
        one.add_many({"agent_id": "ann", "content": f"submarine {n}", "id": f"{n}"} for n in range(50))
        one.add("ann", "the zebra eats grass", id="zebra")
        assert other.search("ann", "zebra", 1)[0].id == "zebra"
        other.update("ann", "zebra", content="a violin sonata")
        assert one.search("ann", "violin", 1)[0].id == "zebra"
        one.maintain()
        assert one.force_consolidation().moved_to_ltm == 51
        assert other.search("ann", "violin", 1)[0].tier == "ltm"
        assert other.delete("ann", "zebra", erase=True)
        assert one.get("ann", "zebra") is None
        assert one.check().ok


if "AGENTMEMORY_TEST_POSTGRES" in os.environ:  # all of them, in `make test-postgres`

    class TestPostgresBehindAPooler(StoreConformance, DurableConformance):
        changes_kept = LOG_LENGTH

        @pytest.fixture
        def open_store(self, pooled_url: str) -> Iterator[OpenStore]:
            opened: list[MemoryStore] = []

            def open_one() -> MemoryStore:
                opened.append(PostgresStore(pooled_url))
                return opened[-1]

            yield open_one
            for store in opened:
                store.close()
