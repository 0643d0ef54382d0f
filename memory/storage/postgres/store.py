"""The store on a PostgreSQL server: the same memory for many hosts."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from memory._base.weak_list import WeakList
from memory.errors import EraseIncomplete, StoreError
from memory.storage.base import OnChange
from memory.storage.postgres.address import parse
from memory.storage.postgres.changes import PostgresChanges
from memory.storage.postgres.checker import Checker
from memory.storage.postgres.known_states import KnownStates
from memory.storage.postgres.pool import Pool
from memory.storage.postgres.reader import PostgresReader
from memory.storage.postgres.saved_indexes import SavedIndexes
from memory.storage.postgres.schema import TABLES, lock_number, prepare
from memory.storage.postgres.vacuum import Vacuum
from memory.storage.postgres.wire import ServerError, Statement, rows_of
from memory.storage.postgres.writer import PostgresWriter

_TRY_LOCK = Statement("SELECT pg_try_advisory_xact_lock($1)", "q")
_LOCK_POLL_SECONDS = 0.05
_OF_INDEXES = ("indexes", "index_parts")
_OPEN_SECONDS = 5.0
"""How long opening a memory waits for a server that can't be reached."""


class PostgresStore:
    """A `MemoryStore` in one schema of a PostgreSQL database.

    Processes on several hosts may open it. Each keeps its own search indexes and caches, and asks the
    server at every call whether they are current. The methods of the reader and the writers are attributes
    of the store, as in the embedded store.
    """

    is_remote = True

    def __init__(
        self,
        url: str,
        *,
        busy_timeout: float = 30.0,
        read_only: bool = False,
        most_connections: int = 8,
        freshness_seconds: float = 0.0,
    ) -> None:
        """Open the memory; create its tables if the schema is new.

        busy_timeout: seconds for which a call is repeated while the server can't be reached or is busy
        read_only: refuse writes; the tables must exist
        most_connections: connections of this process at most
        freshness_seconds: how long a reader may use what it knows without asking the server
        """
        self._address = address = parse(url)
        self._read_only = read_only
        if read_only:
            options = address.parameters.get("options", "")
            address.parameters["options"] = f"{options} -c default_transaction_read_only=on".strip()
        opening = Pool(address, most=1, patience_seconds=min(busy_timeout, _OPEN_SECONDS))
        try:
            with opening.hold() as wire:
                prepare(wire, address, read_only=read_only)
        finally:
            opening.close()
        self._pool = pool = Pool(
            address, most=most_connections, patience_seconds=busy_timeout, read_only=read_only
        )
        self._states = states = KnownStates(freshness_seconds)
        self._maintenance_lock = lock_number(address.schema, "maintenance")

        reader = PostgresReader(pool, states, address.quoted_schema)
        self.get_one = reader.get_one
        self.get = reader.get
        self.get_by_seq = reader.get_by_seq
        self.rows = reader.rows
        self.in_range = reader.in_range
        self.all_rows = reader.all_rows
        self.agents = reader.agents
        self.counts = reader.counts
        self.evicted = reader.evicted
        self.bytes_on_disk = reader.bytes_on_disk
        self.state = reader.state
        self.ask_state = reader.ask_state
        self.catch_up = reader.catch_up
        self.columns_of = reader.columns_of
        self.features = reader.features
        self.coded_vectors = reader.coded_vectors
        self.stored_before = reader.stored_before
        self.importance_inputs = reader.importance_inputs
        self.codecs = reader.codecs
        self.stored_total = reader.stored_total
        self.unsettled = reader.unsettled
        self.seqs_after = reader.seqs_after

        writer = PostgresWriter(pool, states, address.schema, reader.known_codecs)
        self._own_rows = writer.recent
        self.add = writer.add
        self.refuse_conflicts = writer.refuse_conflicts
        self.add_read_counts = writer.add_read_counts
        self.save_codec = writer.save_codec
        self.retire_codec = writer.retire_codec
        self.settle = writer.settle
        self.setting = writer.setting

        changes = PostgresChanges(pool, states, reader.known_codecs)
        self.replace = changes.replace
        self.delete = changes.delete
        self.delete_agent = changes.delete_agent
        self.move = changes.move
        self.evict = changes.evict

        self._saved = saved = SavedIndexes(pool, read_only=read_only)
        self.saved_index = saved.saved_index
        self.saved_index_state = saved.saved_index_state
        self.save_index = saved.save_index
        self.drop_saved_index = saved.drop_saved_index
        self.agents_above = saved.agents_above

        self._vacuum = Vacuum(pool, changes, address.quoted_schema)
        self.is_writing = pool.is_writing
        self.is_fresh = states.is_fresh
        self.recent_rows = writer.recent.take
        self.check = Checker(pool, reader).check
        _stores.add(self)

    def close(self) -> None:
        self._pool.close()

    def check_versions(self) -> int:
        return 0

    @staticmethod
    def follow_changes(on_change: OnChange) -> None:
        """Do nothing: only the server knows what other hosts have changed."""

    @staticmethod
    def own_rows(agent: str, after_seq: int, version: int) -> None:
        """Return None: only the server knows which rows other hosts have added."""

    def tidy_new_rows(self) -> None:
        """Do nothing: the server puts every row into its indexes at once."""

    def copy_log(self) -> None:
        """Do nothing: the server copies its log by itself."""

    def watch(self, agent: str, *, new_rows: bool = False) -> Callable[[], int] | None:
        # For new rows the search index asks for the state, which costs the same round trip.
        return None if new_rows else self._states.watch(agent)

    @contextmanager
    def maintaining(self, wait_seconds: float) -> Iterator[bool]:
        # The lock belongs to a transaction, so that it also works behind a pooler. It holds no snapshot, so
        # it does not keep the server from vacuuming.
        with self._pool.hold("BEGIN") as wire:
            deadline = time.monotonic() + wait_seconds
            while True:
                ((is_ours,),) = rows_of(wire.run(_TRY_LOCK, self._maintenance_lock), "?")
                if is_ours or time.monotonic() >= deadline:
                    break
                time.sleep(_LOCK_POLL_SECONDS)
            yield is_ours

    def back_up(self, target: Path) -> None:
        self._pool.read(lambda wire: None)  # raises StoreClosed
        raise StoreError(
            f"{self._address} is on a server: back it up with pg_dump, or copy it to a file with "
            f"`agentmemory move URL {target}`"
        )

    def shrink(self) -> Iterator[int]:
        # The server reuses the space of deleted rows, which `erase_in_maintenance` lets it collect.
        return iter(())

    def erase(self, wait_seconds: float) -> None:
        self._saved.erase_indexes()
        with self._pool.hold() as wire:
            may_set = wire.may_prepare  # not behind a pooler, where the setting could stay for others
            try:
                if may_set:
                    wire.command(f"SET lock_timeout = {max(int(wait_seconds * 1000), 1)}")
                for table in TABLES:
                    wire.command(f"VACUUM (FULL) @{table}")
            except ServerError as problem:
                raise EraseIncomplete(
                    f"the memories are deleted, but their bytes are still in {self._address}: {problem}; "
                    "call again with erase=True, or let the owner of the tables run VACUUM FULL"
                ) from None
            finally:
                if may_set and not wire.is_broken:
                    wire.command("RESET lock_timeout")

    def erase_in_maintenance(self, *, in_background: bool = False) -> None:
        if self._read_only:
            self._pool.read(lambda wire: None)  # raises StoreClosed
            return
        erased = self._saved.erase_indexes()
        self._vacuum.run(always=_OF_INDEXES if erased else (), in_background=in_background)

    def _start_in_child(self) -> None:
        self._states.start_empty()
        self._own_rows.start_empty()


_stores: WeakList[PostgresStore] = WeakList()


def start_stores_in_child() -> None:
    """Start with empty caches in a forked child: another thread of the parent may have held their locks."""
    for store in list(_stores):
        store._start_in_child()
