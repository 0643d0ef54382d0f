"""Short-term memories by id, served from the process's own RAM, and who was read how often."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable

import msgspec

from memory.entry import MemoryEntry, Tier
from memory.storage import MemoryStore

_encode = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(MemoryEntry).decode
_OVERHEAD = 300  # bytes of Python objects around one cached record
_NEVER = 1  # a moment under which nothing is kept


class AgentRecords:
    """Encoded entries of one agent, good while the agent's pulse is the one they were read under.

    They are kept encoded and decoded anew for each reader: what a caller does to the content it was
    given then stays with that caller, and no entry needs to be copied.
    """

    __slots__ = ("encoded", "pulse", "seqs", "size", "uses", "watch")

    def __init__(self, watch: Callable[[], int]) -> None:
        self.watch = watch
        self.pulse = watch()
        self.seqs: dict[str, int] = {}
        self.encoded: dict[int, bytes] = {}
        self.uses: dict[int, int] = {}
        self.size = 0


class RecordCache:
    """Records by agent; the agents whose records were made first go first when it gets too large."""

    def __init__(self, store: MemoryStore, budget_bytes: int) -> None:
        self._store = store
        self._budget = budget_bytes
        self.reads = dict.fromkeys(Tier, 0)
        self.start_empty()

    def start_empty(self) -> None:
        """Hold nothing; also what a forked child does, where another thread may have held a lock."""
        self.agents: OrderedDict[str, AgentRecords] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self._other_uses: dict[str, dict[int, int]] = {}

    def moment(self, agent: str) -> int:
        """Ask before reading from the store; give it to `keep` with what was read."""
        records = self.agents.get(agent) or self._open(agent)
        return _NEVER if records is None else records.watch()

    def keep(self, entry: MemoryEntry, seq: int, moment: int) -> None:
        """Remember an stm entry that was read (or stored) after `moment`, if nothing changed since."""
        if moment & 1:  # a change was under way, or the store can't tell
            return
        try:
            encoded = _encode(entry)
        except (OverflowError, UnicodeEncodeError, TypeError):
            return  # content that only JSON can hold is rare: read it from the store
        with self._lock:
            records = self.agents.get(entry.agent_id)
            if records is None or records.watch() != moment:
                return
            if records.pulse != moment:
                self._empty(entry.agent_id, records)
                records.pulse = moment
            records.seqs[entry.id] = seq
            records.encoded[seq] = encoded
            records.size += len(encoded) + _OVERHEAD
            self._size += len(encoded) + _OVERHEAD
            while self._size > self._budget:
                oldest = next(iter(self.agents))
                self._empty(oldest, self.agents.pop(oldest))

    def cached(self, agent: str, seqs: Iterable[int]) -> dict[int, MemoryEntry]:
        """Those of the memories that are here, by seq; each counts as read."""
        records = self.agents.get(agent)
        if records is None or records.watch() != records.pulse:
            return {}
        held, uses = records.encoded, records.uses
        found = {}
        for seq in seqs:
            encoded = held.get(seq)
            if encoded is not None:
                uses[seq] = uses.get(seq, 0) + 1
                found[seq] = decode_entry(encoded)
        return found

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
                records = self.agents.pop(name, None)
                if records is not None:
                    self._empty(name, records)

    def _open(self, agent: str) -> AgentRecords | None:
        watch = self._store.watch(agent)
        if watch is None:
            return None
        with self._lock:
            return self.agents.setdefault(agent, AgentRecords(watch))

    def _empty(self, agent: str, records: AgentRecords) -> None:
        self._size -= records.size
        records.seqs, records.encoded, records.size = {}, {}, 0
        self._merge(self._other_uses, agent, records)

    def _merge(self, into: dict[str, dict[int, int]], agent: str, records: AgentRecords) -> None:
        uses, records.uses = records.uses, {}
        held = into.setdefault(agent, {}) if uses else {}
        for seq, count in uses.items():
            held[seq] = held.get(seq, 0) + count
            self.reads[Tier.STM] += count
