"""Search memories with an agent's index: by text, by vector, by attributes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from memory._base.checks import check_count, check_name, check_number, check_timestamp, check_vector
from memory._base.content import leaves_of
from memory._read.reader import Reader
from memory._read.reranking import BoundedReranking, Reranker
from memory.embedding import ContentEmbedder, render
from memory.entry import ALL_TIERS, Hit, MemoryEntry, Tier, TierName, Timestamp, Why
from memory.errors import InvalidMemory
from memory.search import IndexCache, Match, by_text, by_vector, query_vector_of
from memory.search.filters import Filter
from memory.search.index import AgentIndex
from memory.search.ranking import QueryVector
from memory.storage import AgentState, MemoryStore
from memory.storage.base import AsksAhead

_Rank: TypeAlias = Callable[[AgentIndex, int, NDArray[np.bool_] | None], list[Match]]
"""Ranks an index: returns up to k matches among the allowed positions, best first."""
_Rescore: TypeAlias = Callable[[Sequence[Match]], Mapping[int, float]]
"""Returns new scores by seq, for some of the best matches."""
_T = TypeVar("_T")
_READ_AT_ONCE = 500
"""Memories that a search by attributes reads in one query."""
_READ_AHEAD = 8
"""Memories that `iter_search` reads in one query. A context usually needs about this many."""


class Searcher:
    """Ranks memories and reads the best ones through a `Reader`."""

    def __init__(
        self,
        store: MemoryStore,
        reader: Reader,
        indexes: IndexCache,
        embedder: ContentEmbedder,
        now: Callable[[], float],
        rerank_candidates: int,
        rerank_seconds: float | None,
    ) -> None:
        self._remote = store if isinstance(store, AsksAhead) else None
        self._is_fresh = store.is_fresh
        self._reader = reader
        self._indexes = indexes
        self._embedder = embedder
        self._now = now
        self._rerank_candidates = rerank_candidates
        self._reranking = BoundedReranking(rerank_seconds)
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
        reranker: Reranker | None = None,
    ) -> list[Hit]:
        """See `AgentMemorySystem.search`."""
        _check_query(query)
        if reranker is not None and not isinstance(reranker, Reranker):
            raise InvalidMemory(f"reranker is a {type(reranker).__name__} without a method rerank()")
        lowest = check_number("min_confidence", min_confidence)
        moment = self._now() if now is None else check_timestamp("now", now)

        early = self._early(agent_id)
        query_vector = self._query_vector if early is None else early.after(self._query_vector)

        def rank(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> list[Match]:
            ranking = by_text(index, query, query_vector, k, allowed, moment)
            return [] if ranking is None else ranking.matches()

        rescore = None if reranker is None else self._rescoring(agent_id, query, reranker)
        hits = self._search(agent_id, k, tier, filters, since, until, rank, rescore, early)
        return hits if lowest <= 0 else [hit for hit in hits if (hit.confidence or 0.0) >= lowest]

    def _rescoring(self, agent_id: str, query: str, reranker: Reranker) -> _Rescore:
        """Return what gives the first matches the scores of a reranker."""

        def rescore(matches: Sequence[Match]) -> Mapping[int, float]:
            first = matches[: self._rerank_candidates]
            if not first:
                return {}
            entries = self._reader.peek_by_seq(
                agent_id, [match.seq for match in first], [match.tier for match in first]
            )
            found = {match.seq: entries[match.seq] for match in first if match.seq in entries}
            if not found:
                return {}
            scores = self._reranking.scores(reranker, query, list(found.values()))
            return {} if scores is None else dict(zip(found, scores, strict=True))

        return rescore

    def iter_search(
        self,
        agent_id: str,
        query: str,
        most: int,
        now: Timestamp | None = None,
        min_confidence: float = 0.0,
    ) -> Iterator[Hit]:
        """See `AgentMemorySystem.iter_search`."""
        # This is not a generator, so that it checks the arguments at the call, not at the first hit.
        agent_id = check_name("agent_id", agent_id)
        _check_query(query)
        lowest = check_number("min_confidence", min_confidence)
        moment = None if now is None else check_timestamp("now", now)
        return self._iter_hits(agent_id, query, check_count("most", most), moment, lowest)

    def _iter_hits(
        self, agent_id: str, query: str, most: int, now: float | None, lowest: float
    ) -> Iterator[Hit]:
        self.searches += 1
        if most == 0:
            return
        moment = self._now() if now is None else now
        early = self._early(agent_id)
        query_vector = self._query_vector if early is None else early.after(self._query_vector)
        ranking = self._with_index(
            agent_id, lambda index: by_text(index, query, query_vector, most, index.living, moment), early
        )
        if ranking is None:
            return
        entries: dict[int, MemoryEntry] = {}
        for start in range(0, len(ranking), _READ_AHEAD):
            matches = ranking.matches(start, start + _READ_AHEAD)
            if lowest > 0:
                matches = [match for match in matches if (match.confidence or 0.0) >= lowest]
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

        early = self._early(agent_id)

        def rank(index: AgentIndex, k: int, allowed: NDArray[np.bool_] | None) -> list[Match]:
            if early is not None:
                early.send()
            return by_vector(index, vector, k, allowed, threshold)

        if memory_type is not None:
            memory_type = check_name("memory_type", memory_type)
        filters = None if memory_type is None else {"kind": memory_type}
        return self._search(agent_id, k, tier, filters, None, None, rank, early=early)

    def by_attributes(
        self, agent_id: str, attributes: Mapping[str, Any], tier: TierName, limit: int | None
    ) -> list[MemoryEntry]:
        """See `AgentMemorySystem.retrieve_by_attributes`."""
        if limit is not None:
            limit = check_count("limit", limit)
        agent_id = check_name("agent_id", agent_id)
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
        rescore: _Rescore | None = None,
        early: _EarlyState | None = None,
    ) -> list[Hit]:
        """Rank the memories within the bounds, read the best ones, and check them against the filter."""
        agent_id = check_name("agent_id", agent_id)
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
        scores: Mapping[int, float] | None = None

        def best(index: AgentIndex) -> list[Match]:
            allowed = index.allowed(scope)
            if bounded:
                for mask in _masks(index, condition, low, high):
                    allowed = mask if allowed is None else allowed & mask
            return rank(index, ranked, allowed)

        while True:
            ranked = wanted if rescore is None else max(wanted, self._rerank_candidates)
            matches = self._with_index(agent_id, best, early)
            is_complete = len(matches) < ranked
            if rescore is not None:
                scores = rescore(matches) if scores is None else scores  # a reranker is called once
                matches = _reordered(matches, scores)
                is_complete = is_complete and len(matches) <= wanted
                matches = matches[:wanted]
            entries = self._read_matches(agent_id, matches)
            hits = [
                _hit(entry, match, None if scores is None else scores.get(match.seq))
                for match in matches
                if (entry := entries.get(match.seq)) is not None
            ]
            if condition is not None or scope is not ALL_TIERS:
                hits = [hit for hit in hits if _matches(hit.entry, scope, condition)]
            if is_complete or len(hits) >= k:
                return hits if len(hits) <= k else hits[:k]
            # Some matches were deleted meanwhile, or do not match the filter exactly: rank more memories.
            wanted *= 4

    def _read_matches(self, agent_id: str, matches: Sequence[Match]) -> dict[int, MemoryEntry]:
        return self._reader.by_seq(
            agent_id, [match.seq for match in matches], [match.tier for match in matches]
        )

    def _early(self, agent_id: str) -> _EarlyState | None:
        """Return what asks for the agent's state ahead, if the store is on a server."""
        return None if self._remote is None else _EarlyState(self._remote, agent_id)

    def _with_index(
        self, agent_id: str, use: Callable[[AgentIndex], _T], early: _EarlyState | None = None
    ) -> _T:
        """Call `use` with the agent's index, up to date; then trim the cache.

        It is locked only while it is brought up to date, unless parts of it must be read for `use`.
        With `early`, the index is used while the server is asked whether it is up to date. That is tried
        only if the last search found nothing new: otherwise the index would often be used twice."""
        index = self._indexes.index(agent_id)
        if early is not None and index.was_current and not self._is_fresh(agent_id):
            ahead: tuple[AgentIndex, AgentState] | None = None
            with index.lock:
                if index.was_current and index.is_held:
                    ahead = index.view(), index.state
            if ahead is not None:
                early.may_send = True
                result = use(ahead[0])
                if early.state() == ahead[1]:
                    return result
                index.was_current = False
        # Use the lock directly in the `with` statement, so that an interrupt can't leave it locked.
        with index.lock:
            try:
                index.catch_up()
                if not index.is_held:
                    if self._indexes.save_too_large(agent_id):
                        return self._with_index(agent_id, use, early)
                    index.catch_up()  # an attempt that failed may have reset it
                view = index.view() if index.is_held else None
                found = use(index) if view is None else None
            except Exception:
                raise
            except BaseException:
                index.reset()  # an interrupt may have left a partly read block
                raise
        if index.changed_size:
            self._indexes.trim(agent_id)
        return cast(_T, found) if view is None else use(view)


class _EarlyState:
    """Asks for the state of an agent while its index is used. Use one for each search."""

    def __init__(self, store: AsksAhead, agent_id: str) -> None:
        self._store = store
        self._agent = agent_id
        self._answer: Callable[[], AgentState] | None = None
        self.may_send = False
        """Set when the index is used before its state is known."""

    def send(self) -> None:
        if self.may_send:
            self.may_send = False
            self._answer = self._store.ask_state(self._agent)

    def after(self, query_vector: QueryVector) -> QueryVector:
        """Return what embeds a query, then sends. An embedder may take long, or fork, or use the memory: it
        should not do that while a connection waits for it."""
        return query_vector._replace(after=self.send)

    def state(self) -> AgentState:
        """Wait for the answer."""
        self.send()  # `after` sends nothing if there was no query to embed
        answer, self._answer = self._answer, None
        assert answer is not None
        return answer()


def _check_query(query: object) -> None:
    if not isinstance(query, str):
        raise InvalidMemory(f"query is a {type(query).__name__}: search takes text")


def _reordered(matches: list[Match], scores: Mapping[int, float]) -> list[Match]:
    """Put the matches that have a score first, the highest first. The rest keep their order."""
    scored = [match for match in matches if match.seq in scores]
    scored.sort(key=lambda match: scores[match.seq], reverse=True)
    return scored + [match for match in matches if match.seq not in scores]


def _hit(entry: MemoryEntry, match: Match, reranked: float | None = None) -> Hit:
    why = Why(match.words, match.similarity, match.context, match.bonus, reranked)
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
