"""Maintenance vacuums the tables, so that updates do not fill the server's disk."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import uuid4

import psycopg
import pytest
from conformance import add, numbered, row
from poolers import PROGRAM, running_pooler
from postgres_servers import Server

from memory.storage.postgres.store import PostgresStore
from memory.storage.postgres.wire import Wire

_ROWS = 100


@contextmanager
def database(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True) as opened:
        yield opened


def pages_of(server: Server, url: str) -> int:
    schema = url.partition("schema=")[2]
    with database(server) as db:
        found = db.execute("SELECT pg_relation_size(%s) / 8192", (f"{schema}.memories",)).fetchone()
    assert found is not None
    return int(found[0])


def replace_all(store: PostgresStore) -> None:
    for old in list(store.all_rows("ann")):
        assert store.replace(old, row(old.id, body=bytes(1000), digest=5))


def sizes_of_updates(server: Server, url: str, maintain: Callable[[PostgresStore], None]) -> list[int]:
    """Update all rows again and again; return how many pages they have after each time."""
    store = PostgresStore(url)
    add(store, numbered(_ROWS))
    sizes = []
    for _ in range(6):
        replace_all(store)
        maintain(store)
        sizes.append(pages_of(server, url))
    store.close()
    return sizes


def test_updates_do_not_fill_the_disk(server: Server, url: str) -> None:
    sizes = sizes_of_updates(server, url, lambda store: store.erase_in_maintenance())
    other = server.url(f"t_{uuid4().hex}")
    without = sizes_of_updates(server, other, lambda store: None)
    assert sizes[-1] <= 2 * sizes[0] < without[-1]


@pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed: apt install pgbouncer")
def test_tables_are_vacuumed_behind_a_pooler(server: Server) -> None:
    with running_pooler(server) as folder:
        url = f"postgresql://postgres@/postgres?host={folder}&schema=t_{uuid4().hex}"
        sizes = sizes_of_updates(server, url, lambda store: store.erase_in_maintenance())
        assert sizes[-1] <= 2 * sizes[0]


def test_the_background_leaves_few_dead_rows_to_the_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    add(store, numbered(_ROWS))
    replace_all(store)
    store.erase_in_maintenance(in_background=True)
    assert store._vacuum._changes.changed_rows == _ROWS
    monkeypatch.setattr("memory.storage.postgres.vacuum._MIN_DEAD_IN_BACKGROUND", 50)
    store.erase_in_maintenance(in_background=True)
    assert store._vacuum._changes.changed_rows == 0
    store.close()


def test_a_role_that_may_not_vacuum_is_told_so_once(
    server: Server, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    PostgresStore(url).close()
    schema, role = url.partition("schema=")[2], f"role_{uuid4().hex}"
    with database(server) as db:
        db.execute(f"CREATE ROLE {role} LOGIN")
        db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
        store = PostgresStore(url.replace("//postgres:", f"//{role}:"))
        add(store, numbered(_ROWS))
        replace_all(store)
        with caplog.at_level(logging.WARNING):
            store.erase_in_maintenance()
            store.erase_in_maintenance()
        assert caplog.text.count("the role may not vacuum memories") == 1
        if store._pool.read(lambda wire: wire.server_version) >= 170_000:
            db.execute(f"GRANT MAINTAIN ON {schema}.memories TO {role}")
            store.erase_in_maintenance()
            assert store._vacuum._changes.changed_rows == 0
        store.close()


def test_maintenance_does_not_wait_for_another_vacuum(server: Server, url: str) -> None:
    store = PostgresStore(url)
    add(store, numbered(_ROWS))
    replace_all(store)
    schema = url.partition("schema=")[2]
    with database(server) as db, db.transaction():
        db.execute(f"LOCK TABLE {schema}.memories IN SHARE UPDATE EXCLUSIVE MODE")
        store.erase_in_maintenance()  # would wait for the lock for ever
    store.close()


def test_a_vacuum_that_the_server_refuses_does_not_stop_the_maintenance(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = PostgresStore(url)
    add(store, numbered(_ROWS))
    replace_all(store)
    command = Wire.command

    def refuse(wire: Wire, sql: str) -> None:
        # Inside a transaction the server refuses VACUUM.
        command(wire, "BEGIN")
        try:
            command(wire, sql)
        finally:
            command(wire, "ROLLBACK")

    def run(wire: Wire, sql: str) -> None:
        (refuse if "VACUUM" in sql else command)(wire, sql)

    with monkeypatch.context() as patch:
        patch.setattr(Wire, "command", run)
        store.erase_in_maintenance()
    assert "could not vacuum the table memories: VACUUM cannot run inside a transaction" in caplog.text
    assert len(store.get("ann", [one.id for one in numbered(_ROWS)])) == _ROWS
    store.close()
