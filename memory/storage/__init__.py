"""Where memories are kept: one interface, and the embedded SQLite store behind it."""

from memory.storage.base import (
    NO_SESSION,
    NO_STEP,
    AgentState,
    Change,
    ChangeKind,
    Features,
    IndexColumns,
    MemoryStore,
    Move,
    Record,
    Row,
    StoredCodec,
)
from memory.storage.sqlite import SQLiteStore

__all__ = [
    "NO_SESSION",
    "NO_STEP",
    "AgentState",
    "Change",
    "ChangeKind",
    "Features",
    "IndexColumns",
    "MemoryStore",
    "Move",
    "Record",
    "Row",
    "SQLiteStore",
    "StoredCodec",
]
