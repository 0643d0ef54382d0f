"""The tests that every store must pass; a store's test class inherits them and provides a fixture.

    class TestMyStore(StoreConformance, DurableConformance):
        @pytest.fixture
        def open_store(self): ...   # return a function; each call opens the same data again

`StoreConformance` needs one open store. `DurableConformance` needs a store whose data stays after `close`
and can be opened twice at the same time. The tests use only the interface, and the rows made here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from zlib import crc32

import msgspec
import numpy as np
import pytest
from threads import together

from memory.entry import ALL_TIERS, Tier
from memory.errors import IdConflict, StoreClosed
from memory.storage import (
    NO_SESSION,
    NO_STEP,
    AgentState,
    Change,
    ChangeKind,
    Features,
    IndexColumns,
    MemoryStore,
    Move,
    Record,
    Row,
)

MANY = 1_200  # more rows than a store should put into one statement
NOBODY = AgentState(0, 0)

OpenStore = Callable[[], MemoryStore]


def row(id: str, agent: str = "ann", **fields: Any) -> Row:
    """Return a row whose content depends on its id; `fields` replace columns."""
    plain = Row(
        agent,
        id,
        0,
        Tier.STM,
        "text",
        7,
        1_000.5,
        1.0,
        0,
        b"body of " + id.encode(),
        stored_at=2_000.25,
        dated=False,
        digest=crc32(id.encode()),
        session=3,
        terms=b"terms of " + id.encode(),
        vector_codec=0,
        vector=b"vector of " + id.encode(),
        fine=None,
    )
    return msgspec.structs.replace(plain, **fields)


def numbered(count: int, agent: str = "ann", **fields: Any) -> list[Row]:
    return [row(f"{number:05d}", agent, **fields) for number in range(count)]


def move_of(seq: int, mark: str = "small", revision: int = 0) -> Move:
    return Move(
        seq=seq,
        revision=revision,
        body_codec=17,
        body=f"{mark} body {seq}".encode(),
        vector_codec=18,
        vector=f"{mark} vector {seq}".encode(),
        fine=f"{mark} fine {seq}".encode(),
        terms=f"{mark} terms {seq}".encode(),
        terms_codec=19,
    )


def moved(before: Row, move: Move, target: Tier) -> Row:
    """Return the row expected after a move: another tier and form, all else unchanged."""
    return msgspec.structs.replace(
        before,
        tier=target,
        body_codec=move.body_codec,
        body=move.body,
        vector_codec=move.vector_codec,
        vector=move.vector,
        fine=move.fine,
        terms=move.terms,
        terms_codec=move.terms_codec,
    )


def record_of(whole: Row) -> Record:
    return Record(*(getattr(whole, name) for name in Record.__struct_fields__))


def features_of(whole: Row) -> Features:
    return whole.seq, whole.vector_codec, whole.vector, whole.fine, whole.terms, whole.terms_codec


def add(store: MemoryStore, rows: Sequence[Row]) -> list[Row]:
    """Add new rows; return the rows that reads must return."""
    seqs = store.add(rows)
    assert None not in seqs
    return [msgspec.structs.replace(one, seq=seq) for one, seq in zip(rows, seqs, strict=True)]


def whole(store: MemoryStore, id: str, agent: str = "ann") -> Row:
    (found,) = store.rows(agent, [store.get_one(agent, id).seq])
    return found


def change(store: MemoryStore, id: str, agent: str = "ann", **fields: Any) -> Row:
    """Replace some columns of an existing row; return the row that reads must return."""
    old = whole(store, id, agent)
    new = msgspec.structs.replace(old, **fields)
    assert store.replace(old, new) is True
    return msgspec.structs.replace(new, revision=old.revision + 1)


def ids(found: Iterable[Record]) -> list[str]:
    return [one.id for one in found]


def everything(store: MemoryStore, agent: str | None = None) -> list[Row]:
    return list(store.all_rows(agent))


def in_order(rows: Iterable[Row]) -> list[Row]:
    return sorted(rows, key=lambda one: one.seq)


def tiers(stm: int = 0, im: int = 0, ltm: int = 0) -> dict[Tier, int]:
    return {Tier.STM: stm, Tier.IM: im, Tier.LTM: ltm}


class FollowedCopy:
    """A copy of the tiers and terms of ann's rows by seq, updated only through `catch_up`."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._seen = NOBODY
        self.rows: dict[int, tuple[int, bytes]] = {}

    def catch_up(self) -> None:
        self._seen, changes, new = self._store.catch_up("ann", self._seen.last_seq, self._seen.last_change)
        if changes is None:  # a deleted agent keeps only the end of its log: read all rows again
            self.rows = {}
            self._seen, changes, new = self._store.catch_up("ann", 0, self._seen.last_change)
        for entry in changes:
            self._apply(entry)
        self._take(self._store.columns_of("ann", new.seq.tolist()))

    def _apply(self, entry: Change) -> None:
        if entry.kind is ChangeKind.REPLACED:
            self._take(self._store.columns_of("ann", entry.seqs))
        elif entry.kind is ChangeKind.CLEARED:
            self.rows = {seq: held for seq, held in self.rows.items() if seq > entry.seqs[0]}
        else:
            for seq in self.rows.keys() & set(entry.seqs):
                _, terms = self.rows.pop(seq)
                if entry.kind is ChangeKind.MOVED:
                    self.rows[seq] = (entry.tier, terms)

    def _take(self, columns: IndexColumns) -> None:
        terms = {one[0]: one[4] for one in columns.features}
        for seq, tier in zip(columns.seq.tolist(), columns.tier.tolist(), strict=True):
            self.rows[seq] = (tier, terms[seq])


def some_change(store: MemoryStore, rng: np.random.Generator, number: int) -> None:
    """Make one random change to random rows of ann."""
    there = everything(store, "ann")
    chosen = {there[at].id: there[at] for at in rng.integers(0, len(there), 3)} if there else {}
    seqs = [one.seq for one in chosen.values()]
    source, target = (Tier(int(tier)) for tier in rng.integers(0, 3, 2))
    match int(rng.integers(0, 10)):
        case 0:
            store.delete("ann", list(chosen))
        case 1 | 2:
            # A move can change the form of the terms, but not what they say.
            moves = [
                msgspec.structs.replace(
                    move_of(one.seq, revision=one.revision), terms=one.terms, terms_codec=one.terms_codec
                )
                for one in chosen.values()
            ]
            store.move("ann", moves, source, target)
        case 3 | 4 if chosen:
            change(store, next(iter(chosen)), terms=b"terms %d" % number, tier=target)
        case 5:
            store.evict("ann", seqs, source)
        case 6 if number % 5 == 0:
            store.delete_agent("ann")
        case _:
            store.add([row(f"{number}-{part}", tier=source) for part in range(3)])


class _Base:
    @pytest.fixture
    def open_store(self) -> Iterator[OpenStore]:
        raise NotImplementedError("the test class of a store must define this fixture")

    @pytest.fixture
    def store(self, open_store: OpenStore) -> MemoryStore:
        return open_store()


class StoreConformance(_Base):
    """Tests of one open store."""

    changes_kept: int | None = None
    """How many changes of an agent the store's log holds; None if there is no limit."""

    # -- adding -------------------------------------------------------------------------------

    def test_an_added_row_is_read_back_unchanged(self, store: MemoryStore) -> None:
        rows = [
            row("plain"),
            row("bare", step=None, session=None, fine=None, terms=b"", body=b"", vector=b""),
            row("late", tier=Tier.LTM, fine=b"fine", body_codec=40, vector_codec=41, kind="action"),
            row("odd", created_at=-1.5e9, stored_at=0.1 + 0.2, importance=1e-300, step=-(2**63) + 1),
            row("large", digest=2**63 - 1, session=2**63 - 1, step=2**63 - 1, body=bytes(range(256)) * 999),
            row("größe 🜁\n\"';--", kind="ключ", body=b"\x00\xff"),
        ]
        stored = add(store, rows)
        assert everything(store) == stored
        assert in_order(store.rows("ann", [one.seq for one in stored])) == stored
        assert [store.get_one("ann", one.id) for one in stored] == [record_of(one) for one in stored]

    def test_adding_no_rows_changes_nothing(self, store: MemoryStore) -> None:
        assert store.add([]) == []
        assert store.agents() == []

    def test_seqs_grow_in_the_order_of_adding(self, store: MemoryStore) -> None:
        seqs = [store.add([one])[0] for one in numbered(5)]
        seqs += store.add([row(f"batch {number}") for number in range(5)])
        assert seqs == sorted(set(seqs))
        assert min(seqs) > 0

    def test_a_batch_may_mix_agents(self, store: MemoryStore) -> None:
        stored = add(store, [row("1", "ann"), row("1", "bob"), row("2", "ann"), row("2", "bob")])
        assert everything(store, "ann") == [stored[0], stored[2]]
        assert everything(store, "bob") == [stored[1], stored[3]]

    def test_an_id_stored_again_with_the_same_content_is_one_memory(self, store: MemoryStore) -> None:
        (first,) = add(store, [row("1", importance=2.0)])
        assert store.add([row("1", importance=9.0)]) == [None]
        assert everything(store) == [first]

    def test_a_batch_may_contain_the_same_memory_twice(self, store: MemoryStore) -> None:
        seqs = store.add([row("1"), row("2"), row("1"), row("2"), row("3")])
        assert [seq is None for seq in seqs] == [False, False, True, True, False]
        assert ids(everything(store)) == ["1", "2", "3"]

    def test_a_batch_may_contain_existing_and_new_memories(self, store: MemoryStore) -> None:
        (known,) = add(store, [row("known")])
        seqs = store.add([row("new"), row("known"), row("new", "bob")])
        assert seqs[1] is None
        assert seqs[0] is not None
        assert seqs[0] > known.seq
        assert seqs[2] is not None
        assert store.counts() == tiers(stm=3)

    @pytest.mark.parametrize("place", [0, 1, 2])
    def test_an_id_with_other_content_refuses_the_whole_batch(self, store: MemoryStore, place: int) -> None:
        stored = add(store, [row("taken")])
        before = store.state("ann")
        batch = [row("new"), row("newcomer's", "bob")]
        batch.insert(place, row("taken", digest=1))
        with pytest.raises(IdConflict, match="taken"):
            store.add(batch)
        assert everything(store) == stored
        assert store.state("ann") == before
        assert store.agents() == ["ann"]

    def test_one_id_with_two_contents_in_one_batch_is_refused(self, store: MemoryStore) -> None:
        with pytest.raises(IdConflict):
            store.add([row("1", digest=1), row("2"), row("1", digest=2)])
        assert everything(store) == []
        assert store.agents() == []

    def test_a_refused_batch_leaves_the_store_usable(self, store: MemoryStore) -> None:
        add(store, [row("1")])
        with pytest.raises(IdConflict):
            store.add([row("2", "bob"), row("1", digest=1)])
        stored = add(store, [row("2", "bob"), row("2", "cid")])
        assert [store.get_one("bob", "2"), store.get_one("cid", "2")] == [record_of(one) for one in stored]

    @pytest.mark.parametrize("fields", [{"body": object()}, {"step": 2**70}], ids=["type", "range"])
    def test_if_one_row_of_a_batch_cannot_be_stored_none_is(
        self, store: MemoryStore, fields: dict[str, Any]
    ) -> None:
        broken = row("2", **fields)
        with pytest.raises(Exception):  # noqa: B017, PT011 - the error depends on the driver
            store.add([row("1"), broken, row("3", "bob")])
        assert everything(store) == []
        assert store.agents() == []
        assert add(store, [row("1")]) == everything(store)

    def test_refuse_conflicts_checks_rows_and_adds_none(self, store: MemoryStore) -> None:
        stored = add(store, [row("1")])
        store.refuse_conflicts([row("1"), row("2"), row("1", "bob"), row("2")])
        for batch in ([row("2"), row("1", digest=5)], [row("2", digest=1), row("2", digest=2)]):
            with pytest.raises(IdConflict):
                store.refuse_conflicts(batch)
        assert everything(store) == stored
        assert store.agents() == ["ann"]

    def test_two_agents_may_use_one_id(self, store: MemoryStore) -> None:
        hers, his = add(store, [row("1", "ann"), row("1", "bob", digest=5, body=b"other")])
        assert store.get_one("ann", "1") == record_of(hers)
        assert store.get_one("bob", "1") == record_of(his)

    def test_a_deleted_id_can_be_used_for_other_content(self, store: MemoryStore) -> None:
        add(store, [row("1")])
        store.delete("ann", ["1"])
        (anew,) = add(store, [row("1", digest=99, body=b"anew")])
        assert everything(store) == [anew]

    def test_a_seq_is_never_used_again(self, store: MemoryStore) -> None:
        seen = [one.seq for one in add(store, numbered(3))]
        store.delete("ann", ["00002"])
        seen += store.add([row("after delete")])
        change(store, "after delete", body=b"new")
        store.evict("ann", [seen[-1]], Tier.STM)
        seen += store.add([row("after evict")])
        store.delete_agent("ann")
        seen += store.add([row("after delete_agent")])
        assert seen == sorted(set(seen))

    # -- replacing ----------------------------------------------------------------------------

    def test_a_replacement_keeps_the_seq_of_the_old_row(self, store: MemoryStore) -> None:
        old, other = add(store, [row("1"), row("2")])
        new = row(
            "1", tier=Tier.IM, body=b"new", digest=9, step=None, importance=5.0, fine=b"f", dated=True
        )
        assert store.replace(old, new) is True
        assert everything(store) == [msgspec.structs.replace(new, seq=old.seq, revision=1), other]
        assert store.counts("ann") == tiers(stm=1, im=1)

    def test_a_row_that_changed_since_it_was_read_is_not_replaced(self, store: MemoryStore) -> None:
        names = ("replaced", "moved", "deleted", "stored anew")
        was = add(store, [row(name) for name in names])
        change(store, "replaced", importance=2.0)
        store.move("ann", [move_of(was[1].seq)], Tier.STM, Tier.IM)
        store.delete("ann", ["deleted", "stored anew"])
        store.add([row("stored anew")])
        before = everything(store)
        for old in was:
            assert store.replace(old, msgspec.structs.replace(old, body=b"too late")) is False
        assert everything(store) == before

    def test_replacing_a_missing_row_stores_nothing(self, store: MemoryStore) -> None:
        stored = add(store, [row("1", "bob")])
        for old in (row("1", seq=1), row("2", "bob", seq=99)):
            assert store.replace(old, old) is False
        assert everything(store) == stored
        assert store.agents() == ["bob"]

    def test_only_the_first_of_several_replacements_of_one_row_succeeds(self, store: MemoryStore) -> None:
        (old,) = add(store, [row("1")])
        outcomes = together(*(lambda n=n: store.replace(old, row("1", digest=n)) for n in (1, 2, 3)))
        assert sorted(outcomes) == [False, False, True]
        assert whole(store, "1").digest == outcomes.index(True) + 1

    def test_after_a_replacement_add_compares_with_the_new_content(self, store: MemoryStore) -> None:
        add(store, [row("1")])
        change(store, "1", digest=5)
        assert store.add([row("1", digest=5)]) == [None]
        with pytest.raises(IdConflict):
            store.add([row("1")])

    # -- deleting -----------------------------------------------------------------------------

    def test_delete_returns_how_many_rows_existed(self, store: MemoryStore) -> None:
        add(store, numbered(4))
        assert store.delete("ann", ["00001", "00001", "nobody's", "00003"]) == 2
        assert store.delete("ann", ["00001"]) == 0
        assert store.delete("ann", []) == 0
        assert store.delete("unknown", ["00000"]) == 0
        assert ids(everything(store)) == ["00000", "00002"]

    def test_deleting_many_at_once(self, store: MemoryStore) -> None:
        rows = numbered(MANY)
        add(store, [*rows, row("stays")])
        assert store.delete("ann", ids(rows)) == MANY
        assert ids(everything(store)) == ["stays"]

    def test_deleting_an_id_keeps_the_same_id_of_other_agents(self, store: MemoryStore) -> None:
        _, his = add(store, [row("1", "ann"), row("1", "bob")])
        store.delete("ann", ["1"])
        assert everything(store) == [his]

    def test_no_read_returns_a_deleted_row(self, store: MemoryStore) -> None:
        (gone,) = add(store, [row("1")])
        store.delete("ann", ["1"])
        assert store.get_one("ann", "1") is None
        assert store.get("ann", ["1"]) == []
        assert store.get_by_seq("ann", [gone.seq]) == []
        assert store.rows("ann", [gone.seq]) == []
        for column in ("created_at", "step"):
            assert store.in_range("ann", column, None, None, tiers=ALL_TIERS, limit=None) == []
        assert everything(store) == []
        assert store.importance_inputs("ann", Tier.STM) == []
        assert store.stored_before(Tier.STM, 1e18, 10) == {}
        assert list(store.features("ann", 1, 2**39)) == []
        assert store.counts() == tiers()

    def test_erasing_changes_no_row_that_is_left(self, store: MemoryStore) -> None:
        stored = add(store, [row(str(number), tier=tier) for number, tier in enumerate(Tier)])
        store.add_read_counts({"ann": {stored[1].seq: 3}})
        store.delete("ann", ["0"])
        state = store.state("ann")
        store.erase_in_maintenance(in_background=True)
        store.erase(1.0)
        store.erase_in_maintenance()
        store.erase(1.0)
        assert everything(store) == stored[1:]
        left = store.state("ann")
        assert (left.last_seq, left.last_change) == (state.last_seq, state.last_change)
        # A server writes the tables into new files, as after TRUNCATE: then indexes are read again.
        assert left.epoch == state.epoch or store.is_remote
        assert store.importance_inputs("ann", Tier.IM)[0][3] == 3

    def test_deleting_an_agent_changes_no_other_agent(self, store: MemoryStore) -> None:
        rows = [row(f"{tier.label}", agent, tier=tier) for tier in Tier for agent in ("ann", "anna", "bob")]
        stored = add(store, rows)
        store.add_read_counts({"anna": {stored[1].seq: 3}})
        assert store.delete_agent("ann") == 3
        assert store.delete_agent("ann") == 0
        assert store.delete_agent("unknown") == 0
        assert store.counts("ann") == tiers()
        for agent in ("anna", "bob"):
            assert everything(store, agent) == [one for one in stored if one.agent == agent]
        assert store.importance_inputs("anna", Tier.STM)[0][3] == 3

    def test_a_deleted_agent_can_store_again(self, store: MemoryStore) -> None:
        add(store, numbered(3))
        store.delete_agent("ann")
        (anew,) = add(store, [row("00001", digest=5)])
        assert everything(store) == [anew]

    # -- moving -------------------------------------------------------------------------------

    def test_a_move_changes_only_tier_and_form(self, store: MemoryStore) -> None:
        first, second, third = add(
            store, [row("1", step=None), row("2", session=None), row("3", fine=b"f")]
        )
        moves = [move_of(first.seq), move_of(third.seq)]
        assert store.move("ann", moves, Tier.STM, Tier.IM) == 2
        assert everything(store) == [
            moved(first, moves[0], Tier.IM),
            second,
            moved(third, moves[1], Tier.IM),
        ]
        assert store.counts("ann") == tiers(stm=1, im=2)

    def test_a_row_keeps_its_other_columns_through_all_tiers(self, store: MemoryStore) -> None:
        (stored,) = add(store, [row("1", importance=0.1, created_at=1e9 + 1e-7, step=-3)])
        down, further = move_of(stored.seq, "im"), move_of(stored.seq, "ltm")
        store.move("ann", [down], Tier.STM, Tier.IM)
        store.move("ann", [further], Tier.IM, Tier.LTM)
        assert everything(store) == [moved(stored, further, Tier.LTM)]

    def test_only_rows_that_are_still_in_the_source_tier_move(self, store: MemoryStore) -> None:
        here, elsewhere, gone, other = add(store, numbered(4))
        store.move("ann", [move_of(elsewhere.seq, "ltm")], Tier.STM, Tier.LTM)
        store.delete("ann", [gone.id])
        change(store, other.id, body=b"new")
        all_four = [move_of(one.seq) for one in (here, elsewhere, gone, other)]
        assert store.move("ann", all_four, Tier.STM, Tier.IM) == 1
        assert store.counts("ann") == tiers(stm=1, im=1, ltm=1)
        assert store.get_one("ann", other.id).body == b"new"
        assert store.get_one("ann", elsewhere.id).body == move_of(elsewhere.seq, "ltm").body

    def test_a_move_made_from_an_old_revision_is_ignored(self, store: MemoryStore) -> None:
        (stored,) = add(store, [row("1")])
        made_before = move_of(stored.seq)
        new = change(store, "1", body=b"new")
        assert store.move("ann", [made_before], Tier.STM, Tier.IM) == 0
        assert everything(store) == [new]
        made_after = move_of(stored.seq, revision=new.revision)
        assert store.move("ann", [made_after], Tier.STM, Tier.IM) == 1
        assert everything(store) == [moved(new, made_after, Tier.IM)]

    def test_the_same_move_twice_moves_once(self, store: MemoryStore) -> None:
        moves = [move_of(one.seq) for one in add(store, numbered(3))]
        assert store.move("ann", moves, Tier.STM, Tier.IM) == 3
        assert store.move("ann", moves, Tier.STM, Tier.IM) == 0
        assert store.counts() == tiers(im=3)

    def test_moves_of_no_rows_unknown_agents_and_unknown_seqs_are_ignored(self, store: MemoryStore) -> None:
        (hers,) = add(store, [row("1")])
        assert store.move("ann", [], Tier.STM, Tier.IM) == 0
        assert store.move("unknown", [move_of(hers.seq)], Tier.STM, Tier.IM) == 0
        assert store.move("ann", [move_of(hers.seq + 50)], Tier.STM, Tier.IM) == 0
        assert everything(store) == [hers]

    def test_a_move_changes_no_row_of_another_agent(self, store: MemoryStore) -> None:
        hers, his = add(store, [row("1", "ann"), row("1", "bob")])
        store.move("ann", [move_of(hers.seq), move_of(his.seq)], Tier.STM, Tier.IM)
        assert everything(store, "bob") == [his]

    def test_moving_many_at_once(self, store: MemoryStore) -> None:
        stored = add(store, numbered(MANY))
        assert store.move("ann", [move_of(one.seq) for one in stored], Tier.STM, Tier.IM) == MANY
        assert everything(store) == [moved(one, move_of(one.seq), Tier.IM) for one in stored]

    def test_a_moved_row_keeps_its_read_count(self, store: MemoryStore) -> None:
        (stored,) = add(store, [row("1")])
        store.add_read_counts({"ann": {stored.seq: 4}})
        store.move("ann", [move_of(stored.seq)], Tier.STM, Tier.IM)
        assert store.importance_inputs("ann", Tier.IM) == [(stored.seq, 1.0, 1_000.5, 4)]

    def test_threads_that_move_the_same_rows_move_each_row_once(self, store: MemoryStore) -> None:
        stored = add(store, numbered(60))

        def mover(name: str) -> Callable[[], int]:
            moves = [move_of(one.seq, name) for one in stored]
            batches = [moves[at : at + 6] for at in range(0, 60, 6)]
            return lambda: sum(store.move("ann", batch, Tier.STM, Tier.IM) for batch in batches)

        assert sum(together(mover("a"), mover("b"), mover("c"))) == 60
        assert store.counts() == tiers(im=60)
        for one in everything(store):
            forms = {name: moved(stored[int(one.id)], move_of(one.seq, name), Tier.IM) for name in "abc"}
            assert one in forms.values()

    # -- evicting -----------------------------------------------------------------------------

    def test_evict_deletes_and_counts_only_rows_of_the_tier(self, store: MemoryStore) -> None:
        old, young, his = add(
            store, [row("1", tier=Tier.LTM), row("2"), row("3", "bob", tier=Tier.LTM, digest=1)]
        )
        assert store.evict("ann", [old.seq, young.seq, 999], Tier.LTM) == 1
        assert store.evict("bob", [his.seq], Tier.LTM) == 1
        assert store.evict("bob", [his.seq], Tier.LTM) == 0
        assert store.evict("unknown", [1], Tier.LTM) == 0
        assert everything(store) == [young]
        assert (store.evicted("ann"), store.evicted("bob"), store.evicted()) == (1, 1, 2)

    def test_deleted_rows_do_not_count_as_evicted(self, store: MemoryStore) -> None:
        add(store, numbered(3))
        store.delete("ann", ["00000"])
        store.delete_agent("ann")
        assert (store.evicted("ann"), store.evicted("unknown"), store.evicted()) == (0, 0, 0)

    # -- reading ------------------------------------------------------------------------------

    def test_unknown_ids_seqs_and_agents_are_left_out(self, store: MemoryStore) -> None:
        first, second = add(store, [row("1"), row("2", tier=Tier.IM)])
        assert sorted(ids(store.get("ann", ["2", "no", "1"]))) == ["1", "2"]
        assert sorted(ids(store.get_by_seq("ann", [second.seq, 99, first.seq]))) == ["1", "2"]
        assert store.get_one("ann", "no") is None
        for agent in ("unknown", "Ann", "an"):
            assert store.get_one(agent, "1") is None
            assert store.get(agent, ["1"]) == []
            assert store.get_by_seq(agent, [first.seq]) == []
            assert store.rows(agent, [first.seq]) == []
            assert everything(store, agent) == []
            assert store.counts(agent) == tiers()
        assert (store.get("ann", []), store.rows("ann", [])) == ([], [])

    def test_a_wrong_tier_hint_hides_no_row(self, store: MemoryStore) -> None:
        """A row may have moved since the caller saw it in a tier."""
        rows = add(store, [row(f"{each}", tier=Tier(each % 3)) for each in range(MANY)])
        seqs = [each.seq for each in rows]
        expected = [record_of(each) for each in rows]
        for hint in ([each.tier for each in rows], [Tier.STM] * MANY, [2 - each.tier for each in rows]):
            found = store.get_by_seq("ann", [*seqs, 9_999], [*hint, Tier.IM])
            assert sorted(found, key=lambda one: one.seq) == expected
        assert store.get_by_seq("ann", [], []) == []

    def test_many_rows_of_all_tiers_are_read_at_once(self, store: MemoryStore) -> None:
        rows = [
            msgspec.structs.replace(one, tier=Tier(number % 3)) for number, one in enumerate(numbered(MANY))
        ]
        stored = add(store, rows)
        seqs = [one.seq for one in stored]
        records = [record_of(one) for one in stored]
        assert sorted(store.get("ann", ids(stored)), key=lambda one: one.seq) == records
        assert sorted(store.get_by_seq("ann", seqs), key=lambda one: one.seq) == records
        assert in_order(store.rows("ann", seqs)) == stored

    # -- ranges -------------------------------------------------------------------------------

    @pytest.mark.parametrize(
        ("low", "high", "expected"),
        [
            (None, None, "abcd"),
            (20, None, "bcd"),
            (None, 20, "abc"),
            (20, 20, "bc"),
            (20.5, 29.5, ""),
            (10, 30, "abcd"),
            (31, None, ""),
            (30, 10, ""),
        ],
    )
    @pytest.mark.parametrize("column", ["created_at", "step"])
    def test_a_range_includes_its_bounds(
        self, store: MemoryStore, column: Any, low: float | None, high: float | None, expected: str
    ) -> None:
        places = {"a": 10, "b": 20, "c": 20, "d": 30}
        add(store, [row(id, **{column: place}) for id, place in places.items()])
        add(store, [row("his", "bob", **{column: 20})])
        found = store.in_range("ann", column, low, high, tiers=ALL_TIERS, limit=None)
        assert "".join(sorted(ids(found))) == expected

    @pytest.mark.parametrize("column", ["created_at", "step"])
    def test_a_range_is_ordered_by_its_column_in_both_directions(
        self, store: MemoryStore, column: Any
    ) -> None:
        places = [30, -10, 20, 0, 10]
        add(store, [row(f"{place}", **{column: place}, tier=Tier(place % 3)) for place in places])
        up = store.in_range("ann", column, None, None, tiers=ALL_TIERS, limit=None)
        down = store.in_range("ann", column, None, None, tiers=ALL_TIERS, limit=None, newest_first=True)
        assert [getattr(one, column) for one in up] == sorted(places)
        assert [getattr(one, column) for one in down] == sorted(places, reverse=True)

    @pytest.mark.parametrize("column", ["created_at", "step"])
    def test_equal_values_are_ordered_by_seq_in_both_directions(
        self, store: MemoryStore, column: Any
    ) -> None:
        add(store, numbered(8, **{column: 5}))
        up = store.in_range("ann", column, None, None, tiers=ALL_TIERS, limit=None)
        down = store.in_range("ann", column, None, None, tiers=ALL_TIERS, limit=None, newest_first=True)
        assert ids(up) == [f"{number:05d}" for number in range(8)]
        assert ids(down) == ids(up)[::-1]

    @pytest.mark.parametrize("column", ["created_at", "step"])
    def test_a_limit_returns_the_first_records_of_the_order(self, store: MemoryStore, column: Any) -> None:
        add(store, [row(f"{place}", **{column: place}) for place in range(6)])

        def find(limit: int | None, newest_first: bool) -> list[str]:
            return ids(
                store.in_range("ann", column, 1, 4, tiers=ALL_TIERS, limit=limit, newest_first=newest_first)
            )

        assert find(2, False) == ["1", "2"]
        assert find(2, True) == ["4", "3"]
        assert find(0, False) == []
        assert find(99, False) == ["1", "2", "3", "4"]

    @pytest.mark.parametrize("column", ["created_at", "step"])
    def test_a_range_returns_only_records_of_its_tiers(self, store: MemoryStore, column: Any) -> None:
        add(store, [row(tier.label, tier=tier, **{column: 5}) for tier in Tier])
        for chosen in ({Tier.STM}, {Tier.IM}, {Tier.LTM}, {Tier.STM, Tier.LTM}, ALL_TIERS):
            found = store.in_range("ann", column, 5, 5, tiers=frozenset(chosen), limit=None)
            assert {one.tier for one in found} == chosen
            assert len(found) == len(chosen)
        (first,) = store.in_range("ann", column, 5, 5, tiers=frozenset({Tier.LTM}), limit=1)
        assert first.id == "ltm"

    def test_a_range_of_steps_skips_rows_without_a_step(self, store: MemoryStore) -> None:
        add(store, [row("1", step=None), row("2", step=0)])
        assert ids(store.in_range("ann", "step", None, None, tiers=ALL_TIERS, limit=None)) == ["2"]
        assert len(store.in_range("ann", "created_at", None, None, tiers=ALL_TIERS, limit=None)) == 2

    def test_a_range_returns_complete_records(self, store: MemoryStore) -> None:
        (stored,) = add(store, [row("1", tier=Tier.IM, body_codec=3)])
        found = store.in_range("ann", "created_at", None, None, tiers=ALL_TIERS, limit=None)
        assert found == [record_of(stored)]

    # -- all rows -----------------------------------------------------------------------------

    def test_all_rows_are_ordered_by_agent_and_seq(self, store: MemoryStore) -> None:
        rows = [row(f"{number}", agent) for number in range(4) for agent in ("zoe", "ann")]
        stored = add(store, rows)
        expected = [one for agent in ("zoe", "ann") for one in stored if one.agent == agent]
        assert everything(store) == expected
        assert everything(store, "ann") == expected[4:]

    def test_all_rows_yields_each_row_once_while_rows_move(self, store: MemoryStore) -> None:
        stored = add(store, numbered(MANY))
        given = []
        for number, one in enumerate(store.all_rows()):
            given.append(one.id)
            ahead_and_behind = [move_of(other.seq) for other in (stored[number], stored[-number - 1])]
            if number % 50 == 0:
                store.move("ann", ahead_and_behind, Tier.STM, Tier.LTM)
        assert given == ids(stored)

    def test_all_rows_yields_each_memory_once_while_some_are_replaced(self, store: MemoryStore) -> None:
        stored = add(store, numbered(MANY))
        given = []
        for number, one in enumerate(store.all_rows()):
            given.append(one.id)
            if number in (10, 700):
                change(store, stored[5].id, digest=number)  # one that was yielded already
                change(store, stored[-5].id, digest=number)  # and one that was not
        assert sorted(given) == ids(stored)

    def test_all_rows_can_be_stopped_early(self, store: MemoryStore) -> None:
        add(store, numbered(MANY))
        iterator = store.all_rows()
        next(iterator)
        del iterator
        assert store.delete_agent("ann") == MANY

    # -- counting -----------------------------------------------------------------------------

    def test_rows_are_counted_by_tier_and_agent(self, store: MemoryStore) -> None:
        assert store.counts() == tiers()
        add(store, [row("1"), row("2"), row("3", tier=Tier.LTM), row("1", "bob", tier=Tier.IM)])
        assert store.counts("ann") == tiers(stm=2, ltm=1)
        assert store.counts("bob") == tiers(im=1)
        assert store.counts() == tiers(stm=2, im=1, ltm=1)

    def test_agents_are_ordered_by_their_first_memory_and_end_with_their_last(
        self, store: MemoryStore
    ) -> None:
        for agent in ("zoe", "ann", "Ünal", "zoe"):
            store.add([row(f"of {agent}", agent)])
        store.delete_agent("ann")
        assert store.agents() == ["zoe", "Ünal"]
        store.delete("zoe", ["of zoe"])
        assert store.agents() == ["Ünal"]

    def test_an_agent_that_comes_back_gets_higher_seqs(self, store: MemoryStore) -> None:
        (first,) = add(store, [row("1")])
        store.delete_agent("ann")
        (second,) = add(store, [row("1")])
        assert second.seq > first.seq
        assert store.agents() == ["ann"]
        assert everything(store) == [second]

    def test_the_size_on_disk_grows_with_the_rows(self, store: MemoryStore) -> None:
        before = store.bytes_on_disk()
        add(store, numbered(200, body=b"x" * 10_000))
        assert store.bytes_on_disk() > before + 200 * 10_000 // 2

    # -- catching up --------------------------------------------------------------------------

    def test_the_state_of_an_unknown_agent_is_zero(self, store: MemoryStore) -> None:
        assert store.state("unknown") == NOBODY
        state, changes, columns = store.catch_up("unknown", 0, 0)
        assert (state, len(columns.seq), changes) == (NOBODY, 0, [])

    def test_the_state_differs_after_every_change(self, store: MemoryStore) -> None:
        first, second, third = add(store, numbered(3))
        states = [store.state("ann")]
        for act in (
            lambda: store.add([row("more")]),
            lambda: change(store, first.id, digest=5),
            lambda: store.move("ann", [move_of(second.seq)], Tier.STM, Tier.IM),
            lambda: store.evict("ann", [second.seq], Tier.IM),
            lambda: store.delete("ann", [third.id]),
            lambda: store.delete_agent("ann"),
        ):
            act()
            states.append(store.state("ann"))
        assert len(set(map(msgspec.structs.astuple, states))) == len(states)
        assert states == sorted(states, key=lambda state: (state.last_change, state.last_seq))

    def test_other_agents_and_calls_without_effect_keep_the_state(self, store: MemoryStore) -> None:
        (stored,) = add(store, [row("1")])
        before = store.state("ann")
        store.add([row("1"), row("1", "bob")])
        store.delete("bob", ["1"])
        store.delete_agent("bob")
        store.delete("ann", ["no"])
        store.replace(row("no"), row("no"))
        store.move("ann", [move_of(stored.seq)], Tier.IM, Tier.LTM)
        store.evict("ann", [stored.seq], Tier.LTM)
        store.add_read_counts({"ann": {stored.seq: 1}})
        assert store.state("ann") == before

    def test_catching_up_from_zero_returns_all_columns_in_order(self, store: MemoryStore) -> None:
        first, second, third = add(
            store,
            [
                row("1", tier=Tier.LTM, created_at=30.0, step=None, session=None),
                row("2", tier=Tier.STM, created_at=20.0, step=-4, session=12),
                row("3", tier=Tier.IM, created_at=10.0, step=0, session=0),
            ],
        )
        state, changes, columns = store.catch_up("ann", 0, 0)
        assert state == store.state("ann")
        assert changes == []
        assert columns.seq.tolist() == [first.seq, second.seq, third.seq]
        assert columns.tier.tolist() == [Tier.LTM, Tier.STM, Tier.IM]
        assert columns.created_at.tolist() == [30.0, 20.0, 10.0]
        assert columns.step.tolist() == [NO_STEP, -4, 0]
        assert columns.session.tolist() == [NO_SESSION, 12, 0]
        assert (columns.seq.dtype, columns.tier.dtype) == (np.int64, np.uint8)

    def test_catching_up_returns_only_new_rows_and_changes(self, store: MemoryStore) -> None:
        first, second, third = add(store, numbered(3))
        seen = store.state("ann")
        added = add(store, [row("new 1"), row("new 2", tier=Tier.LTM)])
        store.move("ann", [move_of(second.seq), move_of(added[0].seq)], Tier.STM, Tier.IM)
        store.delete("ann", [first.id])
        change(store, third.id, digest=5)
        store.evict("ann", [added[1].seq], Tier.LTM)
        state, changes, columns = store.catch_up("ann", seen.last_seq, seen.last_change)
        assert columns.seq.tolist() == [added[0].seq]
        assert columns.tier.tolist() == [Tier.IM]
        assert [(entry.kind, entry.tier, sorted(entry.seqs)) for entry in changes] == [
            (ChangeKind.MOVED, Tier.IM, sorted([second.seq, added[0].seq])),
            (ChangeKind.DELETED, None, [first.seq]),
            (ChangeKind.REPLACED, None, [third.seq]),
            (ChangeKind.DELETED, None, [added[1].seq]),
        ]
        assert changes[-1].number == state.last_change == store.state("ann").last_change

    def test_few_new_rows_have_their_features(self, store: MemoryStore) -> None:
        """A store may also return None; then `features` reads them."""
        stored = add(store, [row("1", fine=b"f"), row("2", tier=Tier.LTM), row("3", tier=Tier.IM)])
        _, _, columns = store.catch_up("ann", stored[0].seq, 0)
        if columns.features is not None:
            assert sorted(columns.features) == [features_of(one) for one in stored[1:]]

    def test_columns_can_be_read_for_some_rows(self, store: MemoryStore) -> None:
        stored = add(store, [row(f"{n}", tier=Tier(n % 3), step=None if n % 2 else n) for n in range(9)])
        store.delete("ann", [stored[4].id])
        columns = store.columns_of("ann", [stored[7].seq, stored[4].seq, stored[1].seq, stored[6].seq])
        chosen = [stored[1], stored[6], stored[7]]
        assert columns.seq.tolist() == [one.seq for one in chosen]
        assert columns.tier.tolist() == [one.tier for one in chosen]
        assert columns.step.tolist() == [NO_STEP, 6, NO_STEP]
        assert sorted(columns.features) == [features_of(one) for one in chosen]
        assert store.columns_of("ann", []).seq.tolist() == []
        assert store.columns_of("unknown", [1]).seq.tolist() == []

    def test_the_log_of_a_deleted_agent_has_its_last_seq(self, store: MemoryStore) -> None:
        stored = add(store, numbered(4))
        seen = store.state("ann")
        store.delete_agent("ann")
        (after,) = add(store, [row("after")])
        _, changes, columns = store.catch_up("ann", seen.last_seq, seen.last_change)
        (entry,) = changes
        assert entry.kind is ChangeKind.CLEARED
        assert stored[-1].seq <= entry.seqs[0] < after.seq
        assert columns.seq.tolist() == [after.seq]

    def test_a_copy_that_follows_the_log_equals_the_store(self, store: MemoryStore) -> None:
        """Random changes of every kind: the search index does the same with its own data."""
        rng = np.random.default_rng(7)
        copy = FollowedCopy(store)
        for number in range(150):
            some_change(store, rng, number)
            if rng.random() < 0.4:
                copy.catch_up()
                assert copy.rows == {one.seq: (one.tier, one.terms) for one in store.all_rows("ann")}

    def test_catching_up_returns_no_changes_if_the_log_is_too_short(self, store: MemoryStore) -> None:
        if self.changes_kept is None:
            return
        (stored,) = add(store, [row("1")])
        seen = store.state("ann")
        tier_now, tier_next = Tier.STM, Tier.IM
        for _ in range(self.changes_kept):
            store.move("ann", [move_of(stored.seq)], tier_now, tier_next)
            tier_now, tier_next = tier_next, tier_now
        _, changes, _ = store.catch_up("ann", seen.last_seq, seen.last_change)
        assert len(changes) == self.changes_kept
        store.move("ann", [move_of(stored.seq)], tier_now, tier_next)
        state, changes, columns = store.catch_up("ann", seen.last_seq, seen.last_change)
        assert changes is None
        assert state == store.state("ann")
        assert len(columns.seq) == 0
        _, _, columns = store.catch_up("ann", 0, 0)
        assert (columns.seq.tolist(), columns.tier.tolist()) == ([stored.seq], [tier_next])

    def test_features_are_read_for_a_range_of_seqs_in_all_tiers(self, store: MemoryStore) -> None:
        rows = [
            row(f"{n}", tier=Tier(n % 3), vector_codec=n, fine=b"f" if n % 2 else None) for n in range(9)
        ]
        stored = add(store, rows)
        add(store, numbered(3, "bob"))
        slices = list(store.features("ann", stored[2].seq, stored[6].seq))
        assert all(slices)
        assert sorted(part for one in slices for part in one) == [features_of(one) for one in stored[2:7]]
        assert list(store.features("unknown", 1, 99)) == []
        assert list(store.features("ann", stored[-1].seq + 1, stored[-1].seq + 99)) == []

    def test_features_of_many_rows_are_read_once_each(self, store: MemoryStore) -> None:
        stored = add(store, numbered(9_000, body=b"", terms=b"t", vector=b"v"))
        given = [one[0] for part in store.features("ann", stored[0].seq, stored[-1].seq) for one in part]
        assert sorted(given) == [one.seq for one in stored]

    def test_coded_vectors_are_those_of_stored_codecs_up_to_a_seq(self, store: MemoryStore) -> None:
        assert list(store.coded_vectors("ann", 99)) == []
        numbers = [store.save_codec(f"codec {n}", b"").number for n in range(6)]
        rows = [
            row(f"{n}", tier=Tier(n % 3), vector_codec=number, fine=b"f" if n % 2 else None)
            for n, number in enumerate([*range(6), *numbers])
        ]
        stored = add(store, rows)
        add(store, numbered(3, "bob", vector_codec=numbers[0]))
        slices = list(store.coded_vectors("ann", stored[10].seq))
        assert all(part == sorted(part) for part in slices)
        found = sorted(one for part in slices for one in part)
        assert found == [features_of(one)[:4] for one in stored[6:11]]

    # -- for transitions ----------------------------------------------------------------------

    def test_stored_before_returns_the_seqs_of_a_tier_by_agent(self, store: MemoryStore) -> None:
        old, _, low, his = add(
            store,
            [
                row("old", stored_at=10.0),
                row("young", stored_at=20.0),
                row("lower", stored_at=10.0, tier=Tier.IM),
                row("his", "bob", stored_at=9.0),
            ],
        )
        assert store.stored_before(Tier.STM, 20.0, 10) == {"ann": [old.seq], "bob": [his.seq]}
        assert store.stored_before(Tier.IM, 20.0, 10) == {"ann": [low.seq]}
        assert store.stored_before(Tier.STM, 9.0, 10) == {}
        assert store.stored_before(Tier.LTM, 1e9, 10) == {}

    def test_stored_before_respects_its_limit(self, store: MemoryStore) -> None:
        add(store, [*numbered(5, "ann"), *numbered(5, "bob")])
        for limit in (1, 5, 7, 10, 99):
            found = store.stored_before(Tier.STM, 1e9, limit)
            assert sum(map(len, found.values())) == min(limit, 10)
            assert all(found.values())

    def test_stored_before_finds_old_rows_with_high_seqs(self, store: MemoryStore) -> None:
        """An import adds old memories after younger ones."""
        _, old = add(store, [row("young", stored_at=100.0), row("imported", stored_at=1.0)])
        assert store.stored_before(Tier.STM, 50.0, 10) == {"ann": [old.seq]}

    def test_importance_inputs_have_read_counts(self, store: MemoryStore) -> None:
        first, second, _ = add(
            store, [row("1", importance=0.5), row("2", created_at=5.0), row("3", tier=Tier.IM)]
        )
        store.add_read_counts({"ann": {second.seq: 2}})
        store.add_read_counts({"ann": {second.seq: 1, first.seq: 1}, "unknown": {1: 1}})
        assert sorted(store.importance_inputs("ann", Tier.STM)) == [
            (first.seq, 0.5, 1_000.5, 1),
            (second.seq, 1.0, 5.0, 3),
        ]
        assert store.importance_inputs("ann", Tier.LTM) == []
        assert store.importance_inputs("unknown", Tier.STM) == []

    def test_a_memory_stored_again_after_deletion_has_no_read_count(self, store: MemoryStore) -> None:
        (first,) = add(store, [row("1")])
        store.add_read_counts({"ann": {first.seq: 7}})
        store.delete("ann", ["1"])
        (anew,) = add(store, [row("1")])
        assert store.importance_inputs("ann", Tier.STM) == [(anew.seq, 1.0, 1_000.5, 0)]

    # -- codecs and settings ------------------------------------------------------------------

    def test_the_first_codec_for_a_purpose_stays(self, store: MemoryStore) -> None:
        assert store.codecs() == []
        first = store.save_codec("ltm vectors", b"first")
        second = store.save_codec("ltm vectors", b"second")
        other = store.save_codec("dictionary", b"\x00\xff" * 10_000)
        assert first == second
        assert (first.purpose, first.data) == ("ltm vectors", b"first")
        assert sorted(store.codecs(), key=lambda codec: codec.number) == [first, other]
        assert first.number != other.number
        assert min(first.number, other.number) > 15  # lower numbers are built-in codecs

    def test_the_first_default_of_a_setting_stays(self, store: MemoryStore) -> None:
        assert store.setting("embedder") is None
        assert store.setting("embedder", "words/256") == "words/256"
        assert store.setting("embedder", "other/64") == "words/256"
        assert store.setting("embedder") == "words/256"
        assert store.setting("another") is None

    # -- watching -----------------------------------------------------------------------------

    def test_the_version_differs_after_every_change(self, store: MemoryStore) -> None:
        first, second, third = add(store, numbered(3))
        watch = store.watch("ann")
        if watch is None:
            return
        numbers = [watch()]
        for act in (
            lambda: change(store, first.id, digest=5),
            lambda: store.move("ann", [move_of(second.seq)], Tier.STM, Tier.IM),
            lambda: store.move("ann", [move_of(second.seq, "again")], Tier.IM, Tier.IM),
            lambda: store.evict("ann", [second.seq], Tier.IM),
            lambda: store.delete("ann", [third.id]),
            lambda: store.delete_agent("ann"),
        ):
            act()
            numbers.append(watch())
        assert len(set(numbers)) == len(numbers)
        assert all(number % 2 == 0 for number in numbers)

    def test_the_version_stays_while_existing_rows_stay(self, store: MemoryStore) -> None:
        add(store, [row("1"), row("1", "bob")])
        watch = store.watch("ann")
        if watch is None:
            return
        before = watch()
        store.get_one("ann", "1")
        store.add([row("2")])
        store.delete("bob", ["1"])
        assert watch() == before

    def test_all_reads_under_one_even_version_are_equal(self, store: MemoryStore) -> None:
        """So a cache may return what was read under the current version."""
        (stored,) = add(store, [row("1")])
        watch = store.watch("ann")
        if watch is None:
            return
        seen: dict[int, set[Any]] = {}
        done = threading.Event()

        def write() -> None:
            try:
                for number in range(150):
                    new = change(store, "1", tier=Tier.STM, body=b"%d" % number)
                    move = move_of(stored.seq, f"{number}", new.revision)
                    assert store.move("ann", [move], Tier.STM, Tier.IM) == 1
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                before = watch()
                found = store.get_one("ann", "1")
                if before % 2 == 0 and watch() == before:
                    seen.setdefault(before, set()).add((found.seq, found.tier, found.body))

        together(write, read, read)
        assert [under for under in seen.values() if len(under) > 1] == []

    # -- several threads ----------------------------------------------------------------------

    def test_threads_add_every_row_once(self, store: MemoryStore) -> None:
        def adder(name: str) -> Callable[[], list[int]]:
            return lambda: [
                seq
                for number in range(40)
                for seq in store.add([row(f"{name}{number}"), row(f"shared {number}")])
                if seq is not None
            ]

        given = together(adder("a"), adder("b"), adder("c"))
        seqs = [seq for one in given for seq in one]
        assert len(seqs) == len(set(seqs)) == 4 * 40
        assert [one.seq for one in store.all_rows()] == sorted(seqs)
        assert len(set(ids(store.all_rows()))) == 4 * 40

    def test_every_read_sees_a_row_in_exactly_one_tier(self, store: MemoryStore) -> None:
        stored = add(store, numbered(20))
        seqs = [one.seq for one in stored]
        done = threading.Event()

        def move() -> None:
            try:
                for _ in range(15):
                    for source, target in (
                        (Tier.STM, Tier.IM),
                        (Tier.IM, Tier.LTM),
                        (Tier.LTM, Tier.STM),
                    ):
                        store.move("ann", [move_of(seq) for seq in seqs], source, target)
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                assert sorted(one.seq for one in store.get_by_seq("ann", seqs)) == seqs
                assert sorted(one.seq for one in store.rows("ann", seqs)) == seqs
                assert len(store.get("ann", ids(stored))) == 20
                assert sum(store.counts("ann").values()) == 20
                assert sum(store.counts().values()) == 20
                found = store.in_range("ann", "step", None, None, tiers=ALL_TIERS, limit=None)
                assert sorted(ids(found)) == ids(stored)
                assert [one.seq for one in store.all_rows("ann")] == seqs
                _, _, columns = store.catch_up("ann", 0, 0)
                assert columns.seq.tolist() == seqs
                assert sorted(one[0] for part in store.features("ann", 1, seqs[-1]) for one in part) == seqs

        together(move, read, read)

    # -- closing ------------------------------------------------------------------------------

    def test_every_call_of_a_closed_store_raises_an_error(self, store: MemoryStore) -> None:
        (stored,) = add(store, [row("1")])
        store.close()
        for call in (
            lambda: store.add([row("2")]),
            lambda: store.refuse_conflicts([row("2")]),
            lambda: store.replace(stored, stored),
            lambda: store.delete("ann", ["1"]),
            lambda: store.delete_agent("ann"),
            lambda: store.move("ann", [move_of(stored.seq)], Tier.STM, Tier.IM),
            lambda: store.evict("ann", [stored.seq], Tier.STM),
            lambda: store.get_one("ann", "1"),
            lambda: store.get("ann", ["1"]),
            lambda: store.get_by_seq("ann", [stored.seq]),
            lambda: store.rows("ann", [stored.seq]),
            lambda: store.in_range("ann", "step", None, None, tiers=ALL_TIERS, limit=None),
            lambda: everything(store),
            lambda: everything(store, "ann"),
            lambda: store.agents(),
            lambda: store.counts(),
            lambda: store.counts("ann"),
            lambda: store.evicted(),
            lambda: store.state("ann"),
            lambda: store.catch_up("ann", 0, 0),
            lambda: store.columns_of("ann", [stored.seq]),
            lambda: list(store.features("ann", 1, 99)),
            lambda: store.stored_before(Tier.STM, 1e9, 10),
            lambda: store.importance_inputs("ann", Tier.STM),
            lambda: store.add_read_counts({"ann": {stored.seq: 1}}),
            lambda: store.codecs(),
            lambda: store.save_codec("purpose", b"data"),
            lambda: store.setting("name", "value"),
            lambda: store.erase(1.0),
            lambda: store.erase_in_maintenance(),
        ):
            with pytest.raises(StoreClosed):
                call()

    def test_a_store_may_be_closed_twice(self, store: MemoryStore) -> None:
        store.close()
        store.close()


class DurableConformance(_Base):
    """Tests of a store whose data stays after `close` and that may be open several times at once."""

    def test_a_reopened_store_holds_everything(self, open_store: OpenStore) -> None:
        store = open_store()
        stored = add(store, [row("1"), row("2", tier=Tier.IM), row("3", "bob", tier=Tier.LTM, step=None)])
        store.evict("bob", [stored[2].seq], Tier.LTM)
        store.move("ann", [move_of(stored[0].seq)], Tier.STM, Tier.LTM)
        store.add_read_counts({"ann": {stored[1].seq: 3}})
        codec = store.save_codec("purpose", b"data")
        store.setting("embedder", "words")
        states = {agent: store.state(agent) for agent in store.agents()}
        store.close()
        again = open_store()
        assert everything(again) == [moved(stored[0], move_of(stored[0].seq), Tier.LTM), stored[1]]
        assert again.agents() == ["ann"]
        assert {agent: again.state(agent) for agent in again.agents()} == states
        assert (again.evicted(), again.evicted("bob")) == (1, 1)
        assert again.importance_inputs("ann", Tier.IM) == [(stored[1].seq, 1.0, 1_000.5, 3)]
        assert again.codecs() == [codec]
        assert again.setting("embedder", "other") == "words"

    def test_a_seq_is_not_used_again_after_reopening(self, open_store: OpenStore) -> None:
        store = open_store()
        newest = add(store, numbered(3))[-1]
        store.delete("ann", [newest.id])
        store.close()
        again = open_store()
        (anew,) = add(again, [row("anew")])
        again.delete_agent("ann")
        again.close()
        (last,) = add(open_store(), [row("last")])
        assert newest.seq < anew.seq < last.seq

    def test_the_log_is_kept_when_a_store_is_reopened(self, open_store: OpenStore) -> None:
        store = open_store()
        first, second = add(store, numbered(2))
        seen = store.state("ann")
        store.delete("ann", [first.id])
        store.close()
        again = open_store()
        again.move("ann", [move_of(second.seq)], Tier.STM, Tier.IM)
        _, changes, _ = again.catch_up("ann", seen.last_seq, seen.last_change)
        assert [entry.kind for entry in changes] == [ChangeKind.DELETED, ChangeKind.MOVED]

    def test_a_change_is_visible_at_once_in_another_open_store(self, open_store: OpenStore) -> None:
        one, other = open_store(), open_store()
        first, second = add(one, numbered(2))
        assert everything(other) == [first, second]
        change(other, first.id, body=b"new", digest=5)
        assert one.get_one("ann", first.id).body == b"new"
        one.move("ann", [move_of(second.seq)], Tier.STM, Tier.IM)
        assert other.get_one("ann", second.id).tier is Tier.IM
        assert other.state("ann") == one.state("ann")
        other.delete_agent("ann")
        assert everything(one) == []
        with pytest.raises(IdConflict):
            (one.add([row("x")]), other.add([row("x", digest=5)]))

    def test_the_version_differs_after_changes_of_another_open_store(self, open_store: OpenStore) -> None:
        stores = one, other = open_store(), open_store()
        stored = add(one, numbered(4))
        other.get_one("ann", "00000")
        watches = [watch for watch in (store.watch("ann") for store in stores) if watch is not None]

        def versions() -> list[int]:
            for store in stores:
                store.state("ann")  # a store on a server learns the version here
            return [watch() for watch in watches]

        numbers = [versions()]
        for changer, number in ((one, 0), (other, 1)):
            changer.move("ann", [move_of(stored[0].seq)], Tier(number), Tier(number + 1))
            numbers.append(versions())
            changer.delete("ann", [stored[1 + number].id])
            numbers.append(versions())
            change(changer, stored[3].id, digest=5 + number)
            numbers.append(versions())
        for of_one_watch in zip(*numbers, strict=True):
            assert len(set(of_one_watch)) == len(numbers)
            assert all(number % 2 == 0 for number in of_one_watch)

    def test_two_open_stores_that_move_the_same_rows_move_each_once(self, open_store: OpenStore) -> None:
        stores = [open_store(), open_store()]
        stored = add(stores[0], numbered(60))

        def mover(store: MemoryStore, name: str) -> Callable[[], int]:
            return lambda: sum(
                store.move("ann", [move_of(one.seq, name)], Tier.STM, Tier.IM) for one in stored
            )

        assert sum(together(mover(stores[0], "a"), mover(stores[1], "b"))) == 60
        assert stores[0].counts() == tiers(im=60)
        assert [one.seq for one in stores[1].all_rows()] == [one.seq for one in stored]

    def test_two_open_stores_that_add_the_same_ids_add_each_once(self, open_store: OpenStore) -> None:
        stores = [open_store(), open_store()]

        def adder(store: MemoryStore) -> Callable[[], int]:
            return lambda: sum(seq is not None for one in numbered(60) for seq in store.add([one]))

        assert sum(together(adder(stores[0]), adder(stores[1]))) == 60
        assert ids(stores[0].all_rows()) == ids(numbered(60))

    def test_two_open_stores_agree_on_the_first_codec(self, open_store: OpenStore) -> None:
        stores = [open_store(), open_store()]
        saved = together(*(lambda s=s, n=n: s.save_codec("p", b"%d" % n) for n, s in enumerate(stores)))
        assert saved[0] == saved[1] == stores[0].codecs()[0] == stores[1].codecs()[0]

    def test_closing_one_store_keeps_another_one_open(self, open_store: OpenStore) -> None:
        one, other = open_store(), open_store()
        stored = add(one, numbered(2))
        one.close()
        stored += add(other, [row("after")])
        assert everything(other) == stored
        assert everything(open_store()) == stored
