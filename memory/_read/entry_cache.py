"""The entry cache: memories of stm by id, and memories of the lower tiers that a search has returned."""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic

import msgspec

from memory._read.read_counts import ReadCounts
from memory.entry import MemoryEntry, Tier
from memory.errors import StoreUnavailable
from memory.storage import MemoryStore, Record, Row
from memory.storage.base import Moment
from memory.storage.shared_versions import CHECK_SECONDS

_encode = msgspec.msgpack.Encoder().encode
decode_entry = msgspec.msgpack.Decoder(MemoryEntry).decode
_split_body = msgspec.msgpack.Decoder(tuple[msgspec.Raw, msgspec.Raw]).decode
_OVERHEAD = 300
"""Bytes of the Python objects around one cached entry."""
_DO_NOT_CACHE = 1
"""The version that means: do not cache. Versions are odd while a change is being committed."""
_MAX_PENDING = 32
"""The most new rows that wait to be cached."""
_ROWS_AT_ONCE = 256
"""Rows of a batch that are cached under one lock: about 0.3 ms."""
_STM = Tier.STM.label
_PAIR = 0x92
"""The msgpack byte for "two values follow": the first byte of a body in msgpack."""


class _NewEntry(msgspec.Struct, array_like=True, gc=False):
    """A MemoryEntry with encoded content and metadata. Both classes encode to the same bytes."""

    id: str
    agent_id: str
    content: msgspec.Raw
    kind: str
    step: int | None
    created_at: float
    importance: float
    metadata: msgspec.Raw
    tier: str


def _encode_row(row: Row | Record) -> bytes:
    """Return the encoded entry of an stm row."""
    # Use the row's bytes: encoding again takes time, and the caller may have changed its objects.
    content, metadata = _split_body(row.body)
    return _encode(
        _NewEntry(
            row.id,
            row.agent,
            content,
            row.kind,
            row.step,
            row.created_at,
            row.importance,
            metadata,
            _STM,
        )
    )


class AgentEntries:
    """The cached entries of one agent, valid while the version of the agent's rows is `version`.

    The cache holds encoded entries, and decodes an entry for each reader. So a caller may change the
    content that it received, and no entry has to be copied.
    """

    __slots__ = ("by_id", "changed", "encoded", "read_version", "records", "size", "version")

    def __init__(self, read_version: Callable[[], int]) -> None:
        self.read_version = read_version
        """Returns the current version of the agent's rows."""
        self.version = read_version()
        self.changed: Moment | None = None
        """When this process has last changed rows of the agent."""
        self.by_id: dict[str, tuple[int, bytes]] = {}
        """Seq and encoded entry of stm memories by id."""
        self.encoded: dict[int, bytes] = {}
        """Encoded stm entries by seq."""
        self.records: dict[int, Record] = {}
        """Records of the lower tiers by seq, with uncompressed bodies."""
        self.size = 0


class EntryCache:
    """Cached entries of all agents. When it is full, it drops the agents that were cached first.

    To cache a result of the store: call `version()`, read from the store, and pass both to a `keep` method.
    """

    def __init__(self, store: MemoryStore, budget_bytes: int) -> None:
        self._store = store
        self._budget = budget_bytes
        self.reads_by_tier = [0, 0, 0]
        self._closed = False
        self._is_remote = store.is_remote
        self._generation = store.check_versions()
        self._check_at = 0.0
        """When the versions are checked next, on the clock `monotonic`. 0 for a remote store: so `get`
        needs no other test for one."""
        self.start_empty()
        store.follow_changes(self._changed)

    def start_empty(self) -> None:
        """Create an empty cache and a lock. A forked child calls this too: the old lock may be held."""
        self.agents: OrderedDict[str, AgentEntries] = OrderedDict()
        self._size = 0
        # An RLock: a signal handler that closes the memory may run in the thread that holds the lock.
        self._lock = threading.RLock()
        self.read_counts = ReadCounts()
        self._counts = self.read_counts.counts
        self._pending: deque[tuple[Row | Record, int, int]] = deque()
        """Arguments of `keep_new`. The next read caches these rows, or `keep_new` if there are many."""

    def _check_versions(self) -> None:
        """Drop all entries if other processes no longer share the versions with which they were cached."""
        generation = self._store.check_versions()
        if generation != self._generation:
            self._generation = generation
            self._pending.clear()
            self.drop()
        if not self._is_remote:
            self._check_at = monotonic() + CHECK_SECONDS

    def version(self, agent: str) -> int:
        """Return the version of the agent's rows. Call this before reading from the store."""
        if monotonic() > self._check_at and not self._is_remote:
            self._check_versions()
        cached = self.agents.get(agent) or self._open(agent)
        return _DO_NOT_CACHE if cached is None else cached.read_version()

    def keep(self, entry: MemoryEntry, seq: int, version: int) -> None:
        """Cache an stm entry, unless the agent's rows have changed since `version`."""
        if version & 1:
            return
        try:
            encoded = _encode(entry)
        except (OverflowError, UnicodeEncodeError, TypeError):
            return  # msgpack can't encode this rare content, so each read gets it from the store
        self._keep(entry.agent_id, entry.id, seq, encoded, version)

    def keep_new(self, row: Row | Record, seq: int, version: int) -> None:
        """Cache an stm row that was just stored or read, unless the agent's rows changed since `version`.

        The row is cached later. Right after a call of the store the CPU caches are cold. Caching many rows
        together takes a quarter of the time for each."""
        if version & 1 or row.body[0] != _PAIR:
            return
        self._pending.append((row, seq, version))
        if len(self._pending) >= _MAX_PENDING:
            self._keep_pending()

    def keep_all_new(
        self, rows: Sequence[Row], seqs: Sequence[int | None], versions: Mapping[str, int]
    ) -> None:
        """Do what `keep_new` does for the stm rows of a batch, in less time for each.

        seqs: None for a row that was stored before
        versions: what `version` returned for each agent
        """
        for start in range(0, len(rows), _ROWS_AT_ONCE):
            with self._lock:
                self._keep_rows(
                    rows[start : start + _ROWS_AT_ONCE], seqs[start : start + _ROWS_AT_ONCE], versions
                )

    def _keep_rows(
        self, rows: Sequence[Row], seqs: Sequence[int | None], versions: Mapping[str, int]
    ) -> None:
        stm, agent, cached, size = Tier.STM, None, None, 0
        for row, seq in zip(rows, seqs, strict=True):
            if row.agent != agent:
                if cached is not None:
                    self._grow(cached, size)
                agent, size = row.agent, 0
                version = versions[agent]
                cached = None if version & 1 else self._writable(agent, version)
            if cached is None or seq is None or row.tier is not stm or row.body[0] != _PAIR:
                continue
            if seq not in cached.encoded:
                encoded = _encode_row(row)
                cached.by_id[row.id] = (seq, encoded)
                cached.encoded[seq] = encoded
                size += len(encoded) + _OVERHEAD
        if cached is not None:
            self._grow(cached, size)

    def _keep_pending(self) -> None:
        while self._pending:
            try:
                row, seq, version = self._pending.popleft()
            except IndexError:  # another thread took the last one
                return
            self._keep(row.agent, row.id, seq, _encode_row(row), version)

    def _keep(self, agent: str, id: str, seq: int, encoded: bytes, version: int) -> None:
        with self._lock:
            cached = self._writable(agent, version)
            if cached is None or seq in cached.encoded:
                return
            # In this order: `_changed` finds an id by its seq, also if an interrupt comes in between.
            cached.encoded[seq] = encoded
            cached.by_id[id] = (seq, encoded)
            self._grow(cached, len(encoded) + _OVERHEAD)

    def keep_records(self, agent: str, records: Iterable[Record], version: int) -> None:
        """Cache records of the lower tiers, unless the agent's rows have changed since `version`."""
        if version & 1:
            return
        with self._lock:
            cached = self._writable(agent, version)
            if cached is None:
                return
            held, stm = cached.records, Tier.STM
            size = 0
            for record in records:
                if record.tier is not stm and record.seq not in held:
                    held[record.seq] = record
                    size += len(record.body) + _OVERHEAD
            if size:
                self._grow(cached, size)

    def records(self, agent: str, seqs: Iterable[int]) -> dict[int, Record]:
        """Return the cached records of the lower tiers among `seqs`, by seq."""
        cached = self.agents.get(agent)
        if cached is None or cached.read_version() != cached.version:
            return {}
        # Read the attribute after the version check: another thread may have replaced the dict before.
        find = cached.records.get  # another thread may drop a record at any time
        return {seq: record for seq in seqs if (record := find(seq)) is not None}

    def _writable(self, agent: str, version: int) -> AgentEntries | None:
        """Return an agent's entries, emptied if they are stale; None if `version` is not current."""
        cached = self.agents.get(agent)
        if cached is None or cached.read_version() != version:
            return None
        if cached.version != version:
            self._empty(cached)
            cached.version = version
        return cached

    def _changed(self, agent: str, seqs: list[int] | None, before: Moment, after: Moment) -> None:
        """Drop only the memories that this process has changed, not all of the agent.

        Maintenance moves some memories of an agent that is in use every few seconds."""
        with self._lock:
            cached = self.agents.get(agent)
            if cached is None:
                return
            known, cached.changed = cached.changed, after
            if known != before or cached.version != before[0]:
                return
            if seqs is None:
                self._empty(cached)
            else:
                size = 0
                for seq in seqs:
                    encoded = cached.encoded.pop(seq, None)
                    if encoded is not None:
                        cached.by_id.pop(decode_entry(encoded).id, None)
                        size += len(encoded) + _OVERHEAD
                    record = cached.records.pop(seq, None)
                    if record is not None:
                        size += len(record.body) + _OVERHEAD
                cached.size -= size
                self._size -= size
            cached.version = after[0]

    def _grow(self, cached: AgentEntries, size: int) -> None:
        cached.size += size
        self._size += size
        while self._size > self._budget:
            self._empty(self.agents.popitem(last=False)[1])

    def get(self, agent: str, id: str) -> MemoryEntry | int | None:
        """Return a cached stm memory and count the read.

        If it is not cached, return what `version` returns, or None if that is not known yet."""
        if monotonic() > self._check_at:
            if not self._is_remote:
                self._check_versions()
            elif not self._store.is_fresh(agent):
                return self._get_remote(agent, id)
        if self._pending:
            self._keep_pending()
        cached = self.agents.get(agent)
        if cached is None:
            return None
        version = cached.read_version()
        if version == cached.version:
            found = cached.by_id.get(id)
            if found is not None:
                self._counts[agent][found[0]] += 1
                self.reads_by_tier[0] += 1
                return decode_entry(found[1])
        return version

    def _get_remote(self, agent: str, id: str) -> MemoryEntry | None:
        """Do what `get` does, and ask the server whether the version is current."""
        cached = self.agents.get(agent)
        if cached is None or cached.read_version() != cached.version or id not in cached.by_id:
            return None
        if self._pending:
            self._keep_pending()
        # To ask the server for the version takes less than to read the memory. The entry is decoded before:
        # after the wait, the CPU caches are cold.
        found = cached.by_id.get(id)
        entry = None if found is None else decode_entry(found[1])
        self._store.state(agent)
        if found is None or cached.read_version() != cached.version:
            return None
        self._counts[agent][found[0]] += 1
        self.reads_by_tier[0] += 1
        return entry

    def get_many(self, agent: str, seqs: Iterable[int]) -> dict[int, MemoryEntry]:
        """Return the cached stm memories among `seqs`, by seq, and count the reads."""
        if monotonic() > self._check_at:
            self._check_versions()
        if self._pending:
            self._keep_pending()
        cached = self.agents.get(agent)
        if cached is None or cached.read_version() != cached.version:
            return {}
        held = cached.encoded  # after the version check, as in `records`
        if not held:
            return {}
        entries = {}
        for seq in seqs:
            encoded = held.get(seq)
            if encoded is not None:
                self._counts[agent][seq] += 1
                entries[seq] = decode_entry(encoded)
        self.reads_by_tier[0] += len(entries)
        return entries

    @property
    def nbytes(self) -> int:
        return self._size

    def save_read_counts(self, limit: int | None = None) -> None:
        """Write read counts to the store: all, or only of the `limit` memories that were read first."""
        counts = self.read_counts.take(limit)
        if counts:
            self._save_counts(counts)

    def save_read_counts_in_parts(self, at_once: int, pause: Callable[[], bool], least: int = 0) -> None:
        """Write all read counts in transactions of `at_once` memories, so that no write waits for all.

        `pause` is called after each of them. If it returns False, one transaction writes the rest.
        Nothing is written while fewer than `least` memories have unsaved counts.
        After an error, counts that were not written are saved by a later call."""
        if self.read_counts.memories < least:
            return
        counts = [
            (agent, seq, count)
            for agent, part in self.read_counts.take().items()
            for seq, count in sorted(part.items())
        ]
        start, size = 0, at_once
        try:
            while start < len(counts):
                part = _by_agent(counts[start : start + size])
                start += size
                self._save_counts(part)
                if not pause():
                    size = len(counts)
        finally:  # without an error, nothing is left
            self.read_counts.put_back(_by_agent(counts[start:]))

    def _save_counts(self, counts: dict[str, dict[int, int]]) -> None:
        """Write read counts in one transaction. After an error, a later call saves them."""
        try:
            self._store.add_read_counts(counts)
        except Exception as problem:
            # If the connection broke during the commit, the counts may be stored. Read counts only adjust
            # importance, so to lose some is better than to count them twice.
            if not (isinstance(problem, StoreUnavailable) and problem.stored is None):
                self.read_counts.put_back(counts)
            raise

    def drop(self, agent: str | None = None) -> None:
        """Release the entries of one agent, or of all agents."""
        with self._lock:
            for name in [agent] if agent is not None else list(self.agents):
                cached = self.agents.pop(name, None)
                if cached is not None:
                    self._empty(cached)

    def _open(self, agent: str) -> AgentEntries | None:
        read_version = self._store.watch(agent)
        if read_version is None:
            return None
        with self._lock:
            if self._closed:
                return None
            return self.agents.setdefault(agent, AgentEntries(read_version))

    def close(self) -> None:
        """Release all entries. After this, calls in other threads cache nothing."""
        with self._lock:
            self._closed = True
        self._pending.clear()
        self.drop()

    def _empty(self, cached: AgentEntries) -> None:
        self._size -= cached.size
        cached.by_id, cached.encoded, cached.records, cached.size = {}, {}, {}, 0


def _by_agent(counts: Iterable[tuple[str, int, int]]) -> dict[str, dict[int, int]]:
    """Return read counts by agent and seq."""
    found: defaultdict[str, dict[int, int]] = defaultdict(dict)
    for agent, seq, count in counts:
        found[agent][seq] = count
    return found
