"""VACUUM of the memory's tables by maintenance, so that updates do not fill the server's disk.

The server's autovacuum does the same, but it looks only once a minute, and can be turned off. A plain
VACUUM blocks neither readers nor writers. It must run outside of a transaction, which also works behind a
pooler.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from memory.storage.postgres.changes import PostgresChanges
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.schema import TABLES
from memory.storage.postgres.wire import ServerError, Statement, rows_of

_log = logging.getLogger(__name__)

_MIN_DEAD, _DEAD_SHARE = 50, 20
"""`maintain()` vacuums a table with more dead rows than 50 and 1/20 of its rows."""
_MIN_DEAD_IN_BACKGROUND, _DEAD_SHARE_IN_BACKGROUND = 1000, 5
"""The background thread leaves small and fresh work to autovacuum, which starts at 50 and 1/5."""
_FIRST_WITH_MAINTAIN = 170_000
"""PostgreSQL 17 has a right for it. Earlier versions let only the owner of a table vacuum it."""
_OF_CHANGES = ("memories", "samples")
"""The tables from which a change of a memory removes old rows."""


def _tables(may_vacuum: str) -> Statement:
    return Statement(
        "SELECT relname::text, pg_stat_get_dead_tuples(oid), pg_stat_get_live_tuples(oid),"
        f" {may_vacuum} OR pg_has_role(d.datdba, 'USAGE') FROM pg_class,"
        " (SELECT datdba FROM pg_database WHERE datname = current_database()) d"
        " WHERE relnamespace = to_regnamespace($1) AND relkind = 'r' AND relname = ANY($2)",
        "tT",
    )


_BY_OWNER = _tables("pg_has_role(relowner, 'USAGE')")
_BY_RIGHT = _tables("has_table_privilege(oid, 'MAINTAIN')")


class Vacuum:
    """Runs VACUUM on tables with many dead rows."""

    def __init__(self, pool: Pool, changes: PostgresChanges, schema: str) -> None:
        self._pool = pool
        self._changes = changes
        self._schema = schema
        self._has_warned = False

    def run(self, *, always: Collection[str] = (), in_background: bool = False) -> None:
        """Vacuum the tables with many dead rows, and those of `always`, as far as the role may do it."""
        own_changes = self._changes.changed_rows
        with self._pool.hold() as wire:
            statement = _BY_RIGHT if wire.server_version >= _FIRST_WITH_MAINTAIN else _BY_OWNER
            found = rows_of(wire.run(statement, self._schema, TABLES), "tqq?")
            refused = []
            for table, dead, live, may_vacuum in found:
                if table in _OF_CHANGES:
                    # A connection reports its changes up to ten seconds later. A crash loses the counts.
                    dead = max(dead, own_changes)
                if table not in always and not _are_many(dead, live, in_background=in_background):
                    continue
                if not may_vacuum:
                    refused.append(table)
                    continue
                try:
                    wire.command(f"VACUUM (SKIP_LOCKED) @{table}")
                except ServerError as problem:
                    # Such as a statement_timeout. The rest of the maintenance does not depend on it.
                    _log.warning("maintenance could not vacuum the table %s: %s", table, problem)
                    continue
                if table == "memories":
                    self._changes.changed_rows -= own_changes
        if refused and not self._has_warned:
            self._has_warned = True
            _log.warning(
                "the role may not vacuum %s, so deleted rows take space until autovacuum runs: let the "
                "owner of the tables run maintain(), or grant MAINTAIN (PostgreSQL 17)",
                ", ".join(sorted(refused)),
            )


def _are_many(dead: int, live: int, *, in_background: bool) -> bool:
    if in_background:
        return dead > _MIN_DEAD_IN_BACKGROUND + live // _DEAD_SHARE_IN_BACKGROUND
    return dead > _MIN_DEAD + live // _DEAD_SHARE
