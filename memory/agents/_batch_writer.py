"""Memories of invocations that end at the same moment of an event loop, stored in one commit.

Hundreds of invocations that wait for their models end in bursts. Storing what each of them leaves behind by
itself costs as many commits, and as many times the index takes something in; together it is one of each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memory.errors import AgentMemoryError

if TYPE_CHECKING:
    from memory.system import AgentMemorySystem

Entries = Sequence[Mapping[str, Any]]
_Waiting = list[tuple[Entries, "asyncio.Future[AgentMemoryError | None]"]]


class BatchWriter:
    """One for all invocations of a runtime, whichever event loops they run in."""

    def __init__(self, memory: AgentMemorySystem) -> None:
        self._memory = memory
        self._waiting: dict[asyncio.AbstractEventLoop, _Waiting] = {}

    async def add(self, entries: Entries) -> AgentMemoryError | None:
        """Store these, with those of whoever else is ready now; or why that failed."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[AgentMemoryError | None] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        waiting.append((entries, done))
        if len(waiting) == 1:
            loop.call_soon(self._store, loop)  # after all that is ready to run before it
        return await done

    def _store(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop)
        try:
            self._memory.add_many([entry for entries, _ in waiting for entry in entries])
        except Exception:
            # One that can't be stored must not keep out the others.
            for entries, done in waiting:
                self._store_one(entries, done)
            return
        for _, done in waiting:
            if not done.done():
                done.set_result(None)

    def _store_one(self, entries: Entries, done: asyncio.Future[AgentMemoryError | None]) -> None:
        if done.done():  # its invocation was cancelled, and has stored its memories itself
            return
        try:
            done.set_result(store(self._memory, entries))
        except Exception as problem:
            done.set_exception(problem)


def store(memory: AgentMemorySystem, entries: Entries) -> AgentMemoryError | None:
    """Store these, all or none; or why that failed."""
    try:
        memory.add_many(entries)
    except AgentMemoryError as problem:
        return problem
    return None
