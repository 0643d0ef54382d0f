"""A database, a schema or tables that were restored while processes have them open."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from uuid import uuid4

import psycopg
import pytest
from postgres_servers import Server

from memory import AgentMemorySystem, MemoryConfig
from memory.storage.postgres.wire import Wire

SCHEMA = "agentmemory"
OpenMemory = Callable[[], AgentMemorySystem]


class Databases:
    """A database that memories use, and a copy of it that can take its place."""

    def __init__(self, server: Server) -> None:
        self.live, self.backup = f"live_{uuid4().hex}", f"backup_{uuid4().hex}"
        self._server = server
        self.url = server.url(SCHEMA).replace("/postgres?", f"/{self.live}?")
        self.run("postgres", f"CREATE DATABASE {self.live}")

    def run(self, database: str, *commands: str) -> None:
        target = f"host={self._server.folder} user=postgres dbname={database}"
        with psycopg.connect(target, autocommit=True) as connection:
            for command in commands:
                connection.execute(command)

    def _disconnect(self, database: str) -> str:
        return f"SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = '{database}'"

    def copy(self) -> None:
        """Copy the live database. The tables of the copy have the same numbers."""
        self.run(
            "postgres",
            self._disconnect(self.live),
            f"CREATE DATABASE {self.backup} TEMPLATE {self.live}",
        )

    def restore(self) -> None:
        """Put the copy in the place of the live database."""
        self.run(
            "postgres",
            self._disconnect(self.live),
            f"DROP DATABASE {self.live}",
            f"ALTER DATABASE {self.backup} RENAME TO {self.live}",
        )

    def drop(self) -> None:
        for database in (self.live, self.backup):
            self.run("postgres", f"DROP DATABASE IF EXISTS {database} (FORCE)")


@pytest.fixture
def databases(server: Server) -> Iterator[Databases]:
    created = Databases(server)
    yield created
    created.drop()


@pytest.fixture
def open_memory(databases: Databases) -> Iterator[OpenMemory]:
    opened: list[AgentMemorySystem] = []

    def open_one() -> AgentMemorySystem:
        opened.append(AgentMemorySystem(MemoryConfig(url=databases.url, maintenance="manual")))
        return opened[-1]

    yield open_one
    for memory in opened:
        memory.close()


def content(memory: AgentMemorySystem, agent: str, id: str) -> object:
    entry = memory.get(agent, id)
    return None if entry is None else entry.content


def test_get_returns_no_memory_of_another_agent_from_a_copy_of_the_database(
    databases: Databases, open_memory: OpenMemory
) -> None:
    memory, other = open_memory(), open_memory()
    other.add("zoe", "of zoe", id="note")
    databases.copy()
    for agent in ("ann", "bob"):
        other.add(agent, f"of {agent}", id="note")
    assert [content(memory, agent, "note") for agent in ("ann", "bob")] == ["of ann", "of bob"]
    databases.restore()
    for agent in ("bob", "ann"):  # each gets the number that the other had
        other.add(agent, f"now of {agent}", id="note")
    assert content(memory, "bob", "note") == "now of bob"
    assert content(memory, "ann", "note") == "now of ann"


def test_caches_of_a_process_return_nothing_that_a_copy_of_the_database_does_not_have(
    databases: Databases, open_memory: OpenMemory
) -> None:
    memory, other = open_memory(), open_memory()
    other.add("ann", "the zebra eats grass", id="zebra")
    databases.copy()
    other.add("ann", "submarines dive deep", id="note")
    assert content(memory, "ann", "note") == "submarines dive deep"
    assert [hit.id for hit in memory.search("ann", "submarines", 1)] == ["note"]
    databases.restore()
    # The counters of the agent are now those that the process has seen.
    other.add("ann", "a violin sonata", id="note")
    assert content(memory, "ann", "note") == "a violin sonata"
    (hit,) = memory.search("ann", "violin", 1)
    assert hit.entry.content == "a violin sonata"
    assert hit.entry.id == "note"
    found = {hit.entry.content for hit in memory.search("ann", "submarines dive", 5)}
    assert "submarines dive deep" not in found


def test_caches_of_a_process_return_nothing_that_emptied_and_filled_tables_do_not_have(
    databases: Databases, open_memory: OpenMemory
) -> None:
    memory, other = open_memory(), open_memory()
    for agent in ("ann", "bob"):
        other.add(agent, f"submarines of {agent}", id="note")
        memory.search(agent, "submarines", 1)
        assert content(memory, agent, "note") == f"submarines of {agent}"
    tables = ("agents", "memories", "changes")
    databases.run(
        databases.live,
        f"TRUNCATE {', '.join(f'{SCHEMA}.{table}' for table in tables)} RESTART IDENTITY",
    )
    for agent in ("bob", "ann"):
        other.add(agent, f"a violin of {agent}", id="note")
    for agent in ("ann", "bob"):
        assert content(memory, agent, "note") == f"a violin of {agent}"
        assert [hit.entry.content for hit in memory.search(agent, "violin", 3)] == [f"a violin of {agent}"]


def test_get_returns_no_memory_of_another_agent_from_rows_that_were_replaced(
    databases: Databases, open_memory: OpenMemory
) -> None:
    """Only the statement itself can know it: the tables and their files stay."""
    memory, other = open_memory(), open_memory()
    for agent in ("ann", "bob"):
        other.add(agent, f"of {agent}", id="note")
        assert content(memory, agent, "note") == f"of {agent}"
    tables = ("agents", "memories", "changes")
    databases.run(
        databases.live,
        *(f"DELETE FROM {SCHEMA}.{table}" for table in tables),
        f"ALTER TABLE {SCHEMA}.agents ALTER COLUMN no RESTART",
    )
    for agent in ("bob", "ann"):
        other.add(agent, f"now of {agent}", id="note")
    for agent in ("ann", "bob"):
        memory.drop_caches(agent)
        assert content(memory, agent, "note") == f"now of {agent}"


def test_rows_that_a_process_added_before_a_restore_are_not_put_into_its_index(
    databases: Databases, open_memory: OpenMemory
) -> None:
    memory, other = open_memory(), open_memory()
    memory.add("ann", "the zebra eats grass", id="zebra")
    memory.search("ann", "zebra", 1)
    memory.add("ann", "a lantern burns", id="lantern")
    memory.search("ann", "lantern", 1)  # from now on the process keeps the rows that it adds
    databases.copy()
    memory.add("ann", "submarines dive deep", id="submarine")
    databases.restore()
    assert {hit.id for hit in memory.search("ann", "zebra lantern", 5)} == {"zebra", "lantern"}
    other.add("ann", "a violin sonata", id="violin")
    assert [hit.id for hit in memory.search("ann", "violin", 1)] == ["violin"]
    assert [hit.id for hit in memory.search("ann", "sonata", 1)] == ["violin"]
    assert "violin" not in [hit.id for hit in memory.search("ann", "submarines dive", 1)]


def test_get_takes_one_round_trip_whether_the_memory_exists_or_not(
    databases: Databases, open_memory: OpenMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_memory().add("ann", "the zebra eats grass", id="zebra")
    store = open_memory()._store
    store.agents()  # opens a connection
    sent: list[object] = []
    send = Wire.send
    monkeypatch.setattr(Wire, "send", lambda wire, *values: sent.append(values) or send(wire, *values))
    for number, (agent, id) in enumerate((("ann", "zebra"), ("ann", "none"), ("bob", "zebra")), 1):
        assert (store.get_one(agent, id) is None) == ((agent, id) != ("ann", "zebra"))
        assert len(sent) == number
