"""All writes of the SQLite store: every call is one transaction, committed or rolled back."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import compress
from operator import attrgetter
from typing import Any, TypeVar

import msgspec

from memory._base.yielding import yield_gil, yield_lock
from memory.entry import Tier
from memory.errors import CodecRetired, IdConflict
from memory.storage._agent_numbers import AgentNumbers
from memory.storage._change_log import to_entry
from memory.storage._completeness import Completeness
from memory.storage._eraser import mark_deleted
from memory.storage._recent_rows import RecentRows
from memory.storage._rows import (
    INSERTED_COLUMNS,
    Checksums,
    carried_rest,
    checksum_of,
    checksums_of,
    damaged,
    in_parts,
    is_rest_intact,
    placeholders,
    to_values,
    with_key,
)
from memory.storage._samples import SampleSets, pack_samples, place_of
from memory.storage._tail import (
    IN_TAIL,
    MAX_TAILS,
    close_tail,
    fits_tail,
)
from memory.storage._tail_writer import TailWriter
from memory.storage.base import (
    NO_SESSION,
    NO_STEP,
    ChangeKind,
    Move,
    OnChange,
    Row,
    Sample,
    StoredCodec,
)
from memory.storage.connections import Connections
from memory.storage.schema import (
    AGENT_SHIFT,
    FIRST_STORED_CODEC,
    RETIRED,
    SEQ_MASK,
    TIER_SHIFT,
    codec_digest,
    key_of,
)
from memory.storage.shared_versions import SharedVersions

LOG_LENGTH = 1024
"""Changes that an agent's log keeps; an index that is further behind reads all rows of the agent again."""

_MOVES_AT_ONCE = 16
"""Rows that a move updates between two points where it may yield to other threads."""
_COUNTS_AT_ONCE = 32
"""Read counts that are added between two points where this may yield to other threads."""
_TAILS_AT_ONCE = 32
"""Tails that maintenance closes in one transaction."""
_INSERT = f"INSERT INTO memories ({INSERTED_COLUMNS}) VALUES ({placeholders(22)})"

_ADD_READ_COUNT = (
    "INSERT INTO uses (agent, seq, uses) SELECT ?1, ?2, ?3"
    f" WHERE EXISTS (SELECT 1 FROM memories WHERE key IN (?4, ?4 | {Tier.IM << TIER_SHIFT},"
    f" ?4 | {Tier.LTM << TIER_SHIFT})) ON CONFLICT DO UPDATE SET uses = uses + excluded.uses"
)
"""Adds a read count. The last value is the key of the memory in stm."""
_REST = "features_checksum, stored_at, dated, digest, revision"
_DIGEST = (
    f"SELECT {_REST} FROM memories INDEXED BY by_id WHERE agent = ? AND id = ? AND indexed = 1"
    f" UNION ALL SELECT {_REST} FROM memories WHERE {IN_TAIL} AND id = ?"
)

_T = TypeVar("_T")


class SQLiteWriter:
    """The writing methods of `MemoryStore`, which documents them."""

    def __init__(
        self,
        connections: Connections,
        agent_numbers: AgentNumbers,
        completeness: Completeness,
        versions: SharedVersions,
        recent_rows: RecentRows,
        refresh_versions: Callable[[], None],
        refresh_versions_sometimes: Callable[[], None],
    ) -> None:
        """`refresh_versions` is called before each write that marks versions. It opens their file again if
        somebody has deleted or replaced it. `refresh_versions_sometimes` takes less time."""
        self._connections = connections
        self._agent_numbers = agent_numbers
        self._completeness = completeness
        self._versions = versions
        self._recent_rows = recent_rows
        self._refresh_versions = refresh_versions
        self._samples = SampleSets()
        self._logged: list[tuple[ChangeKind, Sequence[int]]] = []
        """What the current transaction wrote to the change log. Only the holder of the lock uses it."""
        self._last_change = 0
        """The number of its last entry."""
        self._undisturbed: list[tuple[int, int]] = []
        """What `SharedVersions.end_all` returned for the last transaction."""
        self.on_change: OnChange | None = None
        """See `MemoryStore.follow_changes`."""
        self._tails = TailWriter(
            connections,
            versions,
            recent_rows,
            refresh_versions_sometimes,
            partial(self._add_in_transaction, open_tail=True),
        )

    def add(self, rows: Sequence[Row]) -> list[int | None]:
        if not rows:
            return []
        try:
            if len(rows) == 1:
                return [self._add_one(rows[0], checksums_of(rows[0]))]
            checksums = [checksums_of(row) for row in rows]
            return list(self._add(rows, checksums))
        except _IdExists:  # check all rows, add the new ones
            is_new: list[bool] = []
            seqs = self._add(rows, [checksums_of(row) for row in rows], is_new)
        remaining = iter(seqs)
        return [next(remaining) if new_one else None for new_one in is_new]

    def _add_one(self, row: Row, checksums: Checksums) -> int:
        """Add one row with a new id and return its seq. `_add` does the same in more time."""
        if fits_tail(row):
            return self._tails.add(row, checksums)
        with self._connections.lock:
            agent_no, seq = self._add_in_transaction(row, checksums, open_tail=False)
            self._recent_rows.add(agent_no, (row,), (seq,))
        return seq

    def _add_in_transaction(self, row: Row, checksums: Checksums, *, open_tail: bool) -> tuple[int, int]:
        """Add one row; return the number of its agent and its seq. The caller holds the lock.

        open_tail: whether the next rows may be added to the agent's tail
        """
        agent_no, seq = self._write_marked(partial(self._insert_one, row, checksums, open_tail))
        self._agent_numbers[row.agent] = agent_no
        return agent_no, seq

    def _insert_one(
        self, row: Row, checksums: Checksums, open_tail: bool, connection: sqlite3.Connection
    ) -> tuple[int, int]:
        if max(row.body_codec, row.vector_codec, row.terms_codec) >= FIRST_STORED_CODEC:
            _refuse_replaced(connection, _stored_codecs([row]))
        agent_no, seq = self._reserve(connection, row.agent, 1, open_tail=open_tail)
        if not row.has_new_id:
            self._completeness.confirm(agent_no)
        try:
            connection.execute(_INSERT, to_values(row, agent_no, seq, checksums))
        except sqlite3.IntegrityError:
            raise _IdExists from None
        if not row.is_final:
            _mark_unsettled(connection, {row.agent: agent_no}, [row], [seq])
        self._versions.begin(self._versions.writes_slot(agent_no))
        return agent_no, seq

    def _add(
        self, rows: Sequence[Row], checksums: Sequence[Checksums], is_new: list[bool] | None = None
    ) -> list[int]:
        """Add rows and return their seqs.

        is_new: if given, only rows with new ids are added, and the list is filled: for each row, whether
        its id is new
        """
        codecs = _stored_codecs(rows)
        unsettled = not all([row.is_final for row in rows])
        new = rows

        def insert(connection: sqlite3.Connection) -> tuple[dict[str, int], list[int]]:
            nonlocal new
            sums = checksums
            if codecs:
                _refuse_replaced(connection, codecs)
            if is_new is not None:
                is_new[:] = self._which_are_new(connection, rows)
                new, sums = list(compress(rows, is_new)), list(compress(checksums, is_new))
            try:
                numbers, seqs = self._insert(connection, new, sums)
            except sqlite3.IntegrityError:
                raise _IdExists from None
            if unsettled:
                _mark_unsettled(connection, numbers, new, seqs)
            for agent_no in numbers.values():
                self._versions.begin(self._versions.writes_slot(agent_no))
            return numbers, seqs

        with self._connections.lock:
            numbers, seqs = self._write_marked(insert)
            self._agent_numbers.update(numbers)
            self._keep_recent(numbers, new, seqs)
        return seqs

    def _write_marked(self, work: Callable[[sqlite3.Connection], _T], *, frees_space: bool = False) -> _T:
        """Call `Connections.write`; then store new versions in the slots that `work` has marked.

        The caller holds the process's write lock: only other processes can write the slots in between."""
        self._refresh_versions()
        try:
            try:
                return self._connections.write(work, frees_space=frees_space)
            finally:
                self._undisturbed = self._versions.end_all()
        finally:  # again, in case an interrupt stopped the first call
            self._versions.end_all()

    def _keep_recent(self, numbers: dict[str, int], rows: Sequence[Row], seqs: Sequence[int]) -> None:
        """Keep the rows that were just committed for the search index of this process."""
        if len(numbers) == 1:
            (agent_no,) = numbers.values()
            self._recent_rows.add(agent_no, rows, seqs)
            return
        kept = {agent: agent_no for agent, agent_no in numbers.items() if agent_no in self._recent_rows}
        own: dict[str, tuple[list[Row], list[int]]] = {agent: ([], []) for agent in kept}
        if own:
            for row, seq in zip(rows, seqs, strict=True):
                if row.agent in own:
                    rows_of_agent, seqs_of_agent = own[row.agent]
                    rows_of_agent.append(row)
                    seqs_of_agent.append(seq)
        for agent, (rows_of_agent, seqs_of_agent) in own.items():
            self._recent_rows.add(kept[agent], rows_of_agent, seqs_of_agent)

    def _insert(
        self, connection: sqlite3.Connection, rows: Sequence[Row], checksums: Sequence[Checksums]
    ) -> tuple[dict[str, int], list[int]]:
        """Add rows under new seqs; return the numbers of their agents and each row's seq."""
        agents = Counter([row.agent for row in rows])
        # A hidden row would not keep its id from being used again.
        has_given_ids = not all([row.has_new_id for row in rows])
        if len(agents) == 1:
            agent = rows[0].agent
            agent_no, first = self._reserve(connection, agent, len(rows))
            if has_given_ids:
                self._completeness.confirm(agent_no)
            connection.executemany(
                _INSERT,
                [
                    to_values(row, agent_no, seq, sums)
                    for seq, (row, sums) in enumerate(zip(rows, checksums, strict=True), first)
                ],
            )
            return {agent: agent_no}, list(range(first, first + len(rows)))
        numbers: dict[str, int] = {}
        ranges: dict[str, Iterator[int]] = {}
        for agent, count in agents.items():
            numbers[agent], first = self._reserve(connection, agent, count)
            ranges[agent] = iter(range(first, first + count))
            if has_given_ids:
                self._completeness.confirm(numbers[agent])
        seqs = [next(ranges[row.agent]) for row in rows]
        connection.executemany(
            _INSERT,
            [
                to_values(row, numbers[row.agent], seq, sums)
                for row, seq, sums in zip(rows, seqs, checksums, strict=True)
            ],
        )
        return numbers, seqs

    def refuse_conflicts(self, rows: Sequence[Row]) -> None:
        self._connections.read(lambda connection: self._which_are_new(connection, rows))

    def replace(self, old: Row, new: Row) -> bool:
        def change(connection: sqlite3.Connection, agent_no: int | None) -> bool:
            if agent_no is None:
                return False
            _refuse_replaced(connection, _stored_codecs([new]))
            key = key_of(agent_no, old.tier, old.seq)
            removed = connection.execute(
                "DELETE FROM memories WHERE key = ? AND revision = ?", (key, old.revision)
            ).rowcount
            if not removed:
                return False
            row = msgspec.structs.replace(new, revision=old.revision + 1)
            connection.execute(_INSERT, to_values(row, agent_no, old.seq, checksums_of(row)))
            self._count_samples(connection, agent_no, [old.seq])
            if not row.is_final:
                _mark_unsettled(connection, {row.agent: agent_no}, [row], [old.seq])
            self._log(connection, agent_no, ChangeKind.REPLACED, None, [old.seq])
            mark_deleted(connection)
            return True

        return self._change(old.agent, change)

    def delete(self, agent: str, ids: Sequence[str]) -> int:
        def change(connection: sqlite3.Connection, agent_no: int | None) -> int:
            if agent_no is None:
                return 0
            keys = [
                key
                for part in in_parts(list(dict.fromkeys(ids)))
                for (key,) in connection.execute(
                    "SELECT key FROM memories INDEXED BY by_id WHERE agent = ? AND indexed = 1"
                    f" AND id IN ({placeholders(len(part))})",
                    (agent_no, *part),
                )
            ]
            if len(keys) < len(set(ids)):
                self._completeness.confirm(agent_no)
            removed = self._delete(connection, agent_no, keys)
            self._remove_agent(connection, agent, agent_no)
            return removed

        return self._change(agent, change, frees_space=True)

    def delete_agent(self, agent: str) -> int:
        def change(connection: sqlite3.Connection, agent_no: int | None) -> int:
            if agent_no is None:
                return 0
            self._completeness.confirm(agent_no)
            low, high = agent_no << AGENT_SHIFT, (agent_no + 1) << AGENT_SHIFT
            removed = connection.execute(
                "DELETE FROM memories WHERE key >= ? AND key < ?", (low, high)
            ).rowcount
            connection.execute("DELETE FROM uses WHERE agent = ?", (agent_no,))
            (last_seq,) = connection.execute(
                "SELECT last_seq FROM agents WHERE no = ?", (agent_no,)
            ).fetchone()
            if removed:
                self._count_samples(connection, agent_no, None)
                mark_deleted(connection)
            self._log(connection, agent_no, ChangeKind.CLEARED, None, [last_seq])
            self._remove_agent(connection, agent, agent_no)
            return removed

        return self._change(agent, change, frees_space=True)

    def move(self, agent: str, moves: Sequence[Move], source: Tier, target: Tier) -> int:
        def change(connection: sqlite3.Connection, agent_no: int | None) -> int:
            if agent_no is None:
                return 0
            _refuse_replaced(connection, _stored_codecs(moves))
            by_seq = {move.seq: move for move in moves}
            current = [
                (by_seq[seq], (*rest, revision))
                for seq, revision, *rest in self._fixed_columns(connection, agent_no, source, by_seq)
                if by_seq[seq].revision == revision
            ]
            if source == target:
                self._store_again(connection, agent_no, target, [move for move, _ in current])
                return len(current)
            for part in in_parts(current, _MOVES_AT_ONCE):
                yield_gil()
                connection.executemany(
                    "UPDATE memories SET key = ?, checksum = ?, features_checksum = ?, tier = ?,"
                    " body_codec = ?, body = ?, vector_codec = ?, vector = ?, fine = ?, terms = ?,"
                    " terms_codec = ? WHERE key = ?",
                    [
                        _move_values(
                            move,
                            fixed,
                            key_of(agent_no, source, move.seq),
                            key_of(agent_no, target, move.seq),
                            target,
                        )
                        for move, fixed in part
                    ],
                )
            if current:
                seqs = [move.seq for move, _ in current]
                self._log(connection, agent_no, ChangeKind.MOVED, target, seqs)
            return len(current)

        return self._change(agent, change)

    @staticmethod
    def _store_again(
        connection: sqlite3.Connection, agent_no: int, tier: Tier, moves: Sequence[Move]
    ) -> None:
        """Give rows another form in their tier. Deleting them all first keeps the pages 93 % full; updates
        in place left 41 to 73 %."""
        rows = []
        for part in in_parts(sorted(moves, key=attrgetter("seq")), _MOVES_AT_ONCE):
            yield_gil()
            for move in part:
                key = key_of(agent_no, tier, move.seq)
                columns = f"SELECT {INSERTED_COLUMNS} FROM memories WHERE key = ?"
                values = list(connection.execute(columns, (key,)).fetchone())
                fixed = (*values[2:7], values[13], *values[9:13], values[14])
                _, checksum, features_checksum, *_ = _move_values(move, fixed, key, key, tier)
                values[1], values[9] = checksum, features_checksum
                values[7:9] = move.body_codec, move.body
                values[15:20] = move.vector_codec, move.vector, move.fine, move.terms, move.terms_codec
                rows.append(values)
        connection.executemany("DELETE FROM memories WHERE key = ?", [row[:1] for row in rows])
        for part in in_parts(rows, _MOVES_AT_ONCE):
            yield_gil()
            connection.executemany(_INSERT, part)

    def evict(self, agent: str, seqs: Sequence[int], tier: Tier) -> int:
        def change(connection: sqlite3.Connection, agent_no: int | None) -> int:
            if agent_no is None:
                return 0
            present = [found[0] for found in self._fixed_columns(connection, agent_no, tier, seqs)]
            removed = self._delete(connection, agent_no, [key_of(agent_no, tier, seq) for seq in present])
            connection.execute(
                "UPDATE agents SET forgotten = forgotten + ? WHERE no = ?", (removed, agent_no)
            )
            self._remove_agent(connection, agent, agent_no)
            return removed

        return self._change(agent, change)

    def add_read_counts(self, read_counts: dict[str, dict[int, int]]) -> None:
        def add(connection: sqlite3.Connection) -> None:
            for agent, counts in read_counts.items():
                agent_no = self._agent_numbers.look_up(connection, agent)
                if agent_no is not None:
                    # A row that was deleted since it was read gets no count.
                    first = key_of(agent_no, Tier.STM, 0)
                    values = [(agent_no, seq, count, first | seq) for seq, count in sorted(counts.items())]
                    for part in in_parts(values, _COUNTS_AT_ONCE):
                        yield_gil()
                        connection.executemany(_ADD_READ_COUNT, part)

        self._connections.write(add)

    def save_codec(
        self,
        purpose: str,
        data: bytes,
        *,
        trained_on: int = 0,
        samples: Sequence[Sample] = (),
        replaces: Sequence[int] = (),
    ) -> StoredCodec:
        def save(connection: sqlite3.Connection) -> StoredCodec:
            known = connection.execute(
                "SELECT number, purpose, data, trained_on, deleted FROM codecs WHERE purpose = ?",
                (purpose,),
            ).fetchone()
            if known is not None:
                return StoredCodec(*known)
            numbers = {agent: self._agent_numbers.look_up(connection, agent) for agent, _ in samples}
            places = [place_of(no, seq) for agent, seq in samples if (no := numbers[agent]) is not None]
            # A sample that was deleted while the codec was being made counts in `deleted` too.
            living = sum(
                connection.execute(
                    "SELECT COUNT(*) FROM memories WHERE key IN (?, ?, ?)",
                    [key_of(numbers[agent] or 0, tier, seq) for tier in Tier],
                ).fetchone()[0]
                for agent, seq in samples
            )
            deleted = len(samples) - living
            number = connection.execute(
                "INSERT INTO codecs (purpose, digest, trained_on, deleted, samples, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                (purpose, codec_digest(purpose, data), trained_on, deleted, pack_samples(places), data),
            ).lastrowid
            connection.executemany(
                "UPDATE codecs SET writable = 0 WHERE number = ?", [(old,) for old in replaces]
            )
            connection.execute("UPDATE agents SET unsettled = 1 WHERE typeof(name) = 'text'")
            return StoredCodec(int(number or 0), purpose, data, trained_on, deleted)

        return self._connections.write(save)

    def settle(self, agent: str, last: int, newest_codec: int) -> bool:
        def record(connection: sqlite3.Connection) -> bool:
            agent_no = self._agent_numbers.look_up(connection, agent)
            changed = connection.execute(
                "UPDATE agents SET unsettled = CASE WHEN last_seq > ? THEN ? ELSE 0 END"
                " WHERE no = ? AND NOT EXISTS (SELECT 1 FROM codecs WHERE number > ?)",
                (last, last + 1, agent_no, max(newest_codec, FIRST_STORED_CODEC - 1)),
            ).rowcount
            return agent_no is None or changed == 1

        return self._connections.write(record)

    def retire_codec(self, number: int) -> None:
        def retire(connection: sqlite3.Connection) -> None:
            connection.execute(
                "UPDATE codecs SET purpose = ?, digest = x'', trained_on = 0, samples = x'', data = x'',"
                " writable = 0"
                " WHERE number = ?",
                (RETIRED, number),
            )
            mark_deleted(connection)

        # No new row can refer to a replaced codec, so this need not be in the same transaction.
        in_use = "SELECT 1 FROM memories WHERE ? IN (body_codec, terms_codec, vector_codec) LIMIT 1"
        if self._connections.fetch_one(in_use, (number,)) is None:
            self._connections.write(retire)

    def setting(self, name: str, default: str | None = None) -> str | None:
        found = self._connections.fetch("SELECT value FROM settings WHERE name = ?", (name,))
        if found or default is None:
            return found[0][0] if found else None
        self._connections.write(
            lambda connection: connection.execute(
                "INSERT INTO settings (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING",
                (name, default),
            )
        )
        return self.setting(name)

    def _change(
        self,
        agent: str,
        change: Callable[[sqlite3.Connection, int | None], _T],
        *,
        frees_space: bool = False,
    ) -> _T:
        """Call `change` with the agent's number (None if unknown) in one transaction.

        The agent's versions change with the commit. Then `on_change` is called."""
        slot = version = number = 0

        def marked(connection: sqlite3.Connection) -> _T:
            nonlocal slot, version, number
            self._logged.clear()
            agent_no = self._agent_numbers.look_up(connection, agent)
            if agent_no is None:
                self._completeness.confirm_agents()
            else:
                close_tail(connection, agent_no)
                slot = self._versions.changes_slot(agent_no)
                version = self._versions.slots[slot]
                self._versions.begin(slot)
                self._versions.begin(self._versions.writes_slot(agent_no))
            result = change(connection, agent_no)
            if self._logged:
                number = self._last_change
            elif agent_no is not None:
                (number,) = connection.execute(
                    "SELECT last_change FROM agents WHERE no = ?", (agent_no,)
                ).fetchone()
            return result

        with self._connections.lock:
            result = self._write_marked(marked, frees_space=frees_space)
            after = dict(self._undisturbed).get(slot, 1)
            if self.on_change is not None and not version & 1 and not after & 1:
                before = version, number - len(self._logged)
                self.on_change(agent, _changed_seqs(self._logged), before, (after, number))
            return result

    def _reserve(
        self, connection: sqlite3.Connection, agent: str, count: int, *, open_tail: bool = False
    ) -> tuple[int, int]:
        """Return the agent's number and the first of `count` new seqs. All older rows are indexed then.

        open_tail: whether rows may be added to the agent's tail after this transaction
        """
        known = self._agent_numbers.get(agent)
        if known is None:
            self._restore_name(connection, agent)
            found = connection.execute("SELECT no FROM agents WHERE name = ?", (agent,)).fetchone()
            if found is None:
                self._completeness.confirm_agents()
                agent_no = connection.execute(
                    "INSERT INTO agents (name, last_seq, tail) VALUES (?, ?, ?)", (agent, count, open_tail)
                ).lastrowid
                return int(agent_no or 0), 1
            known = int(found[0])
        reserve = (
            "UPDATE agents SET last_seq = last_seq + ?, tail = ? WHERE no = ? AND tail = 0"
            " RETURNING last_seq, typeof(name)"
        )
        reserved = connection.execute(reserve, (count, open_tail, known)).fetchone()
        if reserved is None:
            close_tail(connection, known)
            reserved = connection.execute(reserve, (count, open_tail, known)).fetchone()
        last_seq, kind = reserved
        if kind == "blob":
            self._restore_name(connection, agent)
        return known, last_seq - count + 1

    def tidy_new_rows(self) -> None:
        """Close all tails if there are many: reads of all agents scan all tails."""
        if self._connections.read_only:
            return
        numbers = [
            number
            for (number,) in self._connections.fetch(
                "SELECT no FROM agents INDEXED BY tails WHERE tail = 1"
            )
        ]
        if len(numbers) > MAX_TAILS:
            for part in in_parts(numbers, _TAILS_AT_ONCE):
                self._connections.write(partial(_close_tails, part))
                yield_lock()

    def _which_are_new(self, connection: sqlite3.Connection, rows: Sequence[Row]) -> list[bool]:
        """Return for each row whether its id is new; raise IdConflict if an id has other content."""
        new = []
        seen: dict[tuple[str, str], int] = {}
        for row in rows:
            digest = seen.get((row.agent, row.id))
            if digest is None:
                agent_no = self._agent_numbers.look_up(connection, row.agent)
                found = (
                    agent_no
                    and connection.execute(
                        _DIGEST, (agent_no, row.id, agent_no, agent_no, row.id)
                    ).fetchone()
                )
                if found and found[3] != row.digest and not is_rest_intact(*found):
                    raise damaged(row.agent, row.id)
                digest = found[3] if found else None
            if digest is not None and digest != row.digest:
                raise IdConflict(
                    f"id {row.id!r} of agent {row.agent!r} already has other content: "
                    "use another id, or update() to change it"
                )
            new.append(digest is None)
            seen[row.agent, row.id] = row.digest
        return new

    def _restore_name(self, connection: sqlite3.Connection, agent: str) -> None:
        """Give an agent that comes back its name and its old number; see `_remove_agent`."""
        connection.execute(
            "UPDATE agents SET name = ? WHERE name = ?",
            (agent, self._agent_numbers.pseudonym(connection, agent)),
        )

    def _remove_agent(self, connection: sqlite3.Connection, agent: str, agent_no: int) -> None:
        """Remove the name and the change log of an agent that has no memories any more.

        Its number stays: other processes have cached it, and must not find another agent under it. A hash
        takes the place of the name, so that the same agent gets the same number when it comes back."""
        low, high = agent_no << AGENT_SHIFT, (agent_no + 1) << AGENT_SHIFT
        left = connection.execute(
            "SELECT 1 FROM memories WHERE key >= ? AND key < ? LIMIT 1", (low, high)
        ).fetchone()
        if left is None:
            (last,) = connection.execute(
                "UPDATE agents SET name = ? WHERE no = ? RETURNING last_change",
                (self._agent_numbers.pseudonym(connection, agent), agent_no),
            ).fetchone()
            connection.execute("DELETE FROM changes WHERE agent = ? AND number < ?", (agent_no, last))

    def _count_samples(
        self, connection: sqlite3.Connection, agent_no: int, seqs: Sequence[int] | None
    ) -> None:
        """Add to each codec's `deleted` the number of its samples among these rows; None means all rows."""
        for number, count in self._samples.count(connection, agent_no, seqs):
            connection.execute("UPDATE codecs SET deleted = deleted + ? WHERE number = ?", (count, number))

    @staticmethod
    def _fixed_columns(
        connection: sqlite3.Connection, agent_no: int, tier: Tier, seqs: Iterable[int]
    ) -> list[tuple[Any, ...]]:
        """Return seq, revision and the columns that no move changes, of those rows that are in the tier."""
        return [
            (key & SEQ_MASK, *rest)
            for part in in_parts([key_of(agent_no, tier, seq) for seq in seqs])
            for key, *rest in connection.execute(
                "SELECT key, revision, id, kind, step, created_at, importance, session, features_checksum,"
                " stored_at, dated, digest FROM memories"
                f" WHERE key IN ({placeholders(len(part))})",
                part,
            )
        ]

    def _delete(self, connection: sqlite3.Connection, agent_no: int, keys: Sequence[int]) -> int:
        seqs = [key & SEQ_MASK for key in keys]
        connection.executemany("DELETE FROM memories WHERE key = ?", [(key,) for key in keys])
        connection.executemany(
            "DELETE FROM uses WHERE agent = ? AND seq = ?", [(agent_no, seq) for seq in seqs]
        )
        if seqs:
            self._count_samples(connection, agent_no, seqs)
            self._log(connection, agent_no, ChangeKind.DELETED, None, seqs)
            mark_deleted(connection)
        return len(seqs)

    def _log(
        self,
        connection: sqlite3.Connection,
        agent_no: int,
        kind: ChangeKind,
        tier: Tier | None,
        seqs: Sequence[int],
    ) -> None:
        """Add an entry to the agent's change log and delete the entry beyond LOG_LENGTH."""
        self._logged.append((kind, seqs))
        (number,) = connection.execute(
            "UPDATE agents SET last_change = last_change + 1 WHERE no = ? RETURNING last_change",
            (agent_no,),
        ).fetchone()
        self._last_change = number
        connection.execute(
            "INSERT INTO changes (agent, number, kind, tier, seqs) VALUES (?, ?, ?, ?, ?)",
            to_entry(agent_no, number, kind, tier, seqs),
        )
        connection.execute(
            "DELETE FROM changes WHERE agent = ? AND number <= ?", (agent_no, number - LOG_LENGTH)
        )


def _changed_seqs(logged: Sequence[tuple[ChangeKind, Sequence[int]]]) -> list[int] | None:
    """Return the seqs of changed rows; None if all rows of the agent are gone."""
    if any(kind is ChangeKind.CLEARED for kind, _ in logged):
        return None
    return [seq for _, seqs in logged for seq in seqs]


def _close_tails(numbers: Sequence[int], connection: sqlite3.Connection) -> None:
    for number in numbers:
        yield_gil()
        close_tail(connection, number)


def _stored_codecs(rows: Sequence[Row] | Sequence[Move]) -> set[int]:
    """Return the numbers of all codecs in the file that rows refer to."""
    numbers = {row.body_codec for row in rows}
    numbers.update([row.vector_codec for row in rows])
    numbers.update([row.terms_codec for row in rows])
    return {number for number in numbers if number >= FIRST_STORED_CODEC}


def _mark_unsettled(
    connection: sqlite3.Connection, numbers: dict[str, int], rows: Sequence[Row], seqs: Sequence[int]
) -> None:
    """Record that maintenance must encode rows again."""
    first: dict[int, int] = {}
    for row, seq in zip(rows, seqs, strict=True):
        if not row.is_final:
            agent_no = numbers[row.agent]
            first[agent_no] = min(first.get(agent_no, seq), seq)
    connection.executemany(
        "UPDATE agents SET unsettled = ? WHERE no = ? AND (unsettled = 0 OR unsettled > ?)",
        [(seq, agent_no, seq) for agent_no, seq in first.items()],
    )


def _refuse_replaced(connection: sqlite3.Connection, numbers: set[int]) -> None:
    """Raise CodecRetired if another process has replaced one of these codecs."""
    if numbers:
        found = connection.execute(
            f"SELECT number FROM codecs WHERE number IN ({placeholders(len(numbers))}) AND writable = 0",
            (*numbers,),
        ).fetchone()
        if found is not None:
            raise CodecRetired(f"codec {found[0]} was replaced meanwhile: encode the memory again")


def _move_values(move: Move, fixed: Sequence[Any], source: int, target: int, tier: Tier) -> tuple[Any, ...]:
    """Return the values of a move's statement. `fixed` is what `_fixed_columns` returned, with the revision
    at the end."""
    id_, kind, step, created_at, importance, session, *rest = fixed
    of_record = checksum_of((id_, kind, step, created_at, importance, move.body_codec, move.body))
    of_features = checksum_of(
        (
            created_at,
            NO_STEP if step is None else step,
            NO_SESSION if session is None else session,
            move.vector_codec,
            move.vector,
            move.fine,
            move.terms,
            move.terms_codec,
        )
    )
    return (
        target,
        with_key(of_record, target),
        with_key(of_features, target) | carried_rest(*rest),
        tier,
        move.body_codec,
        move.body,
        move.vector_codec,
        move.vector,
        move.fine,
        move.terms,
        move.terms_codec,
        source,
    )


class _IdExists(Exception):
    """The id of a row to add exists already."""
