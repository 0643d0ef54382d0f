"""Search memories with an agent's index: by text, by vector, by attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memory._base.checks import check_count, check_name, check_number, check_timestamp, check_vector
from memory._base.content import leaves_of
from memory._read.reader import Reader
from memory.embedding import ContentEmbedder, render
from memory.entry import ALL_TIERS, Hit, MemoryEntry, Tier, TierName, Timestamp, Why
from memory.errors import InvalidMemory
from memory.search import IndexCache, Match, by_text, by_vector, query_vector_of
from memory.search.filters import Filter
from memory.search.index import AgentIndex

_Rank: TypeAlias = Callable[[AgentIndex, int, NDArray[np.bool_] | None], list[Match]]
"""Ranks an index: returns up to k matches among the allowed positions, best first."""
_T = TypeVar("_T")
_READ_AT_ONCE = 500
"""Memories that a search by attributes reads in one query."""
_READ_AHEAD = 8
"""Memories that `iter_search` reads in one query. A context usually needs about this many."""


class Searcher:
    """Ranks memories and reads the best ones through a `Reader`."""

    def __init__(
        self, reader: Reader, indexes: IndexCache, embedder: ContentEmbedder, now: Callable[[], float]
    ) -> None:
        self._reader = reader
        self._indexes = indexes
        self._embedder = embedder
        self._now = now
        self._query_vector = query_vector_of(embedder)
        self.searches = 0
        """The number of searches so far."""

    def search(
        self,
        agent_id: str,
        query: str,
        k: int,
        tier: TierName,
        filters: Mapping[str, Any] | None,
        since: Timestamp | None,
        until: Timestamp | None,
        now: Timestamp | None = None,
        min_confidence: float = 0.0,
    ) -> list[Hit]:
        """See `AgentMemorySystem.search`."""
        _check_query(query)
        lowest = check_number("min_confidence", min_confidence)
        moment = self._now() if now is None else check_timestamp("now", now)

        def rank(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> list[Match]:
            ranking = by_text(index, query, self._query_vector, k, allowed, moment)
            return [] if ranking is None else ranking.matches()

        hits = self._search(agent_id, k, tier, filters, since, until, rank)
        return hits if lowest <= 0 else [hit for hit in hits if (hit.confidence or 0.0) >= lowest]

    def iter_search(self, agent_id: str, query: str, most: int) -> Iterator[Hit]:
        """See `AgentMemorySystem.iter_search`."""
        # This is not a generator, so that it checks the arguments at the call, not at the first hit.
        check_name("agent_id", agent_id)
        _check_query(query)
        return self._iter_hits(agent_id, query, check_count("most", most))

    def _iter_hits(self, agent_id: str, query: str, most: int) -> Iterator[Hit]:
        self.searches += 1
        if most == 0:
            return
        now = self._now()
        ranking = self._with_index(
            agent_id, lambda index: by_text(index, query, self._query_vector, most, index.living, now)
        )
        if ranking is None:
            return
        entries: dict[int, MemoryEntry] = {}
        for start in range(0, len(ranking), _READ_AHEAD):
            matches = ranking.matches(start, start + _READ_AHEAD)
            read_version = None
            for number, match in enumerate(matches):
                version = self._reader.version(agent_id)
                if version != read_version or version & 1:  # not read yet, or a change is or was committed
                    read_version = version
                    entries = self._read_matches(agent_id, matches[number:])
                entry = entries.get(match.seq)
                if entry is not None:
                    yield _hit(entry, match)

    def similar(
        self,
        agent_id: str,
        query_state: Any,
        k: int,
        tier: TierName,
        memory_type: str | None,
        threshold: float | None,
    ) -> list[Hit]:
        """See `AgentMemorySystem.retrieve_similar_states`."""
        if isinstance(query_state, np.ndarray):
            vector = check_vector(query_state, self._embedder.dimensions)
        else:
            vector = self._embedder.embed([render(leaves_of(query_state, "query_state"))])[0]
        if threshold is not None:
            threshold = check_number("threshold", threshold)

        def rank(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> list[Match]:
            return by_vector(index, vector, k, allowed, threshold)

        if memory_type is not None:
            check_name("memory_type", memory_type)
        filters = None if memory_type is None else {"kind": memory_type}
        return self._search(agent_id, k, tier, filters, None, None, rank)

    def by_attributes(
        self, agent_id: str, attributes: Mapping[str, Any], tier: TierName, limit: int | None
    ) -> list[MemoryEntry]:
        """See `AgentMemorySystem.retrieve_by_attributes`."""
        if limit is not None:
            limit = check_count("limit", limit)
        check_name("agent_id", agent_id)
        condition, scope = Filter(attributes), Tier.parse_scope(tier)

        def select(index: AgentIndex) -> tuple[list[int], list[int]]:
            mask = condition.positions(index)
            allowed = index.allowed(scope)
            positions = np.flatnonzero(mask if allowed is None else mask & allowed)
            times = index.columns.created_at[positions]
            positions = positions[np.lexsort((-positions, -times))]
            return index.columns.seq[positions].tolist(), index.columns.tier[positions].tolist()

        seqs, tiers = self._with_index(agent_id, select)
        matching: list[MemoryEntry] = []
        for start in range(0, len(seqs), _READ_AT_ONCE):
            part = seqs[start : start + _READ_AT_ONCE]
            entries = self._reader.by_seq(agent_id, part, tiers[start : start + _READ_AT_ONCE])
            matching.extend(
                entries[seq] for seq in part if seq in entries and _matches(entries[seq], scope, condition)
            )
            if limit is not None and len(matching) >= limit:
                return matching[:limit]
        return matching

    def _search(
        self,
        agent_id: str,
        k: int,
        tier: TierName,
        filters: Mapping[str, Any] | None,
        since: Timestamp | None,
        until: Timestamp | None,
        rank: _Rank,
    ) -> list[Hit]:
        """Rank the memories within the bounds, read the best ones, and check them against the filter."""
        check_name("agent_id", agent_id)
        k = check_count("k", k)
        scope = Tier.parse_scope(tier)
        condition = None if filters is None else Filter(filters)
        low = None if since is None else check_timestamp("since", since)
        high = None if until is None else check_timestamp("until", until)
        bounded = condition is not None or low is not None or high is not None
        self.searches += 1
        if k == 0:
            return []
        wanted = k

        def best(index: AgentIndex) -> list[Match]:
            allowed = index.allowed(scope)
            if bounded:
                for mask in _masks(index, condition, low, high):
                    allowed = mask if allowed is None else allowed & mask
            return rank(index, wanted, allowed)

        while True:
            matches = self._with_index(agent_id, best)
            entries = self._read_matches(agent_id, matches)
            hits = [
                _hit(entry, match) for match in matches if (entry := entries.get(match.seq)) is not None
            ]
            if condition is not None or scope is not ALL_TIERS:
                hits = [hit for hit in hits if _matches(hit.entry, scope, condition)]
            if len(matches) < wanted or len(hits) >= k:
                return hits if len(hits) <= k else hits[:k]
            # Some matches were deleted meanwhile, or do not match the filter exactly: rank more memories.
            wanted *= 4

    def _read_matches(self, agent_id: str, matches: Sequence[Match]) -> dict[int, MemoryEntry]:
        return self._reader.by_seq(
            agent_id, [match.seq for match in matches], [match.tier for match in matches]
        )

    def _with_index(self, agent_id: str, use: Callable[[AgentIndex], _T]) -> _T:
        """Call `use` with the agent's index, up to date; then trim the cache.

        It is locked only while it is brought up to date, unless parts of it must be read for `use`."""
        index = self._indexes.index(agent_id)
        # Use the lock directly in the `with` statement, so that an interrupt can't leave it locked.
        with index.lock:
            try:
                index.catch_up()
                view = index.view() if index.is_held else None
                result = use(index) if view is None else None
            except Exception:
                raise
            except BaseException:
                index.reset()  # an interrupt may have left a partly read block
                raise
        if index.changed_size:
            self._indexes.trim(agent_id)
        return cast(_T, result) if view is None else use(view)


def _check_query(query: object) -> None:
    if not isinstance(query, str):
        raise InvalidMemory(f"query is a {type(query).__name__}: search takes text")


def _hit(entry: MemoryEntry, match: Match) -> Hit:
    why = Why(match.words, match.similarity, match.context, match.bonus)
    return Hit(entry.id, entry, match.score, entry.tier, why, match.confidence)


def _masks(
    index: AgentIndex, condition: Filter | None, low: float | None, high: float | None
) -> Iterable[NDArray[np.bool_]]:
    if condition is not None:
        yield condition.positions(index)
    times = index.columns.created_at[: index.count]
    if low is not None:
        yield times >= low
    if high is not None:
        yield times <= high


def _matches(entry: MemoryEntry, scope: frozenset[Tier], condition: Filter | None) -> bool:
    """Check an entry exactly: it may have moved since the ranking, and the index rounds filter values."""
    if scope is not ALL_TIERS and Tier.parse(entry.tier) not in scope:
        return False
    return condition is None or condition.matches(entry)
