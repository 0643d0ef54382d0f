"""The schema of a memory: created once, refused if it is newer or foreign, several in one database."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import psycopg
import pytest
from conformance import add, everything, row
from postgres_servers import Server
from threads import together

from memory.errors import InvalidConfig, StoreCorrupt, StoreReadOnly, StoreTooNew
from memory.storage.postgres.schema import MEMORIES, TABLES
from memory.storage.postgres.store import PostgresStore


@pytest.fixture
def db(server: Server) -> Iterator[psycopg.Connection]:
    with psycopg.connect(f"host={server.folder} user=postgres dbname=postgres", autocommit=True) as opened:
        yield opened


def schema_of(url: str) -> str:
    return url.partition("schema=")[2]


def relations(db: psycopg.Connection, schema: str) -> list[str]:
    found = db.execute(
        "SELECT relname FROM pg_class WHERE relnamespace = to_regnamespace(%s) ORDER BY 1", (schema,)
    )
    return [name for (name,) in found]


def test_hosts_that_open_a_new_memory_together_create_it_once(url: str) -> None:
    stores = together(*(lambda: PostgresStore(url) for _ in range(4)))
    stored = add(stores[0], [row("1")])
    assert all(everything(store) == stored for store in stores)
    for store in stores:
        store.close()


def test_a_newer_format_is_refused_and_not_changed(url: str, db: psycopg.Connection) -> None:
    PostgresStore(url).close()
    schema = schema_of(url)
    newer = str(MEMORIES.version + 1)
    db.execute(f"UPDATE {schema}.settings SET value = %s WHERE name = 'format'", (newer,))
    before = relations(db, schema)
    with pytest.raises(StoreTooNew, match="upgrade the package"):
        PostgresStore(url)
    assert relations(db, schema) == before
    assert db.execute(f"SELECT value FROM {schema}.settings WHERE name = 'format'").fetchone() == (newer,)


@pytest.mark.parametrize(
    "tables", ["CREATE TABLE s.books (title text)", "CREATE TABLE s.settings (name text, value text)"]
)
def test_tables_of_another_program_are_refused_and_not_changed(
    url: str, db: psycopg.Connection, tables: str
) -> None:
    schema = schema_of(url)
    db.execute(f"CREATE SCHEMA {schema}")
    db.execute(tables.replace("s.", f"{schema}."))
    before = relations(db, schema)
    with pytest.raises(StoreCorrupt, match="another program"):
        PostgresStore(url)
    assert relations(db, schema) == before


def test_memories_in_two_schemas_of_one_database_do_not_meet(server: Server) -> None:
    first, second = (PostgresStore(server.url(f"t_{uuid4().hex}")) for _ in range(2))
    (stored,) = add(first, [row("1")])
    assert everything(second) == []
    (other,) = add(second, [row("1", digest=5)])
    assert (everything(first), everything(second)) == ([stored], [other])
    first.close()
    second.close()


@pytest.mark.parametrize("name", ["pg_mine", "Large", "a-b", "a;b", "", "x" * 64, "1st"])
def test_a_schema_name_that_needs_quoting_is_refused(server: Server, name: str) -> None:
    with pytest.raises(InvalidConfig, match="schema is"):
        PostgresStore(server.url(name.replace(";", "%3B")))


def test_the_rights_of_the_documentation_are_enough(
    url: str, server: Server, db: psycopg.Connection
) -> None:
    PostgresStore(url).close()
    schema, role = schema_of(url), f"role_{uuid4().hex}"
    db.execute(f"CREATE ROLE {role} LOGIN")
    refused = url.replace("//postgres:", f"//{role}:")
    with pytest.raises(StoreReadOnly, match="right"):
        PostgresStore(refused)
    db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
    db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {role}")
    store = PostgresStore(refused)
    stored = add(store, [row("1"), row("2")])
    store.replace(stored[0], row("1", digest=5))
    store.delete("ann", ["2"])
    store.save_codec("purpose", b"data", samples=[("ann", stored[0].seq)])
    assert len(everything(store)) == 1
    store.close()
    with pytest.raises(StoreReadOnly, match="may not create"):
        PostgresStore(refused.replace(schema, f"t_{uuid4().hex}"))


def test_an_upgrade_adds_the_tables_of_saved_indexes_with_the_rights_of_the_others(
    url: str, db: psycopg.Connection
) -> None:
    store = PostgresStore(url)
    stored = add(store, [row("1")])
    store.close()
    schema, role = schema_of(url), f"role_{uuid4().hex}"
    db.execute(f'CREATE ROLE "{role}-2" LOGIN; CREATE ROLE {role} LOGIN')
    db.execute(f"DROP TABLE {schema}.indexes, {schema}.index_parts")
    db.execute(f"UPDATE {schema}.settings SET value = '1' WHERE name = 'format'")
    for name in (f'"{role}-2"', role):
        db.execute(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
        db.execute(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO {name}")
    as_role = url.replace("//postgres:", f"//{role}:")
    with pytest.raises(StoreReadOnly, match="may not create"):
        PostgresStore(as_role)
    PostgresStore(url).close()  # by the owner
    for user in (role, f"{role}-2"):
        store = PostgresStore(url.replace("//postgres:", f"//{user}:"))
        assert everything(store) == stored
        assert store.save_index("ann", store.state("ann"), lambda file, token: file.write(token.encode()))
        saved = store.saved_index("ann")
        assert saved is not None
        assert bytes(saved.data) == saved.token.encode()
        store.drop_saved_index("ann")
        assert store.saved_index("ann") is None
        store.close()


def test_a_memory_that_is_opened_to_read_only_refuses_writes_at_once(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreReadOnly, match="has no memory"):
        PostgresStore(url, read_only=True)
    writer = PostgresStore(url)
    stored = add(writer, [row("1")])
    reader = PostgresStore(url, read_only=True)
    assert everything(reader) == stored
    monkeypatch.setattr(reader._pool, "_connect", None)  # another connection would not accept writes either
    with pytest.raises(StoreReadOnly):
        reader.add([row("2")])
    writer.close()
    reader.close()


def test_a_dropped_table_is_named(url: str, db: psycopg.Connection) -> None:
    store = PostgresStore(url)
    add(store, [row("1")])
    db.execute(f"DROP TABLE {schema_of(url)}.memories")
    with pytest.raises(StoreCorrupt, match="lacks a table"):
        store.get_one("ann", "1")
    store.close()


def test_all_tables_are_ours(url: str, db: psycopg.Connection) -> None:
    PostgresStore(url).close()
    found = db.execute("SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema_of(url),))
    assert {name for (name,) in found} == set(TABLES)
