"""Move memories down the tiers: by age, by capacity, on request. Evict from ltm if ltm has a limit.

Each batch is one transaction. It moves only rows that have not changed since they were read. So a crash, a
deletion, or another process that moves the same rows can't lose or duplicate a memory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory._base.content import decode_body
from memory._base.yielding import yield_gil, yield_lock
from memory._tiers.importance import least_first
from memory.clock import Clock
from memory.compression import TierCodecs
from memory.config import MemoryConfig
from memory.entry import Tier
from memory.errors import CodecRetired, EraseIncomplete, StoreCorrupt
from memory.storage import MemoryStore, Move, Row

_log = logging.getLogger(__name__)

_BELOW = {Tier.STM: Tier.IM, Tier.IM: Tier.LTM}
_SAMPLED_AGENTS = 64
"""Codecs are fitted on rows of at most about this many agents."""
_COUNT_AGAIN_SHARE = 16
"""If there were too few memories for fitting, count again after 1/16 more memories were stored."""

_SLACK_SHARE = 16
"""In the background, memories leave im and ltm when the tier is 1/16 above its limit: to choose them, all
memories of the tier are read."""
_CHECKS_PER_LIMIT = 12
"""The limits of an agent are checked each time the agent has stored 1/12 of the smallest limit. A check
reads the whole tier, and takes the time of about 10 turns of an agent."""
_AGENTS_BETWEEN_PAUSES = 64
"""Checking so many agents takes a few milliseconds."""
_MAX_ROOMS = 1024
"""Agents whose free room in a tier is remembered."""
_ERASE_ATTEMPTS = 3
"""How often `erase` replaces dictionaries: another process may delete or fit at the same time."""

Embed: TypeAlias = Callable[[object], NDArray[np.float32]]
"""Returns the unit vector of a content."""
TermsOf: TypeAlias = Callable[[Sequence[Row]], list[bytes]]
"""Returns the search terms of rows, uncompressed."""
Pause: TypeAlias = Callable[[], bool]
"""Called between two transactions, to yield to writers. If it returns False, the work stops."""


class TransitionReport(msgspec.Struct, frozen=True, kw_only=True):
    """How many memories a round of maintenance moved to each tier, and how many it evicted from ltm."""

    moved_to_im: int = 0
    moved_to_ltm: int = 0
    evicted: int = 0

    def __add__(self, other: TransitionReport) -> TransitionReport:
        return TransitionReport(
            moved_to_im=self.moved_to_im + other.moved_to_im,
            moved_to_ltm=self.moved_to_ltm + other.moved_to_ltm,
            evicted=self.evicted + other.evicted,
        )


class Transitions:
    """Decides which memories move, and moves them in batches."""

    def __init__(
        self,
        store: MemoryStore,
        codecs: TierCodecs,
        terms_of: TermsOf,
        config: MemoryConfig,
        clock: Clock,
        embed: Embed,
        unsaved_reads: Callable[[str], Mapping[int, int]],
    ) -> None:
        """`embed` returns a new vector for a memory whose stored vector can't be decoded any more.
        `unsaved_reads` returns the read counts of an agent that are not in the store yet, by seq."""
        self._embed = embed
        self._unsaved_reads = unsaved_reads
        self._terms_of = terms_of
        self._count_again_at = 0
        """`fit_codecs` counts the memories again when `stored_total` of the store reaches this number."""
        self._store = store
        self._codecs = codecs
        self._config = config
        self._clock = clock
        self._room: dict[tuple[str, Tier], int] = {}
        """How many memories may still move into a tier before the background counts it again."""
        self._unreadable: set[tuple[str, int]] = set()
        """(agent, seq) of damaged memories, which stay in their tier."""
        self._limits = {
            Tier.STM: config.stm_config.memory_limit,
            Tier.IM: config.im_config.memory_limit,
            Tier.LTM: config.ltm_config.memory_limit,
        }
        self._ages = {
            Tier.STM: config.stm_config.ttl_seconds,
            Tier.IM: config.im_config.ttl_seconds,
        }

    def by_age(self, pause: Pause = yield_lock) -> tuple[TransitionReport, set[str]]:
        """Move memories older than their tier's `ttl_seconds`. Return a report and the memories' agents."""
        self._store.tidy_new_rows()
        report, touched = TransitionReport(), set[str]()
        for tier, age in self._ages.items():
            while age is not None:
                due = self._store.stored_before(
                    tier,
                    self._clock.now() - age,
                    self._config.transition_batch + len(self._unreadable),
                )
                moved = 0
                for agent, seqs in due.items():
                    moved += self._move(agent, seqs, tier)
                    touched.add(agent)
                    self._room.pop((agent, _BELOW[tier]), None)
                report += _moved(_BELOW[tier], moved)
                if moved == 0:
                    break
                if not pause():
                    return report, touched
        return report, touched

    def by_capacity(
        self,
        agents: Iterable[str],
        pause: Pause = yield_lock,
        *,
        in_background: bool = False,
        stored: Mapping[str, int] = MappingProxyType({}),
    ) -> tuple[TransitionReport, set[str]]:
        """Move memories of some agents until each tier is within its limit, least important first.

        Return a report, and the agents that are still above a limit: a memory that changes stays.

        in_background: leave im and ltm alone while they are less than 1/16 above their limits, and do not
            count them each time; this is called often
        stored: how many memories some of the agents have stored since the last call; `check_every` at most
            for the others
        """
        report, above = TransitionReport(), set[str]()
        for number, agent in enumerate(agents, 1):
            yield_gil()
            if number % _AGENTS_BETWEEN_PAUSES == 0 and not pause():
                return report, above
            moved = 0
            for tier, limit in self._limits.items():
                arrived, moved = moved, 0
                if limit is None:
                    continue
                if not in_background:
                    self._room.pop((agent, tier), None)
                elif self._has_room(agent, tier, max(arrived, stored.get(agent, 0))):
                    continue
                surplus = self._store.counts(agent, (tier,))[tier] - limit
                allowed = limit // _SLACK_SHARE if in_background and tier is not Tier.STM else 0
                if surplus > allowed:
                    done = self._demote(agent, tier, surplus, pause)
                    report += done
                    moved = done.moved_to_im + done.moved_to_ltm
                    surplus -= moved + done.evicted
                    if surplus > allowed:
                        above.add(agent)
                    if not pause():
                        return report, above
                if in_background and tier is not Tier.STM:
                    if len(self._room) >= _MAX_ROOMS:
                        self._room.clear()
                    # Half: some may arrive from the tier above while others are stored here directly, and
                    # other processes may move memories too.
                    self._room[agent, tier] = (allowed - surplus) // 2
        return report, above

    def agents_to_check(self) -> list[str]:
        """Return all agents that may be above a limit.

        An earlier process may have ended before it checked the limits."""
        limits = [limit for limit in self._limits.values() if limit is not None]
        return self._store.agents_above(min(limits)) if limits else []

    @property
    def check_every(self) -> int:
        """After how many new memories of an agent the background checks its limits."""
        limits = [limit for tier, limit in self._limits.items() if limit and tier is not Tier.LTM]
        return max(min(limits, default=1000) // _CHECKS_PER_LIMIT, 1)

    def _has_room(self, agent: str, tier: Tier, arrived: int) -> bool:
        """Return whether a lower tier is within its limit for sure.

        arrived: the most memories that were moved into it, or stored in it, since the last check; less than
            `check_every` if it is not known"""
        room = self._room.get((agent, tier), 0) - max(arrived, self.check_every)
        if room <= 0:
            return False
        self._room[agent, tier] = room
        return True

    def demote(self, agent: str, tier: Tier, count: int) -> TransitionReport:
        """Move an agent's `count` least important memories one tier down. In ltm, evict them."""
        report = self._demote(agent, tier, count, yield_lock)
        if tier is not Tier.LTM:
            self._room.pop((agent, _BELOW[tier]), None)
        return report

    def _demote(self, agent: str, tier: Tier, count: int, pause: Pause) -> TransitionReport:
        report = TransitionReport()
        if count <= 0:
            return report
        inputs = self._store.importance_inputs(agent, tier)
        if unsaved := self._unsaved_reads(agent):
            inputs = [
                (seq, importance, created_at, reads + unsaved.get(seq, 0))
                for seq, importance, created_at, reads in inputs
            ]
        leaving = least_first(inputs, self._clock.now())
        if tier is not Tier.LTM:  # other memories move in place of those that can't be read
            leaving = [seq for seq in leaving if (agent, seq) not in self._unreadable]
        for batch in _batches(leaving[:count], self._config.transition_batch):
            if tier is Tier.LTM:
                report += TransitionReport(evicted=self._store.evict(agent, batch, tier))
            else:
                report += _moved(_BELOW[tier], self._move(agent, batch, tier))
            if not pause():
                break
        return report

    def fit_codecs(self, *, strict: bool = False) -> bool:
        """Fit codecs and train dictionaries if necessary. Return whether this was done.

        strict: replace a dictionary after the first deletion of one of its samples
        """
        if self._config.read_only:
            return False
        # The number of memories ever stored: not less than the current number, and much faster to read.
        total = self._store.stored_total()
        if self._codecs.plan(total, strict=strict) is None or (total < self._count_again_at and not strict):
            return False
        memories = sum(self._store.counts().values())
        plan = self._codecs.plan(memories, strict=strict)
        if plan is None:
            self._count_again_at = total + total // _COUNT_AGAIN_SHARE + 1
            return False
        rows = self._sample(plan.samples)
        readable = []
        for row in rows:
            try:
                readable.append((row, self._codecs.raw_body(row.body_codec, row.body)))
            except StoreCorrupt as problem:
                _log.warning("memory %r of %r is not used for fitting: %s", row.id, row.agent, problem)
        rows = [row for row, _ in readable]
        with_vector = [row for row in rows if self._codecs.has_vector(_stored_vector(row))]
        if len(with_vector) < self._codecs.vectors_needed(plan.tiers):
            with_vector = rows  # the others are embedded again
        self._codecs.fit(
            plan,
            memories,
            [(row.agent, row.seq) for row in rows],
            self.vectors_of(with_vector),
            [body for _, body in readable],
            self._terms_of(rows),
        )
        return True

    def settle(self, pause: Pause = yield_lock) -> None:
        """Encode memories of im and ltm again if they do not have their final form.

        These are memories that were stored directly in ltm and, after the fit of a codec, all memories. At
        the end, delete the replaced codecs, except for those that a damaged memory still uses."""
        if self._config.read_only:
            return
        stored = self._codecs.load()
        newest = max((codec.number for codec in stored), default=0)
        replaced = [codec.number for codec in stored if not codec.is_writable]
        for agent, first, last in self._store.unsettled():
            for tier in (Tier.IM, Tier.LTM):
                if not self._settle(agent, tier, first - 1, pause):
                    return
            if not self._store.settle(agent, last, newest):
                return
        for number in replaced:
            self._store.retire_codec(number)

    def _settle(self, agent: str, tier: Tier, after_seq: int, pause: Pause) -> bool:
        """Encode an agent's rows of a tier again. Return False if `pause` stopped the work."""
        while seqs := self._store.seqs_after(agent, tier, after_seq, self._config.transition_batch):
            after_seq = seqs[-1]
            rows = [
                row
                for row in self._rows(agent, [seq for seq in seqs if (agent, seq) not in self._unreadable])
                if row.tier is tier
                and not self._codecs.has_final_form(tier, row.body_codec, row.terms_codec, row.vector_codec)
            ]
            if rows:
                self._store_moves(agent, rows, tier, tier)
                if not pause():
                    return False
        return True

    def give_back_space(self, pause: Pause, *, in_background: bool = False) -> None:
        """Return free pages of the file to the file system, and erase what was deleted."""
        for _ in self._store.shrink():
            if not pause():
                return
        self._store.erase_in_maintenance(in_background=in_background)

    def erase(self, wait_seconds: float) -> None:
        """Remove all bytes of deleted memories from the files, or raise EraseIncomplete.

        wait_seconds: how long to wait for readers that need the old bytes
        """
        dictionaries: list[int] = []
        for _ in range(_ERASE_ATTEMPTS):
            self.fit_codecs(strict=True)
            self.settle(lambda: True)
            dictionaries = self._codecs.dictionaries_of_deleted()
            if not dictionaries:
                break
        self._store.erase(wait_seconds)
        if dictionaries:
            raise EraseIncomplete(
                f"the memories are deleted, but dictionary {dictionaries[0]} may hold words of them, and "
                "damaged memories still need it: delete what check() names, then call again with erase=True"
            )

    def _move(self, agent: str, seqs: Sequence[int], source: Tier) -> int:
        target = _BELOW[source]
        readable = [seq for seq in seqs if (agent, seq) not in self._unreadable]
        rows = [row for row in self._rows(agent, readable) if row.tier is source]
        return self._store_moves(agent, rows, source, target)

    def _store_moves(self, agent: str, rows: Sequence[Row], source: Tier, target: Tier) -> int:
        while True:
            moves = self._moves(rows, target) if rows else []
            yield_gil()
            try:
                return self._store.move(agent, moves, source, target) if moves else 0
            except CodecRetired:
                self._codecs.load()

    def _rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        """Read rows. Leave out rows that are damaged in the file."""
        try:
            return self._store.rows(agent, seqs)
        except StoreCorrupt as problem:
            if len(seqs) > 1:
                return [row for seq in seqs for row in self._rows(agent, [seq])]
            # One damaged memory must not stop the others from moving.
            self._unreadable.add((agent, seqs[0]))
            _log.warning("a memory of %r stays in its tier: %s", agent, problem)
            return []

    def _moves(self, rows: Sequence[Row], target: Tier) -> list[Move]:
        """Encode rows for another tier. Leave out rows that can't be decoded."""
        try:
            return self._encode(rows, target)
        except StoreCorrupt as problem:
            if len(rows) > 1:
                return [move for row in rows for move in self._moves([row], target)]
            # One damaged memory must not stop the others from moving.
            self._unreadable.add((rows[0].agent, rows[0].seq))
            _log.warning("memory %r of %r stays in its tier: %s", rows[0].id, rows[0].agent, problem)
            return []

    def _encode(self, rows: Sequence[Row], target: Tier) -> list[Move]:
        vectors = self._codecs.vectors_for(target, self.vectors_of(rows))
        raw_terms = self._terms_of(rows)
        moves = []
        for row, (vector_codec, vector, fine), terms in zip(rows, vectors, raw_terms, strict=True):
            yield_gil()
            raw = self._codecs.raw_body(row.body_codec, row.body)
            body_codec, body = self._codecs.body_for(target, raw)
            terms_codec, terms = self._codecs.terms_for(target, terms)
            moves.append(
                Move(
                    seq=row.seq,
                    revision=row.revision,
                    body_codec=body_codec,
                    body=body,
                    vector_codec=vector_codec,
                    vector=vector,
                    fine=fine,
                    terms=terms,
                    terms_codec=terms_codec,
                )
            )
        return moves

    def vectors_of(self, rows: Sequence[Row]) -> NDArray[np.float32]:
        """Return the vectors of rows. If the codec of a vector is damaged, embed the content again."""
        vectors = self._codecs.to_float32([_stored_vector(row) for row in rows])
        for number, row in enumerate(rows):
            if not self._codecs.has_vector(_stored_vector(row)):
                content, _ = decode_body(self._codecs.raw_body(row.body_codec, row.body))
                vectors[number] = self._embed(content)
        return vectors

    def _sample(self, wanted: int) -> list[Row]:
        """Return rows of many agents, because all agents share the codecs."""
        agents = self._store.agents()
        some = agents[:: max(len(agents) // _SAMPLED_AGENTS, 1)]
        share = -(-wanted // max(len(some), 1))
        rows = [row for agent in some for row in self._rows_of(agent, share)]
        if len(rows) < wanted:  # most rows belong to a few agents
            rows = []
            for agent in agents:
                rows += self._rows_of(agent, wanted - len(rows))
                if len(rows) >= wanted:
                    break
        return rows[:wanted]

    def _rows_of(self, agent: str, limit: int) -> list[Row]:
        """Return the first rows of an agent, from all tiers. Leave out damaged rows."""
        seqs = [seq for tier in Tier for seq in self._store.seqs_after(agent, tier, 0, limit)]
        rows: list[Row] = []
        for part in _batches(sorted(seqs)[:limit], self._config.transition_batch):
            yield_gil()
            rows += self._rows(agent, part)
        return rows


def _stored_vector(row: Row) -> tuple[int, bytes, bytes | None]:
    return row.vector_codec, row.vector, row.fine


def _moved(target: Tier, count: int) -> TransitionReport:
    if target is Tier.IM:
        return TransitionReport(moved_to_im=count)
    return TransitionReport(moved_to_ltm=count)


def _batches(seqs: Sequence[int], size: int) -> Iterable[Sequence[int]]:
    return (seqs[start : start + size] for start in range(0, len(seqs), size))
