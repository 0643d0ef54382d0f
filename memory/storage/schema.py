"""The database file: its tables, and the check before opening that a file is an AgentMemory database.

One table holds all tiers. Its integer key packs (agent, tier, seq). So the rows of one agent and tier are
neighbours, in the order in which they were stored, and a move to another tier is an update of the key.
The newest rows of an agent may be in no index yet: see `_tail.py`.
"""

from __future__ import annotations

import os
import sqlite3
from hashlib import blake2b
from pathlib import Path

from memory.errors import StoreCorrupt, StoreTooNew
from memory.storage._log_owner import stamp
from memory.storage._new_files import make_folder, new_file, sync

APPLICATION_ID = 0x41674D65  # "AgMe": marks AgentMemory files among SQLite databases
FORMAT_VERSION = 4
PAGE_SIZE = 4096
"""Bytes. Every table and index takes at least a page, and every changed page goes to the log whole: with
8,192 bytes a file of 500 memories was a quarter larger, and a small write took 5 to 8 µs longer."""

FIRST_STORED_CODEC = 16
"""Codecs with this number or a higher one are in the file. The others need no fitting."""
RETIRED = "retired"
"""The purpose of a codec that no row uses any more. Its number is never used again."""

TIER_SHIFT = 40
AGENT_SHIFT = 42
SEQ_MASK = (1 << TIER_SHIFT) - 1
TIER_MASK = 3

MARK = "no + 3 * last_seq + 5 * last_change + 7 * forgotten + 9 * unsettled + 11 * tail"
"""A checksum of a row of `agents`, which SQLite makes whenever it writes the row. A change of one number
always changes it. The name has a copy in the index of the names."""
_AGENTS = f"""
CREATE TABLE {{name}} (
    no INTEGER PRIMARY KEY,
    name TEXT NOT NULL UNIQUE,
    last_seq INTEGER NOT NULL DEFAULT 0,
    last_change INTEGER NOT NULL DEFAULT 0,
    forgotten INTEGER NOT NULL DEFAULT 0,
    unsettled INTEGER NOT NULL DEFAULT 0,
    tail INTEGER NOT NULL DEFAULT 0,
    mark INTEGER GENERATED ALWAYS AS ({MARK}) STORED
);
"""
"""unsettled: the first seq that maintenance may encode again, or 0; tail: 1 if rows above last_seq
may exist. A migration splits the statements at semicolons, so they have no comments."""
TABLES = (
    _AGENTS.format(name="agents")
    + """
CREATE TABLE memories (
    key INTEGER PRIMARY KEY,        -- agent << 42 | tier << 40 | seq
    agent INTEGER NOT NULL,
    tier INTEGER NOT NULL,
    id TEXT NOT NULL,
    kind TEXT NOT NULL,
    step INTEGER,
    created_at REAL NOT NULL,
    importance REAL NOT NULL,
    stored_at REAL NOT NULL,
    dated INTEGER NOT NULL,
    revision INTEGER NOT NULL,
    digest INTEGER NOT NULL,
    session INTEGER,
    checksum INTEGER,               -- of the columns of a record; NULL in rows of format 1
    features_checksum INTEGER,      -- of the columns of a search index, and of the rest: see _rows.py
    body_codec INTEGER NOT NULL,
    terms_codec INTEGER NOT NULL DEFAULT 0,
    vector_codec INTEGER NOT NULL,
    body BLOB NOT NULL,
    terms BLOB NOT NULL,
    vector BLOB NOT NULL,
    fine BLOB,
    indexed INTEGER NOT NULL DEFAULT 1      -- 0: in no index yet
);
CREATE TABLE changes (              -- changes to existing rows, by agent
    agent INTEGER NOT NULL,
    number INTEGER NOT NULL,
    kind INTEGER NOT NULL,          -- with a checksum: see _change_log.py
    tier INTEGER,
    seqs BLOB NOT NULL,
    PRIMARY KEY (agent, number)
) WITHOUT ROWID;
CREATE TABLE uses (
    agent INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    uses INTEGER NOT NULL,
    PRIMARY KEY (agent, seq)
) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
"""
)
_INDEXES = """
CREATE UNIQUE INDEX by_id ON memories (agent, id) WHERE indexed = 1;
CREATE INDEX by_time ON memories (agent, created_at) WHERE indexed = 1;
CREATE INDEX by_step ON memories (agent, step) WHERE indexed = 1 AND step IS NOT NULL;
CREATE INDEX by_age ON memories (tier, stored_at) WHERE indexed = 1 AND tier < 2;
"""
_TAILS = "CREATE INDEX tails ON agents (no) WHERE tail = 1;"
_CODECS = """
CREATE TABLE codecs (
    number INTEGER PRIMARY KEY,
    purpose TEXT NOT NULL,
    digest BLOB NOT NULL,           -- of purpose and data
    trained_on INTEGER NOT NULL DEFAULT 0,  -- memories in the file at that time
    deleted INTEGER NOT NULL DEFAULT 0,     -- how many of its samples were deleted since
    writable INTEGER NOT NULL DEFAULT 1,    -- 0: replaced, and only kept until no row uses it
    samples BLOB NOT NULL DEFAULT x'',      -- the memories that it was trained on
    data BLOB NOT NULL
);
-- Numbers below 16 are codecs that need no fitting.
INSERT INTO codecs (number, purpose, digest, data) VALUES (15, 'reserved', x'', x'');
"""
_FROM_FORMAT_1 = """
ALTER TABLE memories ADD COLUMN checksum INTEGER;
ALTER TABLE memories ADD COLUMN features_checksum INTEGER;
ALTER TABLE memories ADD COLUMN terms_codec INTEGER NOT NULL DEFAULT 0;
ALTER TABLE agents ADD COLUMN unsettled INTEGER NOT NULL DEFAULT 0;
ALTER TABLE codecs RENAME TO codecs_1;
"""
_FROM_FORMAT_2 = """
ALTER TABLE memories ADD COLUMN indexed INTEGER NOT NULL DEFAULT 1;
ALTER TABLE agents ADD COLUMN tail INTEGER NOT NULL DEFAULT 0;
DROP INDEX by_id;
DROP INDEX by_time;
DROP INDEX by_step;
DROP INDEX by_age;
"""
_FROM_FORMAT_3 = f"""
DROP INDEX IF EXISTS tails;
{_AGENTS.format(name="agents_4")}
INSERT INTO agents_4 (no, name, last_seq, last_change, forgotten, unsettled, tail)
    SELECT no, name, last_seq, last_change, forgotten, unsettled, tail FROM agents;
DROP TABLE agents;
ALTER TABLE agents_4 RENAME TO agents;
"""
_NAMES = (
    *("agents", "memories", "changes", "uses", "settings", "codecs"),
    *("by_id", "by_time", "by_step", "by_age", "tails"),
)
"""All tables and indexes. Others in the file are not ours."""
_SCHEMA = "schema"
"""The setting that has the format and the digest of the definitions of all tables and indexes."""


def key_of(agent_no: int, tier: int, seq: int) -> int:
    return agent_no << AGENT_SHIFT | tier << TIER_SHIFT | seq


def create_file(path: Path) -> None:
    """Create an empty database at `path`, whole or not at all; an existing file stays as it is."""
    make_folder(path.parent)
    with new_file(path) as draft:
        connection = sqlite3.connect(draft, isolation_level=None)
        try:
            # A draft that a crash leaves behind is deleted, so it needs no journal and one sync at its end.
            connection.execute("PRAGMA synchronous = OFF")
            connection.execute("PRAGMA journal_mode = OFF")
            create_tables(connection)
            stamp(connection)
            connection.execute("PRAGMA journal_mode = WAL")
        finally:
            connection.close()
        sync(draft)


def create_tables(connection: sqlite3.Connection) -> None:
    """Create all tables. Call it before WAL mode is on, so that the first page has the file's marks."""
    # SQLite accepts these two only before the first table exists, and the page size must come first.
    connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")  # lets `shrink` return free pages
    connection.executescript(f"BEGIN; {TABLES} {_INDEXES} {_TAILS} {_CODECS} COMMIT;")
    _save_identity(connection)
    _save_schema(connection)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def format_of(connection: sqlite3.Connection) -> int:
    """Return the format version of an open file."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return int(version)


def migrate(connection: sqlite3.Connection) -> None:
    """Bring a file to the current format, inside a write transaction of the caller.

    No row of a memory is rewritten: new columns have default values. Indexes are made anew. If the process
    is killed, SQLite rolls the transaction back, and the file keeps its old format."""
    version = format_of(connection)
    if version >= FORMAT_VERSION:
        return  # another process has migrated it
    if version < 2:
        _migrate_to_2(connection)
    if version < 3:
        _execute_all(connection, _FROM_FORMAT_2 + _INDEXES)
    _execute_all(connection, _FROM_FORMAT_3 + _TAILS)
    _save_schema(connection)
    connection.execute(f"PRAGMA user_version = {FORMAT_VERSION}")


def _migrate_to_2(connection: sqlite3.Connection) -> None:
    _execute_all(connection, _FROM_FORMAT_1 + _CODECS)
    for number, purpose, data in connection.execute(
        "SELECT number, purpose, data FROM codecs_1 WHERE number > 15 ORDER BY number"
    ).fetchall():
        connection.execute(
            "INSERT INTO codecs (number, purpose, digest, data) VALUES (?, ?, ?, ?)",
            (number, purpose, codec_digest(purpose, data), data),
        )
    connection.execute("DROP TABLE codecs_1")
    connection.execute("INSERT INTO settings (name, value) VALUES ('migrated', '1')")
    _save_identity(connection)


def _execute_all(connection: sqlite3.Connection, statements: str) -> None:
    """Execute statements in the caller's transaction; `executescript` would commit it."""
    for statement in statements.split(";"):
        connection.execute(statement)


def _save_schema(connection: sqlite3.Connection) -> None:
    """Store the format and a digest of all definitions, for `check_schema`."""
    connection.execute(
        "INSERT INTO settings (name, value) VALUES (?, ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (_SCHEMA, f"{FORMAT_VERSION} {_schema_digest(connection)}"),
    )


def check_schema(connection: sqlite3.Connection, path: Path | None) -> None:
    """Raise StoreCorrupt if a definition of a table or an index, or the number of the format, has changed.

    A changed byte there could make an index or a default value mean something else. Raises StoreTooNew for
    a newer format, which has other definitions: `check_file` does not see a format that is in the log."""
    version = format_of(connection)
    if version > FORMAT_VERSION:
        raise StoreTooNew(too_new(path, version))
    names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    if not {"agents", "memories", "changes", "codecs", "settings"} <= names:
        raise StoreCorrupt(f"{path} lacks tables of an AgentMemory database: restore it from a copy")
    found = connection.execute("SELECT value FROM settings WHERE name = ?", (_SCHEMA,)).fetchone()
    if found is None and version < 4:
        return
    if found is None or found[0] != f"{version} {_schema_digest(connection)}":
        raise StoreCorrupt(
            f"{path} is damaged (the definitions of its tables have changed): restore it from a copy"
        )


def _schema_digest(connection: sqlite3.Connection) -> str:
    found = connection.execute(
        "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY name, type"
    ).fetchall()
    own = [row for row in found if row[1] in _NAMES]
    return blake2b(repr(own).encode(), digest_size=16).hexdigest()


def codec_digest(purpose: object, data: object) -> bytes:
    """Return the digest that is stored with a codec. In a damaged file both values can be anything."""
    data = data if isinstance(data, bytes) else repr(data).encode()
    return blake2b(f"{purpose}\0".encode() + data, digest_size=16).digest()


def _save_identity(connection: sqlite3.Connection) -> None:
    """Give the file a random identity, to distinguish it from any other file at the same path."""
    connection.execute(
        "INSERT INTO settings (name, value) VALUES ('identity', ?) ON CONFLICT DO NOTHING",
        (os.urandom(16).hex(),),
    )


def check_file(path: Path) -> None:
    """Raise StoreCorrupt or StoreTooNew for a file that can't be opened; change nothing.

    SQLite reads the file here, without locks and without the log. Opening and closing the file directly
    would release all locks that this process has on it (https://sqlite.org/howtocorrupt.html).
    """
    while True:
        size = path.stat().st_size
        try:
            return _check_once(path)
        except StoreCorrupt:
            # Another process may have changed the length between two reads: then check again.
            if path.stat().st_size == size:
                raise


def _check_once(path: Path) -> None:
    hint = "set ltm_config.db_path to another path, or restore the file from a copy"
    if path.stat().st_size == 0:
        raise StoreCorrupt(f"{path} is empty, not an AgentMemory database: {hint}")
    try:
        connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro&immutable=1", uri=True)
        try:
            (application_id,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            (pages,) = connection.execute("PRAGMA page_count").fetchone()
            (page_size,) = connection.execute("PRAGMA page_size").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as problem:
        code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
        if code == sqlite3.SQLITE_CANTOPEN:
            raise
        if code == sqlite3.SQLITE_CORRUPT and _has_log(path):
            return  # the missing pages may be in the log, which is read when the file is opened
        reason = "is truncated or damaged" if code == sqlite3.SQLITE_CORRUPT else "is not a database"
        raise StoreCorrupt(f"{path} {reason}: {hint}") from None
    if application_id != APPLICATION_ID:
        raise StoreCorrupt(f"{path} is the SQLite database of another program: {hint}")
    if version > FORMAT_VERSION:
        raise StoreTooNew(too_new(path, version))
    if path.stat().st_size < pages * page_size and not _has_log(path):
        raise StoreCorrupt(f"{path} is truncated: {hint}")


def too_new(path: Path | None, version: int) -> str:
    """Return the message for a file of a newer format."""
    return f"{path} has format {version}, this version reads up to {FORMAT_VERSION}: upgrade the package"


def _has_log(path: Path) -> bool:
    log = Path(f"{path}-wal")
    return log.exists() and log.stat().st_size > 0
