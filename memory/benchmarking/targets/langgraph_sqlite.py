"""LangGraph's `SqliteStore`: one SQLite file, with the vectors in sqlite-vec.

Its settings are SQLite's own: a rollback journal, synced at every commit.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from memory.benchmarking.errors import MissingDependency
from memory.benchmarking.targets.base import Capabilities, Settings
from memory.benchmarking.targets.langgraph_store import STATES, TEXT_BY_TEXT, LangGraphMemoryTarget


class LangGraphSQLiteTarget(LangGraphMemoryTarget):
    name = "langgraph-sqlite"
    requirements = ("langgraph-checkpoint-sqlite>=3.0.1", "pysqlite3-binary>=0.5; sys_platform == 'linux'")
    distributions = ("langgraph-checkpoint-sqlite", "langgraph-checkpoint", "sqlite-vec")
    capabilities = Capabilities(durability="machine", threads=True)
    limits = (
        "Needs an SQLite that loads extensions; where Python's own does not, pysqlite3 is used. "
        f"Search compares the vectors of all items of the agent. {STATES}"
    )

    _fields = TEXT_BY_TEXT

    def open(self, folder: Path, settings: Settings | None = None) -> None:
        from langgraph.store.sqlite import SqliteStore

        # The settings of SqliteStore.from_conn_string, which can't use another sqlite3 module.
        self._connection = _sqlite_with_extensions().connect(
            str(folder / "store.db"), check_same_thread=False, isolation_level=None
        )
        self.store = SqliteStore(self._connection, index=self._index())
        self.store.setup()

    def close(self) -> None:
        self._connection.close()

    def _batches(self, puts: Sequence[Any]) -> list[list[Any]]:
        return [list(puts)] if puts else []


def _sqlite_with_extensions() -> Any:
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    try:
        import pysqlite3
    except ImportError:
        raise MissingDependency(
            "this Python's sqlite3 can't load sqlite-vec: pip install pysqlite3-binary"
        ) from None
    return pysqlite3
