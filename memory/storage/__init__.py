"""Where memories are kept: one interface, an embedded SQLite store, and a store on PostgreSQL.

The names below are loaded when they are first used: the session store needs only `connections`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory._base.lazy import lazy_names

if TYPE_CHECKING:
    from memory.storage.base import NO_SESSION as NO_SESSION
    from memory.storage.base import NO_STEP as NO_STEP
    from memory.storage.base import AgentState as AgentState
    from memory.storage.base import Change as Change
    from memory.storage.base import ChangeKind as ChangeKind
    from memory.storage.base import Features as Features
    from memory.storage.base import IndexColumns as IndexColumns
    from memory.storage.base import MemoryStore as MemoryStore
    from memory.storage.base import Move as Move
    from memory.storage.base import Record as Record
    from memory.storage.base import Row as Row
    from memory.storage.base import Sample as Sample
    from memory.storage.base import StoredCodec as StoredCodec
    from memory.storage.opening import open_store as open_store
    from memory.storage.sqlite import SQLiteStore as SQLiteStore

_BASE = (
    "NO_SESSION NO_STEP AgentState Change ChangeKind Features IndexColumns MemoryStore Move Record Row"
    " Sample StoredCodec"
)
_HOMES = dict.fromkeys(_BASE.split(), "base") | {"SQLiteStore": "sqlite", "open_store": "opening"}

__all__ = sorted(_HOMES)
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
