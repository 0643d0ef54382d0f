"""Memories served from the process's own RAM: young ones by id, and older ones that a search has found."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable

import msgspec

from memory._read.read_counts import Uses
from memory.entry import MemoryEntry, Tier
from memory.storage import MemoryStore, Record, Row

_encode = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(MemoryEntry).decode
_parts = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_OVERHEAD = 300  # bytes of Python objects around one cached record
_NEVER = 1  # a moment under which nothing is kept
_MOST_PENDING = 32  # rows that were stored and not looked at yet


_STM = Tier.STM.label
_PAIR = 0x92
"""What msgpack writes before two values: the start of a row's bytes, which are content and metadata."""


class _NewEntry(msgspec.Struct, array_like=True, gc=False):
    """A MemoryEntry whose content and metadata are encoded already: both encode to the same bytes."""

    id: str
    agent_id: str
    content: msgspec.Raw
    kind: str
    step: int | None
    created_at: float
    importance: float
    metadata: msgspec.Raw
    tier: str


class AgentRecords:
    """Encoded entries of one agent, good while the agent's pulse is the one they were read under.

    They are kept encoded and decoded anew for each reader: what a caller does to the content it was
    given then stays with that caller, and no entry needs to be copied.
    """

    __slots__ = ("encoded", "found", "pulse", "seqs", "size", "watch")

    def __init__(self, watch: Callable[[], int]) -> None:
        self.watch = watch
        self.pulse = watch()
        self.seqs: dict[str, int] = {}
        self.encoded: dict[int, bytes] = {}
        self.found: dict[int, Record] = {}
        """Of the lower tiers, their bodies unpacked: what is found once is often found again."""
        self.size = 0


class RecordCache:
    """Records by agent; the agents whose records were made first go first when it gets too large."""

    def __init__(self, store: MemoryStore, budget_bytes: int) -> None:
        self._store = store
        self._budget = budget_bytes
        self.reads = [0, 0, 0]  # by tier
        self._closed = False
        self.start_empty()

    def start_empty(self) -> None:
        """Hold nothing; also what a forked child does, where another thread may have held a lock."""
        self.agents: OrderedDict[str, AgentRecords] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self.uses = Uses()
        self._use_counts = self.uses.counts
        self._pending: deque[tuple[Row, int, int]] = deque()
        """Arguments of `keep_new`, to be kept when somebody reads, or when they are many."""

    def moment(self, agent: str) -> int:
        """Ask before reading from the store; give it to `keep` with what was read."""
        records = self.agents.get(agent) or self._open(agent)
        return _NEVER if records is None else records.watch()

    def keep(self, entry: MemoryEntry, seq: int, moment: int) -> None:
        """Remember an stm entry that was read after `moment`, if nothing changed since."""
        if moment & 1:  # a change was under way, or the store can't tell
            return
        try:
            encoded = _encode(entry)
        except (OverflowError, UnicodeEncodeError, TypeError):
            return  # content that only JSON can hold is rare: read it from the store
        self._keep(entry.agent_id, entry.id, seq, encoded, moment)

    def keep_new(self, row: Row, seq: int, moment: int) -> None:
        """Remember a row of stm that was stored after `moment`.

        Not at once: right after a commit the processor's caches are cold, and many at a time cost each
        storing call a quarter of what one at a time does."""
        if moment & 1 or row.body[0] != _PAIR:
            return
        self._pending.append((row, seq, moment))
        if len(self._pending) >= _MOST_PENDING:
            self._keep_pending()

    def _keep_pending(self) -> None:
        while self._pending:
            try:
                row, seq, moment = self._pending.popleft()
            except IndexError:  # another thread keeps them too
                return
            # A row's bytes are its content and its metadata. They are not encoded again, and the caller's
            # own objects may be others by now.
            content, around = _parts(row.body)
            entry = _NewEntry(
                row.id,
                row.agent,
                content,
                row.kind,
                row.step,
                row.created_at,
                row.importance,
                around,
                _STM,
            )
            self._keep(row.agent, row.id, seq, _encode(entry), moment)

    def _keep(self, agent: str, id: str, seq: int, encoded: bytes, moment: int) -> None:
        with self._lock:
            records = self._open_at(agent, moment)
            if records is None or seq in records.encoded:
                return
            records.seqs[id] = seq
            records.encoded[seq] = encoded
            self._grow(records, len(encoded) + _OVERHEAD)

    def keep_found(self, agent: str, found: Iterable[Record], moment: int) -> None:
        """Remember records of the lower tiers that were read after `moment`, if nothing changed since."""
        if moment & 1:
            return
        with self._lock:
            records = self._open_at(agent, moment)
            if records is None:
                return
            held, young = records.found, Tier.STM
            size = 0
            for record in found:
                if record.tier is not young and record.seq not in held:
                    held[record.seq] = record
                    size += len(record.body) + _OVERHEAD
            if size:
                self._grow(records, size)

    def found(self, agent: str, seqs: Iterable[int]) -> dict[int, Record]:
        """Those of the records that were found before and are still good, by seq."""
        records = self.agents.get(agent)
        if records is None or records.watch() != records.pulse:
            return {}
        held = records.found  # only now: another thread may just have begun anew, after a change
        return {seq: held[seq] for seq in seqs if seq in held}

    def _open_at(self, agent: str, moment: int) -> AgentRecords | None:
        """An agent's records, ready to take what was read under `moment`; None if that has passed."""
        records = self.agents.get(agent)
        if records is None or records.watch() != moment:
            return None
        if records.pulse != moment:
            self._empty(records)
            records.pulse = moment
        return records

    def _grow(self, records: AgentRecords, size: int) -> None:
        records.size += size
        self._size += size
        while self._size > self._budget:
            self._empty(self.agents.popitem(last=False)[1])

    def one(self, agent: str, id: str) -> MemoryEntry | int:
        """A memory if it is here and still good, which counts as read; else the `moment` of asking."""
        if self._pending:
            self._keep_pending()
        records = self.agents.get(agent) or self._open(agent)
        if records is None:
            return _NEVER
        pulse = records.watch()
        if pulse == records.pulse:
            seq = records.seqs.get(id)
            if seq is not None:
                encoded = records.encoded.get(seq)
                if encoded is not None:
                    self._use_counts[agent][seq] += 1
                    self.reads[0] += 1
                    return decode_entry(encoded)
        return pulse

    def some(self, agent: str, seqs: Iterable[int]) -> dict[int, MemoryEntry]:
        """Those of the memories that are here, by seq; each counts as read."""
        if self._pending:
            self._keep_pending()
        records = self.agents.get(agent)
        if records is None or records.watch() != records.pulse:
            return {}
        held = records.encoded  # only now, as above
        if not held:
            return {}
        found = {}
        for seq in seqs:
            encoded = held.get(seq)
            if encoded is not None:
                self._use_counts[agent][seq] += 1
                found[seq] = decode_entry(encoded)
        self.reads[0] += len(found)
        return found

    @property
    def nbytes(self) -> int:
        return self._size

    def drop(self, agent: str | None = None) -> None:
        with self._lock:
            for name in [agent] if agent is not None else list(self.agents):
                records = self.agents.pop(name, None)
                if records is not None:
                    self._empty(records)

    def _open(self, agent: str) -> AgentRecords | None:
        watch = self._store.watch(agent)
        if watch is None:
            return None
        with self._lock:
            if self._closed:
                return None
            return self.agents.setdefault(agent, AgentRecords(watch))

    def close(self) -> None:
        """Hold nothing, now and later: calls that are still under way keep nothing."""
        with self._lock:
            self._closed = True
        self._pending.clear()
        self.drop()

    def _empty(self, records: AgentRecords) -> None:
        self._size -= records.size
        records.seqs, records.encoded, records.found, records.size = {}, {}, {}, 0
