"""A tiered memory for agents: no server, nothing acknowledged is lost, what is stored is found.

The names below are loaded when they are first used, so that `import memory` (and with it the
command line of `memory.benchmarking`) stays quick.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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

_HOMES = {
    "AgentMemory": "memory.agent",
    "AgentMemoryError": "memory.errors",
    "AgentMemorySystem": "memory.system",
    "Hit": "memory.entry",
    "ManualClock": "memory.clock",
    "MemoryConfig": "memory.config",
    "MemoryEntry": "memory.entry",
    "MemoryHooks": "memory.hooks",
    "SystemClock": "memory.clock",
    "Tier": "memory.entry",
    "with_memory": "memory.hooks",
}

__all__ = sorted(_HOMES)
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'memory' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
