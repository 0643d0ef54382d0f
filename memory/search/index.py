"""One agent's memories in RAM, ready to be searched; always a copy of what the store holds.

The index is filled from the store when the agent is first searched, and before each search it catches
up with what was stored, moved or deleted since, by whichever thread or process. It can be dropped at
any time. Small columns are kept for all memories; words and vectors are kept in blocks of 65,536, and
an agent that does not fit into the cache keeps the blocks that do and reads the others anew each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from memory.entry import ALL_TIERS, Tier
from memory.search.conversations import Conversations
from memory.search.postings import Postings
from memory.search.vectors import VectorBlock
from memory.storage import AgentState, Change, ChangeKind, Features, IndexColumns, MemoryStore

BLOCK = 1 << 16
_NOTHING = AgentState(0, 0)  # taken in so far
_UNKNOWN = 1  # a pulse that says: look
GONE = 255  # the tier of a memory that was deleted
_RELOAD_SHARE = 8  # read anew when more than an eighth of the positions are gone …
_RELOAD_MIN = 64  # … and at least so many
_OBSERVED_TOGETHER = 16
_WEIGHED_EVERY = 128  # memories that this process has added: some 50 KB

Decode = Callable[[Sequence[tuple[int, bytes, bytes | None]]], NDArray[np.int8]]
"""Stored vectors (codec, vector, fine vector) to int8 rows."""


class Block:
    """Words and vectors of one run of positions."""

    def __init__(self, dimensions: int, rows: int) -> None:
        self.vectors = VectorBlock(dimensions, rows)
        self.postings = Postings()

    def take(self, place: int, rows: Sequence[Features], decode: Decode) -> NDArray[np.float32]:
        """Take in a few memories at consecutive places; the number of words of each."""
        self.vectors.put(place, decode([row[1:4] for row in rows]))
        return self.postings.add(np.arange(place, place + len(rows)), [row[4] for row in rows])

    @property
    def nbytes(self) -> int:
        return self.vectors.nbytes + self.postings.nbytes


class Columns:
    """Growing arrays with one place a memory."""

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
        rows = max(needed, len(self.seq) + len(self.seq) // 2, 16)
        for name, old in vars(self).items():
            new = np.zeros(rows, old.dtype)
            new[: len(old)] = old
            setattr(self, name, new)

    @property
    def nbytes(self) -> int:
        return sum(column.nbytes for column in vars(self).values())


class AgentIndex:
    """Search arrays of one agent. Callers hold `lock` from `catch_up` until they have read."""

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
        self._reset()

    def _reset(self) -> None:
        self._state = _NOTHING
        self._pulse = _UNKNOWN
        self.count = 0
        self.gone = 0
        self.columns = Columns()
        self._blocks: list[Block | None] = []
        self.chains = Conversations(self._dimensions)
        self._observed: list[int] = []
        """Of each block, up to which position it was looked at for how alike consecutive memories are."""
        self.words_in_all = 0.0
        self._unweighed = 0
        self.changed_size = True

    # -- keeping up ---------------------------------------------------------------------------

    def catch_up(self) -> None:
        """Take in everything that was committed before this call."""
        if self._watch is None:
            self._watch = self._store.watch(self._agent, new_rows=True)
        pulse = _UNKNOWN if self._watch is None else self._watch()
        if pulse == self._pulse and not pulse & 1:
            return
        state = self._store.state(self._agent)
        if state != self._state:
            try:
                if not self._take_over(state):
                    self._catch_up()
            except BaseException:
                self._reset()  # half taken in is worse than not loaded
                raise
        self._pulse = pulse  # as it was before reading: what came in between is looked for again

    def _take_over(self, state: AgentState) -> bool:
        """Take in the rows up to a state without reading them back, if all that happened since is that
        this very process has added them."""
        seen = self._state
        if seen is _NOTHING or state.last_change != seen.last_change or state.last_seq < seen.last_seq:
            return False
        rows = self._store.fresh_rows(self._agent, seen.last_seq, state.last_seq)
        if rows is None:
            return False
        self._append(rows)
        self._unweighed += len(rows.seq)
        if self._unweighed >= _WEIGHED_EVERY:
            self._unweighed = 0
            self.changed_size = True
        self._state = state
        return True

    def _catch_up(self) -> None:
        seen = self._state
        if seen == _NOTHING:
            # All rows are read as they are, so what happened to them before does not matter.
            seen = AgentState(0, self._store.state(self._agent).last_change)
        state, changes, rows = self._store.catch_up(self._agent, seen.last_seq, seen.last_change)
        if changes is None:
            self._reset()
            self._catch_up()
            return
        self.changed_size = True
        replaced: list[int] = []
        for change in changes:
            if change.kind is ChangeKind.REPLACED:
                replaced.extend(change.seqs)
            else:
                self._apply(change)
        # The new rows were read after the changes and stand as they are.
        known = self.count
        self._append(rows)
        wasteful = self.gone > max(_RELOAD_MIN, self.count // _RELOAD_SHARE)
        if wasteful or (replaced and not self._replace(replaced, known)):
            self._reset()
            self._catch_up()
            return
        self._state = state

    def _replace(self, seqs: list[int], known: int) -> bool:
        """Read changed rows anew; False if one of them changed its conversation: the links then
        have to be made anew, too."""
        rows = self._store.columns_of(self._agent, sorted(set(seqs)))
        columns = self.columns
        positions = columns.seq[: self.count].searchsorted(rows.seq)
        if not np.array_equal(columns.session[positions], rows.session):
            return False
        columns.tier[positions] = rows.tier
        columns.created_at[positions] = rows.created_at
        columns.step[positions] = rows.step
        by_seq = {features[0]: features for features in rows.features or []}
        for seq, position in zip(rows.seq.tolist(), positions.tolist(), strict=True):
            block = self._blocks[position // BLOCK]
            if block is None or position >= known:
                continue
            _, codec, vector, fine, terms = by_seq[seq]
            place = position % BLOCK
            block.vectors.set(np.array([place]), self._decode([(codec, vector, fine)]))
            length = block.postings.replace(place, terms)
            self.words_in_all += length - float(columns.length[position])
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
        self.chains.extend(rows.session)
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
                lengths = block.take(start - number * BLOCK, few, self._decode)
                self.words_in_all += float(lengths.sum())
                columns.length[start:end] = lengths
            self._observe(number, block)

    def _observe(self, number: int, block: Block) -> None:
        """Learn how alike consecutive memories are: a matter of many, so not for each one by itself.

        Always up to a round number of memories: what is known of them must not depend on when they came,
        nor on whether there is room for them."""
        base = number * BLOCK
        while len(self._observed) <= number:
            self._observed.append(len(self._observed) * BLOCK)
        first = self._observed[number]
        end = min(self.count - self.count % _OBSERVED_TOGETHER, base + BLOCK)
        if first >= end:
            return
        self._observed[number] = end
        positions = np.arange(first, end)
        before = self.chains.before(positions)
        here = before >= base  # of two blocks' memories nothing is learnt: one pair of many
        self.chains.observe(
            positions[here],
            block.vectors.unit(positions[here] - base),
            before[here],
            block.vectors.unit(before[here] - base),
        )

    def _fill(self, block: Block, base: int, start: int, end: int) -> None:
        """Read words and vectors of the positions start … end - 1 into a block."""
        seqs = self.columns.seq[start:end]
        block.vectors.reserve(end - base)
        places: list[NDArray[np.int64]] = []
        terms: list[bytes] = []
        for rows in self._store.features(self._agent, int(seqs[0]), int(seqs[-1])):
            positions = start + seqs.searchsorted(np.array([row[0] for row in rows], np.int64))
            block.vectors.set(positions - base, self._decode([row[1:4] for row in rows]))
            places.append(positions)
            terms.extend(row[4] for row in rows)
        if not terms:
            return
        # All words at once: each addition of many sorts what is there already.
        positions = np.concatenate(places)
        order = np.argsort(positions)
        positions = positions[order]
        lengths = block.postings.add(positions - base, [terms[number] for number in order.tolist()])
        self.words_in_all += float(lengths.sum() - self.columns.length[positions].sum())
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
        positions = positions[columns.tier[positions] != GONE]
        if change.kind is ChangeKind.MOVED and change.tier is not None:
            columns.tier[positions] = int(change.tier)
        else:
            columns.tier[positions] = GONE
            self.gone += len(positions)
            self.words_in_all -= float(columns.length[positions].sum())

    # -- reading ------------------------------------------------------------------------------

    @property
    def living(self) -> NDArray[np.bool_] | None:
        """Which positions still hold a memory; None for every one."""
        return self.columns.tier[: self.count] != GONE if self.gone else None

    def allowed(self, tiers: frozenset[Tier]) -> NDArray[np.bool_] | None:
        """Which positions a search over these tiers may answer with; None for every one."""
        if tiers == ALL_TIERS:
            return self.living
        return np.isin(self.columns.tier[: self.count], [int(tier) for tier in tiers])

    def blocks(self) -> Iterator[tuple[int, int, Block]]:
        """Each block with its first position and its number of memories."""
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
            self.columns.nbytes + self.chains.nbytes + sum(block.nbytes for block in self._blocks if block)
        )

    def shrink(self, budget: int) -> None:
        """Drop blocks until the rest fits; the first ones stay, so that each search finds some."""
        with self.lock:
            for number in range(len(self._blocks) - 1, -1, -1):
                if self.nbytes <= budget:
                    return
                self._blocks[number] = None
