"""AgentMemorySystem: the memories of all agents, and the verbs of the public interface."""

from __future__ import annotations

import logging
import os
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.checks import check_name, check_names, check_number
from memory._base.yielding import BACKGROUND_PAUSE_SECONDS, low_priority, yield_lock
from memory._read.entry_cache import RecordCache
from memory._read.finding import Finding, Moment, TierName
from memory._tiers.maintenance_thread import MaintenanceThread
from memory._tiers.transitions import TransitionReport, Transitions
from memory._transfer import jsonl as transfer
from memory._write.intake import Intake
from memory._write.intake import NewMemory as NewMemory
from memory.clock import Clock, SystemClock
from memory.compression import TierCodecs, configured_codecs
from memory.config import MemoryConfig
from memory.embedding import ContentEmbedder, Embedder, WordLlamaEmbedder
from memory.entry import Tier
from memory.errors import EmbedderMismatch, ImportDamaged, InvalidMemory, StoreError, short
from memory.search import IndexCache, query_vector_of
from memory.storage import MemoryStore, Row, SQLiteStore

if TYPE_CHECKING:
    from memory.agent import AgentMemory
    from memory.compression.vectors import VectorCodec

_log = logging.getLogger(__name__)

_CHECKS_A_LIMIT = 64  # an agent's limit is looked at every limit ÷ 64 memories
_RECORDS_SHARE = 4  # of the cache's bytes, one in four is for records
_USES_WAITING = 4096  # memories whose uses wait for the maintenance; those of others wait no longer
_USES_AT_ONCE = 256  # memories; saving them takes the call that does it two or three milliseconds
_LOOK_AT_USES_EVERY = 64  # memories that are stored
_USES_LOST = "how often memories were used was not saved: %s"


class _Unset:
    """Stands for "leave as it is" where None is a value."""


_UNSET = _Unset()


class AgentMemorySystem(Finding):
    """A tiered memory for any number of agents on one durable file.

    Threads may share it, and processes may open the same file. When a storing call has returned, the
    memory survives the end of the process by any cause.
    """

    def __init__(
        self,
        config: MemoryConfig | None = None,
        *,
        embedder: Embedder | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.config = config or MemoryConfig()
        self.config.validate()
        self.clock: Clock = clock or SystemClock()
        self.embedder: Embedder = embedder or WordLlamaEmbedder()
        codecs = configured_codecs(self.config, self.embedder.dimensions)
        self._store: MemoryStore = SQLiteStore(
            None if self.config.is_in_memory else self.config.path,
            disk=self.config.durability == "disk",
            busy_timeout=self.config.busy_timeout_seconds,
            read_only=self.config.read_only,
        )
        try:
            self._assemble(codecs)
        except BaseException:
            self._store.close()
            raise

    def _assemble(self, codecs: dict[Tier, VectorCodec]) -> None:
        config, store = self.config, self._store
        self._check_embedder()
        self._content_embedder = ContentEmbedder(self.embedder)
        self._query_vector = query_vector_of(self._content_embedder)
        self._forms = TierCodecs(store, config, self.embedder.dimensions, codecs)
        self._intake = Intake(self._content_embedder, self._forms, self.clock)
        records_bytes = config.cache_bytes // _RECORDS_SHARE
        self._records = RecordCache(store, records_bytes)
        self._indexes = IndexCache(
            store,
            self.embedder.dimensions,
            self._forms.to_int8,
            config.cache_bytes - records_bytes,
        )
        self._transitions = Transitions(store, self._forms, config, self.clock)
        self._searches = 0
        self._writes = 0
        self._look_at_uses = _LOOK_AT_USES_EVERY
        """At how many writes."""
        self._maintenance: MaintenanceThread | None = None
        if config.maintenance == "background" and not config.read_only:
            limits = [
                limit
                for limit in (config.stm_config.memory_limit, config.im_config.memory_limit)
                if limit is not None
            ]
            self._maintenance = MaintenanceThread(
                self._transitions,
                interval_seconds=config.maintenance_interval_seconds,
                check_every=max(min(limits, default=1000) // _CHECKS_A_LIMIT, 1),
                before_round=_use_saver(self._records, store),
            )
        save_uses = None if config.read_only else _use_saver(self._records, store)
        _open_systems.add(self)
        self._close = weakref.finalize(self, _shut_down, self._maintenance, self._records, save_uses, store)

    @property
    def _embedder_name(self) -> str:
        return f"{self.embedder.name}/{self.embedder.dimensions}"

    def _check_embedder(self) -> None:
        """Vectors of two embedders can't be compared: a file belongs to the one it began with."""
        name = self._embedder_name
        default = None if self.config.read_only else name
        known = self._store.setting("embedder", default)
        if known is not None and known != name:
            raise EmbedderMismatch(
                f"{self.config.ltm_config.db_path} holds vectors of {known}, not of {name}: "
                "open it with that embedder, or export it and import it into a new file"
            )

    # -- opening and closing ------------------------------------------------------------------

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the background and release the file; may be called twice."""
        self._close()

    def agent(self, agent_id: str) -> AgentMemory:
        """The same verbs for one agent, without naming it each time."""
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
        timestamp: Moment | None = None,
        vector: Sequence[float] | NDArray[np.float32] | None = None,
    ) -> str:
        """Store one memory, text or any JSON value; its id.

        `timestamp` says when it happened (default: now) and then belongs to what it is found by.
        Storing an id again with the same content changes nothing; with other content it is an
        IdConflict. `vector` replaces the embedder's.
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
        """Store many memories, of one agent or several, all or none: one commit; their ids.

        Each item has the arguments of `add` as its keys: {"agent_id": "ann", "content": "…"}.
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
        timestamp: Moment | None = None,
    ) -> str:
        """Store a state of an agent; its id. `importance` counts before `priority`."""
        weight = priority if importance is None else importance
        fields: dict[str, Any] = {"importance": weight, "metadata": metadata, "timestamp": timestamp}
        return self.add(
            agent_id, state_data, kind="state", tier=tier, step=step_number, id=state_id, **fields
        )

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
        timestamp: Moment | None = None,
    ) -> str:
        """Store what an agent did; its id."""
        weight = priority if importance is None else importance
        fields: dict[str, Any] = {"importance": weight, "metadata": metadata, "timestamp": timestamp}
        return self.add(
            agent_id, action_data, kind="action", tier=tier, step=step_number, id=action_id, **fields
        )

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
        timestamp: Moment | None = None,
    ) -> str:
        """Store what happened between an agent and somebody else; its id."""
        weight = priority if importance is None else importance
        fields: dict[str, Any] = {"importance": weight, "metadata": metadata, "timestamp": timestamp}
        return self.add(
            agent_id,
            interaction_data,
            kind="interaction",
            tier=tier,
            step=step_number,
            id=interaction_id,
            **fields,
        )

    def update(
        self,
        agent_id: str,
        id: str,
        *,
        content: Any = _UNSET,
        metadata: Mapping[str, Any] | _Unset | None = _UNSET,
        importance: float | _Unset = _UNSET,
        kind: str | _Unset = _UNSET,
        step: int | _Unset | None = _UNSET,
    ) -> bool:
        """Change some fields of a memory, which stays in its tier; False if there is none.

        Its age and its place in the order of storing stay as they were.
        """
        while True:
            record = self._record(agent_id, id)
            rows = self._store.rows(agent_id, [record.seq]) if record else []
            if not rows:
                return False
            old = rows[0]
            entry = self._entry(old)
            new = NewMemory(
                agent_id=agent_id,
                content=entry.content if isinstance(content, _Unset) else content,
                kind=entry.kind if isinstance(kind, _Unset) else kind,
                tier=old.tier,
                importance=entry.importance if isinstance(importance, _Unset) else importance,
                step=entry.step if isinstance(step, _Unset) else step,
                metadata=entry.metadata if isinstance(metadata, _Unset) else metadata,
                id=id,
                timestamp=entry.created_at,
                # The vector says what the content says: it is kept unless that changes.
                vector=self._finest(old) if isinstance(content, _Unset) else None,
            )
            row = msgspec.structs.replace(self._intake.rows([new], [old.dated])[0], stored_at=old.stored_at)
            # Somebody else may have changed or moved it meanwhile: then this begins anew.
            if self._store.replace(old, row):
                return True

    def delete(self, agent_id: str, id: str) -> bool:
        """Remove one memory for good; False if there is none."""
        check_name("id", id)
        return self.delete_many(agent_id, [id]) == 1

    def delete_many(self, agent_id: str, ids: Sequence[str]) -> int:
        """Remove memories for good, all in one step; how many there were."""
        check_name("agent_id", agent_id)
        return self._store.delete(agent_id, check_names("ids", ids))

    def delete_all(self, agent_id: str) -> int:
        """Remove everything of one agent and nothing of anybody else; how many there were."""
        check_name("agent_id", agent_id)
        removed = self._store.delete_agent(agent_id)
        self._records.drop(agent_id)
        self._indexes.drop(agent_id)
        return removed

    # -- transitions --------------------------------------------------------------------------

    def maintain(self) -> TransitionReport:
        """Do now, to the end, what the background does by and by: age, limits, fitting codecs, and
        giving back what is free in the file."""
        with low_priority():
            self._save_uses()
            report, _ = self._transitions.by_age()
            report += self._transitions.by_capacity(self._store.agents())
            self._transitions.fit_codecs()
            self._transitions.give_back_space(partial(yield_lock, BACKGROUND_PAUSE_SECONDS))
        return report

    def force_transition_to_im(self, percentage: float = 100, agent_id: str | None = None) -> int:
        """Move that share of stm to im, the least important first; how many were moved."""
        return self._force(Tier.STM, percentage, agent_id).moved_to_im

    def force_transition_to_ltm(self, percentage: float = 100, agent_id: str | None = None) -> int:
        """Move that share of im to ltm, the least important first; how many were moved."""
        return self._force(Tier.IM, percentage, agent_id).moved_to_ltm

    def force_consolidation(self, agent_id: str | None = None) -> TransitionReport:
        """Move everything down to ltm, and fit the codecs on the way if there is enough data."""
        report = self._force(Tier.STM, 100, agent_id)
        self._transitions.fit_codecs()
        return report + self._force(Tier.IM, 100, agent_id)

    # -- looking at the memory itself ---------------------------------------------------------

    def get_encoder(self, tier: TierName) -> VectorCodec:
        """The codec that the tier's vectors are written with now."""
        return self._forms.encoder(Tier.parse(tier))

    def get_memory_statistics(self, agent_id: str | None = None) -> dict[str, Any]:
        """How many memories are where; of one agent, or of all with the sizes of file and cache."""
        if agent_id is not None:
            check_name("agent_id", agent_id)
        counts = {tier.label: count for tier, count in self._store.counts(agent_id).items()}
        statistics: dict[str, Any] = {
            "total": sum(counts.values()),
            "tiers": counts,
            "evicted": self._store.forgotten(agent_id),
        }
        if agent_id is None:
            statistics |= {
                "agents": len(self._store.agents()),
                "bytes_on_disk": self._store.bytes_on_disk(),
                "bytes_in_cache": self._indexes.nbytes + self._records.nbytes,
                "codecs": {tier.label: self._forms.encoder(tier).name for tier in Tier},
            }
        return statistics

    def get_access_statistics(self) -> dict[str, Any]:
        """What this process has done since it opened the memory."""
        reads = {tier.label: self._records.reads[tier] for tier in Tier}
        return {"reads": reads, "writes": self._writes, "searches": self._searches}

    def agents(self) -> list[str]:
        """All agents that have ever stored something."""
        return self._store.agents()

    def drop_caches(self, agent_id: str | None = None) -> None:
        """Release the RAM of one agent, or of all; the next use reads from the file again."""
        if agent_id is not None:
            check_name("agent_id", agent_id)
        self._indexes.drop(agent_id)
        self._records.drop(agent_id)

    # -- taking it elsewhere ------------------------------------------------------------------

    def export_jsonl(self, path: str | Path, agent_id: str | None = None) -> int:
        """Write all memories, or one agent's, as checksummed JSON lines; how many."""
        if agent_id is not None:
            check_name("agent_id", agent_id)
        rows = self._store.all_rows(agent_id)
        return transfer.export_rows(
            Path(path),
            ((row, self._entry(row), self._finest(row)) for row in rows),
            embedder=self._embedder_name,
        )

    def import_jsonl(self, path: str | Path) -> int:
        """Store the memories of an export; how many were new. A damaged file stores nothing."""
        # Everything is checked once before the first memory is stored.
        for rows in self._imported_rows(Path(path)):
            self._store.refuse_conflicts(rows)
        new = 0
        for rows in self._imported_rows(Path(path)):
            new += sum(seq is not None for seq in self._store.add(rows))
            self._note_all_writes(rows)
        return new

    def _imported_rows(self, path: Path) -> Iterator[list[Row]]:
        for batch in transfer.read_batches(path, embedder=self._embedder_name):
            try:
                rows = self._intake.rows([item.memory for item in batch], [item.dated for item in batch])
            except InvalidMemory as problem:
                raise ImportDamaged(f"{path} holds what can't be stored: {problem}") from None
            yield [item.restored(row) for item, row in zip(batch, rows, strict=True)]

    # -- inside -------------------------------------------------------------------------------

    def _store_one(self, new: NewMemory) -> str:
        """`_store_all` for the commonest case: what it does around the commit is a tenth of the time."""
        rows = self._intake.rows([new])
        row = rows[0]
        agent = row.agent
        moment = self._records.moment(agent)
        seq = self._store.add(rows)[0]
        if seq is not None and row.tier is Tier.STM:
            self._records.keep_new(row, seq, moment)
        self._note_writes(agent, 1)
        return row.id

    def _store_all(self, batch: Sequence[NewMemory]) -> list[str]:
        if not batch:
            return []
        rows = self._intake.rows(batch)
        moments = {agent: self._records.moment(agent) for agent in {row.agent for row in rows}}
        seqs = self._store.add(rows)
        for row, seq in zip(rows, seqs, strict=True):
            if seq is not None and row.tier is Tier.STM:
                self._records.keep_new(row, seq, moments[row.agent])
        self._note_all_writes(rows)
        return [row.id for row in rows]

    def _note_all_writes(self, rows: Sequence[Row]) -> None:
        for agent, count in Counter(row.agent for row in rows).items():
            self._note_writes(agent, count)

    def _note_writes(self, agent: str, count: int) -> None:
        self._writes += count
        if self._maintenance is not None:
            self._maintenance.record_writes(agent, count)
        elif self._writes >= self._look_at_uses:
            self._look_at_uses = self._writes + _LOOK_AT_USES_EVERY
            if self._records.uses.memories > _USES_WAITING:
                self._save_some_uses()

    def _finest(self, row: Row) -> NDArray[np.float32]:
        vector: NDArray[np.float32] = self._forms.to_float32([(row.vector_codec, row.vector, row.fine)])[0]
        return vector

    def _force(self, tier: Tier, percentage: float, agent_id: str | None) -> TransitionReport:
        share = check_number("percentage", percentage)
        if not 0 <= share <= 100:
            raise InvalidMemory(f"percentage is {short(percentage)}: use a number from 0 to 100")
        if agent_id is not None:
            check_name("agent_id", agent_id)
        self._save_uses()
        report = TransitionReport()
        for agent in self._store.agents() if agent_id is None else [agent_id]:
            count = self._store.counts(agent)[tier]
            report += self._transitions.demote(agent, tier, round(count * share / 100))
        return report

    def _start_in_child(self) -> None:
        """After a fork: the parent's caches stay with it, and so does its background."""
        self._forms.start_in_child()
        self._records.start_empty()
        self._indexes.start_empty()
        if self._maintenance is not None:
            self._maintenance.reset()

    def _save_uses(self) -> None:
        _use_saver(self._records, self._store)()

    def _save_some_uses(self) -> None:
        """What the background would do: without it, and while nobody calls `maintain`, storing calls do."""
        try:
            self._store.add_uses(self._records.uses.take(_USES_AT_ONCE))
        except StoreError as problem:
            _log.warning(_USES_LOST, problem)  # what the call was asked to store is stored


def _new_memory(item: Mapping[str, Any]) -> NewMemory:
    try:
        return NewMemory(**item)
    except TypeError as problem:
        raise InvalidMemory(
            f"an item of the batch can't be read: {problem}; use the arguments of add() as keys"
        ) from None


def _use_saver(records: RecordCache, store: MemoryStore) -> Callable[[], None]:
    def save() -> None:
        uses = records.uses.take()
        if uses:
            store.add_uses(uses)

    return save


def _shut_down(
    maintenance: MaintenanceThread | None,
    records: RecordCache,
    save_uses: Callable[[], None] | None,
    store: MemoryStore,
) -> None:
    """Also called when a system was never closed: at garbage collection or at exit."""
    if maintenance is not None:
        maintenance.stop()
    try:
        if save_uses is not None:
            save_uses()
    except StoreError as problem:
        # They only adjust importance. A full disk must not hide what the caller was about to learn.
        _log.warning(_USES_LOST, problem)
    finally:
        records.close()
        store.close()


_open_systems: weakref.WeakSet[AgentMemorySystem] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for system in list(_open_systems):
        system._start_in_child()


os.register_at_fork(after_in_child=_after_fork_in_child)
