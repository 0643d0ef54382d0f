"""The search index of one agent: a copy in RAM of what the store holds, which can be dropped at any time.

The first search of an agent reads its index from the store. Each later search first applies what any
thread or process has stored, moved or deleted since. A memory's position is its place in the index.

Small columns are held for all memories. Words and vectors are held in blocks of 65,536 memories. If the
agent does not fit into the cache, the blocks that do not fit are read again for each search.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from memory._base.copies import shallow_copy
from memory.compression.tier_codecs import FLOAT32
from memory.entry import ALL_TIERS, Tier
from memory.errors import StoreCorrupt
from memory.search.conversations import Conversations
from memory.search.growing import capacity, grown
from memory.search.postings import Postings
from memory.search.saved import Parts, SavedIndexDamaged, below, held, read, under
from memory.search.vectors import VectorBlock, row_sums
from memory.storage import AgentState, Change, ChangeKind, Features, IndexColumns, MemoryStore
from memory.storage.base import FIRST_STORED_CODEC

_log = logging.getLogger(__name__)

BLOCK = 1 << 16
"""Memories in a block: as many as the 16-bit positions of `Postings` can number."""
DELETED = 255
"""The tier of a position whose memory was deleted."""
_NOT_LOADED = AgentState(0, 0)
_UNKNOWN_VERSION = 1
"""A version that always makes `catch_up` read the state: odd versions mean a write in progress."""
_DELETED_SHARE = 8
"""Deleted memories leave the index when they have more than 1/8 of its positions: a bound on wasted RAM."""
_DELETED_MIN = 64  # … but not fewer than this: making the index smaller costs more than that RAM
_UNSURE_MAX = 64
"""The most memories of a compact index whose vectors have changed unnoticed: they are read one by one."""
_OBSERVED_TOGETHER = 16
"""Memories that `Conversations` observes in one step: one by one would slow down each small write."""
_OBSERVED_FIRST = 2048
"""Memories of a block that are all observed. Of the later ones, 1/32 are: about 4,000 pairs of a full block
tell the same as all 65,535, in a sixteenth of the time."""
_OBSERVED_EVERY = 32
_FEW = 4  # Memories that are added one by one, in less time than together: a turn of an agent stores three
_MEASURE_EVERY = 128
"""Memories that are added before the index is measured again: about 50 KB, small against any budget."""


class Decode(NamedTuple):
    """Turns what the store returns into what the index holds."""

    vectors: Callable[[Sequence[tuple[int, bytes, bytes | None]]], NDArray[np.int8]]
    """Takes (codec number, vector, fine vector) of some memories; returns int8 rows."""
    terms: Callable[[str, Sequence[Features]], list[bytes]]
    """Takes an agent and some of its memories; returns uncompressed terms."""
    exact: Callable[[Sequence[tuple[int, bytes, bytes | None]]], NDArray[np.float32]]
    """Does what `vectors` does, and returns unit vectors in full precision."""


class Block:
    """Words and vectors of up to `BLOCK` consecutive positions."""

    def __init__(self, dimensions: int, rows: int) -> None:
        self.vectors = VectorBlock(dimensions, rows)
        self.postings = Postings()

    def add(self, agent: str, first: int, rows: Sequence[Features], decode: Decode) -> NDArray[np.float32]:
        """Add a few memories at consecutive places from `first`. Return the number of words of each."""
        self.vectors.put(first, decode.vectors([row[1:4] for row in rows]))
        terms = decode.terms(agent, rows)
        return self.postings.add(np.arange(first, first + len(rows)), terms)

    def add_one(self, agent: str, place: int, row: Features, decode: Decode) -> int:
        """Do what `add` does for one memory, without making arrays."""
        if row[1] == FLOAT32 and len(row[2]) == 4 * self.vectors.dimensions:
            self.vectors.put_one(place, row[2])
        else:
            self.vectors.put(place, decode.vectors([row[1:4]]))
        (terms,) = decode.terms(agent, [row])
        return self.postings.add_one(place, terms)

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + self.postings.nbytes

    def view(self, count: int) -> Block:
        """Return a copy of the first `count` memories that later ones do not change."""
        view = shallow_copy(self)
        view.vectors, view.postings = self.vectors.view(count), self.postings.view(count)
        return view

    def only(self, kept: NDArray[np.bool_]) -> Block:
        """Return a block of the memories of a mask, at consecutive places from 0."""
        only = shallow_copy(self)
        only.vectors, only.postings = self.vectors.only(kept), self.postings.only(kept)
        return only

    def parts(
        self, count: int, deleted: NDArray[np.bool_] | None, stored: NDArray[np.bool_] | None = None
    ) -> Parts:
        """Return everything in the form of `saved.py`, without deleted memories.

        stored: masks the memories whose vectors the compact form leaves out; None for the full form"""
        if stored is None:
            vectors = self.vectors.parts(count, deleted)
        else:
            vectors = self.vectors.compact_parts(count, deleted, stored)
        return {**under("vectors", vectors), **under("postings", self.postings.parts(deleted))}

    def restore(self, parts: Parts, vectors: NDArray[np.int8] | None = None) -> None:
        """Take over what `parts` returned.

        vectors: for the compact form: an array of all vectors, with those that it left out"""
        if vectors is None:
            self.vectors.restore(below("vectors", parts))
        else:
            self.vectors.restore_compact(below("vectors", parts), vectors)
        self.postings.restore(below("postings", parts))


class CodedSums(NamedTuple):
    """The memories whose vectors the store has in a smaller form, and checksums of the decoded vectors."""

    seqs: NDArray[np.int64]
    """Ascending."""
    sums: NDArray[np.uint32]


class Columns:
    """Growing arrays with one element for each memory."""

    def __init__(self) -> None:
        self.seq = np.empty(0, np.int64)
        self.tier = np.empty(0, np.uint8)
        self.created_at = np.empty(0, np.float64)
        self.step = np.empty(0, np.int64)
        self.length = np.empty(0, np.float32)
        self.session = np.empty(0, np.int64)

    def grow(self, needed: int) -> None:
        if needed <= len(self.seq):
            return
        length = capacity(needed, len(self.seq))
        for name, column in vars(self).items():
            setattr(self, name, grown(column, length))

    def only(self, kept: NDArray[np.bool_]) -> Columns:
        """Return the columns of the memories of a mask."""
        only = Columns()
        for name, column in vars(self).items():
            setattr(only, name, column[: len(kept)][kept])
        return only

    @property
    def nbytes(self) -> int:
        return held(*vars(self).values())

    def parts(self, count: int, deleted: NDArray[np.bool_] | None) -> Parts:
        """Return the columns of the first `count` memories in the form of `saved.py`."""
        parts: Parts = {name: column[:count] for name, column in vars(self).items()}
        parts["tier"] = parts["tier"].copy()  # changes of the store change it
        if deleted is not None:
            for name in parts.keys() - {"seq", "tier"}:
                parts[name] = np.where(deleted, parts[name].dtype.type(0), parts[name])
        return parts

    def restore(self, parts: Parts) -> None:
        """Take over columns that `parts` returned."""
        for name in vars(self):
            setattr(self, name, parts[name])


class AgentIndex:
    """The search index of one agent. Callers hold `lock` from `catch_up` until they have a `view`."""

    def __init__(
        self, store: MemoryStore, agent: str, dimensions: int, decode: Decode, budget_bytes: int
    ) -> None:
        self.lock = threading.RLock()
        self._store = store
        self._agent = agent
        self._dimensions = dimensions
        self._decode = decode
        self._budget = budget_bytes
        self._watch: Callable[[], int] | None = None
        self._watch_changes: Callable[[], int] | None = None
        self._generation = 0
        self.was_current = False
        """Whether the last `catch_up` found nothing new."""
        self.reset()

    def reset(self) -> None:
        """Drop everything; the next `catch_up` reads it from the store."""
        self._state = _NOT_LOADED
        self._version = self._changes_version = _UNKNOWN_VERSION
        self._view: AgentIndex | None = None
        self._is_view = False
        self._for_core: tuple[Any, ...] | None = None
        """Of a view: what `for_core` has returned."""
        self.count = 0
        self.deleted_count = 0
        self._living: tuple[NDArray[np.uint8], NDArray[np.bool_]] | None = None
        """The tiers that `living` was made of, and its mask."""
        self.columns = Columns()
        self._blocks: list[Block | None] = []
        self.conversations = Conversations(self._dimensions)
        self._observed_to: list[int] = []
        """By block: the position up to which `conversations` has observed its memories."""
        self._unsure = np.empty(0, np.int64)
        """Positions whose vector is not in the saved index, and is another one in the store now."""
        self.word_count = 0.0
        self._added_unmeasured = 0
        self.changed_size = True

    # -- following the store ------------------------------------------------------------------

    def catch_up(self) -> None:
        """Apply everything that was committed before this call."""
        generation = self._store.check_versions()
        if self._watch is None or generation != self._generation:
            self._generation = generation
            self._watch = self._store.watch(self._agent, new_rows=True)
            self._watch_changes = self._store.watch(self._agent)
            self._version = self._changes_version = _UNKNOWN_VERSION
        version = _UNKNOWN_VERSION if self._watch is None else self._watch()
        if version == self._version and not version & 1:
            return
        changes_version = _UNKNOWN_VERSION if self._watch_changes is None else self._watch_changes()
        if changes_version == self._changes_version and not changes_version & 1:
            # No existing row has changed. If all new rows are of this process, the file need not be read.
            rows = self._store.own_rows(self._agent, self._state.last_seq, version)
            if rows is not None:
                self._append_recent(rows, replace(self._state, last_seq=int(rows.seq[-1])))
                self._version = version
                return
        state = self._store.state(self._agent)
        self.was_current = state == self._state
        if not self.was_current:
            self._view = None
            try:
                if not self._append_own_rows(state):
                    self._read_changes()
            except BaseException:
                self.reset()  # a partly updated index would give wrong results
                raise
        # The versions before reading, so that a later commit is not missed.
        self._version, self._changes_version = version, changes_version

    def view(self) -> AgentIndex:
        """Return a copy that is read without the lock. Later changes do not change it, except that a memory
        that is replaced while it is read may have the old vector, the new one, or a part of each.

        It shares the arrays: new memories are written behind those that the copy knows of."""
        if self._view is None:
            view = shallow_copy(self)
            view._is_view = True
            view.columns = shallow_copy(self.columns)
            view.conversations = self.conversations.view()
            view._blocks = [
                None if block is None else block.view(min(self.count - number * BLOCK, BLOCK))
                for number, block in enumerate(self._blocks)
            ]
            self._view = view
        return self._view

    def _append_own_rows(self, state: AgentState) -> bool:
        """Append the rows up to `state` without reading the file. Return False if that is impossible,
        because something else has changed than rows that this process has added."""
        seen = self._state
        if seen is _NOT_LOADED or state.last_change != seen.last_change or state.last_seq < seen.last_seq:
            return False
        if state.epoch != seen.epoch:
            return False
        rows = self._store.recent_rows(self._agent, seen.last_seq, state.last_seq)
        if rows is None:
            return False
        self._append_recent(rows, state)
        return True

    def _append_recent(self, rows: IndexColumns, state: AgentState) -> None:
        """Append rows that this process has added, up to `state`."""
        self._view = None
        try:
            if len(rows.seq) <= _FEW and rows.features is not None:
                for at, features in enumerate(rows.features):
                    self._append_one(rows, at, features)
            else:
                self._append(rows)
            self._state = state
        except BaseException:
            self.reset()  # a partly updated index would give wrong results
            raise
        self._added_unmeasured += len(rows.seq)
        if self._added_unmeasured >= _MEASURE_EVERY:
            self._added_unmeasured = 0
            self.changed_size = True

    def _read_changes(self, *, use_saved: bool = True) -> None:
        """Read from the store what has changed, or the whole agent if that is cheaper."""
        if self._state == _NOT_LOADED and use_saved:
            self._load_saved()
        seen = self._state
        if seen == _NOT_LOADED:
            # All rows are read in their current state, so earlier changes do not matter.
            seen = self._store.state(self._agent)
            seen = AgentState(0, seen.last_change, seen.epoch)
        state, changes, rows = self._store.catch_up(self._agent, seen.last_seq, seen.last_change)
        if changes is None or state.epoch != seen.epoch:
            self.reset()
            self._read_changes(use_saved=False)
            return
        self.changed_size = True
        replaced: list[int] = []
        for change in changes:
            if change.kind is ChangeKind.REPLACED:
                replaced.extend(change.seqs)
            else:
                self._apply(change)
        # Those that were deleted since are in the changes.
        unsure = self._unsure[self.columns.tier[self._unsure] != DELETED]
        replaced.extend(self.columns.seq[unsure].tolist())
        self._unsure = self._unsure[:0]
        # The new rows were read after the changes, so the changes are already in them.
        known = self.count
        self._append(rows)
        must_reload = len(unsure) > _UNSURE_MAX or bool(replaced and not self._replace(replaced, known))
        wasteful = self.deleted_count > max(_DELETED_MIN, self.count // _DELETED_SHARE)
        if must_reload or (wasteful and not self._drop_deleted()):
            self.reset()
            self._read_changes(use_saved=False)
            return
        self._state = state

    def _drop_deleted(self) -> bool:
        """Remove deleted memories from the arrays. Return False if the index must be read again for that.

        Reading takes about 10 µs a memory, which the next search would wait for. This takes about 1 µs.
        The arrays are new ones: a view may be reading the old ones."""
        block, living = self.only_block, self.living
        if block is None or living is None or not living.any():
            return False
        # The links between turns and what they have shown are made again, as when the index is read.
        conversations = Conversations(self._dimensions)
        columns, only = self.columns.only(living), block.only(living)
        conversations.extend(columns.session)
        self.columns, self._blocks, self.conversations = columns, [only], conversations
        self.count, self.deleted_count, self._living = len(columns.seq), 0, None
        self.word_count = float(columns.length.sum())
        self._observed_to = []
        self._observe(0, only)
        return True

    def _load_saved(self) -> None:
        """Take over the saved index, if there is an intact one."""
        saved = self._store.saved_index(self._agent)
        if saved is None:
            return
        try:
            parts = read(saved.data, saved.token)
            if parts["dimensions"] != self._dimensions or parts["block"] != BLOCK:
                raise SavedIndexDamaged("it was made with other settings")
            if not saved.is_mapped:
                # Each array on its own, so that its RAM is counted, and is free when a block is dropped.
                parts = {
                    name: part.copy() if isinstance(part, np.ndarray) else part
                    for name, part in parts.items()
                }
            self._restore(parts)
        except (SavedIndexDamaged, StoreCorrupt, KeyError, ValueError, TypeError) as problem:
            # A memory that is damaged in the store raises StoreCorrupt again when it is read in full.
            _log.warning("the saved search index of an agent is not used, and is made again: %s", problem)
            self.reset()
            self._store.drop_saved_index(self._agent)
            return
        self._state = saved.state

    def coded_sums(self) -> CodedSums | None:
        """Return what a compact saved index has instead of vectors; None if it should have the full form.

        Call it without the lock, before `parts`. A memory that changes in between gets the checksum of its
        old vector, so it is read again when the index is loaded."""
        # A compact index takes RAM, and its block would be dropped if it did not fit. On a server, a second
        # query would cost more than the longer index.
        small = self.count <= BLOCK and 2 * self._dimensions * self.count <= self._budget
        if not small or self._store.is_remote:
            return None
        seqs, sums = [np.empty(0, np.int64)], [np.empty(0, np.uint32)]
        # Not `coded_vectors`: the checksum of a damaged vector would make it look intact.
        for rows in self._store.features(self._agent, 1, self._state.last_seq):
            coded = [row[:4] for row in rows if row[1] >= FIRST_STORED_CODEC]
            if coded:
                seqs.append(np.array([row[0] for row in coded], np.int64))
                sums.append(row_sums(self._decode.vectors([row[1:] for row in coded])))
        all_seqs, all_sums = np.concatenate(seqs), np.concatenate(sums)
        # A memory that moved while they were read may be there twice.
        all_seqs, first = np.unique(all_seqs, return_index=True)
        return CodedSums(all_seqs, all_sums[first])

    def parts(self, coded: CodedSums | None = None) -> tuple[AgentState, Parts]:
        """Return the state, and everything in the form of `saved.py`, without deleted memories.

        What the arrays hold of this state does not change, except for memories that are replaced.

        coded: what `coded_sums` returned"""
        try:
            return self._state, self._parts(coded if self.count <= BLOCK else None)
        except BaseException:
            self.reset()  # an interrupt may have left half a merge, or a partly read block
            raise

    def _parts(self, coded: CodedSums | None) -> Parts:
        deleted = self.columns.tier[: self.count] == DELETED if self.deleted_count else None
        parts: Parts = {
            "dimensions": self._dimensions,
            "block": BLOCK,
            "is_compact": coded is not None,
            "count": self.count,
            "deleted_count": self.deleted_count,
            "word_count": self.word_count,
        }
        stored = None
        if coded is not None:
            seqs = self.columns.seq[: self.count]
            stored = np.isin(seqs, coded.seqs, assume_unique=True)
            if deleted is not None:
                stored &= ~deleted
            parts["sums"] = coded.sums[coded.seqs.searchsorted(seqs[stored])]
        # The sums of what was observed contain deleted and replaced memories. Their vectors could be
        # computed from a sum and the vectors that are left.
        self.conversations.forget_observed()
        self._observed_to, self._view = [], None
        for number, (base, count, block) in enumerate(self.blocks()):
            self._observe(number, block)
            part = None if deleted is None else deleted[base : base + count]
            parts |= under(f"block {number}", block.parts(count, part, stored))
        # After `blocks()`, which reads the lengths of memories in blocks outside of RAM.
        parts |= under("columns", self.columns.parts(self.count, deleted))
        sessions = None if deleted is None else self.columns.session[: self.count][~deleted]
        parts |= under("conversations", self.conversations.parts(sessions))
        parts["observed_to"] = list(self._observed_to)
        return parts

    def _restore(self, parts: Parts) -> None:
        self.count, self.deleted_count = parts["count"], parts["deleted_count"]
        self.word_count, self._observed_to = parts["word_count"], parts["observed_to"]
        self.columns.restore(below("columns", parts))
        self.conversations.restore(below("conversations", parts))
        for number in range(-(-self.count // BLOCK)):
            block = Block(self._dimensions, 0)
            of_block = below(f"block {number}", parts)
            vectors = None
            if parts["is_compact"]:
                vectors = self._coded_vectors(of_block["vectors.stored"], parts["sums"])
            block.restore(of_block, vectors)
            self._blocks.append(block)

    def _coded_vectors(self, stored: NDArray[np.bool_], sums: NDArray[np.uint32]) -> NDArray[np.int8]:
        """Read the vectors that a compact index leaves out. Put into `_unsure` those that differ from the
        saved ones: they were encoded again, replaced, moved, deleted or damaged since."""
        vectors = np.zeros((self.count, self._dimensions), np.int8)
        expected = np.zeros(self.count, np.uint32)
        expected[stored] = sums
        missing = stored.copy()
        seqs = self.columns.seq[: self.count]
        last_seq = int(seqs[-1]) if stored.any() else 0
        for rows in self._store.coded_vectors(self._agent, last_seq) if last_seq else ():
            found = np.array([row[0] for row in rows], np.int64)
            positions = seqs.searchsorted(found)
            known = missing[positions] & (seqs[positions] == found)
            decoded = self._decode.vectors([row[1:] for row in rows])
            known &= row_sums(decoded) == expected[positions]
            if known.all() and positions[-1] - positions[0] == len(positions) - 1:
                # Consecutive, as rows of one tier come: copying a run takes a third of the time.
                vectors[positions[0] : positions[-1] + 1] = decoded
            else:
                positions, decoded = positions[known], decoded[known]
                vectors[positions] = decoded
            missing[positions] = False
        self._unsure = missing.nonzero()[0]
        return vectors

    @property
    def state(self) -> AgentState:
        """What of the store the index holds."""
        return self._state

    def stored_vectors(self, positions: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Read vectors from the store, which are finer than those of the index: one unit vector a row.

        Return which of the positions, ascending, were found, and their vectors. Nothing is read from a
        server: the answer would be a message later."""
        if self._store.is_remote:
            return positions[:0], np.empty((0, self._dimensions), np.float32)
        seqs = self.columns.seq[positions]
        rows = self._store.columns_of(self._agent, seqs.tolist()).features or []
        found = np.array([row[0] for row in rows], np.int64)
        return seqs.searchsorted(found), self._decode.exact([row[1:4] for row in rows])

    def _replace(self, seqs: list[int], known: int) -> bool:
        """Read replaced rows again. Return False if one of them has another session now: the links
        between turns can't be changed, so the index must be read again."""
        rows = self._store.columns_of(self._agent, sorted(set(seqs)))
        columns = self.columns
        positions = columns.seq[: self.count].searchsorted(rows.seq)
        if not np.array_equal(columns.session[positions], rows.session):
            return False
        columns.tier = columns.tier.copy()  # a view may be reading the old one
        columns.tier[positions] = rows.tier
        columns.created_at[positions] = rows.created_at
        columns.step[positions] = rows.step
        by_seq = {features[0]: features for features in rows.features or []}
        for seq, position in zip(rows.seq.tolist(), positions.tolist(), strict=True):
            block = self._blocks[position // BLOCK]
            if block is None or position >= known:
                continue
            features = by_seq[seq]
            place = position % BLOCK
            block.vectors.set(np.array([place]), self._decode.vectors([features[1:4]]))
            length = block.postings.replace(place, self._decode.terms(self._agent, [features])[0])
            self.word_count += length - float(columns.length[position])
            columns.length[position] = length
        return True

    def _append(self, rows: IndexColumns) -> None:
        added = len(rows.seq)
        if not added:
            return
        first, self.count = self.count, self.count + added
        columns = self.columns
        columns.grow(self.count)
        new = slice(first, self.count)
        columns.seq[new] = rows.seq
        columns.tier[new] = rows.tier
        columns.created_at[new] = rows.created_at
        columns.step[new] = rows.step
        columns.session[new] = rows.session
        columns.length[new] = 0
        self.conversations.extend(rows.session)
        for number in range(first // BLOCK, (self.count - 1) // BLOCK + 1):
            start, end = max(first, number * BLOCK), min(self.count, (number + 1) * BLOCK)
            if number == len(self._blocks):
                fits = self.nbytes < self._budget
                self._blocks.append(Block(self._dimensions, end - start) if fits else None)
            block = self._blocks[number]
            if block is None:
                continue
            if rows.features is None:
                self._fill(block, number * BLOCK, start, end)
            else:
                few = rows.features[start - first : end - first]
                lengths = block.add(self._agent, start - number * BLOCK, few, self._decode)
                self.word_count += float(lengths.sum())
                columns.length[start:end] = lengths
            self._observe(number, block)

    def _append_one(self, rows: IndexColumns, at: int, features: Features) -> None:
        """Do what `_append` does for one of the rows: most searches after an `add` find one or a few."""
        position = self.count
        self.count += 1
        columns = self.columns
        columns.grow(self.count)
        columns.seq[position] = rows.seq[at]
        columns.tier[position] = rows.tier[at]
        columns.created_at[position] = rows.created_at[at]
        columns.step[position] = rows.step[at]
        columns.session[position] = rows.session[at]
        columns.length[position] = 0
        self.conversations.extend(rows.session[at : at + 1])
        number, place = divmod(position, BLOCK)
        if number == len(self._blocks):
            self._blocks.append(Block(self._dimensions, 1) if self.nbytes < self._budget else None)
        block = self._blocks[number]
        if block is not None:
            length = block.add_one(self._agent, place, features, self._decode)
            self.word_count += length
            columns.length[position] = length
            self._observe(number, block)

    def _observe(self, number: int, block: Block) -> None:
        """Let `conversations` measure how alike consecutive memories of a block are.

        The last position is always a multiple of `_OBSERVED_TOGETHER`. So the result does not depend on
        when the memories came, nor on whether their block is held in RAM.
        """
        base = number * BLOCK
        while len(self._observed_to) <= number:
            self._observed_to.append(len(self._observed_to) * BLOCK)
        first = self._observed_to[number]
        end = min(self.count - self.count % _OBSERVED_TOGETHER, base + BLOCK)
        if first >= end:
            return
        self._observed_to[number] = end
        positions = np.arange(first, end)
        places = positions - base
        steps = places // _OBSERVED_TOGETHER
        positions = positions[(places < _OBSERVED_FIRST) | (steps % _OBSERVED_EVERY == 0)]
        if self.deleted_count:
            positions = positions[self.columns.tier[positions] != DELETED]
        before = self.conversations.before(positions)
        if self.deleted_count:
            before = np.where(self.columns.tier[before] == DELETED, positions, before)
        # A pair across two blocks is skipped: the other block may not be in RAM, and such pairs are few.
        inside = before >= base
        self.conversations.observe(
            positions[inside],
            block.vectors.unit(positions[inside] - base),
            before[inside],
            block.vectors.unit(before[inside] - base),
        )

    def _fill(self, block: Block, base: int, start: int, end: int) -> None:
        """Read words and vectors of the positions `start` to `end` - 1 from the store into a block."""
        seqs = self.columns.seq[start:end]
        block.vectors.reserve(end - base)
        places: list[NDArray[np.int64]] = []
        terms: list[bytes] = []
        for rows in self._store.features(self._agent, int(seqs[0]), int(seqs[-1])):
            positions = start + seqs.searchsorted(np.array([row[0] for row in rows], np.int64))
            block.vectors.set(positions - base, self._decode.vectors([row[1:4] for row in rows]))
            places.append(positions)
            terms.extend(self._decode.terms(self._agent, rows))
        if not terms:
            return
        # All words in one call: each call with many memories sorts the whole block again.
        positions = np.concatenate(places)
        order = np.argsort(positions)
        positions = positions[order]
        lengths = block.postings.add(positions - base, [terms[number] for number in order.tolist()])
        self.word_count += float(lengths.sum() - self.columns.length[positions].sum())
        self.columns.length[positions] = lengths

    def _apply(self, change: Change) -> None:
        columns = self.columns
        if change.kind is ChangeKind.CLEARED:
            positions = np.arange(np.searchsorted(columns.seq[: self.count], change.seqs[0], side="right"))
        else:
            seqs = np.asarray(change.seqs, np.int64)
            positions = np.searchsorted(columns.seq[: self.count], seqs)
            inside = positions < self.count
            positions = positions[inside]
            positions = positions[columns.seq[positions] == seqs[inside]]
        positions = positions[columns.tier[positions] != DELETED]
        columns.tier = columns.tier.copy()  # a view may be reading the old one
        if change.kind is ChangeKind.MOVED and change.tier is not None:
            columns.tier[positions] = int(change.tier)
        else:
            columns.tier[positions] = DELETED
            self.deleted_count += len(positions)
            self.word_count -= float(columns.length[positions].sum())

    # -- reading ------------------------------------------------------------------------------

    @property
    def living(self) -> NDArray[np.bool_] | None:
        """Return a mask of the positions whose memory is not deleted; None if none is deleted.

        Two calls return the same array while nothing has changed. Do not write to it."""
        if not self.deleted_count:
            return None
        tier, known = self.columns.tier, self._living
        # Changed tiers are another array, so the same array with the same length has the same mask.
        if known is None or known[0] is not tier or len(known[1]) != self.count:
            known = self._living = tier, tier[: self.count] != DELETED
        return known[1]

    def allowed(self, tiers: frozenset[Tier]) -> NDArray[np.bool_] | None:
        """Return a mask of the positions that a search of these tiers may return; None for all."""
        if tiers == ALL_TIERS:
            return self.living
        return np.isin(self.columns.tier[: self.count], [int(tier) for tier in tiers])

    @property
    def is_held(self) -> bool:
        """Whether all blocks are in RAM or mapped, so that reading some of their memories is fast."""
        return all(block is not None for block in self._blocks)

    @property
    def only_block(self) -> Block | None:
        """The block, if all memories are in one that is in RAM or mapped."""
        return self._blocks[0] if len(self._blocks) == 1 else None

    def for_core(self) -> tuple[Any, ...]:
        """Return what the compiled core needs to rank an index of one block without replaced memories."""
        if self._for_core is not None:
            return self._for_core
        block, columns = self._blocks[0], self.columns
        assert block is not None
        arrays = (
            self.count,
            self.count - self.deleted_count,
            self.word_count,
            block.vectors.arrays,
            block.postings.for_core(),
            (columns.seq, columns.tier, columns.length),
            self.living,
            self.conversations.for_core(),
        )
        if self._is_view:
            self._for_core = arrays
        return arrays

    def blocks(self) -> Iterator[tuple[int, int, Block]]:
        """Yield each block as (first position, number of memories, block); read those not in RAM."""
        for number, block in enumerate(self._blocks):
            base = number * BLOCK
            count = min(self.count - base, BLOCK)
            if block is None:
                block = Block(self._dimensions, count)
                self._fill(block, base, base, base + count)
                self._observe(number, block)
                if self.nbytes + block.nbytes <= self._budget:
                    self._blocks[number] = block
                    self.changed_size = True
            yield base, count, block

    @property
    def nbytes(self) -> int:
        return (
            self.columns.nbytes
            + self.conversations.nbytes
            + sum(block.nbytes for block in self._blocks if block)
        )

    def shrink(self, budget: int) -> None:
        """Drop blocks, last ones first, until the index has at most `budget` bytes. Mapped ones stay."""
        with self.lock:
            for number in range(len(self._blocks) - 1, -1, -1):
                if self.nbytes <= budget:
                    return
                block = self._blocks[number]
                if block is not None and block.nbytes:
                    self._view = None
                    self._blocks[number] = None
