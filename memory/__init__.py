"""A tiered, durable, searchable memory for agents, embedded in your process.

The names below are imported on first use, so that `import memory` and the command line of
`memory.benchmarking` start fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from memory._base.lazy import lazy_names

if TYPE_CHECKING:
    from memory.agent import AgentMemory as AgentMemory
    from memory.clock import ManualClock as ManualClock
    from memory.clock import SystemClock as SystemClock
    from memory.config import MemoryConfig as MemoryConfig
    from memory.entry import Hit as Hit
    from memory.entry import MemoryEntry as MemoryEntry
    from memory.entry import Tier as Tier
    from memory.errors import AgentMemoryError as AgentMemoryError
    from memory.hooks import MemoryHooks as MemoryHooks
    from memory.hooks import with_memory as with_memory
    from memory.system import AgentMemorySystem as AgentMemorySystem
    from memory.system import Reranker as Reranker

_HOMES = {
    "AgentMemory": "agent",
    "AgentMemoryError": "errors",
    "AgentMemorySystem": "system",
    "Hit": "entry",
    "ManualClock": "clock",
    "MemoryConfig": "config",
    "MemoryEntry": "entry",
    "MemoryHooks": "hooks",
    "Reranker": "system",
    "SystemClock": "clock",
    "Tier": "entry",
    "with_memory": "hooks",
}

__all__ = sorted(_HOMES)
__version__ = "0.2.0"
__getattr__, __dir__ = lazy_names(__name__, _HOMES)
