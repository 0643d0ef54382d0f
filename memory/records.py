"""Short-term memories by id, served from the process's own RAM, and who was read how often."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

import msgspec

from memory.entry import MemoryEntry, Tier
from memory.storage import MemoryStore

_encode = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(MemoryEntry).decode
_OVERHEAD = 250  # bytes of Python objects around one cached record


class AgentRecords:
    """Encoded entries of one agent, good while the agent's pulse is the one they were read under.

    They are kept encoded and decoded anew for each reader: what a caller does to the content it was
    given then stays with that caller, and no entry needs to be copied.
    """

    __slots__ = ("entries", "pulse", "size", "uses", "watch")

    def __init__(self, watch: Callable[[], int], pulse: int) -> None:
        self.watch = watch
        self.pulse = pulse
        self.entries: dict[str, tuple[bytes, int]] = {}
        self.uses: dict[int, int] = {}
        self.size = 0


class RecordCache:
    """Records by agent; the agents whose records were made first go first when it gets too large."""

    def __init__(self, store: MemoryStore, budget_bytes: int) -> None:
        self.agents: OrderedDict[str, AgentRecords] = OrderedDict()
        self._store = store
        self._budget = budget_bytes
        self._size = 0
        self._lock = threading.Lock()
        self._other_uses: dict[str, dict[int, int]] = {}
        self.reads = dict.fromkeys(Tier, 0)

    def moment(self, agent: str) -> int | None:
        """Ask before reading from the store; give it to `keep` with what was read."""
        watch = self._store.watch(agent)
        pulse = watch() if watch is not None else 1
        return None if pulse & 1 else pulse

    def keep(self, entry: MemoryEntry, seq: int, moment: int | None) -> None:
        """Remember an stm entry that was read (or stored) after `moment`, if nothing changed since."""
        watch = self._store.watch(entry.agent_id)
        if moment is None or watch is None:
            return
        with self._lock:
            records = self.agents.get(entry.agent_id)
            if records is None or records.pulse != moment:
                self._forget(entry.agent_id)
                records = self.agents[entry.agent_id] = AgentRecords(watch, moment)
            if watch() != moment:
                return
            try:
                encoded = _encode(entry)
            except (OverflowError, UnicodeEncodeError, TypeError):
                return  # content that only JSON can hold is rare: read it from the store
            records.entries[entry.id] = (encoded, seq)
            records.size += len(encoded) + _OVERHEAD
            self._size += len(encoded) + _OVERHEAD
            while self._size > self._budget and len(self.agents) > 1:
                self._forget(next(iter(self.agents)))
            if self._size > self._budget:
                self._forget(entry.agent_id)

    def used(self, agent: str, seq: int, tier: Tier) -> None:
        """Count one reading of a memory that was not served from here."""
        self.reads[tier] += 1
        uses = self._other_uses.setdefault(agent, {})
        uses[seq] = uses.get(seq, 0) + 1

    def take_uses(self) -> dict[str, dict[int, int]]:
        """All readings since the last call, by agent and seq."""
        with self._lock:
            taken, self._other_uses = self._other_uses, {}
            for agent, records in self.agents.items():
                self._merge(taken, agent, records)
            return taken

    @property
    def nbytes(self) -> int:
        return self._size

    def drop(self, agent: str | None = None) -> None:
        with self._lock:
            for name in [agent] if agent is not None else list(self.agents):
                self._forget(name)

    def _forget(self, agent: str) -> None:
        records = self.agents.pop(agent, None)
        if records is not None:
            self._size -= records.size
            self._merge(self._other_uses, agent, records)

    def _merge(
        self, into: dict[str, dict[int, int]], agent: str, records: AgentRecords
    ) -> None:
        uses, records.uses = records.uses, {}
        held = into.setdefault(agent, {}) if uses else {}
        for seq, count in uses.items():
            held[seq] = held.get(seq, 0) + count
            self.reads[Tier.STM] += count
