"""Where memories are kept: one interface, and the embedded SQLite store behind it."""

from memory.storage.base import (
    AgentState,
    Change,
    ChangeKind,
    IndexRow,
    MemoryStore,
    Move,
    Record,
    Row,
    StoredCodec,
)
from memory.storage.sqlite import SQLiteStore

__all__ = [
    "AgentState",
    "Change",
    "ChangeKind",
    "IndexRow",
    "MemoryStore",
    "Move",
    "Record",
    "Row",
    "SQLiteStore",
    "StoredCodec",
]
