"""One schema a store, on a PostgreSQL server that the benchmark did not start.

A schema's comment names the machine and the folder. `drop_schema` drops it. Schemas whose folder is gone,
because a process was killed, are dropped at the next open.
"""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any
from uuid import uuid4

_PREFIX = "membench_"
_FILE = "schema.json"
"""The file in a store's folder that names the folder and its schema."""
_LOCK = 0x6D656D62
"""The advisory lock that is held while schemas are dropped: any fixed number."""


def use_schema(db: Any, folder: Path) -> str | None:
    """Make the schema of a folder the current one, and create it if it is new.

    Args:
        db: an open connection of psycopg.
        folder: the store's folder.

    Returns:
        The schema of the folder that this one was copied from, if it is a copy opened for the first time.
    """
    _drop_abandoned_schemas(db)
    file = folder / _FILE
    known = json.loads(file.read_text()) if file.exists() else {}
    if known.get("folder") == str(folder):
        schema = str(known["schema"])
        db.execute(f"SET search_path = {schema}, public")
        return None
    schema = f"{_PREFIX}{uuid4().hex}"
    owner = json.dumps({"host": socket.gethostname(), "folder": str(folder)})
    with db.transaction():
        db.execute(f"CREATE SCHEMA {schema}")
        db.execute(f"COMMENT ON SCHEMA {schema} IS {_quoted(owner)}")
    file.write_text(json.dumps({"folder": str(folder), "schema": schema}))
    db.execute(f"SET search_path = {schema}, public")
    return known.get("schema")


def require_durable(db: Any) -> None:
    """Make every commit of this connection wait for the disk; refuse a server that does not sync."""
    (fsync,) = db.execute("SHOW fsync").fetchone()
    if fsync != "on":
        raise RuntimeError("the PostgreSQL server has fsync=off: its writes are not durable; set fsync=on")
    db.execute("SET synchronous_commit = on")


def drop_schema(db: Any, folder: Path) -> None:
    """Drop the schema of a folder; a folder without one is no error."""
    file = folder / _FILE
    known = json.loads(file.read_text()) if file.exists() else {}
    if known.get("folder") == str(folder):
        db.execute(f"DROP SCHEMA IF EXISTS {known['schema']} CASCADE")


def _drop_abandoned_schemas(db: Any) -> None:
    """Drop the schemas of this machine whose folder is gone."""
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
        rows = db.execute(
            "SELECT nspname, obj_description(oid, 'pg_namespace') FROM pg_namespace"
            " WHERE starts_with(nspname, %s)",
            (_PREFIX,),
        ).fetchall()
        for schema, comment in rows:
            owner = json.loads(comment or "{}")
            if owner.get("host") == socket.gethostname() and not Path(owner["folder"]).exists():
                db.execute(f"DROP SCHEMA {schema} CASCADE")


def _quoted(text: str) -> str:
    """Return an SQL literal; COMMENT takes no parameters."""
    return "'" + text.replace("'", "''") + "'"
