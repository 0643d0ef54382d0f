"""Finding memories: by id, by text, by vector, by time, by step, by attribute."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import compress
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from memory._base.checks import (
    MAX_WHOLE,
    check_count,
    check_moment,
    check_name,
    check_names,
    check_number,
    check_vector,
)
from memory._base.content import decode_body, leaves_of
from memory._read.entry_cache import RecordCache
from memory.compression import TierCodecs
from memory.compression.content_codecs import RAW
from memory.embedding import ContentEmbedder, render
from memory.entry import ALL_TIERS, TIER_LABELS, Hit, MemoryEntry, Tier, Why
from memory.errors import InvalidMemory, StoreCorrupt
from memory.search import IndexCache, Match, QueryVector, by_text, by_vector
from memory.search.filters import Filter
from memory.search.index import AgentIndex
from memory.storage import MemoryStore, Record

Moment: TypeAlias = float | datetime
TierName: TypeAlias = str | Tier
_Rank: TypeAlias = Callable[[AgentIndex, int, NDArray[np.bool_] | None], list[Match]]
_READ_AT_ONCE = 500
_READ_A_FEW = 8  # what a context usually looks at
_MOST_KEPT = 100  # of one search; whoever asks for more goes through everything, once


class Finding:
    """The finding half of `AgentMemorySystem`; what it reads it counts as used."""

    _store: MemoryStore
    _forms: TierCodecs
    _content_embedder: ContentEmbedder
    _query_vector: QueryVector
    _records: RecordCache
    _indexes: IndexCache
    _searches: int

    def get(self, agent_id: str, id: str) -> MemoryEntry | None:
        """The memory with this id, from whichever tier."""
        # What can't be looked up is refused at once; what merely names nothing, when it was not found.
        if not (type(agent_id) is str and type(id) is str and agent_id.isascii() and id.isascii()):
            check_name("agent_id", agent_id)
            check_name("id", id)
        found = self._records.one(agent_id, id)
        if isinstance(found, MemoryEntry):
            return found
        record = self._store.get_one(agent_id, id)
        if record is None:
            check_name("agent_id", agent_id)
            check_name("id", id)
            return None
        return self._read(record, found)

    def get_many(self, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry | None]:
        """One answer an id, in the same order; None for those that are not there."""
        check_name("agent_id", agent_id)
        ids = check_names("ids", ids)
        if len(ids) == 1:
            return [self.get(agent_id, ids[0])]
        moment = self._records.moment(agent_id)
        entries: dict[str, MemoryEntry] = {}
        for entry in self._read_all(self._store.get(agent_id, list(dict.fromkeys(ids))), moment):
            entries[entry.id] = entry
        return [entries.get(id) for id in ids]

    def exists(self, agent_id: str, id: str, tier: TierName | None = None) -> bool:
        """Whether there is such a memory, in one tier or in any."""
        wanted = Tier.parse_scope(tier)
        record = self._record(agent_id, id)
        return record is not None and record.tier in wanted

    def search(
        self,
        agent_id: str,
        query: str,
        k: int = 10,
        *,
        tier: TierName = "all",
        filters: Mapping[str, Any] | None = None,
        since: Moment | None = None,
        until: Moment | None = None,
    ) -> list[Hit]:
        """The k memories that fit a text best: words and meaning in one ranking, best first.

        `filters` are attributes that must hold (see `retrieve_by_attributes`); `since` and `until`
        bound the time, both included.
        """
        if not isinstance(query, str):
            raise InvalidMemory(f"query is a {type(query).__name__}: search takes text")

        def rank(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> list[Match]:
            ranking = by_text(index, query, self._query_vector, k, allowed)
            return [] if ranking is None else ranking.matches()

        return self._search(agent_id, k, tier, filters, since, until, rank)

    def iter_search(self, agent_id: str, query: str, most: int = 100) -> Iterator[Hit]:
        """The hits of `search` one after the other, for who can't say beforehand how many it takes.

        All are ranked at the first one; each is read, and counts as used, when it is about to be reached.
        What was changed or deleted since is given as it is now, or left out.
        """
        check_name("agent_id", agent_id)
        if not isinstance(query, str):
            raise InvalidMemory(f"query is a {type(query).__name__}: search takes text")
        most = check_count("most", most)
        return self._one_by_one(agent_id, query, most)

    def _one_by_one(self, agent_id: str, query: str, most: int) -> Iterator[Hit]:
        self._searches += 1
        if most == 0:
            return
        with self._caught_up(agent_id) as index:
            ranking = by_text(index, query, self._query_vector, most, index.living)
        if ranking is None:
            return
        moment, entries = self._records.moment, {}
        for start in range(0, len(ranking), _READ_A_FEW):
            matches = ranking.matches(start, start + _READ_A_FEW)
            read_at = None
            for number, match in enumerate(matches):
                now = moment(agent_id)
                if now != read_at or now & 1:  # not read yet, or some may be others by now, or gone
                    read_at = now
                    left = matches[number:]
                    entries = self._entries(
                        agent_id, [each.seq for each in left], [each.tier for each in left]
                    )
                entry = entries.get(match.seq)
                if entry is not None:
                    yield _hit(entry, match)

    def retrieve_similar_states(
        self,
        agent_id: str,
        query_state: Any,
        k: int = 10,
        tier: TierName = "all",
        memory_type: str | None = None,
        threshold: float | None = None,
    ) -> list[Hit]:
        """The k memories nearest to a state, a text, or a vector given as a NumPy array.

        `memory_type` is a kind such as "state" or "action"; `threshold` a least cosine.
        """
        if isinstance(query_state, np.ndarray):
            vector = check_vector(query_state, self._content_embedder.dimensions)
        else:
            rendering = render(leaves_of(query_state, "query_state"))
            vector = self._content_embedder.embed([rendering])[0]
        if threshold is not None:
            threshold = check_number("threshold", threshold)

        def rank(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> list[Match]:
            return by_vector(index, vector, k, allowed, threshold)

        if memory_type is not None:
            check_name("memory_type", memory_type)
        filters = None if memory_type is None else {"kind": memory_type}
        return self._search(agent_id, k, tier, filters, None, None, rank)

    def retrieve_by_time_range(
        self,
        agent_id: str,
        start_time: Moment | None = None,
        end_time: Moment | None = None,
        *,
        tier: TierName = "all",
        limit: int | None = None,
    ) -> list[MemoryEntry]:
        """Memories that happened from start to end, both included, the oldest first."""
        low = None if start_time is None else check_moment("start_time", start_time)
        high = None if end_time is None else check_moment("end_time", end_time)
        return self._in_range(agent_id, "created_at", low, high, tier, limit)

    def retrieve_by_step_range(
        self,
        agent_id: str,
        first_step: int | None = None,
        last_step: int | None = None,
        *,
        tier: TierName = "all",
        limit: int | None = None,
    ) -> list[MemoryEntry]:
        """Memories of the steps from first to last, both included, in the order of their steps."""
        low = None if first_step is None else _step_bound("first_step", first_step)
        high = None if last_step is None else _step_bound("last_step", last_step)
        return self._in_range(agent_id, "step", low, high, tier, limit)

    def retrieve_by_attributes(
        self,
        agent_id: str,
        attributes: Mapping[str, Any],
        *,
        tier: TierName = "all",
        limit: int | None = None,
    ) -> list[MemoryEntry]:
        """Memories whose metadata or content holds all attributes, the newest first.

        An attribute is a dotted path and a value; a list matches by any of its elements; "kind" is
        the memory's kind: {"kind": "state", "position.room": "kitchen", "inventory": "sword"}.
        """
        if limit is not None:
            limit = check_count("limit", limit)
        wanted, scope = Filter(attributes), Tier.parse_scope(tier)
        with self._caught_up(agent_id) as index:
            mask = wanted.positions(index)
            allowed = index.allowed(scope)
            positions = np.flatnonzero(mask if allowed is None else mask & allowed)
            moments = index.columns.created_at[positions]
            positions = positions[np.lexsort((-positions, -moments))]
            seqs: list[int] = index.columns.seq[positions].tolist()
            tiers: list[int] = index.columns.tier[positions].tolist()
        found: list[MemoryEntry] = []
        for start in range(0, len(seqs), _READ_AT_ONCE):
            part = seqs[start : start + _READ_AT_ONCE]
            entries = self._entries(agent_id, part, tiers[start : start + _READ_AT_ONCE])
            found.extend(
                entries[seq] for seq in part if seq in entries and _is_meant(entries[seq], scope, wanted)
            )
            if limit is not None and len(found) >= limit:
                return found[:limit]
        return found

    def recent(self, agent_id: str, k: int = 10, *, tier: TierName = "all") -> list[MemoryEntry]:
        """The k memories that happened last, the newest first."""
        k = check_count("k", k)
        return self._in_range(agent_id, "created_at", None, None, tier, k, newest_first=True)

    def _entry(self, record: Record) -> MemoryEntry:
        """A record's memory, without counting it as used."""
        try:
            body = record.body
            if record.body_codec != RAW:
                body = self._forms.raw_body(record.body_codec, body)
            content, metadata = decode_body(body)
        except ValueError as problem:  # msgspec's and Unicode's errors are ValueErrors too
            raise StoreCorrupt(f"memory {record.id!r} can't be read back: {problem}") from None
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

    def _unpacked(self, record: Record) -> Record:
        """With its body as it was given: what is found again then need not be unpacked again."""
        if record.body_codec == RAW:
            return record
        return Record(
            record.agent,
            record.id,
            record.seq,
            record.tier,
            record.kind,
            record.step,
            record.created_at,
            record.importance,
            RAW,
            self._forms.raw_body(record.body_codec, record.body),
        )

    def _record(self, agent_id: str, id: str) -> Record | None:
        check_name("agent_id", agent_id)
        check_name("id", id)
        return self._store.get_one(agent_id, id)

    def _read(self, record: Record, moment: int) -> MemoryEntry:
        """The entry of a record that a caller asked for: it is counted, and kept if it is young.

        `moment` is what the record cache said before the record was read."""
        entry = self._entry(record)
        records = self._records
        records.reads[record.tier] += 1
        records.uses.add(record.agent, (record.seq,))
        if record.tier is Tier.STM:
            self._records.keep(entry, record.seq, moment)
        return entry

    def _read_all(self, records: Sequence[Record], moment: int) -> list[MemoryEntry]:
        """The same for many records of one agent."""
        if not records:
            return []
        cache = self._records
        entries = list(map(self._entry, records))
        cache.uses.add(records[0].agent, [record.seq for record in records])
        reads, young = cache.reads, Tier.STM
        for record, entry in zip(records, entries, strict=True):
            tier = record.tier
            reads[tier] += 1
            if tier is young:
                cache.keep(entry, record.seq, moment)
        return entries

    def _caught_up(self, agent_id: str) -> _CaughtUp:
        check_name("agent_id", agent_id)
        return _CaughtUp(self._indexes, agent_id)

    def _search(
        self,
        agent_id: str,
        k: int,
        tier: TierName,
        filters: Mapping[str, Any] | None,
        since: Moment | None,
        until: Moment | None,
        rank: _Rank,
    ) -> list[Hit]:
        """Rank, read what was found, and leave out what a filter's closer look refuses."""
        check_name("agent_id", agent_id)
        k = check_count("k", k)
        scope = Tier.parse_scope(tier)
        condition = None if filters is None else Filter(filters)
        low = None if since is None else check_moment("since", since)
        high = None if until is None else check_moment("until", until)
        bounded = condition is not None or low is not None or high is not None
        self._searches += 1
        if k == 0:
            return []
        wanted = k
        while True:
            with self._caught_up(agent_id) as index:
                allowed = index.allowed(scope)
                if bounded:
                    for mask in _masks(index, condition, low, high):
                        allowed = mask if allowed is None else allowed & mask
                matches = rank(index, wanted, allowed)
            hits = self._hits(agent_id, matches, scope, condition)
            if len(matches) < wanted or len(hits) >= k:
                return hits if len(hits) <= k else hits[:k]
            # A filter's terms are rounded, and rows may go while they are read: ask for more.
            wanted *= 4

    def _hits(
        self,
        agent_id: str,
        matches: Sequence[Match],
        scope: frozenset[Tier],
        condition: Filter | None,
    ) -> list[Hit]:
        entries = self._entries(
            agent_id, [match.seq for match in matches], [match.tier for match in matches]
        )
        hits = [_hit(entry, match) for match in matches if (entry := entries.get(match.seq)) is not None]
        if condition is not None or scope is not ALL_TIERS:
            return [hit for hit in hits if _is_meant(hit.entry, scope, condition)]
        return hits

    def _entries(self, agent_id: str, seqs: list[int], tiers: list[int]) -> dict[int, MemoryEntry]:
        """Memories by seq, those that are in RAM from there; those that are gone by now are left out."""
        cache = self._records
        entries = cache.some(agent_id, seqs)
        if len(entries) == len(seqs):
            return entries
        moment = cache.moment(agent_id)
        found = cache.found(agent_id, seqs)
        if len(entries) + len(found) < len(seqs):
            if entries or found:
                missing = [seq not in entries and seq not in found for seq in seqs]
                seqs, tiers = list(compress(seqs, missing)), list(compress(tiers, missing))
            fetched = self._store.get_by_seq(agent_id, seqs, tiers)
            if len(fetched) <= _MOST_KEPT:
                fetched = list(map(self._unpacked, fetched))
                cache.keep_found(agent_id, fetched, moment)
            for record in fetched:
                found[record.seq] = record
        entries.update(zip(found, self._read_all(list(found.values()), moment), strict=True))
        return entries

    def _in_range(
        self,
        agent_id: str,
        column: Literal["created_at", "step"],
        low: float | None,
        high: float | None,
        tier: TierName,
        limit: int | None,
        newest_first: bool = False,
    ) -> list[MemoryEntry]:
        check_name("agent_id", agent_id)
        if limit is not None:
            limit = check_count("limit", limit)
        moment = self._records.moment(agent_id)
        records = self._store.in_range(
            agent_id,
            column,
            low,
            high,
            tiers=Tier.parse_scope(tier),
            limit=limit,
            newest_first=newest_first,
        )
        return self._read_all(records, moment)


class _CaughtUp:
    """An agent's index, locked and up to date; afterwards the cache is brought back to its size."""

    __slots__ = ("_agent", "_index", "_indexes")

    def __init__(self, indexes: IndexCache, agent: str) -> None:
        self._indexes = indexes
        self._agent = agent

    def __enter__(self) -> AgentIndex:
        self._index = self._indexes.index(self._agent)
        self._index.lock.acquire()
        try:
            self._index.catch_up()
        except BaseException:
            self._index.lock.release()
            raise
        return self._index

    def __exit__(self, *problem: object) -> None:
        self._index.lock.release()
        if self._index.changed_size:
            self._indexes.trim(self._agent)


def _hit(entry: MemoryEntry, match: Match) -> Hit:
    why = Why(match.words, match.similarity, match.context)
    return Hit(entry.id, entry, match.score, entry.tier, why)


def _masks(
    index: AgentIndex, condition: Filter | None, low: float | None, high: float | None
) -> Iterable[NDArray[np.bool_]]:
    if condition is not None:
        yield condition.positions(index)
    moments = index.columns.created_at[: index.count]
    if low is not None:
        yield moments >= low
    if high is not None:
        yield moments <= high


def _is_meant(entry: MemoryEntry, scope: frozenset[Tier], condition: Filter | None) -> bool:
    """A closer look: what was found may have moved since, and a filter's terms are rounded."""
    if scope is not ALL_TIERS and Tier.parse(entry.tier) not in scope:
        return False
    return condition is None or condition.matches(entry)


def _step_bound(field: str, value: object) -> int:
    """A bound of a range of steps; one past all steps is as good as the last."""
    number = check_number(field, value)
    if math.isfinite(number) and isinstance(value, int):
        number = value
    return int(min(max(number, -MAX_WHOLE), MAX_WHOLE))
