"""Stores the memories of invocations that end at the same time in one commit.

Hundreds of invocations that wait for their models often end in bursts. Storing their memories one
invocation after the other needs a commit and an index update for each of them. A batch needs only one
commit and one index update.
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
    """Stores the memories of all invocations of a runtime, in one batch for each event loop."""

    def __init__(self, memory: AgentMemorySystem) -> None:
        self._memory = memory
        self._waiting: dict[asyncio.AbstractEventLoop, _Waiting] = {}

    async def add(self, entries: Entries) -> AgentMemoryError | None:
        """Store the entries together with those of other invocations. Return the error if that fails."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[AgentMemoryError | None] = loop.create_future()
        waiting = self._waiting.setdefault(loop, [])
        waiting.append((entries, done))
        if len(waiting) == 1:
            loop.call_soon(self._store, loop)  # `_store` runs after all tasks that are ready now
        return await done

    def _store(self, loop: asyncio.AbstractEventLoop) -> None:
        waiting = self._waiting.pop(loop)
        try:
            self._memory.add_many([entry for entries, _ in waiting for entry in entries])
        except Exception:
            # One invalid entry must not prevent the others from being stored.
            for entries, done in waiting:
                self._store_one(entries, done)
            return
        for _, done in waiting:
            if not done.done():
                done.set_result(None)

    def _store_one(self, entries: Entries, done: asyncio.Future[AgentMemoryError | None]) -> None:
        if done.done():  # the invocation was cancelled, and has stored its memories itself
            return
        try:
            done.set_result(store(self._memory, entries))
        except Exception as problem:
            done.set_exception(problem)


def store(memory: AgentMemorySystem, entries: Entries) -> AgentMemoryError | None:
    """Store the entries, all or none. Return the error if that fails."""
    try:
        memory.add_many(entries)
    except AgentMemoryError as problem:
        return problem
    return None
