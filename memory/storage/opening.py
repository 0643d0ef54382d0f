"""Opens the store that a configuration names: a file, RAM, or a PostgreSQL server."""

from __future__ import annotations

from memory.config import MemoryConfig
from memory.errors import InvalidConfig
from memory.storage.base import MemoryStore


def open_store(config: MemoryConfig) -> MemoryStore:
    """Open or create the store of a valid configuration."""
    if config.is_on_server:
        return _open_postgres(config)
    from memory.storage.sqlite import SQLiteStore

    return SQLiteStore(
        None if config.is_in_memory else config.path,
        disk=config.durability == "disk",
        busy_timeout=config.busy_timeout_seconds,
        read_only=config.read_only,
        copies_log=config.maintenance == "background",
    )


def _open_postgres(config: MemoryConfig) -> MemoryStore:
    try:
        from memory.storage.postgres.store import PostgresStore
    except ImportError as problem:
        raise InvalidConfig(
            f"a memory on PostgreSQL needs psycopg ({problem}): pip install 'agentmemory-tiers[postgres]'"
        ) from None
    return PostgresStore(
        str(config.ltm_config.db_path),
        busy_timeout=config.busy_timeout_seconds,
        read_only=config.read_only,
        most_connections=config.server_connections,
        freshness_seconds=config.freshness_seconds,
    )
