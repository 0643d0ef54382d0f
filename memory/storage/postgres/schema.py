"""The tables of a memory in one schema of a database, and the check that a schema is ours.

The tables are created and migrated by numbered steps, in one transaction, while an advisory lock is held.
A schema of a newer version, or of another program, is refused and not changed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from hashlib import blake2b

from memory.errors import StoreCorrupt, StoreReadOnly, StoreTooNew
from memory.storage.postgres.address import Address
from memory.storage.postgres.wire import ServerError, Statement, Wire, rows_of

_CREATE = """
CREATE TABLE @settings (name text COLLATE "C" PRIMARY KEY, value text NOT NULL);
CREATE TABLE @agents (
    no integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key bytea NOT NULL UNIQUE,                -- hash of the name
    name text COLLATE "C",                    -- NULL for an agent without memories
    last_seq bigint NOT NULL DEFAULT 0,
    last_change bigint NOT NULL DEFAULT 0,    -- changes in the log so far
    version bigint NOT NULL DEFAULT 0,        -- grows with every change to existing rows
    stm bigint NOT NULL DEFAULT 0,            -- memories in each tier
    im bigint NOT NULL DEFAULT 0,
    ltm bigint NOT NULL DEFAULT 0,
    evicted bigint NOT NULL DEFAULT 0,
    unsettled bigint NOT NULL DEFAULT 0,      -- the first seq that maintenance may encode again; 0: none
    settled_codec integer NOT NULL DEFAULT 0  -- the newest codec when all rows had their final form
) WITH (fillfactor = 40);
CREATE TABLE @memories (
    agent integer NOT NULL,
    seq bigint NOT NULL,
    tier smallint NOT NULL,
    id text COLLATE "C" NOT NULL,
    kind text COLLATE "C" NOT NULL,
    step bigint,
    created_at double precision NOT NULL,
    importance double precision NOT NULL,
    stored_at double precision NOT NULL,
    dated boolean NOT NULL,
    revision integer NOT NULL,
    digest bigint NOT NULL,
    session bigint,
    fixed_sum integer NOT NULL,               -- checksums; see row_format.py
    body_sum integer NOT NULL,
    features_sum integer NOT NULL,
    body_codec integer NOT NULL,
    terms_codec integer NOT NULL,
    vector_codec integer NOT NULL,
    body bytea NOT NULL,
    terms bytea NOT NULL,
    vector bytea NOT NULL,
    fine bytea,
    CONSTRAINT memories_by_seq PRIMARY KEY (agent, seq),
    CONSTRAINT memories_by_id UNIQUE (agent, id)
) WITH (toast_tuple_target = 8160);
CREATE INDEX memories_by_time ON @memories (agent, created_at, seq);
CREATE INDEX memories_by_step ON @memories (agent, step, seq) WHERE step IS NOT NULL;
CREATE INDEX memories_by_age ON @memories (tier, stored_at) WHERE tier < 2;
CREATE TABLE @changes (                       -- changes to existing rows, by agent
    agent integer NOT NULL,
    number bigint NOT NULL,
    kind smallint NOT NULL,
    tier smallint,
    seqs bigint[] NOT NULL,
    rows bigint NOT NULL,                     -- how many rows it changed
    operation bytea NOT NULL,                 -- identifies the call, for a retry after a lost connection
    PRIMARY KEY (agent, number)
);
CREATE TABLE @uses (
    agent integer NOT NULL,
    seq bigint NOT NULL,
    uses bigint NOT NULL,
    PRIMARY KEY (agent, seq)
);
CREATE TABLE @codecs (
    number integer PRIMARY KEY,
    purpose text COLLATE "C" NOT NULL,
    digest bytea NOT NULL,                    -- of purpose and data
    trained_on bigint NOT NULL,               -- memories at that time
    deleted bigint NOT NULL,                  -- how many of its samples were deleted since
    writable boolean NOT NULL,                -- false: replaced, and only kept until no row uses it
    data bytea NOT NULL
);
CREATE TABLE @samples (                       -- the memories that a codec was trained on
    agent integer NOT NULL,
    seq bigint NOT NULL,
    codec integer NOT NULL,
    PRIMARY KEY (agent, seq, codec)
);
"""
_INDEXES = """
CREATE TABLE @indexes (                       -- saved search indexes
    agent integer PRIMARY KEY,
    token text COLLATE "C" NOT NULL,          -- the one that the data begins with
    last_seq bigint NOT NULL,                 -- the state of the agent that the data holds
    last_change bigint NOT NULL,
    checksum integer NOT NULL                 -- of the three columns above
);
CREATE TABLE @index_parts (                   -- their data; one part fills one page
    agent integer NOT NULL,
    part integer NOT NULL,
    data bytea NOT NULL,
    PRIMARY KEY (agent, part)
) WITH (toast_tuple_target = 8160);
ALTER TABLE @index_parts ALTER COLUMN data SET STORAGE EXTERNAL;
"""
# Content is compressed already. PostgreSQL 13 to 15 can set the storage only after the table was made.
_STORAGE = "".join(
    f"ALTER TABLE @{table} ALTER COLUMN {column} SET STORAGE EXTERNAL;\n"
    for table, columns in (("memories", "body terms vector fine"), ("codecs", "data"))
    for column in columns.split()
)


@dataclass(frozen=True)
class Layout:
    """The tables of one kind of data."""

    application: str
    """The mark in the table of settings, by which a schema is known as ours."""
    steps: tuple[str, ...]
    """Step n brings a schema from format n to format n + 1."""

    @property
    def version(self) -> int:
        return len(self.steps)


MEMORIES = Layout("agentmemory", (_CREATE + _STORAGE, _INDEXES))
TABLES = (
    "settings",
    "agents",
    "memories",
    "changes",
    "uses",
    "codecs",
    "samples",
    "indexes",
    "index_parts",
)

_LOOK = Statement(
    "SELECT to_regnamespace($1) IS NOT NULL,"
    " (SELECT count(*) FROM pg_class WHERE relnamespace = to_regnamespace($1)),"
    " to_regclass($1 || '.settings') IS NOT NULL",
    "t",
)
_TABLE_NAMES = Statement(
    "SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace($1) AND relkind = 'r'", "t"
)
_RIGHTS = Statement(
    "SELECT DISTINCT r.privilege_type,"
    " CASE r.grantee WHEN 0 THEN 'PUBLIC' ELSE r.grantee::regrole::text END"
    " FROM pg_class c, aclexplode(c.relacl) r"
    " WHERE c.oid = to_regclass($1 || '.settings') AND r.grantee <> c.relowner",
    "t",
)
_MARKS = Statement("SELECT name, value FROM @settings WHERE name IN ('application', 'format')")
_LOCK = Statement("SELECT pg_advisory_xact_lock($1)", "q")
_SAVE = Statement(
    "INSERT INTO @settings (name, value) VALUES ($1, $2)"
    " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
    "tt",
)


def lock_number(schema: str, purpose: str) -> int:
    """Return the number of an advisory lock: 63 bits of a hash, so that no other program uses it."""
    name = f"agentmemory {purpose} {schema}".encode()
    return int.from_bytes(blake2b(name, digest_size=8).digest()) >> 1


def prepare(wire: Wire, address: Address, *, read_only: bool, layout: Layout = MEMORIES) -> None:
    """Create or migrate the tables if necessary.

    Raises StoreCorrupt or StoreTooNew for a schema that can't be used; then nothing is changed."""
    version = _format_of(wire, address, layout)
    if version == layout.version:
        return
    if read_only:
        state = "has no memory" if version == 0 else f"has format {version}, which is older"
        raise StoreReadOnly(f"{address} {state}: open it once without read_only")
    wire.command("BEGIN")
    try:
        wire.run(_LOCK, lock_number(address.schema, "format"))
        version = _format_of(wire, address, layout)  # another host may have done it meanwhile
        if version == 0 and not rows_of(wire.run(_LOOK, address.quoted_schema), "?q?")[0][0]:
            wire.command(f"CREATE SCHEMA {address.quoted_schema}")
        before = _tables(wire, address)
        for step in layout.steps[version:]:
            for statement in step.split(";\n"):
                if statement.strip():
                    wire.command(statement)
        if version:
            _share_rights(wire, address, _tables(wire, address) - before)
        if version == 0:
            wire.run(_SAVE, "application", layout.application)
            wire.run(_SAVE, "identity", os.urandom(16).hex())
        wire.run(_SAVE, "format", str(layout.version))
        wire.command("COMMIT")
    except ServerError as problem:
        wire.command("ROLLBACK")
        if problem.sqlstate == "42501":
            raise StoreReadOnly(
                f"the role may not create tables in {address}: let the owner of the database open the "
                "memory once, then grant rights as docs/postgres.md shows"
            ) from None
        raise
    except BaseException:
        if not wire.is_broken:
            wire.command("ROLLBACK")
        raise


def _tables(wire: Wire, address: Address) -> set[str]:
    return {name for (name,) in rows_of(wire.run(_TABLE_NAMES, address.quoted_schema), "t")}


def _share_rights(wire: Wire, address: Address, tables: set[str]) -> None:
    """Grant on new tables what is granted on the table of settings, so that other roles can go on."""
    for right, role in rows_of(wire.run(_RIGHTS, address.quoted_schema), "tt"):
        for table in sorted(tables):
            wire.command(f"GRANT {right} ON @{table} TO {role}")


def _format_of(wire: Wire, address: Address, layout: Layout) -> int:
    """Return the format of the schema, 0 for one that is empty or does not exist."""
    encoding = wire.server_encoding
    if encoding != "UTF8":
        raise StoreCorrupt(f"{address} has the encoding {encoding}: create a database with UTF8")
    (_, relations, has_settings) = rows_of(wire.run(_LOOK, address.quoted_schema), "?q?")[0]
    if not relations:
        return 0
    marks: dict[str, str] = {}
    if has_settings:
        try:
            marks = dict(rows_of(wire.run(_MARKS), "tt"))
        except ServerError as problem:
            if problem.sqlstate == "42501":
                raise StoreReadOnly(
                    f"the role may not read {address}: grant it rights as docs/postgres.md shows"
                ) from None
            marks = {}  # another program's table of the same name
    if marks.get("application") != layout.application or not marks.get("format", "").isdecimal():
        raise StoreCorrupt(f"{address} has tables of another program: add ?schema=another_name to the URL")
    version = int(marks["format"])
    if version > layout.version:
        raise StoreTooNew(
            f"{address} has format {version}, this version reads up to {layout.version}: "
            "upgrade the package"
        )
    return version
