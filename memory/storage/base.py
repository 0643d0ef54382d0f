"""The interface of every store, and the rows that pass through it.

A store keeps rows. It does not embed, compress, rank or decide. To write a new store, implement
`MemoryStore` and run it through `tests/storage/conformance.py`, whose docstring shows how.

Terms:
- An agent is a name. It exists from its first `add` until its last row is deleted or evicted.
  For an unknown agent, reads return nothing and changes count 0.
- A row belongs to one agent and has an `id` that is unique among the agent's rows. It is in one tier.
- `add` gives every row a `seq`: a number that grows from 1 for each agent and is never used again, not
  even after all rows of the agent were deleted.
- Changes to existing rows (moved, deleted, replaced) are numbered 1, 2, 3 … for each agent and kept in a
  log of limited length.
The search index keeps a copy of an agent's rows. To catch up, it reads the rows after the last seq that it
has and the changes after the last number that it has.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from memory.entry import Tier
from memory.errors import StoreCorrupt

NO_STEP = -(2**63)
NO_SESSION = -1
FIRST_STORED_CODEC = 16
"""The lowest number of a `StoredCodec`. Lower numbers are built-in codecs."""

RangeColumn = Literal["created_at", "step"]


class Record(msgspec.Struct, frozen=True, gc=False):
    """The columns of a row that a reader needs. The store does not interpret the body."""

    agent: str
    id: str
    seq: int
    """Set by the store; 0 in a record that is not stored yet."""
    tier: Tier
    kind: str
    step: int | None
    created_at: float
    """When it happened, in seconds since 1970."""
    importance: float
    body_codec: int
    """The number of the codec of `body`: below 16 a built-in one, else a `StoredCodec`."""
    body: bytes


class Row(Record, frozen=True, kw_only=True, gc=False):
    """One memory with all its columns, as a store keeps it."""

    stored_at: float
    """When it was stored, in seconds since 1970. Moves to other tiers depend on the age since then."""
    dated: bool
    """Whether the caller set `created_at`."""
    digest: int
    """Hash of the content: the same id with the same digest is the same memory."""
    session: int | None
    """The number of the conversation that it belongs to, if any."""
    terms: bytes
    """The encoded words of the content, for the search by words."""
    terms_codec: int = 0
    """The number of the codec of `terms`; 0 for terms that are not compressed."""
    vector_codec: int
    vector: bytes
    fine: bytes | None
    """The vector in int8, if `vector` is a smaller code."""
    revision: int = 0
    """How often the row was replaced. Two reads with the same revision have the same content."""
    is_final: bool = True
    """Whether the row has the form that its tier keeps. If not, `unsettled` names the agent. Not stored."""
    has_new_id: bool = False
    """Whether the id was generated for this row, so that no other row can have it. Not stored."""


Features: TypeAlias = tuple[int, int, bytes, bytes | None, bytes, int]
"""The columns that a search needs: seq, vector codec, vector, fine vector, terms, codec of the terms."""


class IndexColumns(NamedTuple):
    """The columns that the search index needs of some rows, ordered by seq."""

    seq: NDArray[np.int64]
    tier: NDArray[np.uint8]
    created_at: NDArray[np.float64]
    step: NDArray[np.int64]
    """NO_STEP for rows without a step."""
    session: NDArray[np.int64]
    """NO_SESSION for rows without a session."""
    features: list[Features] | None
    """The features of the same rows in the same order. None if there are too many rows to read at once:
    `MemoryStore.features` then reads them in slices."""


CodedVector: TypeAlias = tuple[int, int, bytes, bytes | None]
"""The columns of a row that make its vector: seq, vector codec, vector, fine vector."""

Sample: TypeAlias = tuple[str, int]
"""A row that a codec was made of: agent and seq."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """The new form of one row that moves to another tier, made from one revision of the row."""

    seq: int
    revision: int
    body_codec: int
    body: bytes
    vector_codec: int
    vector: bytes
    fine: bytes | None
    terms: bytes
    terms_codec: int = 0


class ChangeKind(IntEnum):
    """What happened to rows that already existed."""

    MOVED = 0
    DELETED = 1
    REPLACED = 2
    CLEARED = 3
    """All rows up to and including the one given seq were deleted."""


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of an agent's change log."""

    number: int
    kind: ChangeKind
    tier: Tier | None
    """The target of MOVED, else None."""
    seqs: Sequence[int]


class StoredCodec(msgspec.Struct, frozen=True):
    """A fitted codec or a dictionary, to which rows refer by its number (16 or higher)."""

    number: int
    purpose: str
    data: bytes
    trained_on: int = 0
    """How many memories the store held when it was made."""
    deleted: int = 0
    """How many of its samples were deleted or replaced since."""
    is_damaged: bool = False
    """Whether `data` is not what was stored."""
    is_writable: bool = True
    """False if another codec has replaced it."""


class AgentState(msgspec.Struct, frozen=True, array_like=True):
    """An agent's last seq and the number of its last change; both are 0 for an unknown agent."""

    last_seq: int
    last_change: int
    epoch: int = 0
    """Differs if the store may have gone back in time, such as a server after a failover. Then the two
    numbers can't be compared with earlier ones."""


Moment: TypeAlias = tuple[int, int]
"""A version of an agent's rows, as `watch` returns it, and the number of the last change before it."""
OnChange: TypeAlias = Callable[[str, "list[int] | None", Moment, Moment], None]
"""Takes an agent, the seqs of its rows that were changed (None for all), and the moments before and after.
Nothing else has changed between the two moments. If `before` is not the last `after`, another process has
changed rows. The version alone does not tell that: two processes that write it at once may overwrite each
other's."""


class SavedIndex(msgspec.Struct, frozen=True):
    """A search index that was saved with `save_index`."""

    token: str
    """The token that `write` was given. If the data has another one, it is not the data that was saved."""
    state: AgentState
    data: memoryview
    """What was written, maybe damaged since. A change of it does not reach the store."""
    is_mapped: bool = True
    """Whether the data lies in a mapped file, which takes no RAM of its own."""


@runtime_checkable
class AsksAhead(Protocol):
    """A store on a server, which can be asked for a state while the caller works on."""

    def ask_state(self, agent: str) -> Callable[[], AgentState]:
        """Send the query of `MemoryStore.state`. The returned function waits for the answer.

        The answer is from after this call began. Until it is taken, a connection is in use: call nothing
        else of the store before."""
        ...


class MemoryStore(Protocol):
    """Keeps the rows of all tiers. All methods may be called from any thread.

    Every write is one transaction. Once it returns, a killed process loses nothing of it.
    Every method except `close` raises `StoreClosed` after `close`. Other failures raise a subclass of
    `memory.errors.StoreError`: StoreFull, StoreReadOnly, StoreBusy, StoreUnavailable, StoreCorrupt.
    """

    # -- writing ------------------------------------------------------------------------------

    @abstractmethod
    def add(self, rows: Sequence[Row]) -> list[int | None]:
        """Add all rows or none; return each one's new seq, or None for a memory that exists already.

        A row whose id exists with the same digest is skipped, also within the batch. If the digest differs,
        the whole call raises IdConflict. The `seq` of the given rows is ignored.
        """

    @abstractmethod
    def refuse_conflicts(self, rows: Sequence[Row]) -> None:
        """Raise IdConflict if `add` would; add nothing."""

    @abstractmethod
    def replace(self, old: Row, new: Row) -> bool:
        """Store `new` under the seq of `old`, with the next revision, and log REPLACED.

        Returns False and changes nothing if the row was moved, replaced or deleted since `old` was read.
        """

    @abstractmethod
    def delete(self, agent: str, ids: Sequence[str]) -> int:
        """Delete rows by id and log DELETED; return how many existed."""

    @abstractmethod
    def delete_agent(self, agent: str) -> int:
        """Delete all rows of one agent and log CLEARED; return how many existed."""

    @abstractmethod
    def move(self, agent: str, moves: Sequence[Move], source: Tier, target: Tier) -> int:
        """Move rows to `target` in their new form and log MOVED; return how many were moved.

        Rows that are no longer in `source`, or have another revision, stay as they are. Every read sees
        each row in exactly one tier. If `source` is `target`, only the form changes, and nothing is logged.
        """

    @abstractmethod
    def evict(self, agent: str, seqs: Sequence[int], tier: Tier) -> int:
        """Delete those rows that are still in `tier`, log DELETED, and count them for `evicted`."""

    # -- reading ------------------------------------------------------------------------------

    @abstractmethod
    def get_one(self, agent: str, id: str) -> Record | None:
        """Return the record with this id. The most frequent read: it must be fast."""

    @abstractmethod
    def get(self, agent: str, ids: Sequence[str]) -> list[Record]:
        """Return the records with these ids, in any order; unknown ids are left out."""

    @abstractmethod
    def get_by_seq(
        self, agent: str, seqs: Sequence[int], tiers: Sequence[int] | None = None
    ) -> list[Record]:
        """Return the records with these seqs, in any order; deleted ones are left out.

        `tiers` is a hint: the tier in which each row was last seen. The row may have moved since."""

    @abstractmethod
    def rows(self, agent: str, seqs: Sequence[int]) -> list[Row]:
        """Return the rows with these seqs, in any order; deleted ones are left out."""

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
        """Return the first `limit` records with low ≤ column ≤ high, ordered by the column, then by seq.

        None is no bound or no limit. `newest_first` reverses the order. Rows without a step are in no range
        of steps. An index must make this fast."""

    @abstractmethod
    def all_rows(
        self, agent: str | None = None, on_damage: Callable[[StoreCorrupt], None] | None = None
    ) -> Iterator[Row]:
        """Yield the rows of one agent or of all agents, agent by agent, ordered by seq.

        The rows are those of one point in time, whatever is written meanwhile. `on_damage` is called with
        the error of each damaged row, which is left out. Without it, the error is raised."""

    @abstractmethod
    def agents(self) -> list[str]:
        """Return all agents that have a memory, in the order of their first memory."""

    @abstractmethod
    def counts(self, agent: str | None = None, tiers: Collection[Tier] = tuple(Tier)) -> dict[Tier, int]:
        """Return the number of rows in every tier, of one agent or of all.

        tiers: count at least these tiers; to count others takes time, and their number may be 0"""

    @abstractmethod
    def evicted(self, agent: str | None = None) -> int:
        """Return how many rows `evict` has deleted so far, of one agent or of all."""

    @abstractmethod
    def bytes_on_disk(self) -> int:
        """Return the size of all files of the store, or of its data in RAM."""

    # -- for the search index -----------------------------------------------------------------

    @abstractmethod
    def state(self, agent: str) -> AgentState:
        """Return the agent's state; must be fast."""

    @abstractmethod
    def catch_up(
        self, agent: str, after_seq: int, after_change: int
    ) -> tuple[AgentState, list[Change] | None, IndexColumns]:
        """Return the state, the changes after `after_change` and the rows after `after_seq`.

        The changes are None if the log no longer reaches back that far. The rows must be read after the
        changes, so that no row is older than a change that is returned with it.
        """

    @abstractmethod
    def columns_of(self, agent: str, seqs: Sequence[int]) -> IndexColumns:
        """Return the columns of these rows with their features; deleted rows are left out."""

    @abstractmethod
    def features(self, agent: str, first_seq: int, last_seq: int) -> Iterator[list[Features]]:
        """Yield the features of the rows with first_seq ≤ seq ≤ last_seq, in lists, in any order."""

    @abstractmethod
    def coded_vectors(self, agent: str, last_seq: int) -> Iterator[list[CodedVector]]:
        """Yield the vectors of rows with seq ≤ last_seq that a `StoredCodec` encodes, in lists.

        The order of the lists is any; each is ordered by seq. They may be unchecked, which is faster: the
        caller has checksums of its own."""

    # Optional: indexes that last longer than the process. They are copies of what the store holds.

    def saved_index(self, agent: str) -> SavedIndex | None:
        """Return the index that was saved last, if there is one that belongs to the agent as it is now.

        The agent has passed through its state; `catch_up` returns what came later."""
        return None

    def saved_index_state(self, agent: str) -> AgentState | None:
        """Return the state of what `saved_index` would return."""
        return None

    def save_index(self, agent: str, state: AgentState, write: Callable[[BinaryIO, str], None]) -> bool:
        """Save an index that holds the agent's rows in this state; return whether that was possible.

        write: is called with a file and a token, which it must write into the file first"""
        return False

    def drop_saved_index(self, agent: str) -> None:
        """Remove the saved index of an agent, if there is one: it can't be used."""

    def agents_above(self, memories: int) -> list[str]:
        """Return the agents whose index is worth saving: those that stored more memories than this."""
        return []

    # -- for transitions ----------------------------------------------------------------------

    @abstractmethod
    def stored_before(self, tier: Tier, timestamp: float, limit: int) -> dict[str, list[int]]:
        """Return, by agent, the seqs of the `limit` oldest rows of a tier with stored_at < timestamp."""

    @abstractmethod
    def importance_inputs(self, agent: str, tier: Tier) -> list[tuple[int, float, float, int]]:
        """Return (seq, importance, created_at, read count) of all rows of an agent in a tier."""

    @abstractmethod
    def add_read_counts(self, read_counts: dict[str, dict[int, int]]) -> None:
        """Add read counts by agent and seq; deleted rows and unknown agents are skipped."""

    # -- codecs and settings that belong to the data ------------------------------------------

    @abstractmethod
    def codecs(self) -> list[StoredCodec]:
        """Return all codecs that `save_codec` has stored and `retire_codec` has not deleted."""

    @abstractmethod
    def save_codec(
        self,
        purpose: str,
        data: bytes,
        *,
        trained_on: int = 0,
        samples: Sequence[Sample] = (),
        replaces: Sequence[int] = (),
    ) -> StoredCodec:
        """Store a codec under a new number and return it; if the purpose has one already, return that.

        `samples` are the rows whose content `data` was made of. The store counts how many of them are
        deleted or get other content afterwards. All agents become unsettled. From now on a write of rows
        that refer to a codec of `replaces` raises `CodecRetired`: another process may still use it."""

    @abstractmethod
    def retire_codec(self, number: int) -> None:
        """Delete a replaced codec, unless a row still uses it. Its number is not used again."""

    @abstractmethod
    def stored_total(self) -> int:
        """Return how many rows were ever added, deleted rows included. Must be fast."""

    @abstractmethod
    def unsettled(self) -> list[tuple[str, int, int]]:
        """Return (agent, first, last) of agents with rows that maintenance may encode again.

        All rows of im and ltm with a seq below `first` have the final form. `last` is the last seq."""

    @abstractmethod
    def settle(self, agent: str, last: int, newest_codec: int) -> bool:
        """Record that all rows up to the seq `last` have their final form.

        Returns False and records nothing if a codec with a number above `newest_codec` is stored."""

    @abstractmethod
    def seqs_after(self, agent: str, tier: Tier, after_seq: int, limit: int) -> list[int]:
        """Return the next seqs of a tier, ascending."""

    @abstractmethod
    def setting(self, name: str, default: str | None = None) -> str | None:
        """Return a value that is stored with the data; if there is none, store `default` and return it."""

    @abstractmethod
    def check_versions(self) -> int:
        """Check that the functions that `watch` returned still work, unless that was checked a moment ago.

        Returns a number. When it changes, these functions no longer work: call `watch` again."""
        ...

    def is_writing(self) -> bool:
        """Return whether the calling thread is inside a write."""
        ...

    @property
    def is_remote(self) -> bool:
        """Whether the rows are on a server: then the functions of `watch` return the version that this
        process knows from its last `state`, `catch_up` or change, not the current one."""
        ...

    def is_fresh(self, agent: str) -> bool:
        """Return whether that known version may be used without calling `state` first."""
        ...

    def maintaining(self, wait_seconds: float) -> AbstractContextManager[bool]:
        """Return a context that yields True in one process at a time, whichever host it is on.

        wait_seconds: how long to wait for the others; then it yields False"""
        ...

    def check(self, check_row: Callable[[Row], None]) -> tuple[int, list[str]]:
        """Check the whole file; return the number of intact memories, and what is wrong.

        `check_row` is called with each row that can be read; it raises StoreError for a damaged one."""
        ...

    def back_up(self, target: Path) -> None:
        """Copy everything, as it is now, to a new file at `target`. A store on a server refuses this."""
        ...

    def watch(self, agent: str, *, new_rows: bool = False) -> Callable[[], int] | None:
        """Return a function that returns the current version of the agent's rows; but see `is_remote`.

        The version differs after every change to existing rows, also one by another thread or process; with
        `new_rows` also after every `add`. It is odd while such a write is being committed. What was read
        under an even version is valid until the version differs. The function must cost far less than a
        read. Return None if the store has no such version (yet): then nothing is cached.
        """

    def follow_changes(self, on_change: OnChange) -> None:
        """Call a function after each committed change of this process to existing rows.

        It need not be called if another process writes at the same time. Optional: with it, caches drop
        less."""
        return

    def tidy_new_rows(self) -> None:
        """Do what `add` has left for later, for many rows at once. Maintenance calls it. Optional."""
        return

    def recent_rows(self, agent: str, after_seq: int, last_seq: int) -> IndexColumns | None:
        """Return the columns of the rows after_seq + 1 … last_seq if this process added all of them lately.

        Optional: faster than `catch_up` after an `add`. None means: call `catch_up`."""
        return None

    def own_rows(self, agent: str, after_seq: int, version: int) -> IndexColumns | None:
        """Return the columns of all rows after `after_seq`, if this process added all of them lately.

        version: what the function of `watch(agent, new_rows=True)` returned before

        It says nothing about changes to older rows. Optional: faster than `state` and `recent_rows`."""
        return None

    @abstractmethod
    def shrink(self) -> Iterator[int]:
        """Return unused space to the operating system, if there is much; yield the bytes of each slice.

        Every slice is a short transaction of its own. The caller may stop after any of them."""

    def copy_log(self) -> None:
        """Do what commits leave for later, so that no later commit has to do it and wait for the disk.

        Optional. The background calls it often; a write that comes meanwhile waits little."""
        return

    @abstractmethod
    def erase(self, wait_seconds: float) -> None:
        """Remove all bytes of deleted and replaced rows and codecs from all files of the store.

        Waits that long for readers that need the old bytes; then raises `EraseIncomplete`. This may rewrite
        the whole file."""

    @abstractmethod
    def erase_in_maintenance(self, *, in_background: bool = False) -> None:
        """Do what `erase` does as far as it is cheap and needs no waiting; the rest is for the next time.

        in_background: write less, because this is called often"""

    @abstractmethod
    def close(self) -> None:
        """Release files and connections; may be called twice."""
