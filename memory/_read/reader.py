"""Read memories by id, seq or range, from the entry cache or the store, and decode them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import msgspec

from memory._base.checks import check_count, check_name
from memory._base.content import decode_body
from memory._read.entry_cache import EntryCache
from memory.compression import TierCodecs
from memory.compression.content_codecs import RAW
from memory.entry import TIER_LABELS, MemoryEntry, Tier, TierName
from memory.errors import StoreCorrupt
from memory.storage import MemoryStore, Record
from memory.storage.base import RangeColumn

_STM = Tier.STM  # to read it from the enum takes longer, and every read compares with it
_MAX_CACHED = 100
"""The most records cached from one search. A larger search mostly reads each memory once."""


class Reader:
    """Reads memories, counts each read, and caches memories that are likely to be read again."""

    def __init__(self, store: MemoryStore, codecs: TierCodecs, cache: EntryCache) -> None:
        self._store = store
        self._get_one = store.get_one
        self._raw_body = codecs.raw_body
        self._cache = cache
        self.version = cache.version
        """Returns the version of an agent's rows."""

    def get_uncached(self, agent_id: str, id: str, version: int) -> MemoryEntry | None:
        """Read a memory from the store. `version` is that of the agent's rows before this call."""
        record = self._get_one(agent_id, id)
        if record is None:
            check_name("agent_id", agent_id)
            check_name("id", id)
            return None
        entry = self.decode(record)
        cache, tier = self._cache, record.tier
        cache.reads_by_tier[tier] += 1
        cache.read_counts.add_one(agent_id, record.seq)
        if tier is _STM:
            if record.body_codec == RAW:
                cache.keep_new(record, record.seq, version)
            else:
                cache.keep(entry, record.seq, version)
        return entry

    def get_many(self, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry | None]:
        """Read memories by id in one query; None for ids that do not exist."""
        version = self._cache.version(agent_id)
        records = self._store.get(agent_id, list(dict.fromkeys(ids)))
        entries = {entry.id: entry for entry in self._read(records, version)}
        return [entries.get(id) for id in ids]

    def by_seq(self, agent_id: str, seqs: list[int], tiers: list[int]) -> dict[int, MemoryEntry]:
        """Read memories by seq. Memories that no longer exist are left out.

        `tiers` has the last known tier of each memory. The store looks there first."""
        cache = self._cache
        entries = cache.get_many(agent_id, seqs)
        if len(entries) == len(seqs):
            return entries
        version = cache.version(agent_id)
        # Not all `seqs`: a memory that has moved since `get_many` may be cached in both forms.
        wanted = [seq for seq in seqs if seq not in entries] if entries else seqs
        records = cache.records(agent_id, wanted)
        if len(records) < len(wanted):
            if entries or records:
                missing = [seq not in entries and seq not in records for seq in seqs]
                seqs, tiers = list(compress(seqs, missing)), list(compress(tiers, missing))
            fetched = self._store.get_by_seq(agent_id, seqs, tiers)
            if len(fetched) <= _MAX_CACHED:
                fetched = list(map(self._uncompressed, fetched))
                cache.keep_records(agent_id, fetched, version)
            for record in fetched:
                records[record.seq] = record
        entries.update(zip(records, self._read(list(records.values()), version), strict=True))
        return entries

    def peek_by_seq(self, agent_id: str, seqs: list[int], tiers: list[int]) -> dict[int, MemoryEntry]:
        """Like `by_seq`, but the reads are not counted, and nothing is cached."""
        records = self._store.get_by_seq(agent_id, seqs, tiers)
        return {record.seq: self.decode(record) for record in records}

    def in_range(
        self,
        agent_id: str,
        column: RangeColumn,
        low: float | None,
        high: float | None,
        tier: TierName,
        limit: int | None,
        newest_first: bool = False,
    ) -> list[MemoryEntry]:
        """Read memories with low ≤ column ≤ high, ordered by that column."""
        agent_id = check_name("agent_id", agent_id)
        if limit is not None:
            limit = check_count("limit", limit)
        version = self._cache.version(agent_id)
        records = self._store.in_range(
            agent_id,
            column,
            low,
            high,
            tiers=Tier.parse_scope(tier),
            limit=limit,
            newest_first=newest_first,
        )
        return self._read(records, version)

    def find_record(self, agent_id: str, id: str) -> Record | None:
        """Return a memory's record without decoding it or counting the read."""
        return self._store.get_one(check_name("agent_id", agent_id), check_name("id", id))

    def decode(self, record: Record) -> MemoryEntry:
        """Return the memory of a record, without counting the read."""
        try:
            body = record.body
            if record.body_codec != RAW:
                body = self._raw_body(record.body_codec, body)
            content, metadata = decode_body(body)
        except ValueError as problem:  # the errors of msgspec and of Unicode are ValueErrors too
            raise StoreCorrupt(f"memory {record.id!r} can't be decoded: {problem}") from None
        return MemoryEntry(
            record.id,
            record.agent,
            content,
            record.kind,
            record.step,
            record.created_at,
            record.importance,
            metadata,
            TIER_LABELS[record.tier],
        )

    def _read(self, records: Sequence[Record], version: int) -> list[MemoryEntry]:
        """Decode records of one agent, count the reads, and cache the records of stm."""
        if not records:
            return []
        cache = self._cache
        entries = list(map(self.decode, records))
        cache.read_counts.add(records[0].agent, [record.seq for record in records])
        reads, stm = cache.reads_by_tier, Tier.STM
        for record, entry in zip(records, entries, strict=True):
            tier = record.tier
            reads[tier] += 1
            if tier is stm:
                cache.keep(entry, record.seq, version)
        return entries

    def _uncompressed(self, record: Record) -> Record:
        """Return a record with its body uncompressed, so that later reads from the cache are fast."""
        if record.body_codec == RAW:
            return record
        raw = self._raw_body(record.body_codec, record.body)
        return msgspec.structs.replace(record, body_codec=RAW, body=raw)
