"""The file format: older files are migrated, and every row is checked when it is read."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest
from conformance import add, everything, features_of, move_of, row

from memory.entry import Tier
from memory.errors import CodecRetired, StoreCorrupt, StoreReadOnly
from memory.storage import SQLiteStore
from memory.storage.schema import APPLICATION_ID, FORMAT_VERSION

# The tables of the first release, as they were.
FORMAT_1 = """
CREATE TABLE agents (no INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, last_seq INTEGER NOT NULL DEFAULT 0,
    last_change INTEGER NOT NULL DEFAULT 0, forgotten INTEGER NOT NULL DEFAULT 0);
CREATE TABLE memories (key INTEGER PRIMARY KEY, agent INTEGER NOT NULL, tier INTEGER NOT NULL,
    id TEXT NOT NULL, kind TEXT NOT NULL, step INTEGER, created_at REAL NOT NULL, importance REAL NOT NULL,
    stored_at REAL NOT NULL, dated INTEGER NOT NULL, revision INTEGER NOT NULL, digest INTEGER NOT NULL,
    session INTEGER, body_codec INTEGER NOT NULL, vector_codec INTEGER NOT NULL, body BLOB NOT NULL,
    terms BLOB NOT NULL, vector BLOB NOT NULL, fine BLOB);
CREATE UNIQUE INDEX by_id ON memories (agent, id);
CREATE INDEX by_time ON memories (agent, created_at);
CREATE INDEX by_step ON memories (agent, step) WHERE step IS NOT NULL;
CREATE INDEX by_age ON memories (tier, stored_at) WHERE tier < 2;
CREATE TABLE changes (agent INTEGER NOT NULL, number INTEGER NOT NULL, kind INTEGER NOT NULL, tier INTEGER,
    seqs BLOB NOT NULL, PRIMARY KEY (agent, number)) WITHOUT ROWID;
CREATE TABLE uses (agent INTEGER NOT NULL, seq INTEGER NOT NULL, uses INTEGER NOT NULL,
    PRIMARY KEY (agent, seq)) WITHOUT ROWID;
CREATE TABLE codecs (number INTEGER PRIMARY KEY, purpose TEXT NOT NULL UNIQUE, data BLOB NOT NULL);
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
INSERT INTO codecs (number, purpose, data) VALUES (15, 'reserved', x'');
INSERT INTO codecs (number, purpose, data) VALUES (16, 'zstd dictionary', x'010203');
INSERT INTO agents (no, name, last_seq) VALUES (1, 'ann', 2);
INSERT INTO settings VALUES ('embedder', 'words/4');
"""
AGENT, TIER = 42, 40


@pytest.fixture
def old_file(tmp_path: Path) -> Path:
    """A file of format 1 with two memories of ann: one in stm, one in im."""
    path = tmp_path / "old.db"
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(
        f"PRAGMA page_size = 8192; PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = 1;"
        f"PRAGMA journal_mode = WAL; {FORMAT_1}"
    )
    for seq, tier in ((1, 0), (2, 1)):
        connection.execute(
            "INSERT INTO memories VALUES (?, 1, ?, ?, 'text', 7, 1000.5, 1.0, 2000.25, 0, 0, 5, 3, 0, 0,"
            " ?, ?, ?, NULL)",
            (1 << AGENT | tier << TIER | seq, tier, f"id {seq}", b"body", b"terms", b"vector"),
        )
    connection.close()
    return path


def expected(store: SQLiteStore) -> None:
    rows = everything(store)
    assert [(one.id, one.tier, one.body, one.terms_codec) for one in rows] == [
        ("id 1", Tier.STM, b"body", 0),
        ("id 2", Tier.IM, b"body", 0),
    ]
    assert store.get_one("ann", "id 2").body == b"body"
    (features,) = store.features("ann", 2, 2)
    assert features == [features_of(rows[1])]
    assert [(codec.number, codec.data, codec.is_damaged) for codec in store.codecs()] == [
        (16, b"\1\2\3", False)
    ]
    assert store.setting("embedder") == "words/4"


def pragma(path: Path, name: str) -> object:
    connection = sqlite3.connect(path)
    try:
        return connection.execute(f"PRAGMA {name}").fetchone()[0]
    finally:
        connection.close()


def test_a_file_of_format_1_is_migrated_when_it_is_opened_to_write(old_file: Path) -> None:
    for _ in range(2):
        store = SQLiteStore(old_file)
        expected(store)
        store.close()
        assert pragma(old_file, "user_version") == FORMAT_VERSION
        assert pragma(old_file, "integrity_check") == "ok"
    store = SQLiteStore(old_file)
    (new,) = add(store, [row("new", digest=9)])
    assert new.seq == 3
    assert store.move("ann", [move_of(2)], Tier.IM, Tier.LTM) == 1
    assert len(everything(store)) == 3
    store.close()


def test_a_file_of_format_1_is_read_as_it_is_when_it_is_opened_read_only(old_file: Path) -> None:
    before = old_file.read_bytes()
    store = SQLiteStore(old_file, read_only=True)
    expected(store)
    with pytest.raises(StoreReadOnly):
        store.add([row("new")])
    store.close()
    assert pragma(old_file, "user_version") == 1
    assert old_file.read_bytes() == before


def test_a_migration_that_ends_half_way_leaves_the_old_format(old_file: Path) -> None:
    connection = sqlite3.connect(old_file, isolation_level=None)
    connection.execute("CREATE TABLE codecs_1 (x)")  # the migration fails at its fourth statement
    connection.close()
    with pytest.raises(Exception, match="codecs_1"):
        SQLiteStore(old_file)
    assert pragma(old_file, "user_version") == 1
    connection = sqlite3.connect(old_file, isolation_level=None)
    connection.execute("DROP TABLE codecs_1")
    connection.close()
    store = SQLiteStore(old_file)
    expected(store)
    store.close()


def test_every_new_file_has_another_identity(tmp_path: Path) -> None:
    identities = set()
    for name in ("a", "b"):
        store = SQLiteStore(tmp_path / name)
        identities.add(store.setting("identity"))
        store.close()
    assert len(identities) == 2
    assert all(len(identity) == 32 for identity in identities)


def test_after_closing_only_the_file_and_its_small_version_file_are_left(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    add(store, [row(str(number)) for number in range(20)])
    everything(store)
    store.get_one("ann", "3")
    store.close()
    sizes = {file.name: file.stat().st_size for file in tmp_path.iterdir()}
    assert sizes.keys() == {"m.db", "m.db-pulse"}
    assert sizes["m.db-pulse"] <= 8192


READS: dict[str, Callable[[SQLiteStore], object]] = {
    "get_one": lambda store: store.get_one("ann", "id"),
    "get": lambda store: store.get("ann", ["id"]),
    "get_by_seq": lambda store: store.get_by_seq("ann", [1]),
    "rows": lambda store: store.rows("ann", [1]),
    "all_rows": lambda store: list(store.all_rows()),
    "in_range": lambda store: store.in_range(
        "ann", "created_at", None, None, tiers=frozenset(Tier), limit=None
    ),
}
SEARCH_READS: dict[str, Callable[[SQLiteStore], object]] = {
    "rows": lambda store: store.rows("ann", [1]),
    "features": lambda store: list(store.features("ann", 1, 1)),
    "columns_of": lambda store: store.columns_of("ann", [1]),
    "catch_up": lambda store: store.catch_up("ann", 0, 0),
}


@pytest.mark.parametrize("column", ["kind", "step", "created_at", "importance", "body_codec", "body"])
@pytest.mark.parametrize("read", READS)
def test_a_changed_column_of_a_record_is_noticed_by_every_read(
    tmp_path: Path, column: str, read: str
) -> None:
    refused(tmp_path, column, READS[read])


@pytest.mark.parametrize(
    "column", ["created_at", "step", "session", "vector_codec", "vector", "fine", "terms", "terms_codec"]
)
@pytest.mark.parametrize("read", SEARCH_READS)
def test_a_changed_column_of_a_search_index_is_noticed_by_every_read(
    tmp_path: Path, column: str, read: str
) -> None:
    refused(tmp_path, column, SEARCH_READS[read])


def refused(folder: Path, column: str, read: Callable[[SQLiteStore], object]) -> None:
    store = SQLiteStore(folder / "m.db")
    add(store, [row("id", fine=b"fine")])
    store.close()
    for value in ("NULL", "12345", "x'0102'", "'other'"):
        connection = sqlite3.connect(folder / "m.db", isolation_level=None)
        connection.execute("PRAGMA ignore_check_constraints = 1")
        try:
            connection.execute(f"UPDATE memories SET {column} = {value}")
        except sqlite3.IntegrityError:
            continue
        finally:
            connection.close()
        store = SQLiteStore(folder / "m.db")
        with pytest.raises(StoreCorrupt, match="'id' of agent 'ann'"):
            read(store)
        store.close()


def test_a_missing_checksum_is_damage_in_a_file_that_never_had_format_1(tmp_path: Path) -> None:
    refused(tmp_path, "checksum", READS["get_one"])


def test_a_damaged_dictionary_is_marked(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    store.save_codec("a dictionary", b"data")
    store.close()
    connection = sqlite3.connect(tmp_path / "m.db", isolation_level=None)
    connection.execute("UPDATE codecs SET data = x'00' WHERE number = 16")
    connection.close()
    store = SQLiteStore(tmp_path / "m.db")
    assert [codec.is_damaged for codec in store.codecs()] == [True]
    store.close()


def test_a_retired_codec_is_refused_and_its_number_is_not_used_again(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    first = store.save_codec("a", b"data")
    store.retire_codec(first.number)
    assert store.codecs() == []
    for field in ("body_codec", "terms_codec", "vector_codec"):
        with pytest.raises(CodecRetired):
            store.add([row("1", **{field: first.number})])
    (stored,) = add(store, [row("1")])
    with pytest.raises(CodecRetired):
        store.replace(stored, row("1", body_codec=first.number))
    assert everything(store) == [stored]
    assert store.save_codec("b", b"data").number > first.number
    store.close()


def test_deleted_and_replaced_samples_of_a_dictionary_are_counted(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    ann = add(store, [row(str(number)) for number in range(6)])
    bob = add(store, [row(str(number), "bob") for number in range(3)])
    samples = [("ann", one.seq) for one in ann[:4]] + [("bob", one.seq) for one in bob]
    store.save_codec("dictionary", b"data", trained_on=9, samples=samples)

    def deleted() -> int:
        ((codec),) = store.codecs()
        assert codec.trained_on == 9
        return codec.deleted

    assert deleted() == 0
    store.delete("ann", ["5"])
    assert deleted() == 0
    store.delete("ann", ["0", "4", "unknown"])
    assert deleted() == 1
    assert store.replace(ann[1], row("1", body=b"other"))
    assert deleted() == 2
    store.delete_agent("bob")
    assert deleted() == 5
    store.close()


def test_a_name_is_gone_from_the_file_with_the_last_memory(tmp_path: Path) -> None:
    name = "the-only-agent-of-this-name"
    path = tmp_path / "m.db"
    one, other = SQLiteStore(path), SQLiteStore(path)
    add(one, [row("1", name)])
    assert other.get_one(name, "1") is not None  # the other store has cached the agent's number
    one.delete_agent(name)
    assert one.agents() == other.agents() == []
    (second,) = add(other, [row("2", name)])
    assert second.seq == 2
    assert one.agents() == [name]
    assert one.get_one(name, "2") is not None
    one.delete(name, ["2"])
    one.close()
    other.close()
    for file in tmp_path.iterdir():
        assert name.encode() not in file.read_bytes()


def test_one_maintenance_removes_deleted_text_from_all_files(tmp_path: Path) -> None:
    store = SQLiteStore(tmp_path / "m.db")
    words = [f"secret-{number:03d}-{number * 7919:08x}" for number in range(60)]
    add(store, [row(str(number), body=word.encode()) for number, word in enumerate(words)])
    store.delete("ann", ["7", "8"])
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert words[7].encode() in held, "the log still has it"
    store.erase_in_maintenance()
    held = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [word for word in words if word.encode() not in held] == words[7:9]
    store.close()
