"""The interface of every store, and the rows that cross it.

A store keeps rows; it does not embed, compress, rank or decide. `tests/storage/conformance.py` is the
suite that a store must pass; a new store is put through it by adding a factory there.

Every row of an agent has a `seq`, given by the store when the row is added: it only grows and is never
given twice. Whoever keeps a copy of an agent's rows (the search
index) can therefore catch up: rows past the last seq it saw, plus the changes past the last one it saw.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.entry import Tier

NO_STEP = -(2**63)
NO_SESSION = -1

RangeColumn = Literal["created_at", "step"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """What a reader needs of one memory; the form of the body is the caller's business."""

    agent: str
    id: str
    seq: int
    """Given by the store: 0 in a record that was not stored yet."""
    tier: Tier
    kind: str
    step: int | None
    created_at: float
    importance: float
    body_codec: int
    body: bytes


class Row(Record, frozen=True, kw_only=True, gc=False):
    """One memory whole, as a store keeps it."""

    stored_at: float
    dated: bool
    """Whether the caller said when it happened."""
    digest: int
    """Fingerprint of the content: the same id with the same digest is the same memory."""
    session: int | None
    """Which conversation it belongs to, as a number, if any."""
    terms: bytes
    vector_codec: int
    vector: bytes
    fine: bytes | None
    """A finer int8 form of the vector where `vector` is a small code."""
    revision: int = 0
    """How often it was replaced: what a writer read is still so if this is."""


Features: TypeAlias = tuple[int, int, bytes, bytes | None, bytes]
"""What a row is found by: seq, vector codec, vector, fine vector, terms."""


@dataclass(frozen=True)
class IndexColumns:
    """What the search index needs of rows, in the order of seq."""

    seq: NDArray[np.int64]
    tier: NDArray[np.uint8]
    created_at: NDArray[np.float64]
    step: NDArray[np.int64]
    """NO_STEP where there is none."""
    session: NDArray[np.int64]
    """NO_SESSION where there is none."""
    features: list[Features] | None
    """Words and vectors of the same rows, in the same order, where they are few; of many, `features` reads
    them."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One row's new form when it goes to another tier, made from one revision of it."""

    seq: int
    revision: int
    body_codec: int
    body: bytes
    vector_codec: int
    vector: bytes
    fine: bytes | None


class ChangeKind(IntEnum):
    """What happened to rows that existed already."""

    MOVED = 0
    DELETED = 1
    REPLACED = 2
    CLEARED = 3
    """All rows up to the given seq are gone."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an agent's change log."""

    number: int
    kind: ChangeKind
    tier: Tier | None
    seqs: Sequence[int]


class StoredCodec(msgspec.Struct, frozen=True, kw_only=True):
    """A fitted codec or dictionary that rows refer to by its number."""

    number: int
    purpose: str
    data: bytes


class AgentState(msgspec.Struct, frozen=True, array_like=True):
    """How far an agent's rows have got: compare with what was seen before."""

    last_seq: int
    last_change: int


class MemoryStore(ABC):
    """Keeps the rows of some tiers. All methods may be called from any thread."""

    # -- writing ------------------------------------------------------------------------------

    @abstractmethod
    def add(self, rows: Sequence[Row]) -> list[int | None]:
        """Keep all rows or none; each one's seq, or None for a memory that was there already.

        An id that the agent has already, with the same digest, is left as it is. With another
        digest the whole call raises IdConflict. Once this returns, a killed process loses nothing.
        """

    @abstractmethod
    def refuse_conflicts(self, rows: Sequence[Row]) -> None:
        """Raise IdConflict if `add` would, without adding."""

    @abstractmethod
    def replace(self, old: Row, new: Row) -> bool:
        """Put `new` in the place of `old`, under its seq; False if that is no longer as `old` says."""

    @abstractmethod
    def delete(self, agent: str, ids: Sequence[str]) -> int:
        """Remove rows by id; how many there were."""

    @abstractmethod
    def delete_agent(self, agent: str) -> int:
        """Remove all rows of one agent and of nobody else; how many there were."""

    @abstractmethod
    def move(self, agent: str, moves: Sequence[Move], source: Tier, target: Tier) -> int:
        """Bring rows that still are in `source`, as they were read, to `target`; how many were moved.

        At every moment each row is in exactly one of the tiers.
        """

    @abstractmethod
    def forget(self, agent: str, seqs: Sequence[int], tier: Tier) -> int:
        """Remove rows that still are in `tier` and count them as forgotten."""

    # -- reading ------------------------------------------------------------------------------

    @abstractmethod
    def get_one(self, agent: str, id: str) -> Record | None:
        """The record with this id; the hottest read there is."""

    @abstractmethod
    def get(self, agent: str, ids: Sequence[str]) -> list[Record]:
        """The records with these ids, in any order; unknown ids are left out."""

    @abstractmethod
    def get_by_seq(
        self, agent: str, seqs: Sequence[int], tiers: Sequence[int] | None = None
    ) -> list[Record]:
        """The records with these seqs, in any order; those that are gone are left out.

        `tiers` says where each was seen last: a hint where to look first."""

    @abstractmethod
    def rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        """The same rows whole, with their vectors and words."""

    @abstractmethod
    def in_range(
        self,
        agent: str,
        column: RangeColumn,
        low: float | None,
        high: float | None,
        *,
        tiers: frozenset[Tier],
        limit: int | None,
        newest_first: bool = False,
    ) -> list[Record]:
        """Records with low ≤ column ≤ high, ordered by the column; found through an index."""

    @abstractmethod
    def all_rows(self, agent: str | None = None) -> Iterator[Row]:
        """Every row, one agent after the other, in the order of their seq; for export."""

    @abstractmethod
    def agents(self) -> list[str]:
        """All agents that have ever stored something, in the order of their first memory."""

    @abstractmethod
    def counts(self, agent: str | None = None) -> dict[Tier, int]:
        """Memories a tier."""

    @abstractmethod
    def forgotten(self, agent: str | None = None) -> int:
        """How many memories the limit of the long-term tier has removed."""

    @abstractmethod
    def bytes_on_disk(self) -> int:
        """The size of everything the store keeps."""

    # -- for the search index -----------------------------------------------------------------

    @abstractmethod
    def state(self, agent: str) -> AgentState:
        """How far the agent's rows have got; cheap."""

    @abstractmethod
    def catch_up(
        self, agent: str, after_seq: int, after_change: int
    ) -> tuple[AgentState, list[Change] | None, IndexColumns]:
        """Changes and new rows since then; None for changes where the log no longer reaches back.

        The rows are read after the changes: a row that comes with them is as new as they are.
        """

    @abstractmethod
    def columns_of(self, agent: str, seqs: Sequence[int]) -> IndexColumns:
        """The same for some rows by their seqs, always with their features."""

    @abstractmethod
    def features(self, agent: str, first_seq: int, last_seq: int) -> Iterator[list[Features]]:
        """What the rows in a range of seqs are found by, in slices."""

    # -- for transitions ----------------------------------------------------------------------

    @abstractmethod
    def stored_before(self, tier: Tier, moment: float, limit: int) -> dict[str, list[int]]:
        """Seqs of up to `limit` rows of a tier that were stored before a moment, by agent."""

    @abstractmethod
    def standing(self, agent: str, tier: Tier) -> list[tuple[int, float, float, int]]:
        """(seq, importance, created_at, uses) of all rows of one agent's tier."""

    @abstractmethod
    def add_uses(self, uses: dict[str, dict[int, int]]) -> None:
        """Count accesses by agent and seq; a hint for importance, not an acknowledged memory."""

    # -- codecs and settings that belong to the data ------------------------------------------

    @abstractmethod
    def codecs(self) -> list[StoredCodec]:
        """All fitted codecs that rows may refer to."""

    @abstractmethod
    def save_codec(self, purpose: str, data: bytes) -> StoredCodec:
        """Keep a fitted codec for a purpose, unless another process was first: then that one."""

    @abstractmethod
    def setting(self, name: str, default: str | None = None) -> str | None:
        """A value kept with the data; `default` is stored first if there is none yet."""

    @abstractmethod
    def watch(self, agent: str, *, new_rows: bool = False) -> Callable[[], int] | None:
        """A function that gives a number which differs after every change to the agent's rows that
        existed (with `new_rows` also after each one added), and is odd while one is under way; None
        where that can't be told cheaply.

        Calling it costs next to nothing: it is what lets a cached record or an index be used safely
        while other threads and processes write, move and delete.
        """

    def fresh_rows(self, agent: str, after_seq: int, last_seq: int) -> IndexColumns | None:
        """The rows with the seqs past one, up to another, as they were added, if this process has just
        added all of them; None where it has not. What `catch_up` would read, at a fraction of its cost."""
        return None

    @abstractmethod
    def shrink(self) -> Iterator[int]:
        """Give space that nothing uses any more back to the system, if that is worth it: the bytes of
        each slice, after the short transaction that it took. Stopping in between is fine.
        """

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; what was acknowledged stays."""
