"""AgentMemorySystem: the memories of all agents, and the public methods to store and find them."""

from __future__ import annotations

import logging
import os
import weakref
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from msgspec import UNSET, UnsetType
from numpy.typing import NDArray

from memory._base.checks import (
    check_count,
    check_flag,
    check_name,
    check_names,
    check_number,
    check_step_bound,
    check_timestamp,
)
from memory._base.content import leaves_of
from memory._base.finite_clock import FiniteClock
from memory._base.weak_list import WeakList
from memory._base.yielding import BACKGROUND_PAUSE_SECONDS, low_priority, yield_lock
from memory._read.check_report import CheckReport
from memory._read.entry_cache import EntryCache
from memory._read.reader import Reader
from memory._read.reranking import Reranker as Reranker
from memory._read.searcher import Searcher
from memory._tiers.maintenance_thread import MaintenanceThread
from memory._tiers.transitions import TransitionReport, Transitions
from memory._transfer import jsonl as transfer
from memory._write.intake import Intake
from memory._write.intake import NewMemory as NewMemory
from memory.clock import Clock, SystemClock
from memory.compression import TierCodecs, configured_codecs
from memory.config import MIB, MemoryConfig
from memory.embedding import ContentEmbedder, Embedder, WordLlamaEmbedder, render
from memory.entry import Hit, MemoryEntry, Tier, TierName, Timestamp
from memory.errors import (
    CodecRetired,
    EmbedderMismatch,
    ExportIncomplete,
    ImportDamaged,
    InvalidMemory,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    short,
)
from memory.search import IndexCache
from memory.search.index import Decode
from memory.search.stored_terms import StoredTerms
from memory.storage import MemoryStore, Row, open_store
from memory.storage._backup import restore as restore_file

if TYPE_CHECKING:
    from memory.agent import AgentMemory
    from memory.compression.vectors import VectorCodec

_log = logging.getLogger(__name__)

_IMPORT_IN_RAM_BYTES = 64 * MIB
"""An export up to this size is read once, and its memories are in RAM until they are stored: about twice
its size. A larger one is read twice."""
_ENTRY_CACHE_SHARE = 4
"""A quarter of `cache_bytes` is for the entry cache. The rest is for search indexes."""
_CACHED_AGENTS = 64
"""Memories of a batch of more agents than this are not cached: few memories of an import are read soon."""
_MAX_UNSAVED_COUNTS = 4096
"""Without a maintenance thread, a write saves read counts if more memories have unsaved counts."""
_COUNTS_PER_SAVE = 256
"""The number of memories whose read counts one call saves, which takes 2 to 3 ms."""
_COUNTS_IN_BACKGROUND = 64
"""The number of memories whose read counts the background saves at once. A write waits for less than a
millisecond. With all counts at once, writes waited longer than 10 ms."""
_CHECK_COUNTS_EVERY = 64
"""Memories stored between two checks of the number of unsaved read counts."""
_FIRST_REAL_TIME = 100_000_000
"""Seconds since 1970: March 1973. No real memory is older, and few simulations have as many steps."""
_COUNTS_LOST = "read counts were not saved: %s"


class AgentMemorySystem:
    """A tiered memory for any number of agents in one durable file.

    Threads can share a system, and processes can open the same file. After a call that stores a memory has
    returned, the memory survives even if the process is killed.

    Arguments with the same meaning in all methods:
        agent_id: the agent that owns the memories.
        tier: "stm", "im" or "ltm"; methods that read also take "all".
        kind: a label such as "state", "action" or "text".
        step: the number of the agent's step to which a memory belongs.
        k, limit: the largest number of results; `limit=None` returns all.
        timestamp, since, until, start_time, end_time: seconds since 1970, or a datetime. Both ends of a
            range are included.
    An argument with a wrong type or value raises `InvalidMemory`, and nothing is changed.
    """

    def __init__(
        self,
        config: MemoryConfig | None = None,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Open the memory. Create its file if it does not exist.

        Args:
            config: all settings; by default a file in the user's data folder.
            embedder: turns text into vectors; by default WordLlama. A file always needs the same embedder.
            clock: the source of the current time; tests pass a `ManualClock`.
        """
        self.config = config or MemoryConfig()
        self.config.validate()
        self.clock: Clock = clock or SystemClock()
        self.embedder: Embedder = embedder or WordLlamaEmbedder()
        codecs = configured_codecs(self.config, self.embedder.dimensions)
        self._store: MemoryStore = open_store(self.config)
        try:
            self._assemble(codecs)
        except BaseException:
            self._store.close()
            raise

    def _assemble(self, codecs: dict[Tier, VectorCodec]) -> None:
        config, store = self.config, self._store
        self._check_embedder()
        embedder = ContentEmbedder(self.embedder)
        self._codecs = TierCodecs(store, config, self.embedder.dimensions, codecs)
        is_trusted = type(self.clock) is SystemClock
        clock = self.clock if is_trusted else FiniteClock(self.clock.now)
        self._intake = Intake(embedder, self._codecs, clock)
        entry_bytes = config.cache_bytes // _ENTRY_CACHE_SHARE
        self._entry_cache = cache = EntryCache(store, entry_bytes)
        terms = StoredTerms(store, self._codecs)
        self._indexes = IndexCache(
            store,
            self.embedder.dimensions,
            Decode(self._codecs.to_int8, terms.of_features, self._codecs.to_float32),
            config.cache_bytes - entry_bytes,
        )
        self._reader = Reader(store, self._codecs, cache)
        self._searcher = Searcher(
            store,
            self._reader,
            self._indexes,
            embedder,
            clock.now,
            config.rerank_candidates,
            config.rerank_seconds,
        )
        self._transitions = Transitions(
            store,
            self._codecs,
            terms.of_rows,
            config,
            clock,
            lambda content: embedder.embed([render(leaves_of(content))])[0],
            cache.read_counts.of,
        )
        self._writes = 0
        self._check_counts_at = _CHECK_COUNTS_EVERY
        """The number of writes at which the unsaved read counts are checked next."""
        self._maintenance: MaintenanceThread | None = None
        if config.maintenance == "background" and not config.read_only:
            self._maintenance = MaintenanceThread(
                self._transitions,
                interval_seconds=config.maintenance_interval_seconds,
                check_every=self._transitions.check_every,
                save_reads=partial(cache.save_read_counts_in_parts, _COUNTS_IN_BACKGROUND),
                after_round=partial(self._indexes.save, in_background=True),
                copy_log=store.copy_log,
                is_writing=store.is_writing,
                maintaining=partial(store.maintaining, 0.0),
            )
        _open_systems.add(self)
        self._close = weakref.finalize(
            self, _shut_down, self._maintenance, cache, self._indexes, store, config.read_only
        )

    @property
    def _embedder_name(self) -> str:
        return f"{self.embedder.name}/{self.embedder.dimensions}"

    def _check_embedder(self) -> None:
        """Refuse an embedder other than the file's: vectors of two embedders can't be compared."""
        name = self._embedder_name
        default = None if self.config.read_only else name
        known = self._store.setting("embedder", default)
        if known is not None and known != name:
            raise EmbedderMismatch(
                f"{self.config.shown_place} holds vectors of {known}, not of {name}: "
                "open it with that embedder, or export it and import it into a new file"
            )

    # -- opening and closing ------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *problem: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop the maintenance thread and release the file. A second call does nothing.

        If an interrupt stops `close`, call it again."""
        if self._close.alive:
            _shut_down(
                self._maintenance, self._entry_cache, self._indexes, self._store, self.config.read_only
            )
            self._close.detach()

    def agent(self, agent_id: str) -> AgentMemory:
        """Return a view of one agent: the same methods without `agent_id`."""
        from memory.agent import AgentMemory

        return AgentMemory(self, agent_id)

    # -- storing ------------------------------------------------------------------------------

    def add(
        self,
        agent_id: str,
        content: Any,
        *,
        kind: str | None = None,
        tier: TierName = Tier.STM,
        importance: float = 1.0,
        step: int | None = None,
        metadata: Mapping[str, Any] | None = None,
        id: str | None = None,
        timestamp: Timestamp | None = None,
        vector: Sequence[float] | NDArray[np.float32] | None = None,
    ) -> str:
        """Store one memory and return its id.

        Args:
            content: text, or any JSON value.
            kind: by default "text" for text and "state" for other values.
            importance: a number ≥ 0; the least important memories move down first.
            metadata: a JSON object. Searches and filters use it too.
            id: by default a new one. Storing an id again with the same content changes nothing; with
                other content it raises `IdConflict`.
            timestamp: when the memory happened; now by default. A search for a date finds the memory only
                if its timestamp was given.
            vector: is used instead of the embedder's vector.
        """
        return self._store_one(
            NewMemory(
                agent_id=agent_id,
                content=content,
                kind=kind,
                tier=tier,
                importance=importance,
                step=step,
                metadata=metadata,
                id=id,
                timestamp=timestamp,
                vector=vector,
            )
        )

    def add_many(self, batch: Iterable[Mapping[str, Any] | NewMemory]) -> list[str]:
        """Store many memories in one commit, all or none, and return their ids.

        `batch` may mix agents. The keys of an item are the arguments of `add`:
        {"agent_id": "ann", "content": "…"}.
        """
        return self._store_all(
            [item if isinstance(item, NewMemory) else _new_memory(item) for item in batch]
        )

    def store_agent_state(
        self,
        agent_id: str,
        state_data: Any,
        step_number: int | None = None,
        priority: float = 1.0,
        tier: TierName = Tier.STM,
        *,
        state_id: str | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Timestamp | None = None,
    ) -> str:
        """Store a state of an agent and return its id.

        The arguments have the same meaning as in `add`. `importance` overrides `priority`, which has the
        same meaning.
        """
        fields = (step_number, priority, tier, state_id, importance, metadata, timestamp)
        return self._add_kind("state", agent_id, state_data, *fields)

    def store_agent_action(
        self,
        agent_id: str,
        action_data: Any,
        step_number: int | None = None,
        priority: float = 1.0,
        tier: TierName = Tier.STM,
        *,
        action_id: str | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Timestamp | None = None,
    ) -> str:
        """Store an action of an agent and return its id; see `store_agent_state`."""
        fields = (step_number, priority, tier, action_id, importance, metadata, timestamp)
        return self._add_kind("action", agent_id, action_data, *fields)

    def store_agent_interaction(
        self,
        agent_id: str,
        interaction_data: Any,
        step_number: int | None = None,
        priority: float = 1.0,
        tier: TierName = Tier.STM,
        *,
        interaction_id: str | None = None,
        importance: float | None = None,
        metadata: Mapping[str, Any] | None = None,
        timestamp: Timestamp | None = None,
    ) -> str:
        """Store an interaction of an agent and return its id; see `store_agent_state`."""
        fields = (step_number, priority, tier, interaction_id, importance, metadata, timestamp)
        return self._add_kind("interaction", agent_id, interaction_data, *fields)

    def update(
        self,
        agent_id: str,
        id: str,
        *,
        content: Any = UNSET,
        metadata: Mapping[str, Any] | UnsetType | None = UNSET,
        importance: float | UnsetType = UNSET,
        kind: str | UnsetType = UNSET,
        step: int | UnsetType | None = UNSET,
        erase: bool = False,
    ) -> bool:
        """Change the given fields of a memory; return False if there is no such memory.

        A given field replaces the whole old value. The memory keeps its tier, its age and its position in
        the order of storing.

        Args:
            erase: remove the old values from all files before the call returns; see `delete`.
        """
        check_flag("erase", erase)
        changed = self._update(agent_id, id, content, metadata, importance, kind, step)
        if erase:
            self._erase()
        return changed

    def _update(
        self,
        agent_id: str,
        id: str,
        content: Any,
        metadata: Mapping[str, Any] | UnsetType | None,
        importance: float | UnsetType,
        kind: str | UnsetType,
        step: int | UnsetType | None,
    ) -> bool:
        agent_id, id = check_name("agent_id", agent_id), check_name("id", id)
        while True:
            record = self._reader.find_record(agent_id, id)
            rows = self._store.rows(agent_id, [record.seq]) if record else []
            if not rows:
                return False
            old = rows[0]
            entry = self._reader.decode(old)
            new = NewMemory(
                agent_id=agent_id,
                content=entry.content if content is UNSET else content,
                kind=entry.kind if isinstance(kind, UnsetType) else kind,
                tier=old.tier,
                importance=entry.importance if isinstance(importance, UnsetType) else importance,
                step=entry.step if isinstance(step, UnsetType) else step,
                metadata=entry.metadata if isinstance(metadata, UnsetType) else metadata,
                id=id,
                timestamp=entry.created_at,
                # The vector depends only on the content: keep it unless the content changes.
                vector=self._transitions.vectors_of([old])[0] if content is UNSET else None,
            )
            row = msgspec.structs.replace(self._intake.rows([new], [old.dated])[0], stored_at=old.stored_at)
            # If another thread or process has changed or moved the memory meanwhile, start again.
            try:
                if self._store.replace(old, row):
                    return True
            except CodecRetired:
                self._codecs.load()

    def delete(self, agent_id: str, id: str, *, erase: bool = False) -> bool:
        """Delete one memory; return False if there is no such memory.

        Args:
            erase: remove its bytes from all files before the call returns. Otherwise maintenance does this
                later. Erasing rewrites the whole file, and encodes all memories again if a dictionary was
                trained on the deleted one. It also erases what earlier calls have deleted.

        With `erase`, raises `EraseIncomplete` if the bytes could not be erased: the memory is deleted then,
        but for example a reader has used the log for longer than `busy_timeout_seconds`.
        """
        return self.delete_many(agent_id, [check_name("id", id)], erase=erase) == 1

    def delete_many(self, agent_id: str, ids: Sequence[str], *, erase: bool = False) -> int:
        """Delete memories in one commit; return how many existed. `delete` describes `erase`."""
        agent_id = check_name("agent_id", agent_id)
        check_flag("erase", erase)
        deleted = self._store.delete(agent_id, check_names("ids", ids))
        if erase:
            self._erase()
        return deleted

    def delete_all(self, agent_id: str, *, erase: bool = False) -> int:
        """Delete all memories of one agent; return how many there were. `delete` describes `erase`."""
        agent_id = check_name("agent_id", agent_id)
        check_flag("erase", erase)
        deleted = self._store.delete_agent(agent_id)
        self.drop_caches(agent_id)
        if erase:
            self._erase()
        return deleted

    def _erase(self) -> None:
        self._transitions.erase(self.config.busy_timeout_seconds)

    # -- reading and searching ----------------------------------------------------------------

    def get(self, agent_id: str, id: str) -> MemoryEntry | None:
        """Return the memory with this id from any tier, or None."""
        # This is the most frequent read, so it uses the entry cache directly: another call would add 5 %.
        # Names are checked only if no memory is found: what has a memory is a name.
        try:
            found = self._entry_cache.get(agent_id, id)
        except TypeError:  # not hashable
            check_name("agent_id", agent_id)
            check_name("id", id)
            raise
        if type(found) is MemoryEntry:
            return found
        if not (type(agent_id) is str and type(id) is str and agent_id.isascii() and id.isascii()):
            agent_id = check_name("agent_id", agent_id)
            id = check_name("id", id)
        version = found if type(found) is int else self._entry_cache.version(agent_id)
        return self._reader.get_uncached(agent_id, id, version)

    def get_many(self, agent_id: str, ids: Sequence[str]) -> list[MemoryEntry | None]:
        """Return one memory for each id, in the same order; None for an id that does not exist."""
        agent_id = check_name("agent_id", agent_id)
        ids = check_names("ids", ids)
        if len(ids) == 1:
            return [self.get(agent_id, ids[0])]
        return self._reader.get_many(agent_id, ids)

    def exists(self, agent_id: str, id: str, tier: TierName | None = None) -> bool:
        """Return whether there is such a memory, in one tier or (by default) in any."""
        scope = Tier.parse_scope(tier)
        record = self._reader.find_record(agent_id, id)
        return record is not None and record.tier in scope

    def search(
        self,
        agent_id: str,
        query: str,
        k: int = 10,
        *,
        tier: TierName = "all",
        filters: Mapping[str, Any] | None = None,
        since: Timestamp | None = None,
        until: Timestamp | None = None,
        now: Timestamp | None = None,
        min_confidence: float = 0.0,
        reranker: Reranker | None = None,
    ) -> list[Hit]:
        """Return the k memories that match a text best, by words and meaning, best first.

        Memories by the person that the text names, and of the time that it mentions, are preferred. The
        person is read from the metadata keys `speaker`, `author`, `sender` and `role`; "I" and "my" mean
        the role "user".

        Args:
            filters: attributes that a memory must have; see `retrieve_by_attributes`.
            since, until: when the memory happened.
            now: what "yesterday" or "last week" in the text is relative to; the current time by default.
            min_confidence: of the k hits, return only those with at least this `confidence`, from 0 to 1.
            reranker: scores the best `rerank_candidates` memories again, and its order counts. If it raises
                `RerankerUnavailable`, or takes longer than `rerank_seconds`, the order stays, and
                a warning is logged. Every other exception of the reranker is raised.
        """
        return self._searcher.search(
            agent_id, query, k, tier, filters, since, until, now, min_confidence, reranker
        )

    def iter_search(
        self,
        agent_id: str,
        query: str,
        most: int = 100,
        *,
        now: Timestamp | None = None,
        min_confidence: float = 0.0,
    ) -> Iterator[Hit]:
        """Yield the hits of `search` one by one, for callers that do not know `k` in advance.

        Args:
            most: the largest number of hits, before `min_confidence` leaves some out.
            now, min_confidence: see `search`.

        All memories are ranked before the first hit. Each hit is read, and the read is counted, shortly
        before it is yielded. So a changed memory is yielded in its current form, and a deleted memory is
        skipped.
        """
        return self._searcher.iter_search(agent_id, query, most, now, min_confidence)

    def retrieve_similar_states(
        self,
        agent_id: str,
        query_state: Any,
        k: int = 10,
        tier: TierName = "all",
        memory_type: str | None = None,
        threshold: float | None = None,
    ) -> list[Hit]:
        """Return the k memories nearest to a state, nearest first.

        Args:
            query_state: a text, any JSON value, or a vector as a NumPy array.
            memory_type: return only memories of this kind.
            threshold: the smallest cosine similarity of a hit.
        """
        return self._searcher.similar(agent_id, query_state, k, tier, memory_type, threshold)

    def retrieve_by_time_range(
        self,
        agent_id: str,
        start_time: Timestamp | None = None,
        end_time: Timestamp | None = None,
        *,
        tier: TierName = "all",
        limit: int | None = None,
    ) -> list[MemoryEntry]:
        """Return the memories that happened in a time range, oldest first.

        Bounds that look like steps, such as 0 and 10, raise `InvalidMemory` if the agent's memories are all
        much later: see `retrieve_by_step_range`.
        """
        low = None if start_time is None else check_timestamp("start_time", start_time)
        high = None if end_time is None else check_timestamp("end_time", end_time)
        found = self._reader.in_range(agent_id, "created_at", low, high, tier, limit)
        # A step is a whole number. A datetime is not a step.
        if not found and not isinstance(end_time, datetime) and high is not None and high.is_integer():
            self._refuse_steps(agent_id, high)
        return found

    def _refuse_steps(self, agent_id: str, end_time: float) -> None:
        """Raise `InvalidMemory` if a time looks like a step, and all of the agent's memories are later."""
        if not 0 <= end_time < _FIRST_REAL_TIME:
            return
        tiers = Tier.parse_scope("all")
        first = self._store.in_range(agent_id, "created_at", None, None, tiers=tiers, limit=1)
        # A simulation whose clock starts at 0 has earlier memories.
        if first and first[0].created_at >= _FIRST_REAL_TIME:
            raise InvalidMemory(
                f"end_time is {end_time:.0f} seconds after 1970, before all memories of {short(agent_id)}: "
                "for steps use retrieve_by_step_range"
            )

    def retrieve_by_step_range(
        self,
        agent_id: str,
        first_step: int | None = None,
        last_step: int | None = None,
        *,
        tier: TierName = "all",
        limit: int | None = None,
    ) -> list[MemoryEntry]:
        """Return the memories of a range of steps, both ends included, lowest step first."""
        low = None if first_step is None else check_step_bound("first_step", first_step)
        high = None if last_step is None else check_step_bound("last_step", last_step)
        return self._reader.in_range(agent_id, "step", low, high, tier, limit)

    def retrieve_by_attributes(
        self,
        agent_id: str,
        attributes: Mapping[str, Any],
        *,
        tier: TierName = "all",
        limit: int | None = None,
    ) -> list[MemoryEntry]:
        """Return the memories whose metadata or content has all attributes, newest first.

        Args:
            attributes: dotted paths and their values. A list matches if one of its elements matches. "kind"
                is the memory's kind: {"kind": "state", "position.room": "kitchen", "inventory": "sword"}.
        """
        return self._searcher.by_attributes(agent_id, attributes, tier, limit)

    def recent(self, agent_id: str, k: int = 10, *, tier: TierName = "all") -> list[MemoryEntry]:
        """Return the k memories that happened last, newest first."""
        k = check_count("k", k)
        return self._reader.in_range(agent_id, "created_at", None, None, tier, k, newest_first=True)

    # -- transitions --------------------------------------------------------------------------

    def maintain(self) -> TransitionReport:
        """Do all maintenance now: age limits, capacity limits, fitting codecs, freeing file space.

        On a server, one host does this at a time. Raises `StoreBusy` if another host takes too long."""
        with low_priority(), self._store.maintaining(self.config.busy_timeout_seconds) as is_alone:
            if not is_alone:
                raise StoreBusy(
                    "another host has maintained this memory for busy_timeout_seconds: try later"
                )
            self._entry_cache.save_read_counts()
            aged, _ = self._transitions.by_age()
            demoted, _ = self._transitions.by_capacity(self._store.agents())
            pause = partial(yield_lock, BACKGROUND_PAUSE_SECONDS)
            self._transitions.fit_codecs()
            self._transitions.settle(pause)
            self._transitions.give_back_space(pause)
            self._indexes.save(pause)
        return aged + demoted

    def force_transition_to_im(self, percentage: float = 100, agent_id: str | None = None) -> int:
        """Move a share of stm to im, least important first; return how many memories moved.

        Args:
            percentage: the share of the memories in stm, from 0 to 100.
            agent_id: by default all agents; then the percentage applies to each agent separately.
        """
        return self._force(Tier.STM, percentage, agent_id).moved_to_im

    def force_transition_to_ltm(self, percentage: float = 100, agent_id: str | None = None) -> int:
        """Move a share of im to ltm, least important first; see `force_transition_to_im`."""
        return self._force(Tier.IM, percentage, agent_id).moved_to_ltm

    def force_consolidation(self, agent_id: str | None = None) -> TransitionReport:
        """Move all memories of one agent, or of all, to ltm. Fit the codecs if there is enough data."""
        report = self._force(Tier.STM, 100, agent_id)
        self._transitions.fit_codecs()
        report += self._force(Tier.IM, 100, agent_id)
        self._transitions.settle()
        return report

    # -- statistics and caches ----------------------------------------------------------------

    def get_encoder(self, tier: TierName) -> VectorCodec:
        """Return the codec that currently encodes the tier's vectors."""
        return self._codecs.encoder(Tier.parse(tier))

    def get_memory_statistics(self, agent_id: str | None = None) -> dict[str, Any]:
        """Count the memories of one agent by tier; or of all agents, with the sizes of file and caches.

        "evicted" is the number of memories that were removed because of the limit of ltm.
        """
        if agent_id is not None:
            agent_id = check_name("agent_id", agent_id)
        counts = {tier.label: count for tier, count in self._store.counts(agent_id).items()}
        statistics: dict[str, Any] = {
            "total": sum(counts.values()),
            "tiers": counts,
            "evicted": self._store.evicted(agent_id),
        }
        if agent_id is None:
            statistics |= {
                "agents": len(self._store.agents()),
                "bytes_on_disk": self._store.bytes_on_disk(),
                "bytes_in_cache": self._indexes.nbytes + self._entry_cache.nbytes,
                "codecs": {tier.label: self._codecs.encoder(tier).name for tier in Tier},
            }
        return statistics

    def get_access_statistics(self) -> dict[str, Any]:
        """Count reads by tier, writes and searches since this system was opened."""
        reads = {tier.label: self._entry_cache.reads_by_tier[tier] for tier in Tier}
        return {"reads": reads, "writes": self._writes, "searches": self._searcher.searches}

    def agents(self) -> list[str]:
        """Return all agents that have at least one memory."""
        return self._store.agents()

    def drop_caches(self, agent_id: str | None = None) -> None:
        """Release the caches of one agent, or of all agents. The next use reads from the file again."""
        if agent_id is not None:
            agent_id = check_name("agent_id", agent_id)
        self._indexes.drop(agent_id)
        self._entry_cache.drop(agent_id)

    # -- checks and backups --------------------------------------------------------------------

    def check(self) -> CheckReport:
        """Check the whole memory: the file's structure, and that every memory can be read and decoded.

        This changes nothing. It may take minutes, because it reads the whole file. Other threads and
        processes may read and write meanwhile.
        """

        def check_row(row: Row) -> None:
            self._reader.decode(row)
            self._codecs.to_float32([(row.vector_codec, row.vector, row.fine)])

        intact, problems = self._store.check(check_row)
        return CheckReport(intact, tuple(problems))

    def backup(self, path: str | Path) -> None:
        """Write a copy of the whole memory, as it is now, to a file. Others may read and write meanwhile.

        Args:
            path: the new file; an existing backup there is replaced when the copy is complete.

        Raises `TransferFailed` if the file can't be written, `StoreCorrupt` if the memory is damaged.
        """
        self._store.back_up(Path(path))

    @staticmethod
    def restore(backup: str | Path, path: str | Path) -> None:
        """Replace a memory by a copy of a backup. Call this while no process has the memory open.

        Args:
            backup: a file that `backup` wrote. It is checked first, and is not changed.
            path: the memory's file. If it exists, it and its log are moved aside (`*.aside-…`).

        Raises `StoreBusy` if the memory is open, `StoreCorrupt` if the backup is damaged.
        """
        restore_file(Path(backup), Path(path))

    # -- export and import --------------------------------------------------------------------

    def export_jsonl(self, path: str | Path, agent_id: str | None = None) -> int:
        """Write the memories of all agents, or of one agent, to a file. Return the number of memories.

        The file has one JSON object per line, and a checksum at the end. Only its owner can read the file.
        If the codec of a memory's vector is damaged, the content is embedded again.
        Raises `ExportIncomplete` after the file was written, if memories are damaged: the file has all
        others. Raises `TransferFailed` if the file can't be written.
        """
        if agent_id is not None:
            agent_id = check_name("agent_id", agent_id)
        damaged: list[StoreCorrupt] = []
        with transfer.named_errors(path):
            count = transfer.export_rows(
                Path(path), self._readable_rows(agent_id, damaged), embedder=self._embedder_name
            )
        if damaged:
            raise ExportIncomplete(
                f"{path} has {count:,} memories, but not all of the memory: {len(damaged):,} problems; "
                f"check() lists all of them; the first: {damaged[0]}"
            )
        return count

    def _readable_rows(
        self, agent_id: str | None, damaged: list[StoreCorrupt]
    ) -> Iterator[tuple[Row, MemoryEntry, NDArray[np.float32]]]:
        """Yield the rows for an export; append the errors of damaged ones to `damaged`."""
        for row in self._store.all_rows(agent_id, damaged.append):
            try:
                yield row, self._reader.decode(row), self._transitions.vectors_of([row])[0]
            except StoreCorrupt as problem:
                damaged.append(problem)

    def import_jsonl(self, path: str | Path) -> int:
        """Store the memories of an export. Return how many of them were new.

        A damaged file raises `ImportDamaged`, and nothing is stored. Raises `TransferFailed` if the file
        can't be read.
        """
        path = Path(path)
        with transfer.named_errors(path):
            new = 0
            for batch, rows in self._checked_import(path):
                try:
                    seqs = self._store.add(rows)
                except CodecRetired:
                    self._codecs.load()
                    seqs = self._store.add(self._imported_rows(path, batch))
                new += sum(seq is not None for seq in seqs)
                self._record_all_writes(rows)
        return new

    def _checked_import(self, path: Path) -> Iterator[tuple[list[transfer.Imported], list[Row]]]:
        """Check all memories of an export, then yield them, with their rows."""
        fits = path.stat().st_size <= _IMPORT_IN_RAM_BYTES
        checked: deque[tuple[list[transfer.Imported], list[Row]]] = deque()
        for batch in transfer.read_batches(path, embedder=self._embedder_name):
            if fits:
                rows = self._imported_rows(path, batch)
                checked.append((batch, rows))
            else:
                with _named_import_errors(path):
                    rows = self._intake.only_ids([item.memory for item in batch])
            self._store.refuse_conflicts(rows)
        while checked:
            yield checked.popleft()
        if not fits:  # read it again: a second time takes less than the RAM that it would need
            for batch in transfer.read_batches(path, embedder=self._embedder_name):
                yield batch, self._imported_rows(path, batch)

    def _imported_rows(self, path: Path, batch: Sequence[transfer.Imported]) -> list[Row]:
        with _named_import_errors(path):
            rows = self._intake.rows([item.memory for item in batch], [item.dated for item in batch])
        return [item.restored(row) for item, row in zip(batch, rows, strict=True)]

    # -- private ------------------------------------------------------------------------------

    def _add_kind(
        self,
        kind: str,
        agent_id: str,
        content: Any,
        step: int | None,
        priority: float,
        tier: TierName,
        id: str | None,
        importance: float | None,
        metadata: Mapping[str, Any] | None,
        timestamp: Timestamp | None,
    ) -> str:
        """Store a memory for one of the `store_agent_…` methods."""
        return self.add(
            agent_id,
            content,
            kind=kind,
            tier=tier,
            importance=priority if importance is None else importance,
            step=step,
            metadata=metadata,
            id=id,
            timestamp=timestamp,
        )

    def _store_one(self, new: NewMemory) -> str:
        """Do what `_store_all` does, for one memory. The loops there would add a tenth of the time."""
        row = self._intake.row(new)
        agent = row.agent
        version = self._entry_cache.version(agent)
        try:
            seq = self._store.add((row,))[0]
        except CodecRetired:  # another process has replaced a dictionary: encode with the new one
            self._codecs.load()
            return self._store_one(new)
        if seq is not None and row.tier is Tier.STM:
            self._entry_cache.keep_new(row, seq, version)
        self._record_writes(agent, 1)
        return row.id

    def _store_all(self, batch: Sequence[NewMemory]) -> list[str]:
        if not batch:
            return []
        rows = self._intake.rows(batch)
        agents = {row.agent for row in rows}
        is_import = len(agents) > _CACHED_AGENTS
        versions = {} if is_import else {agent: self._entry_cache.version(agent) for agent in agents}
        try:
            seqs = self._store.add(rows)
        except CodecRetired:
            self._codecs.load()
            return self._store_all(batch)
        if not is_import:
            self._entry_cache.keep_all_new(rows, seqs, versions)
        self._record_all_writes(rows)
        return [row.id for row in rows]

    def _record_all_writes(self, rows: Sequence[Row]) -> None:
        for agent, count in Counter(row.agent for row in rows).items():
            self._record_writes(agent, count)

    def _record_writes(self, agent: str, count: int) -> None:
        """Count writes for the maintenance thread. Without that thread, save some of the read counts."""
        self._writes += count
        if self._maintenance is not None:
            self._maintenance.record_writes(agent, count)
        elif self._writes >= self._check_counts_at:
            self._check_counts_at = self._writes + _CHECK_COUNTS_EVERY
            if self._entry_cache.read_counts.memories > _MAX_UNSAVED_COUNTS:
                try:
                    self._entry_cache.save_read_counts(_COUNTS_PER_SAVE)
                except StoreError as problem:  # the caller's memory is stored, so its call must not fail
                    _log.warning(_COUNTS_LOST, problem)

    def _force(self, tier: Tier, percentage: float, agent_id: str | None) -> TransitionReport:
        share = check_number("percentage", percentage)
        if not 0 <= share <= 100:
            raise InvalidMemory(f"percentage is {short(percentage)}: use a number from 0 to 100")
        if agent_id is not None:
            agent_id = check_name("agent_id", agent_id)
        self._entry_cache.save_read_counts()
        report = TransitionReport()
        for agent in self._store.agents() if agent_id is None else [agent_id]:
            count = self._store.counts(agent)[tier]
            report += self._transitions.demote(agent, tier, round(count * share / 100))
        return report

    def _start_in_child(self) -> None:
        """Start with empty caches and no thread: a forked child can't use those of its parent."""
        self._codecs.start_in_child()
        self._entry_cache.start_empty()
        self._indexes.start_empty()
        if self._maintenance is not None:
            self._maintenance.reset()


@contextmanager
def _named_import_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except InvalidMemory as problem:
        raise ImportDamaged(f"{path} holds a memory that can't be stored: {problem}") from None


def _new_memory(item: Mapping[str, Any]) -> NewMemory:
    try:
        return NewMemory(**item)
    except TypeError as problem:
        raise InvalidMemory(
            f"an item of the batch can't be read: {problem}; use the arguments of add() as keys"
        ) from None


def _shut_down(
    maintenance: MaintenanceThread | None,
    cache: EntryCache,
    indexes: IndexCache,
    store: MemoryStore,
    read_only: bool,
) -> None:
    """Close a system. Garbage collection and exit also call this if `close` was never called.

    After an interrupt, this can be called again."""
    if maintenance is not None:
        maintenance.stop()
    try:
        if not read_only:
            cache.save_read_counts()
    except StoreError as problem:
        # Read counts only adjust importance. An error here must not hide an error of the caller.
        _log.warning(_COUNTS_LOST, problem)
    finally:
        cache.close()
        store.close()
        indexes.start_empty()


_open_systems: WeakList[AgentMemorySystem] = WeakList()


def _after_fork_in_child() -> None:
    for system in list(_open_systems):
        system._start_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
