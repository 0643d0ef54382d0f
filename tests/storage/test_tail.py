"""The newest rows are in no index yet: every read finds them, and no seq is used twice."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from conformance import everything, move_of, row, tiers
from subprocesses import PATIENCE, start_python
from tail_store import TailStore

from memory import AgentMemorySystem, MemoryConfig
from memory.entry import ALL_TIERS, Tier
from memory.errors import StoreCorrupt
from memory.storage import ChangeKind, Row, SQLiteStore
from memory.storage._tail import MAX_TAIL, MAX_TAILS
from memory.storage.schema import FORMAT_VERSION


def fresh(id: str, agent: str = "ann", **fields: Any) -> Row:
    """Return a row whose id counts as generated."""
    return row(id, agent, has_new_id=True, **fields)


def ids(rows: Any) -> list[str]:
    return [one.id for one in rows]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "m.db"


@pytest.fixture
def store(path: Path) -> Iterator[TailStore]:
    opened = TailStore(path)
    yield opened
    opened.close()


@pytest.fixture
def other(path: Path, store: TailStore) -> Iterator[SQLiteStore]:
    """Another store of the same file: it shares no state with the first, as in another process."""
    opened = SQLiteStore(path)
    yield opened
    opened.close()


def by_column(store: SQLiteStore, column: Any, low: Any, high: Any, **options: Any) -> list[str]:
    options = {"tiers": ALL_TIERS, "limit": None} | options
    return ids(store.in_range("ann", column, low, high, **options))


def test_every_read_of_another_process_finds_rows_of_the_tail_at_once(
    store: TailStore, other: SQLiteStore
) -> None:
    for number in range(5):
        at = float(1_000 - number)
        store.add([fresh(f"n{number}", step=number, created_at=at, stored_at=at)])
        assert store.in_tails() == number  # the first is in the indexes
        assert other.get_one("ann", f"n{number}").seq == number + 1
        assert sorted(ids(other.get("ann", [f"n{other_}" for other_ in range(9)]))) == [
            f"n{earlier}" for earlier in range(number + 1)
        ]
        assert other.state("ann").last_seq == number + 1
        assert other.counts() == other.counts("ann") == tiers(stm=number + 1)
        assert other.stored_total() == number + 1
    newest_last = ["n4", "n3", "n2", "n1", "n0"]
    assert by_column(other, "created_at", None, None) == newest_last
    assert by_column(other, "created_at", 997, 999) == ["n3", "n2", "n1"]
    assert by_column(other, "created_at", None, None, newest_first=True, limit=2) == ["n0", "n1"]
    assert by_column(other, "created_at", None, None, limit=0) == []
    assert by_column(other, "created_at", None, None, tiers=frozenset({Tier.IM})) == []
    assert by_column(other, "step", 2, None) == ["n2", "n3", "n4"]
    assert by_column(other, "step", None, None, limit=3) == ["n0", "n1", "n2"]
    assert other.stored_before(Tier.STM, 999.0, 2) == {"ann": [5, 4]}
    assert other.stored_before(Tier.IM, 2_000.0, 2) == {}
    assert ids(everything(other)) == ["n0", "n1", "n2", "n3", "n4"]
    _, _, columns = other.catch_up("ann", 2, 0)
    assert columns.seq.tolist() == [3, 4, 5]
    assert store.in_tails() == 4


def test_a_search_of_another_process_finds_rows_of_the_tail_at_once(tmp_path: Path) -> None:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(tmp_path / "m.db")
    with AgentMemorySystem(config) as one, AgentMemorySystem(config) as two:
        for number, word in enumerate(["harbour", "violin", "meadow", "lantern"]):
            id_ = one.add("ann", f"the {word} was there")
            assert two.search("ann", word, 1)[0].entry.id == id_
            assert two.get("ann", id_).content == f"the {word} was there"
            assert [entry.id for entry in two.recent("ann", 1)] == [id_]
            assert two.get_memory_statistics()["total"] == number + 1
        assert one.check().problems == ()


def test_a_full_tail_is_indexed(store: TailStore) -> None:
    for number in range(3 * MAX_TAIL):
        store.add([fresh(str(number))])
        assert store.in_tails() <= MAX_TAIL
    assert [one.seq for one in everything(store)] == list(range(1, 3 * MAX_TAIL + 1))
    ((indexed,),) = store._connections.fetch("SELECT COUNT(*) FROM memories WHERE indexed = 1")
    assert indexed >= 2 * MAX_TAIL


def test_every_other_write_puts_the_tail_into_the_indexes_first(store: TailStore) -> None:
    def write_and_count(write: Any) -> int:
        for number in range(3):
            store.add([fresh(f"{len(everything(store))} {number}")])
        assert store.in_tails() > 0
        write()
        return store.in_tails()

    last = everything(store)[-1] if everything(store) else None
    assert last is None
    writes = {
        "a given id": lambda: store._add_as_given([row("given")]),
        "a batch": lambda: store._add_as_given([fresh("b1"), fresh("b2")]),
        "delete": lambda: store.delete("ann", ["unknown"]),
        "replace": lambda: store.replace(
            old := everything(store)[-1], msgspec.structs.replace(old, kind="x")
        ),
        "move": lambda: store.move("ann", [move_of(everything(store)[-1].seq)], Tier.STM, Tier.IM),
        "evict": lambda: store.evict("ann", [everything(store)[-1].seq], Tier.STM),
        "delete all": lambda: store.delete_agent("ann"),
    }
    assert {name: write_and_count(write) for name, write in writes.items()} == dict.fromkeys(writes, 0)


@pytest.mark.parametrize("removed", ["delete", "delete_agent", "evict", "move"])
def test_the_seq_of_a_row_of_the_tail_is_never_used_again(
    store: TailStore, other: SQLiteStore, removed: str
) -> None:
    for number in range(4):
        store.add([fresh(f"a{number}")])
    if removed == "delete":
        assert other.delete("ann", ["a3"]) == 1
    elif removed == "delete_agent":
        assert other.delete_agent("ann") == 4
    elif removed == "evict":
        assert other.evict("ann", [4], Tier.STM) == 1
    else:
        assert other.move("ann", [move_of(4)], Tier.STM, Tier.IM) == 1
    assert other.state("ann").last_seq == 4
    assert store.add([fresh("new")]) == [5]
    assert store.add([fresh("newer")]) == [6]
    assert store.agents() == ["ann"]


def test_a_given_id_that_the_tail_has_is_not_stored_again(store: TailStore, other: SQLiteStore) -> None:
    store.add([fresh("first")])
    store.add([fresh("same")])
    assert store.in_tails() == 1
    other.refuse_conflicts([row("same")])
    with pytest.raises(Exception, match="already has other content"):
        other.refuse_conflicts([row("same", digest=99)])
    assert store.in_tails() == 1
    assert other.add([row("same")]) == [None]
    with pytest.raises(Exception, match="already has other content"):
        other.add([row("same", digest=99)])
    assert ids(everything(store)) == ["first", "same"]


def test_two_stores_that_mix_all_writes_agree_with_a_model(store: TailStore, path: Path) -> None:
    rng = random.Random(7)
    second = TailStore(path)
    model: dict[tuple[str, str], tuple[int, Tier]] = {}
    last: dict[str, int] = {}
    for number in range(600):
        one = rng.choice([store, second])
        agent = rng.choice(["ann", "bob"])
        own = [(id_, place) for (name, id_), place in model.items() if name == agent]
        way = rng.random()
        if way < 0.7 or not own:
            new = [row(f"{number}-{part}", agent) for part in range(rng.choice([1, 1, 1, 2]))]
            add = one._add_as_given if rng.random() < 0.2 else one.add
            for added, seq in zip(new, add(new), strict=True):
                assert seq == last.get(agent, 0) + 1
                last[agent] = seq
                model[agent, added.id] = (seq, Tier.STM)
        elif way < 0.8:
            id_, _ = rng.choice(own)
            assert one.delete(agent, [id_]) == 1
            del model[agent, id_]
        elif way < 0.95:
            id_, (seq, tier) = rng.choice(own)
            target = rng.choice([tier_ for tier_ in Tier if tier_ is not tier])
            if tier is not Tier.STM or target is not Tier.STM:
                assert one.move(agent, [move_of(seq)], tier, target) == 1
                model[agent, id_] = (seq, target)
        else:
            one.delete_agent(agent)
            for id_, _ in own:
                del model[agent, id_]
        reader = rng.choice([store, second])
        if own and way < 0.7:
            id_, (seq, tier) = rng.choice(own)
            found = reader.get_one(agent, id_)
            assert (found.seq, found.tier) == (seq, tier)
    for reader in (store, second):
        assert {(one.agent, one.id): (one.seq, one.tier) for one in everything(reader)} == model
        assert sum(reader.counts().values()) == len(model)
        assert reader.check(lambda _: None) == (len(model), [])
    second.close()


_ADD_AND_DELETE = """
from conformance import row
from memory.entry import Tier
from memory.storage import SQLiteStore
store = SQLiteStore(__import__("pathlib").Path(sys.argv[1]))
name, kept, seqs = sys.argv[2], [], []
for number in range(150):
    id_ = f"{name}-{number}"
    seqs += store.add([row(id_, has_new_id=number % 7 > 0)])
    kept.append(id_)
    if number % 10 == 9:
        assert store.delete("ann", [kept.pop(number % 5)]) == 1
store.close()
print(json.dumps([kept, seqs]))
"""


def test_processes_that_add_and_delete_at_once_share_one_tail(path: Path) -> None:
    SQLiteStore(path).close()
    here = {"PYTHONPATH": str(Path(__file__).parent)}
    writers = [
        start_python(f"sys.path.append({here['PYTHONPATH']!r})\n{_ADD_AND_DELETE}", path, name)
        for name in ("a", "b", "c")
    ]
    kept: list[str] = []
    seqs: list[int] = []
    for writer in writers:
        output, problem = writer.communicate(timeout=PATIENCE)
        assert problem == ""
        of_one, seqs_of_one = json.loads(output)
        kept += of_one
        seqs += seqs_of_one
        assert seqs_of_one == sorted(seqs_of_one)
    assert sorted(seqs) == list(range(1, 451))
    store = SQLiteStore(path)
    assert sorted(ids(everything(store))) == sorted(kept)
    assert store.check(lambda _: None) == (len(kept), [])
    store.close()


_KILLED = """
from conformance import row
from memory.storage import SQLiteStore
store = SQLiteStore(__import__("pathlib").Path(sys.argv[1]))
for number in range(10):
    store.add([row(f"n{number}", has_new_id=True)])
store._connections._writer.set_trace_callback(
    lambda statement: os.kill(os.getpid(), 9) if sys.argv[2] in statement else None
)
store.delete("ann", ["n9"])
"""


@pytest.mark.parametrize("statement", ["UPDATE memories SET indexed", "UPDATE agents SET tail", "COMMIT"])
def test_a_process_killed_while_it_indexes_a_tail_loses_nothing(path: Path, statement: str) -> None:
    folder = str(Path(__file__).parent)
    killed = start_python(f"sys.path.append({folder!r})\n{_KILLED}", path, statement)
    killed.communicate(timeout=PATIENCE)
    assert killed.returncode == -signal.SIGKILL
    store = TailStore(path)
    assert ids(everything(store)) == [f"n{number}" for number in range(10)]
    assert store.in_tails() == 9
    assert store.check(lambda _: None) == (10, [])
    assert store.add([fresh("new")]) == [11]
    assert store.delete("ann", ["n9"]) == 1
    assert store.check(lambda _: None) == (10, [])
    store.close()


def test_a_forked_child_and_its_parent_add_to_one_tail(store: TailStore) -> None:
    store.add([fresh("first")])
    store.add([fresh("second")])
    child = os.fork()
    if child == 0:
        try:
            for number in range(20):
                store.add([fresh(f"child {number}")])
        finally:
            os._exit(0)
    for number in range(20):
        store.add([fresh(f"parent {number}")])
    os.waitpid(child, 0)
    assert [one.seq for one in everything(store)] == list(range(1, 43))
    assert store.check(lambda _: None) == (42, [])


def test_maintenance_indexes_the_tails_if_there_are_many(store: TailStore) -> None:
    for number in range(MAX_TAILS):
        for part in range(2):
            store.add([fresh(str(part), f"agent {number}")])
    store.tidy_new_rows()
    assert store.in_tails() == MAX_TAILS
    for part in range(2):
        store.add([fresh(str(part), "one more")])
    store.tidy_new_rows()
    assert store.in_tails() == 0
    assert store.add([fresh("new", "one more")]) == [3]


def test_a_damaged_row_of_the_tail_is_reported_and_does_not_stop_writes(
    store: TailStore, path: Path
) -> None:
    for number in range(3):
        store.add([fresh(f"n{number}")])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("UPDATE memories SET body = x'00' WHERE id = 'n1'")
    connection.close()
    with pytest.raises(StoreCorrupt, match="n1"):
        store.get_one("ann", "n1")
    with pytest.raises(StoreCorrupt, match="n1"):
        store.get("ann", ["n1"])
    assert store.get_one("ann", "n2").body == b"body of n2"
    intact, problems = store.check(lambda _: None)
    assert intact == 2
    assert "n1" in problems[0]
    assert store.delete("ann", ["n1"]) == 1
    assert store.check(lambda _: None) == (2, [])


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE agents SET last_seq = 99",
        "UPDATE agents SET tail = 0",
        "UPDATE memories SET indexed = 0 WHERE key & 1023 = 1",
    ],
)
def test_check_finds_rows_that_no_index_and_no_tail_has(store: TailStore, path: Path, damage: str) -> None:
    for number in range(3):
        store.add([fresh(f"n{number}")])
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(damage)
    connection.close()
    _, problems = store.check(lambda _: None)
    assert any("in no index" in problem for problem in problems)


def test_a_deleted_row_of_the_tail_is_erased_from_all_files(tmp_path: Path) -> None:
    config = MemoryConfig(maintenance="manual")
    config.ltm_config.db_path = str(tmp_path / "m.db")
    with AgentMemorySystem(config) as memory:
        memory.add("ann", "a harmless first memory")
        secret = memory.add("ann", "the word is xylophonist")
        memory.add("ann", "a harmless last memory")
        assert memory.delete("ann", secret, erase=True)
        assert [file.name for file in tmp_path.iterdir() if b"xylophonist" in file.read_bytes()] == []
        assert len(memory.recent("ann")) == 2


def test_a_backup_has_the_rows_of_the_tail(store: TailStore, tmp_path: Path) -> None:
    for number in range(5):
        store.add([fresh(f"n{number}")])
    store.back_up(tmp_path / "copy.db")
    copy = SQLiteStore(tmp_path / "copy.db")
    assert everything(copy) == everything(store)
    assert copy.get_one("ann", "n4").seq == 5
    assert copy.add([fresh("new")]) == [6]
    copy.close()


def test_a_change_that_follows_an_addition_is_seen_in_this_order(
    store: TailStore, other: SQLiteStore
) -> None:
    for number in range(3):
        store.add([fresh(f"n{number}")])
    state, _, columns = other.catch_up("ann", 0, 0)
    store.add([fresh("n3")])
    store.delete("ann", ["n3", "n0"])
    _, changes, newer = other.catch_up("ann", state.last_seq, state.last_change)
    assert [(change.kind, sorted(change.seqs)) for change in changes] == [(ChangeKind.DELETED, [1, 4])]
    assert columns.seq.tolist() == [1, 2, 3]
    assert newer.seq.tolist() == []


FORMAT_3_CHANGES = """
ALTER TABLE agents DROP COLUMN mark;
DELETE FROM settings WHERE name = 'schema';
UPDATE memories SET features_checksum = features_checksum & 4294967295;
UPDATE changes SET kind = kind & 255;
PRAGMA user_version = 3;
"""
FORMAT_2_CHANGES = """
DROP INDEX by_id; DROP INDEX by_time; DROP INDEX by_step; DROP INDEX by_age; DROP INDEX tails;
ALTER TABLE memories DROP COLUMN indexed;
ALTER TABLE agents DROP COLUMN tail;
CREATE UNIQUE INDEX by_id ON memories (agent, id);
CREATE INDEX by_time ON memories (agent, created_at);
CREATE INDEX by_step ON memories (agent, step) WHERE step IS NOT NULL;
CREATE INDEX by_age ON memories (tier, stored_at) WHERE tier < 2;
PRAGMA user_version = 2;
"""


@pytest.fixture
def format_2(path: Path) -> Path:
    """A file of format 2 with three rows, made from a new one by taking away what format 3 added."""
    store = SQLiteStore(path)
    store.add([row("a"), row("b", tier=Tier.IM), row("c", created_at=5.0, stored_at=5.0)])
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(FORMAT_3_CHANGES + FORMAT_2_CHANGES)
    connection.close()
    return path


@pytest.fixture
def format_3(path: Path) -> Path:
    """A file of format 3 with a tail, made from a new one by taking away what format 4 added."""
    store = TailStore(path)
    store.add([row("a"), row("b", tier=Tier.IM), row("gone")])
    store.delete("ann", ["gone"])
    store.add([fresh("c")])
    store.add([fresh("d")])
    assert store.in_tails() == 1
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    connection.executescript(FORMAT_3_CHANGES)
    connection.close()
    return path


def test_a_file_of_format_3_is_migrated_with_its_tail(format_3: Path) -> None:
    for _ in range(2):
        store = TailStore(format_3)
        assert store.in_tails() == 1
        assert ids(everything(store)) == ["a", "b", "c", "d"]
        assert store.get_one("ann", "gone") is None
        assert store.check(lambda _: None) == (4, [])
        store.close()
    store = TailStore(format_3)
    assert store._connections.fetch("PRAGMA user_version") == [(FORMAT_VERSION,)]
    assert store.add([fresh("e")]) == [6]
    _, changes, columns = store.catch_up("ann", 0, 0)
    assert [change.kind for change in changes] == [ChangeKind.DELETED]
    assert len(columns.seq) == 5
    assert store.check(lambda _: None) == (5, [])
    store.close()


def test_a_file_of_format_3_is_read_as_it_is_when_it_is_opened_read_only(format_3: Path) -> None:
    before = format_3.read_bytes()
    store = SQLiteStore(format_3, read_only=True)
    assert ids(everything(store)) == ["a", "b", "c", "d"]
    assert sum(store.counts("ann").values()) == 4
    assert store.get_one("ann", "gone") is None
    assert store.check(lambda _: None) == (4, [])
    store.close()
    assert format_3.read_bytes() == before


def test_a_row_of_format_3_gets_the_new_checksum_when_it_moves(format_3: Path) -> None:
    store = SQLiteStore(format_3)
    assert store.move("ann", [move_of(2)], Tier.IM, Tier.LTM) == 1
    covered = store._connections.fetch("SELECT id FROM memories WHERE features_checksum >> 32")
    assert covered == [("b",)]
    assert store.check(lambda _: None) == (4, [])
    store.close()


def test_a_file_of_format_2_is_migrated(format_2: Path) -> None:
    for _ in range(2):
        store = TailStore(format_2)
        assert ids(everything(store)) == ["a", "b", "c"]
        assert store.check(lambda _: None) == (3, [])
        store.close()
    store = TailStore(format_2)
    assert store._connections.fetch("PRAGMA user_version") == [(FORMAT_VERSION,)]
    assert store.add([fresh("d"), fresh("e")]) == [4, 5]
    assert store.in_tails() == 1
    assert by_column(store, "created_at", None, 6) == ["c"]
    assert store.check(lambda _: None) == (5, [])
    store.close()


def test_a_file_of_format_2_is_read_as_it_is_when_it_is_opened_read_only(format_2: Path) -> None:
    before = format_2.read_bytes()
    store = SQLiteStore(format_2, read_only=True)
    assert ids(everything(store)) == ["a", "b", "c"]
    assert store.get_one("ann", "b").tier is Tier.IM
    assert ids(store.get("ann", ["a", "c", "x"])) == ["a", "c"]
    assert by_column(store, "created_at", None, None, limit=2) == ["c", "a"]
    assert store.stored_before(Tier.STM, 6.0, 9) == {"ann": [3]}
    assert store.counts() == tiers(stm=2, im=1)
    assert store.stored_total() == store.state("ann").last_seq == 3
    assert store.check(lambda _: None) == (3, [])
    store.close()
    assert format_2.read_bytes() == before
